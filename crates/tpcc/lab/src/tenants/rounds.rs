//! Rounds of the policies, which alternate on the same tenants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use itas::{CoreStatistics, GroupId, GroupStatistics, Progress, Report, Runtime};
use parking_lot::Mutex;
use storage::Services;

use super::background::Loop;
use super::report::{PolicyFigures, TenantsReport};
use super::tenant::{Tenant, TenantMix};
use super::terminal::TenantTerminal;
use super::{TenantPolicy, TenantsPlan, trace};
use crate::interval::Ratio;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::input::InputSpace;
use tpcc_core::workload::generate::nurand::Constants;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::settings::StoreConfig;

/// Maximum number of rounds of a policy, and minimum duration of a round. In shorter rounds, the start of the threads would
/// weigh too much.
const MAX_ROUNDS: usize = 9;
const MIN_ROUND: Duration = Duration::from_millis(100);
/// Minimum number of turns of a background loop in a round: one turn more or less must not determine the result.
const LOOP_TURNS: u32 = 3;
/// Minimum number of rounds that must remain if disturbed rounds are dropped.
const MIN_ROUNDS_LEFT: usize = 5;
/// Minimum share of the time that the threads of an undisturbed round had a processor.
const MIN_CPU_SHARE: f64 = 0.97;
/// Number of slices that each worker records for a policy.
const TRACED_SLICES: usize = 20_000;

/// A loaded database, which is copied for each tenant.
pub struct Warehouse {
    /// Database that is copied for each tenant.
    pub store: Store,
    /// Number of warehouses, sizes and constants of the load.
    pub loaded: Loaded,
    /// Settings with which the copies are opened.
    pub config: StoreConfig,
}

/// Result of a round.
struct RoundResult {
    transactions: f64,
    iterations: f64,
    seconds: f64,
    cpu_share: f64,
    report: Report,
}

/// Runs a plan. Tenants of the standard mix are copies of `warehouse`.
pub fn run(plan: &TenantsPlan, warehouse: Option<&Warehouse>) -> Result<TenantsReport, Error> {
    // All tenants share one set of service threads, so that services displace little data of the tenants from the caches.
    let services = Services::new().map_err(|error| Error::failed(error.to_string()))?;
    let tenants = (0..plan.tenants)
        .map(|_| match warehouse {
            Some(Warehouse { store, config, .. }) => Tenant::of_warehouse(store, config),
            None => Tenant::of_rows(plan.rows, plan.terminals, plan.mix, &services),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let world = warehouse.map(|Warehouse { loaded, .. }| {
        let constants = Constants::for_run(&mut Random::stream(plan.seed, u64::MAX), loaded.c_load);
        InputSpace { scale: loaded.scale, warehouses: loaded.warehouses, constants }
    });
    let measured = measure(plan, &tenants, world.as_ref());
    tenants.into_iter().try_for_each(Tenant::close)?;
    measured
}

/// Runtime, groups and results of a policy, kept over its rounds.
struct PolicyState {
    policy: TenantPolicy,
    runtime: Runtime,
    groups: Vec<GroupId>,
    rounds: Vec<RoundResult>,
}

fn measure(plan: &TenantsPlan, tenants: &[Tenant], world: Option<&InputSpace>) -> Result<TenantsReport, Error> {
    let traced = if plan.trace.is_some() { TRACED_SLICES } else { 0 };
    let mut states = Vec::new();
    for &policy in &plan.policies {
        let runtime = plan.runtime(policy, traced)?;
        let names = (0..plan.tenants).map(|n| format!("tenant {n}"));
        let names = names.chain((0..plan.background).map(|n| format!("loop {n}")));
        let groups = names
            .map(|name| runtime.groups().add(&name, itas::DEFAULT_WEIGHT, plan.aggregation))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::failed(error.to_string()))?;
        states.push(PolicyState { policy, runtime, groups, rounds: Vec::new() });
    }
    let rounds = round_count(plan);
    let length = plan.duration / rounds as u32;
    let mut context = RoundContext { plan, tenants, world, runs: 0 };
    for state in states.iter_mut().filter(|state| state.policy == TenantPolicy::Auto) {
        // An automatic runtime first runs the modes that it compares, until it has chosen one.
        let longest = (60 * plan.cycle()).clamp(Duration::from_secs(1), Duration::from_secs(8));
        let begun = Instant::now();
        while state.runtime.chosen_mode().is_none() && begun.elapsed() < longest {
            context.round(state, longest / 4)?;
        }
    }
    for round in 0..rounds {
        for turn in 0..states.len() {
            let at = (round + turn) % states.len();
            let state = &mut states[at];
            let measured = context.round(state, length)?;
            state.rounds.push(measured);
        }
    }
    if let Some(path) = &plan.trace {
        let of: Vec<_> =
            states.iter().map(|state| (state.policy.name(), state.runtime.groups(), &state.rounds[0].report)).collect();
        trace::write(path, &of)?;
    }
    Ok(make_report(plan, &states, rounds))
}

/// Returns the number of rounds of a policy.
fn round_count(plan: &TenantsPlan) -> usize {
    let turns = if plan.background > 0 { LOOP_TURNS * plan.fiber_cycle() } else { Duration::ZERO };
    let shortest = MIN_ROUND.max(turns);
    ((plan.duration.as_secs_f64() / shortest.as_secs_f64()) as usize).clamp(1, MAX_ROUNDS)
}

/// Inputs that all rounds share, and the number of rounds so far.
struct RoundContext<'a> {
    plan: &'a TenantsPlan,
    tenants: &'a [Tenant],
    world: Option<&'a InputSpace>,
    runs: u32,
}

impl RoundContext<'_> {
    /// Runs all tenants under a policy for `length`, after a warm-up of a fifth of `length`.
    fn round(&mut self, state: &mut PolicyState, length: Duration) -> Result<RoundResult, Error> {
        if interrupt::requested() {
            return Err(Error::failed("tenants: interrupted"));
        }
        self.runs += 1;
        let RoundContext { plan, tenants, world, runs } = *self;
        let fibers = plan.tenants * plan.terminals;
        let counts: Vec<CachePadded<AtomicU64>> =
            (0..fibers + plan.background).map(|_| CachePadded::default()).collect();
        let total = || {
            let sum =
                |counts: &[CachePadded<AtomicU64>]| counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            let (transactions, iterations): (u64, u64) = (sum(&counts[..fibers]), sum(&counts[fibers..]));
            (transactions, iterations, Instant::now())
        };
        let (stop, failure) = (AtomicBool::new(false), Mutex::new(None));
        let mut order: Vec<usize> = (0..counts.len()).collect();
        Random::stream(plan.seed, u64::from(runs)).shuffle(&mut order);
        let groups = &state.groups;
        let ran = state.runtime.run(|spawner| {
            for &number in &order {
                let (stop, failure, count) = (&stop, &failure, &counts[number]);
                let spawned = if number < fibers {
                    let (tenant, at) = (number % plan.tenants, number as u32);
                    let way = (plan.mix, plan.access);
                    let mut terminal = TenantTerminal::new(&tenants[tenant], world, way, (at, runs, plan.seed));
                    let work = move || {
                        if let Err(error) = terminal.transact() {
                            failure.lock().get_or_insert(error);
                            stop.store(true, Ordering::Relaxed);
                        }
                        count_operation(count, stop)
                    };
                    spawner.spawn_work(groups[tenant], work)
                } else {
                    let mut program = Loop::new();
                    let work = move || {
                        program.iterate();
                        count_operation(count, stop)
                    };
                    spawner.spawn_work(groups[plan.tenants + number - fibers], work)
                };
                if let Err(error) = spawned {
                    failure.lock().get_or_insert(Error::failed(error.to_string()));
                }
            }
            sleep_unless_stopped(length / 5, &stop);
            let before = total();
            sleep_unless_stopped(length, &stop);
            let after = total();
            stop.store(true, Ordering::Relaxed);
            (before, after)
        });
        let ((before, after), report) = ran.map_err(|error| Error::failed(error.to_string()))?;
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        let cpu: f64 = report.cpu.iter().map(Duration::as_secs_f64).sum();
        Ok(RoundResult {
            transactions: (after.0 - before.0) as f64,
            iterations: (after.1 - before.1) as f64,
            seconds: (after.2 - before.2).as_secs_f64(),
            cpu_share: cpu / (report.elapsed.as_secs_f64() * plan.workers as f64),
            report,
        })
    }
}

/// Counts an operation of a fiber. The fiber is done if the round stops.
fn count_operation(count: &AtomicU64, stop: &AtomicBool) -> Progress {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    if stop.load(Ordering::Relaxed) { Progress::Done } else { Progress::More }
}

/// Sleeps for `time`, or until the round stops.
fn sleep_unless_stopped(time: Duration, stop: &AtomicBool) {
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) && !interrupt::requested() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

fn make_report(plan: &TenantsPlan, states: &[PolicyState], rounds: usize) -> TenantsReport {
    let undisturbed: Vec<usize> =
        (0..rounds).filter(|&n| states.iter().all(|state| state.rounds[n].cpu_share >= MIN_CPU_SHARE)).collect();
    let kept = if undisturbed.len() >= MIN_ROUNDS_LEFT { undisturbed } else { (0..rounds).collect() };
    let figures = |state: &PolicyState| (state.policy.name().to_owned(), figures(plan, state, &kept));
    let rates = |state: &PolicyState| -> Vec<f64> {
        kept.iter().map(|&n| state.rounds[n].transactions / state.rounds[n].seconds).collect()
    };
    let mut ratios = BTreeMap::new();
    if let Some(fair) = states.iter().find(|state| state.policy == TenantPolicy::Fair) {
        for state in states.iter().filter(|state| state.policy != TenantPolicy::Fair) {
            ratios.insert(state.policy.name().to_owned(), Ratio::of(&rates(state), &rates(fair)));
        }
    }
    let part = |of: fn(&Ratio) -> f64| ratios.iter().map(|(name, ratio)| (name.clone(), of(ratio))).collect();
    TenantsReport {
        schema: schema_of("tenants"),
        tenants: plan.tenants,
        terminals_per_tenant: plan.terminals,
        rows: (plan.mix != TenantMix::Tpcc).then_some(plan.rows),
        access: format!("{:?}", plan.access).to_lowercase(),
        mix: format!("{:?}", plan.mix).to_lowercase(),
        background: plan.background,
        workers: plan.workers,
        slice_us: plan.slice.as_secs_f64() * 1e6,
        agg_limit: plan.aggregation.limit,
        agg_bonus_us: plan.aggregation.bonus.as_secs_f64() * 1e6,
        seed: plan.seed,
        rounds: kept.len(),
        rounds_dropped: rounds - kept.len(),
        policies: states.iter().map(figures).collect(),
        ratio: part(|ratio| ratio.value),
        ratio_low: part(|ratio| ratio.low),
        ratio_high: part(|ratio| ratio.high),
    }
}

fn figures(plan: &TenantsPlan, state: &PolicyState, kept: &[usize]) -> PolicyFigures {
    let rounds = || kept.iter().map(|&n| &state.rounds[n]);
    let sum = |of: &dyn Fn(&RoundResult) -> f64| rounds().map(of).sum::<f64>();
    let seconds = sum(&|round| round.seconds);
    let mut total = CoreStatistics::default();
    rounds().for_each(|round| total.add(&round.report.total()));
    let mut waits = GroupStatistics::default();
    total.groups.iter().for_each(|group| waits.add(group));
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let longest = rounds()
        .flat_map(|round| round.report.cores.iter().zip(&round.report.wait_bounds))
        .map(|(core, bound)| (core.longest_wait_ns(), us(*bound)))
        .max_by_key(|(wait, _)| *wait)
        .unwrap_or((0, 0.0));
    // Statistics cover whole rounds, warm-ups included.
    let elapsed: f64 = rounds().map(|round| round.report.elapsed.as_secs_f64()).sum();
    PolicyFigures {
        throughput_per_s: sum(&|round| round.transactions) / seconds,
        jain: total.jain(|group| group < plan.tenants),
        max_wait_us: longest.0 as f64 / 1e3,
        wait_bound_us: longest.1,
        wait_to_bound: rounds().map(|round| round.report.longest_wait_to_bound()).fold(0.0, f64::max),
        wait_p50_us: us(waits.wait_quantile(0.5)),
        wait_p99_us: us(waits.wait_quantile(0.99)),
        group_switches: total.switches_between as f64 / elapsed,
        sibling_switches: total.switches_within as f64 / elapsed,
        overruns: waits.overruns,
        background_per_s: (plan.background > 0).then(|| sum(&|round| round.iterations) / seconds),
        chosen: state.runtime.chosen_mode().map(|mode| mode.name().to_owned()),
        cpu_share: sum(&|round| round.cpu_share) / kept.len().max(1) as f64,
    }
}
