//! Measures the time of one transaction in four ways: on one core, without and with announcing groups of rows; and with its
//! loop in epochs, on one core and on several (after the TLS paper: Colohan, Ailamaki, Steffan, Mowry, TOCS 2008).
//!
//! Each way is a variant with its own copy of the database in memory; all run the same inputs. The variants alternate in
//! short blocks, so that disturbances of the machine affect all of them. At the end all copies must hold the same rows.

pub mod dependence;
mod ideal;
mod report;
pub mod simulation;
mod variant;

pub use report::{LatencyReport, PerWay, RatioRange, RatiosToAnnounced, TrialTimes, WayReport};
pub use variant::Way;

use std::time::Instant;

use hdrhistogram::Histogram;

use self::simulation::{MeasuredMeans, SimulationInput, TracedTransaction};
use self::variant::{TrialInput, Variant};
use crate::interval::Ratio;
use tpcc_core::engines::storage::in_order::{EpochLength, TransactionLoop};
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::input::InputSpace;
use tpcc_core::workload::generate::nurand::Constants;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::settings::{Speculate, StoreConfig};
use tpcc_core::workload::time::nanos;

/// Transaction to which speculation is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LatencyMix {
    /// 5 to 15 lines, which are the loop
    NewOrder,
    /// 50 to 150 lines
    #[value(name = "new-order-150")]
    NewOrder150,
    /// lines of each delivered order are the loop
    Delivery,
    /// districts are the loop
    DeliveryOuter,
    /// the last twenty orders are the loop
    StockLevel,
    /// warehouse with district, and customer, are the loop
    Payment,
    /// lines of the order are the loop
    OrderStatus,
}

impl LatencyMix {
    /// Returns the loop of the transaction that runs in epochs.
    pub fn of_loop(self) -> TransactionLoop {
        match self {
            LatencyMix::NewOrder => TransactionLoop::OrderLines,
            LatencyMix::NewOrder150 => TransactionLoop::LongOrderLines,
            LatencyMix::Delivery => TransactionLoop::DeliveredLines,
            LatencyMix::DeliveryOuter => TransactionLoop::Districts,
            LatencyMix::StockLevel => TransactionLoop::RecentOrders,
            LatencyMix::Payment => TransactionLoop::Accounts,
            LatencyMix::OrderStatus => TransactionLoop::StatusLines,
        }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct LatencyPlan {
    /// Transaction to run.
    pub mix: LatencyMix,
    /// Number of threads of a loop.
    pub epoch_workers: usize,
    /// Condition for running loops in epochs: always, or by decision of the governor.
    pub speculate: Speculate,
    /// Number of iterations of an epoch; `None` if the governor decides.
    pub grain: Option<usize>,
    /// Number of transactions of each variant.
    pub transactions: u64,
    /// Seed of the inputs and of the injected violations.
    pub seed: u64,
    /// Probability of an injected violation, for each row that an epoch uses.
    pub inject: f64,
    /// If true, simulates other numbers of processors.
    pub simulate: bool,
    /// The only way to run, if any.
    pub only: Option<Way>,
}

/// Condition for running loops in epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LatencySpeculate {
    /// loops run in epochs in every transaction
    On,
    /// loops run in epochs if the governor finds that faster
    Auto,
}

impl LatencyPlan {
    /// Returns the number of copies of the database in memory at the same time.
    pub fn copies(&self) -> u64 {
        if self.only.is_some() {
            return 1;
        }
        let traced = if self.simulate { TRACED.len() } else { 0 };
        (Way::ALL.len() + traced + self.independent()) as u64
    }

    /// Returns the number of independent transactions at the same time that are compared with the loop: none if it runs on one
    /// core.
    fn independent(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.epoch_workers == 1 { 0 } else { self.epoch_workers.min(cores).min(self.block() as usize) }
    }

    /// Returns the number of measured transactions of a block.
    fn block(&self) -> u64 {
        (self.transactions / BLOCKS).clamp(BLOCK_TRANSACTIONS.0, BLOCK_TRANSACTIONS.1)
    }
}

/// Number of measured transactions of a variant before the next variant runs: at least, and at most.
const BLOCK_TRANSACTIONS: (u64, u64) = (4, 20);
/// Least number of blocks, if the number of transactions allows it.
const BLOCKS: u64 = 10;
/// Number of transactions of each variant at the begin of a block that are not measured: the caches still hold another variant's
/// database, and the threads of a loop sleep.
const BLOCK_WARM_UP: usize = 4;
/// Ratio of the number of measured blocks to the number of warm-up blocks, which are not measured.
const WARM_UP_DIVISOR: u64 = 20;
/// A variant whose loops are traced, to simulate a number of processors.
struct TracedVariant {
    threads: usize,
    /// Number of simulated processors.
    processors: usize,
    /// Number of epochs into which the iterations of a loop are divided.
    epochs: usize,
}

const TRACED: [TracedVariant; 4] = [
    TracedVariant { threads: 1, processors: 1, epochs: 2 },
    TracedVariant { threads: 2, processors: 2, epochs: 2 },
    TracedVariant { threads: 2, processors: 4, epochs: 4 },
    TracedVariant { threads: 2, processors: 8, epochs: 8 },
];
/// Approximate number of traces that are kept for each traced variant.
const TRACED_TRANSACTIONS: u64 = 400;

/// Runs a plan on copies of the database in memory.
pub fn run(
    plan: &LatencyPlan,
    config: &StoreConfig,
    database: &Store,
    loaded: &Loaded,
) -> Result<LatencyReport, Error> {
    let ways = Way::ALL.map(|way| way.store_config(config, plan));
    let traced = TRACED.iter().filter(|_| plan.simulate).map(|of| {
        let mut config = StoreConfig { loop_threads: of.threads, ..Way::TlsSeq.store_config(config, plan) };
        config.loops.trace = true;
        config
    });
    let independent = (0..plan.independent()).map(|_| Way::SequentialPrefetch.store_config(config, plan));
    let stores = ways
        .into_iter()
        .chain(traced)
        .chain(independent)
        .map(|config| database.copy_in_memory(&config, None))
        .collect::<Result<Vec<_>, _>>()?;
    let measured = measure(plan, &stores, loaded)?;
    stores.into_iter().try_for_each(Database::close)?;
    Ok(measured)
}

/// Runs one way alone, on a copy of the database in memory, to count its instructions from outside.
pub fn run_alone(
    way: Way,
    plan: &LatencyPlan,
    config: &StoreConfig,
    database: &Store,
    loaded: &Loaded,
) -> Result<WayReport, Error> {
    let store = database.copy_in_memory(&way.store_config(config, plan), None)?;
    let mut variant = Variant::of_way(way, &store, plan);
    let mut inputs = Inputs::new(plan, loaded);
    let mut times = TimeHistogram::new();
    for n in 0..plan.transactions {
        if n.is_multiple_of(plan.block()) {
            check_interrupt()?;
            variant.run_services()?;
        }
        times.add(timed(&mut variant, &inputs.next())?);
    }
    let report = WayReport {
        schema: schema_of("latency-way"),
        mix: name_of(plan.mix),
        only: name_of(way),
        transactions: times.number,
        times: times.times(),
    };
    store.close().map_err(|error| Error::failed(error.to_string()))?;
    Ok(report)
}

/// Inputs of the transactions.
struct Inputs {
    mix: LatencyMix,
    world: InputSpace,
    random: Random,
    /// Number of inputs that have been drawn.
    drawn: u64,
}

impl Inputs {
    fn new(plan: &LatencyPlan, loaded: &Loaded) -> Inputs {
        let constants = Constants::for_run(&mut Random::stream(plan.seed, u64::MAX), loaded.c_load);
        let world = InputSpace { scale: loaded.scale, warehouses: loaded.warehouses, constants };
        Inputs { mix: plan.mix, world, random: Random::stream(plan.seed, 1), drawn: 0 }
    }

    /// Draws the input of the next transaction.
    fn next(&mut self) -> TrialInput {
        self.drawn += 1;
        let w = self.random.in_range(1, self.world.warehouses);
        TrialInput::draw(self.mix, &self.world, &mut self.random, w, self.drawn)
    }

    /// Draws the inputs of a block: those that are not measured, and the `number` that are.
    fn block(&mut self, number: u64) -> (Vec<TrialInput>, Vec<TrialInput>) {
        let warm_up = (0..BLOCK_WARM_UP).map(|_| self.next()).collect();
        (warm_up, (0..number).map(|_| self.next()).collect())
    }
}

/// Runs a transaction and returns its time in nanoseconds.
fn timed(variant: &mut Variant<'_>, job: &TrialInput) -> Result<u64, Error> {
    let begun = Instant::now();
    variant.transact(job)?;
    Ok(nanos(begun.elapsed()))
}

fn check_interrupt() -> Result<(), Error> {
    if interrupt::requested() { Err(Error::failed("latency: interrupted")) } else { Ok(()) }
}

/// What a measurement has recorded: for each way the times, and the sum of the times of each block.
struct Recorded {
    times: [TimeHistogram; Way::ALL.len()],
    sums: [Vec<f64>; Way::ALL.len()],
    /// Times of the blocks whose transactions have run independently, at the same time.
    independent: Vec<f64>,
    /// Traced transactions of each of [`TRACED`].
    traces: [Vec<TracedTransaction>; TRACED.len()],
    /// Number of iterations of all loops.
    items: u64,
}

fn measure(plan: &LatencyPlan, stores: &[Store], loaded: &Loaded) -> Result<LatencyReport, Error> {
    let (of_ways, others) = stores.split_at(Way::ALL.len());
    let (of_traced, of_independent) = others.split_at(others.len() - plan.independent());
    let mut ways: Vec<Variant<'_>> =
        of_ways.iter().zip(Way::ALL).map(|(store, way)| Variant::of_way(way, store, plan)).collect();
    let of_traced_with_epochs = of_traced.iter().zip(TRACED);
    let mut traced: Vec<Variant<'_>> =
        of_traced_with_epochs.map(|(store, of)| Variant::in_epochs(store, Speculate::On, of.epochs, plan)).collect();
    let mut independent: Vec<Variant<'_>> = of_independent.iter().map(Variant::on_one_core).collect();

    let mut inputs = Inputs::new(plan, loaded);
    let each = plan.block();
    let blocks = plan.transactions.div_ceil(each);
    let speculative = Way::Speculative as usize;
    let warm = blocks.div_ceil(WARM_UP_DIVISOR).max(ways[speculative].warm_up().div_ceil(each));
    let mut recorded = Recorded {
        times: std::array::from_fn(|_| TimeHistogram::new()),
        sums: Default::default(),
        independent: Vec::new(),
        traces: Default::default(),
        items: 0,
    };
    let mut counted = LoopCounts::default();
    // Traces are spread over the whole run, because the database changes during it.
    let every = (plan.transactions / TRACED_TRANSACTIONS).max(1);
    for block in 0..warm + blocks {
        check_interrupt()?;
        let (warm_up, jobs) = inputs.block(each);
        let is_measured = block >= warm;
        // The order rotates from block to block, so that each variant runs at each position.
        let turns = ways.len() + traced.len() + usize::from(!independent.is_empty());
        for turn in 0..turns {
            let index = (turn + block as usize) % turns;
            if let Some(variant) = ways.get_mut(index) {
                variant.run_services()?;
                warm_up.iter().try_for_each(|job| variant.transact(job))?;
                let before = (is_measured && index == speculative).then(|| LoopCounts::of(&of_ways[index]));
                let mut sum = 0;
                for job in &jobs {
                    let ns = timed(variant, job)?;
                    sum += ns;
                    if is_measured {
                        recorded.times[index].add(ns);
                    }
                }
                if is_measured {
                    recorded.sums[index].push(sum as f64);
                }
                if let Some(before) = before {
                    counted.add(&LoopCounts::of(&of_ways[index]), &before);
                }
            } else if let Some(variant) = traced.get_mut(index - ways.len()) {
                variant.run_services()?;
                warm_up.iter().try_for_each(|job| variant.transact(job))?;
                variant.take_traces();
                for (job, number) in jobs.iter().zip(block * each + 1..) {
                    let ns = timed(variant, job)?;
                    let loops = variant.take_traces();
                    if is_measured && number.is_multiple_of(every) {
                        recorded.traces[index - Way::ALL.len()].push(TracedTransaction::new(ns, loops));
                    }
                }
            } else {
                let ns = ideal::run_apart(&mut independent, &warm_up, &jobs)?;
                if is_measured {
                    recorded.independent.push(ns);
                }
            }
        }
        recorded.items += if is_measured { jobs.iter().map(TrialInput::items).sum::<u64>() } else { 0 };
    }
    let empty_loop_us = (ways[Way::TlsSeq as usize].fork_join_us()?, ways[speculative].fork_join_us()?);
    // Each independent database has run the transactions in another order, so it is not compared.
    let prints = of_ways.iter().chain(of_traced).map(fingerprint).collect::<Result<Vec<_>, _>>()?;
    Ok(conclude(plan, loaded, recorded, &counted, empty_loop_us, ways[speculative].length(), &prints))
}

/// Counters of the loops of a database.
#[derive(Default)]
struct LoopCounts {
    epochs: u64,
    violations: u64,
    injected: u64,
}

impl LoopCounts {
    fn of(store: &Store) -> LoopCounts {
        let stats = store.database().stats();
        let injected = store.database().injected_repeats();
        LoopCounts { epochs: stats.loop_epochs, violations: stats.loop_repeats, injected }
    }

    /// Adds what was counted between two readings.
    fn add(&mut self, after: &LoopCounts, before: &LoopCounts) {
        self.epochs += after.epochs - before.epochs;
        self.violations += after.violations - before.violations;
        self.injected += after.injected - before.injected;
    }
}

/// Computes the report of a measurement.
fn conclude(
    plan: &LatencyPlan,
    loaded: &Loaded,
    recorded: Recorded,
    counted: &LoopCounts,
    empty_loop_us: (f64, f64),
    length: Option<EpochLength>,
    prints: &[String],
) -> LatencyReport {
    let Recorded { times, sums, independent, traces, items } = recorded;
    let [sequential, sequential_prefetch, tls_seq, speculative] = times.each_ref().map(TimeHistogram::times);
    let to = |base: Way, of: &[f64]| Ratio::of(of, &sums[base as usize]);
    let ratios =
        [Way::SequentialPrefetch, Way::TlsSeq, Way::Speculative].map(|way| to(Way::Sequential, &sums[way as usize]));
    let per_way = |pick: fn(&Ratio) -> f64| {
        let [sequential_prefetch, tls_seq, speculative] = ratios.each_ref().map(pick);
        PerWay { sequential_prefetch, tls_seq, speculative }
    };
    let to_announced = |of: &[f64]| RatioRange::from(to(Way::SequentialPrefetch, of));
    let simulation = plan.simulate.then(|| {
        let measured = MeasuredMeans {
            sequential_us: sequential.mean_us,
            tls_seq_us: tls_seq.mean_us,
            speculative: (plan.speculate == Speculate::On).then_some((plan.epoch_workers, speculative.mean_us)),
        };
        simulation::run(&SimulationInput { traces, empty_loop_us }, &measured)
    });
    LatencyReport {
        schema: schema_of("latency"),
        mix: name_of(plan.mix),
        warehouses: loaded.warehouses,
        epoch_workers: plan.epoch_workers,
        speculate: plan.speculate.name().to_owned(),
        grain: plan.grain,
        epochs_each: match length {
            Some(EpochLength::Epochs(number)) => Some(number),
            _ => None,
        },
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        transactions: times[0].number,
        iterations: items,
        seed: plan.seed,
        inject_violations: plan.inject,
        sequential,
        sequential_prefetch,
        tls_seq,
        speculative,
        ratio: per_way(|ratio| ratio.value),
        ratio_low: per_way(|ratio| ratio.low),
        ratio_high: per_way(|ratio| ratio.high),
        ratio_to_announced: RatiosToAnnounced {
            tls_seq: to_announced(&sums[Way::TlsSeq as usize]),
            speculative: to_announced(&sums[Way::Speculative as usize]),
        },
        ideal: (!independent.is_empty()).then(|| to_announced(&independent)),
        epochs: counted.epochs,
        violations: counted.violations,
        injected: counted.injected,
        fork_join_us: empty_loop_us.1,
        simulation,
        equal: prints.iter().all(|print| *print == prints[0]),
        fingerprint: prints[0].clone(),
    }
}

/// Returns the name of a value, as typed on the command line.
pub fn name_of(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn fingerprint(store: &Store) -> Result<String, Error> {
    let mut look = |_| {
        if interrupt::requested() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    };
    Database::fingerprint(store, &mut look)?.ok_or_else(|| Error::failed("latency: interrupted"))
}

/// Distribution of the times of one variant.
struct TimeHistogram {
    sum: u64,
    number: u64,
    histogram: Histogram<u64>,
}

impl TimeHistogram {
    fn new() -> TimeHistogram {
        // 1 ns to 2 minutes with three digits: the library accepts these bounds.
        let histogram = Histogram::new_with_bounds(1, 120_000_000_000, 3)
            .unwrap_or_else(|_| unreachable!("the bounds are in its range"));
        TimeHistogram { sum: 0, number: 0, histogram }
    }

    fn add(&mut self, ns: u64) {
        self.sum += ns;
        self.number += 1;
        self.histogram.saturating_record(ns);
    }

    fn times(&self) -> TrialTimes {
        let us = |ns: u64| ns as f64 / 1e3;
        TrialTimes {
            mean_us: us(self.sum) / self.number as f64,
            p50_us: us(self.histogram.value_at_quantile(0.5)),
            p99_us: us(self.histogram.value_at_quantile(0.99)),
        }
    }
}
