//! Settings of the laboratory's commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tpcc_core::checkers::history;
use tpcc_core::driver::RunPlan;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::{
    Admission, Background, ClockKind, Durability, HistoryForm, Length, Partition, Scheduler, Scheduling, Speculate,
    StoreConfig, Switch,
};
use tpcc_core::workload::txn::StepOrder;
use tpcc_core::workload::words::counted;
use tpcc_lab::latency::{LatencyPlan, LatencySpeculate, Way, name_of};
use tpcc_lab::tenants::{Access, TenantMix, TenantsPlan};

use super::{DATA, cores, on_disk, refuse_ineffective, scheduling, with_latches};
use crate::cli::flags::SchedulingFlags;
use crate::cli::flags::lab::{FootprintFlags, HistoryFlags, LatencyFlags, TenantsFlags};
use crate::cli::flags::shell::ShellFlags;
use crate::cli::memory;

/// Settings of `tpcc history`.
#[derive(Clone, Debug)]
pub(crate) struct HistoryConfig {
    /// Settings of the engine.
    pub(crate) store: StoreConfig,
    /// Parameters of the random workload.
    pub(crate) params: history::Params,
    /// Kind of the sessions: threads, fibers, or threads with speculation.
    pub(crate) kind: history::SessionKind,
    /// Description of the scheduler of the sessions, for the summary.
    pub(crate) scheduler: String,
    /// Form of the history, as given.
    pub(crate) form: HistoryForm,
    /// File of the history.
    pub(crate) out: PathBuf,
}

/// Resolves the child process that `tpcc footprint` traces: one worker, which also does the background work of the engine.
pub(crate) fn traced(flags: &FootprintFlags) -> (StoreConfig, RunPlan) {
    let defaults = StoreConfig::defaults(flags.data.as_deref().unwrap_or(Path::new(DATA)), 1);
    let config = StoreConfig {
        durability: Durability::Async,
        prefetch: flags.prefetch.is_on(),
        preload: true,
        background: Background::Inline,
        latches: flags.traced.latches,
        // At least the default, and 256 MiB plus 200 MiB for each warehouse.
        buffer_pool_mib: defaults.buffer_pool_mib.max(256 + 200 * u64::from(flags.traced.of_warehouses)),
        ..defaults
    };
    let plan = RunPlan {
        warehouses: flags.traced.of_warehouses,
        workers: 1,
        terminals: flags.traced.of_warehouses.saturating_mul(flags.traced.of_terminals),
        mix: flags.mix,
        steps: StepOrder::HotLast,
        length: Length { warmup: Duration::ZERO, duration: None, transactions: None },
        seed: flags.random.seed,
        admission: Admission::Fifo,
        placement: itas::Placement::Packed,
        pin: false,
        counters: false,
        clock: ClockKind::Real,
    };
    (config, plan)
}

/// Resolves `tpcc latency`. The measuring thread does the background work of its databases.
pub(crate) fn latency(flags: &LatencyFlags) -> Result<(StoreConfig, LatencyPlan), Error> {
    let config = on_disk("latency", flags.directory.data.as_deref(), &flags.engine, Some(1))?;
    let speculate = match flags.speculate {
        LatencySpeculate::On => Speculate::On,
        LatencySpeculate::Auto => Speculate::Auto,
    };
    let decided = [("--grain", flags.grain.is_some() && speculate == Speculate::Auto)];
    refuse_ineffective(&decided, "--speculate auto", "the governor decides it; leave one of the two out")?;
    if let Some(way) = flags.only {
        let (in_epochs, several) = (matches!(way, Way::TlsSeq | Way::Speculative), way == Way::Speculative);
        let flags_of_loops = [
            ("--grain", flags.grain.is_some() && !in_epochs),
            ("--inject-violations", flags.inject_violations > 0.0 && !several),
            ("--speculate auto", speculate == Speculate::Auto && !several),
        ];
        refuse_ineffective(&flags_of_loops, &format!("--only {}", name_of(way)), "leave one of the two out")?;
    }
    let plan = LatencyPlan {
        mix: flags.mix,
        epoch_workers: flags.epoch_workers,
        speculate,
        grain: flags.grain,
        transactions: flags.transactions,
        seed: flags.random.seed,
        inject: flags.inject_violations,
        simulate: flags.simulate,
        only: flags.only,
    };
    Ok((StoreConfig { durability: Durability::Async, background: Background::Inline, ..config }, plan))
}

/// Resolves `tpcc tenants`.
pub(crate) fn tenants(flags: &TenantsFlags) -> Result<TenantsPlan, Error> {
    if flags.mix == TenantMix::Tpcc {
        // --rows and --access uniform are accepted without effect, so that mixes can be compared under the same flags. A
        // warehouse has its own rows and its own distribution of accesses.
        let other = flags.access.is_some_and(|access| access != Access::Uniform);
        refuse_ineffective(&[("--access", other)], "--mix tpcc", "the mix has its own; leave it out")?;
    }
    let mut policies = Vec::new();
    for &policy in &flags.policy {
        if policies.contains(&policy) {
            return Err(Error::usage(format!("--policy: {} twice", policy.name())).help("name each policy once"));
        }
        policies.push(policy);
    }
    let fibers = flags.tenants * flags.terminals_per_tenant + flags.background;
    if fibers > 60_000 {
        return Err(Error::usage(format!("--tenants, --terminals-per-tenant: {fibers} fibers"))
            .help("at most 60,000 in all: each has a stack"));
    }
    let plan = TenantsPlan {
        tenants: flags.tenants,
        terminals: flags.terminals_per_tenant,
        rows: flags.rows.unwrap_or(8192),
        access: flags.access.unwrap_or(Access::Uniform),
        mix: flags.mix,
        background: flags.background,
        policies,
        workers: flags.workers,
        slice: Duration::from_micros(flags.slice_us),
        aggregation: itas::Aggregation { bonus: Duration::from_micros(flags.agg_bonus_us), limit: flags.agg_limit },
        duration: flags.duration,
        seed: flags.random.seed,
        trace: flags.trace.clone(),
    };
    memory::lab::of_tenants(&plan)?;
    Ok(plan)
}

/// Resolves `tpcc history`.
pub(crate) fn history(flags: HistoryFlags) -> Result<HistoryConfig, Error> {
    let most = history::Params::MOST_TRANSACTIONS / u64::from(flags.sessions);
    let transactions = check_maximum("--transactions", flags.transactions, most, "--transactions")?;
    let params = history::Params {
        form: match flags.form {
            HistoryForm::ListAppend => history::Form::ListAppend,
            HistoryForm::Register => history::Form::Register,
        },
        sessions: flags.sessions,
        transactions: transactions as u32,
        keys: flags.keys,
        isolation: flags.isolation.of_storage(),
        abort_percent: flags.abort_percent,
        range: history::Params::RANGE,
        list_full: history::Params::LIST_FULL,
        seed: flags.seed,
    };
    let store = StoreConfig {
        buffer_pool_mib: flags.buffer_pool,
        durability: flags.durability,
        isolation: flags.isolation,
        prefetch: false,
        checkpoint_mib: 64,
        own_frames: frames_of_sessions(flags.partition)?,
        loop_threads: if flags.speculate == Switch::On { SESSION_LOOP_THREADS } else { 1 },
        ..with_latches(StoreConfig::defaults(&flags.data, params.sessions as usize), &flags.latches)?
    };
    memory::lab::of_history(&store, &params).check()?;
    let (kind, scheduler) = match flags.speculate {
        Switch::Off => session_kind(&flags.scheduling, flags.workers, params.sessions)?,
        Switch::On => sessions_in_loops(&flags)?,
    };
    Ok(HistoryConfig { store, params, kind, scheduler, form: flags.form, out: flags.out })
}

/// Returns true if the threads of a history's sessions have frames of their own. Refuses client partitioning.
fn frames_of_sessions(partition: Partition) -> Result<bool, Error> {
    if partition.divides_clients() {
        let what = format!("--partition {}: means nothing here", partition.name());
        return Err(Error::usage(what).help("sessions of a history share all rows; pass none or server"));
    }
    Ok(partition.divides_server())
}

/// Settings of `tpcc shell`.
#[derive(Debug)]
pub(crate) struct ShellConfig {
    pub(crate) store: StoreConfig,
    /// Teams or sibling groups whose fibers run the sessions; `None` if sessions are threads.
    pub(crate) teams: Option<history::Teams>,
    pub(crate) table: String,
}

/// Resolves `tpcc shell`.
pub(crate) fn shell(flags: ShellFlags) -> Result<ShellConfig, Error> {
    let store = on_disk("shell", flags.data.as_deref(), &flags.engine, Some(1))?;
    let store = with_latches(store, &flags.latches)?;
    let teams = teams(&scheduling(&flags.scheduling)?, 1)?;
    Ok(ShellConfig { store, teams, table: flags.table })
}

/// Returns the teams or sibling groups whose fibers run sessions on `workers` threads; `None` if sessions are threads.
fn teams(scheduling: &Scheduling, workers: usize) -> Result<Option<history::Teams>, Error> {
    match scheduling {
        Scheduling::Threads => Ok(None),
        Scheduling::Steps { team_size, teams_of, points } => {
            history::Teams::as_run(workers, *team_size, *teams_of, points).map(Some)
        }
        Scheduling::Itas { policy, slice_us, .. } => {
            history::Teams::of_siblings(workers, policy.mode(), Duration::from_micros(*slice_us)).map(Some)
        }
    }
}

/// Checks a number of `tpcc history` whose maximum depends on another flag.
fn check_maximum(flag: &str, given: u64, most: u64, explained: &str) -> Result<u64, Error> {
    if given <= most {
        return Ok(given);
    }
    let help = format!("'tpcc history --help' explains {explained}");
    Err(Error::usage(format!("{flag} {given}: at most {most}")).help(help))
}

/// Number of threads of a loop of a session.
const SESSION_LOOP_THREADS: usize = 2;

/// Resolves sessions whose steps are loops on several threads. Returns their kind and its description.
fn sessions_in_loops(flags: &HistoryFlags) -> Result<(history::SessionKind, String), Error> {
    use storage::Isolation::Serializable;
    let scheduler = flags.scheduling.scheduler;
    let help = "fibers of a worker share its core; leave one of the two out";
    let with = format!("--scheduler {}", scheduler.name());
    refuse_ineffective(&[("--speculate", scheduler != Scheduler::Threads)], &with, help)?;
    let help = "a step that runs again would draw another version; pass --form list-append, or leave --speculate out";
    refuse_ineffective(&[("--speculate", flags.form == HistoryForm::Register)], "--form register", help)?;
    let help = "statements in a loop are serializable; leave one of the two out";
    let with = format!("--isolation {}", flags.isolation.name());
    refuse_ineffective(&[("--speculate", flags.isolation.of_storage() != Serializable)], &with, help)?;
    let (_, threads) = session_kind(&flags.scheduling, flags.workers, flags.sessions)?;
    Ok((history::SessionKind::InLoops, format!("{threads}, steps in loops on {SESSION_LOOP_THREADS} threads")))
}

/// Resolves the sessions of `tpcc history` without speculation. Returns their kind and its description.
fn session_kind(
    flags: &SchedulingFlags,
    workers: Option<u64>,
    sessions: u32,
) -> Result<(history::SessionKind, String), Error> {
    use history::SessionKind::{Fibers, Threads};
    let scheduling = scheduling(flags)?;
    if let Scheduling::Threads = scheduling {
        if workers.is_some() {
            return Err(Error::usage("--workers: means nothing with --scheduler threads")
                .help("every session has a thread of its own; pass --scheduler steps or itas, or leave the flag out"));
        }
        return Ok((Threads, Scheduler::Threads.name().to_owned()));
    }
    let workers = workers.unwrap_or(u64::from(sessions).min(cores() as u64));
    let workers = check_maximum("--workers", workers, sessions.into(), "the flags")?;
    let Some(teams) = teams(&scheduling, workers as usize)? else {
        return Ok((Threads, scheduling.name().to_owned()));
    };
    let how = match &scheduling {
        Scheduling::Threads => String::new(),
        Scheduling::Steps { team_size, points, .. } => {
            format!(", teams of at most {team_size}, points {}", points.name())
        }
        Scheduling::Itas { policy, slice_us, .. } => format!(", policy {}, slices of {slice_us} us", policy.name()),
    };
    Ok((Fibers(teams), format!("{}, {}{how}", scheduling.name(), counted(workers, "worker"))))
}
