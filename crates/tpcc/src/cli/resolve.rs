//! What flags come to: what depends on several of them, or on the machine. Values by themselves are parsed already.

pub(crate) mod remote;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flags::shell::ShellFlags;
use super::flags::{EngineFlags, FootprintFlags, HistoryFlags, LatencyFlags, RunFlags, SchedulingFlags, TenantsFlags};
use super::memory;
use super::values::{EngineChoice, LEAST_POOL_MIB};
use crate::doors::history;
use crate::driver::{RunPlan, hardware};
use crate::lab::latency::{ForwardWrites, Latencies, LatencySpeculate};
use crate::lab::tenants::{Access, TenantMix, TenantsPlan};
use crate::workload::error::Error;
use crate::workload::generate::deck::Mix;
use crate::workload::settings::{
    Admission, Background, ClockKind, CtxPoints, Durability, EngineKind, Form, Latches, Length, Pacing, Partition,
    RunConfig, Scheduler, Scheduling, SiblingPolicy, Speculate, StoreConfig, Switch, TeamsOf,
};
use crate::workload::txn::StepOrder;
use crate::workload::words::counted;

/// Directory of the database unless another is named.
const DATA: &str = "tpcc-data";
/// Transactions of a team unless another number is named.
const TEAM_SIZE: usize = 16;
/// Microseconds of a slice unless another length is named.
const SLICE_US: u64 = 50;

/// `tpcc history`.
#[derive(Clone, Debug)]
pub(crate) struct HistoryConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// What is run.
    pub(crate) params: history::Params,
    /// What sessions are.
    pub(crate) kind: history::SessionKind,
    /// How sessions run, in words.
    pub(crate) scheduler: String,
    /// The form as typed.
    pub(crate) form: Form,
    /// Where the history goes.
    pub(crate) out: PathBuf,
}

/// Resolves `tpcc run`.
pub(crate) fn run(flags: RunFlags) -> Result<RunConfig, Error> {
    let (engine, how, work) = (flags.engine.engine.kind(), &flags.transactions, &flags.work);
    let pacing = flags.pacing.pacing;
    let delivery_results = delivery_results(&flags)?;
    match engine {
        EngineKind::Floor => floor_has_no(&flags)?,
        EngineKind::Postgres => remote::has_no(&flags)?,
        EngineKind::Storage => {}
    }
    remote::needs_server(&flags.engine, &flags.remote)?;
    let by_count = work.transactions.is_some();
    // Paced terminals need some cycles to get out of step with their starts.
    let (warmup, duration) = if pacing == Pacing::Spec { (60, 60) } else { (2, 10) };
    let length = Length {
        warmup: work.warmup.unwrap_or(Duration::from_secs(if by_count { 0 } else { warmup })),
        duration: work.duration.or((!by_count).then_some(Duration::from_secs(duration))),
        transactions: work.transactions,
    };
    let scheduling = scheduling(&flags.scheduling)?;
    speculation(&flags, &scheduling)?;
    let partition = partition(&flags, &scheduling)?;
    let usual = store(flags.directory.data.as_deref(), &flags.engine, flags.machine.workers)?;
    let config = RunConfig {
        partition,
        pin: flags.pin,
        admission: flags.admission.unwrap_or(Admission::usual(scheduling.team_size(), scheduling.teams_of())),
        engine,
        store: StoreConfig {
            workers: match engine {
                EngineKind::Floor => 1,
                EngineKind::Postgres => remote::connections(&flags.remote, flags.machine.workers)?,
                EngineKind::Storage => usual.workers,
            },
            durability: how.durability.unwrap_or(usual.durability),
            isolation: how.isolation.unwrap_or(usual.isolation),
            latches: how.latches.unwrap_or(usual.latches),
            latch_words: latch_words(how.latch_words, how.latches)?,
            large_pages: how.large_pages.unwrap_or(usual.large_pages),
            own_frames: partition.of_the_server(),
            prefetch: how.prefetch.is_none_or(Switch::is_on),
            preload: how.preload.is_none_or(Switch::is_on),
            read_delay_us: how.read_delay_us.unwrap_or(0),
            team_size: scheduling.team_size(),
            ..usual
        },
        scheduling,
        warehouses: flags.loaded.warehouses,
        terminals: work.terminals,
        workers_asked: flags.machine.workers.is_some() || flags.remote.connections.is_some(),
        pacing,
        delivery_results,
        length,
        mix: work.mix,
        steps: how.order,
        speculate: flags.speculation.speculate,
        epoch_workers: flags.speculation.epoch_workers,
        clock: work.clock,
        seed: work.random.seed,
        counters: flags.counters.is_on(),
        check: flags.check.is_on(),
        acks: flags.ack_stdout,
        json: flags.output.json,
        report: flags.files.report,
        csv: flags.files.csv,
        hdr: flags.files.hdr,
    };
    memory::of_run(&config, config.warehouses).check()?;
    Ok(config)
}

/// Where the results of deferred Deliveries go; none without pacing. Refuses what paced terminals leave nothing to say.
fn delivery_results(flags: &RunFlags) -> Result<Option<PathBuf>, Error> {
    let own = &flags.pacing.delivery_results;
    if flags.pacing.pacing == Pacing::None {
        let given = [("--delivery-results", own.is_some())];
        let help = "only paced terminals defer Deliveries; pass --pacing spec, or leave the flag out";
        return means_nothing(&given, "--pacing none", help).map(|()| None);
    }
    let (work, scheduler) = (&flags.work, flags.scheduling.scheduler);
    let engine = flags.engine.engine.kind();
    let refused: [(&[(&str, bool)], &str); 8] = [
        (
            &[("--engine postgres://..", engine == EngineKind::Postgres)],
            "paced terminals stand in front of the engine of this process; pass --engine storage",
        ),
        (
            &[("--engine floor", engine == EngineKind::Floor)],
            "nothing on the floor waits or is durable, so there is no time to hold against a limit; pass --engine storage",
        ),
        (&[("--transactions", work.transactions.is_some())], "paced runs last a time: pass --duration"),
        (&[("--terminals", work.terminals.is_some())], "ten a warehouse are specified (4.2.2); pass --warehouses"),
        (&[("--mix", work.mix != Mix::Standard)], "the deck is specified (5.2.4); leave the flag out"),
        (
            &[
                ("--scheduler steps", scheduler == Scheduler::Steps),
                ("--scheduler itas", scheduler == Scheduler::Itas),
                ("--admission", flags.admission.is_some()),
            ],
            "a worker of paced terminals has hardly ever two transactions to choose from; leave the flag out",
        ),
        (
            &[("--ack-stdout", flags.ack_stdout)],
            "a Delivery is answered when it is queued, not when it is durable; leave one of the two out",
        ),
        (
            &[("--counters", flags.counters.is_on())],
            "a worker of paced terminals mostly sleeps; JSON 'pacing.cpu_share_of_core' says what the process used",
        ),
    ];
    for (given, help) in refused {
        means_nothing(given, "--pacing spec", help)?;
    }
    Ok(Some(own.clone().unwrap_or_else(|| {
        // Without a slash at its end, which would put the file inside.
        let data = flags.directory.data.as_deref().unwrap_or(Path::new(DATA)).components().collect::<PathBuf>();
        let mut beside = data.into_os_string();
        beside.push(".deliveries");
        beside.into()
    })))
}

/// What is divided among the workers. Refuses cores that are not there.
fn partition(flags: &RunFlags, scheduling: &Scheduling) -> Result<Partition, Error> {
    let asked = flags.partition.partition;
    if scheduling.policy().is_some() {
        let help = "its --policy says where the terminals of a warehouse are served; leave one of the two out";
        means_nothing(&[("--partition", asked.is_some())], "--scheduler itas", help)?;
    }
    if flags.pin {
        let help = "a worker's threads would all share its core; leave one of the two out";
        let ahead = flags.speculation.speculate;
        means_nothing(&[("--pin", ahead != Speculate::Off)], &format!("--speculate {}", ahead.name()), help)?;
        let (workers, there) = (flags.machine.workers.unwrap_or_else(cores), hardware::cores::allowed().len());
        if workers > there && flags.engine.engine.kind() == EngineKind::Storage {
            let cores = counted(there as u64, "core");
            return Err(Error::usage(format!("--pin: {workers} workers on {cores}: each needs one of its own"))
                .help(format!("pass --workers {} or fewer, or leave out --pin", there.max(1))));
        }
    }
    Ok(asked.unwrap_or(Partition::Client))
}

/// Refuses what speculation cannot serve.
fn speculation(flags: &RunFlags, scheduling: &Scheduling) -> Result<(), Error> {
    if flags.speculation.speculate == Speculate::Off {
        return Ok(());
    }
    let given = [("--speculate", *scheduling != Scheduling::Threads)];
    let with = format!("--scheduler {}", scheduling.name());
    means_nothing(&given, &with, "fibers of a worker share its core; leave one of the two out")
}

/// How `command`, which needs a database on disk, opens the engine.
pub(crate) fn on_disk(
    command: &str,
    data: Option<&Path>,
    engine: &EngineFlags,
    workers: Option<usize>,
) -> Result<StoreConfig, Error> {
    match &engine.engine {
        EngineChoice::Here(EngineKind::Storage) => {
            let config = store(data, engine, workers)?;
            memory::of_store(&config).check()?;
            Ok(config)
        }
        EngineChoice::There(url) => Err(Error::usage(format!("--engine {url}: 'tpcc {command}' is for storage"))
            .help("run, load and check work on a server")),
        EngineChoice::Here(_) => Err(Error::usage("--engine floor: keeps nothing on disk").help(format!(
            "'tpcc run --engine floor' loads, runs and checks in memory; 'tpcc {command}' is for storage"
        ))),
    }
}

fn store(data: Option<&Path>, engine: &EngineFlags, workers: Option<usize>) -> Result<StoreConfig, Error> {
    let workers = workers.unwrap_or_else(cores);
    let usual = StoreConfig::usual(data.unwrap_or(Path::new(DATA)), workers);
    if let Some(mib) = engine.buffer_pool.filter(|&mib| mib < LEAST_POOL_MIB) {
        return Err(Error::usage(format!("--buffer-pool {mib}: at least {LEAST_POOL_MIB} MiB for {workers} workers"))
            .help("1024 MiB hold about ten warehouses"));
    }
    Ok(StoreConfig {
        buffer_pool_mib: engine.buffer_pool.map_or(usual.buffer_pool_mib, |mib| mib as u64),
        background: engine.background.unwrap_or(usual.background),
        checkpoint_mib: engine.checkpoint_mib.unwrap_or(usual.checkpoint_mib),
        page_checksums: engine.page_checksums.is_none_or(Switch::is_on),
        ..usual
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Resolves the program that `tpcc footprint` traces: one worker that does all that an engine's services do, too.
pub(crate) fn traced(flags: &FootprintFlags) -> (StoreConfig, RunPlan) {
    let usual = StoreConfig::usual(flags.data.as_deref().unwrap_or(Path::new(DATA)), 1);
    let config = StoreConfig {
        durability: Durability::Async,
        prefetch: flags.prefetch.is_on(),
        preload: true,
        background: Background::Inline,
        latches: flags.traced.latches,
        // One warehouse fits what is usual; each further one takes this much more.
        buffer_pool_mib: usual.buffer_pool_mib.max(256 + 200 * u64::from(flags.traced.of_warehouses)),
        ..usual
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

/// Resolves `tpcc latency`: databases that the measuring thread serves itself.
pub(crate) fn latency(flags: &LatencyFlags) -> Result<(StoreConfig, Latencies), Error> {
    let config = on_disk("latency", flags.directory.data.as_deref(), &flags.engine, Some(1))?;
    let speculate = match flags.speculate {
        LatencySpeculate::On => Speculate::On,
        LatencySpeculate::Auto => Speculate::Auto,
    };
    let decided = [("--grain", flags.grain.is_some() && speculate == Speculate::Auto)];
    means_nothing(&decided, "--speculate auto", "the governor decides it; leave one of the two out")?;
    let plan = Latencies {
        mix: flags.mix,
        epoch_workers: flags.epoch_workers,
        speculate,
        grain: flags.grain,
        transactions: flags.transactions,
        seed: flags.random.seed,
        inject: flags.inject_violations,
        // Only what is forwarded tells who wrote it.
        forwarding: flags.forwarding.unwrap_or(if flags.profile {
            ForwardWrites::Always
        } else {
            ForwardWrites::Adaptive
        }),
        committer: flags.committer,
        simulate: flags.simulate,
    };
    Ok((StoreConfig { durability: Durability::Async, background: Background::Inline, ..config }, plan))
}

/// Resolves `tpcc tenants`.
pub(crate) fn tenants(flags: &TenantsFlags) -> Result<TenantsPlan, Error> {
    if flags.mix == TenantMix::Tpcc {
        // Rows and their uniform choice may be named, for comparisons of mixes: a warehouse has its own.
        let other = flags.access.is_some_and(|access| access != Access::Uniform);
        means_nothing(&[("--access", other)], "--mix tpcc", "the mix has its own; leave it out")?;
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
    memory::of_tenants(&plan)?;
    Ok(plan)
}

/// Resolves `tpcc history`.
pub(crate) fn history(flags: HistoryFlags) -> Result<HistoryConfig, Error> {
    let most = history::Params::MOST_TRANSACTIONS / u64::from(flags.sessions);
    let transactions = at_most("--transactions", flags.transactions, most, "--transactions")?;
    let params = history::Params {
        form: match flags.form {
            Form::ListAppend => history::Form::ListAppend,
            Form::Register => history::Form::Register,
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
        latches: flags.latches,
        latch_words: latch_words(flags.latch_words, Some(flags.latches))?,
        prefetch: false,
        checkpoint_mib: 64,
        own_frames: frames_of_sessions(flags.partition)?,
        ..StoreConfig::usual(&flags.data, params.sessions as usize)
    };
    memory::of_history(&store, &params).check()?;
    let (kind, scheduler) = match flags.speculate {
        Switch::Off => session_kind(&flags.scheduling, flags.workers, params.sessions)?,
        Switch::On => sessions_ahead(&flags)?,
    };
    Ok(HistoryConfig { store, params, kind, scheduler, form: flags.form, out: flags.out })
}

/// Whether the threads of a history's sessions have frames of their own.
fn frames_of_sessions(partition: Partition) -> Result<bool, Error> {
    if partition.of_clients() {
        let what = format!("--partition {}: means nothing here", partition.name());
        return Err(Error::usage(what).help("sessions of a history share all rows; pass none or server"));
    }
    Ok(partition.of_the_server())
}

/// What `tpcc shell` works with.
#[derive(Debug)]
pub(crate) struct ShellConfig {
    pub(crate) store: StoreConfig,
    /// What sessions are, unless threads.
    pub(crate) teams: Option<history::Teams>,
    pub(crate) table: String,
}

/// Resolves `tpcc shell`.
pub(crate) fn shell(flags: ShellFlags) -> Result<ShellConfig, Error> {
    let store = StoreConfig {
        latches: flags.latches,
        latch_words: latch_words(flags.latch_words, Some(flags.latches))?,
        ..on_disk("shell", flags.data.as_deref(), &flags.engine, Some(1))?
    };
    let teams = teams(&scheduling(&flags.scheduling)?, 1, "sessions of a shell have no home")?;
    Ok(ShellConfig { store, teams, table: flags.table })
}

/// The teams or sibling groups of sessions on so many workers, if they are not threads. `homeless` says why the policy
/// `packed` is refused.
fn teams(scheduling: &Scheduling, workers: usize, homeless: &str) -> Result<Option<history::Teams>, Error> {
    match scheduling {
        Scheduling::Threads => Ok(None),
        Scheduling::Steps { team_size, teams_of, points } => {
            history::Teams::as_run(workers, *team_size, *teams_of, points).map(Some)
        }
        Scheduling::Itas { policy: SiblingPolicy::Packed, .. } => {
            Err(Error::usage("--policy packed: means nothing here").help(format!("{homeless}; pass fair, tas or itas")))
        }
        Scheduling::Itas { policy, slice_us, .. } => {
            history::Teams::of_siblings(workers, policy.mode(), Duration::from_micros(*slice_us)).map(Some)
        }
    }
}

/// Reader words, which superlatches alone have, and of which each core needs one.
fn latch_words(words: Option<u64>, latches: Option<Latches>) -> Result<Option<usize>, Error> {
    let Some(words) = words else { return Ok(None) };
    if latches != Some(Latches::Super) {
        return Err(Error::usage(format!("--latch-words {words}: means nothing without '--latches super'"))
            .help("add --latches super, or leave --latch-words out"));
    }
    let cores = cores();
    if (words as usize) < cores {
        let what = format!("--latch-words {words}: each of the {cores} cores needs a word, so at least {cores}");
        return Err(Error::usage(what).help("or run on fewer cores: taskset -c 0 tpcc .."));
    }
    Ok(Some(words as usize))
}

/// A number of `tpcc history` whose bound another flag gives.
fn at_most(flag: &str, given: u64, most: u64, explained: &str) -> Result<u64, Error> {
    if given <= most {
        return Ok(given);
    }
    let help = format!("'tpcc history --help' explains {explained}");
    Err(Error::usage(format!("{flag} {given}: at most {most}")).help(help))
}

/// Sessions whose steps run ahead of their transaction.
fn sessions_ahead(flags: &HistoryFlags) -> Result<(history::SessionKind, String), Error> {
    use storage::Isolation::Serializable;
    let scheduler = flags.scheduling.scheduler;
    let help = "fibers of a worker share its core; leave one of the two out";
    let with = format!("--scheduler {}", scheduler.name());
    means_nothing(&[("--speculate", scheduler != Scheduler::Threads)], &with, help)?;
    let help = "versions are drawn while a row is locked; pass --form list-append, or leave --speculate out";
    means_nothing(&[("--speculate", flags.form == Form::Register)], "--form register", help)?;
    let help = "below serializable nothing keeps a row away that was seen to be absent; leave one of the two out";
    let with = format!("--isolation {}", flags.isolation.name());
    means_nothing(&[("--speculate", flags.isolation.of_storage() != Serializable)], &with, help)?;
    let (_, threads) = session_kind(&flags.scheduling, flags.workers, flags.sessions)?;
    Ok((history::SessionKind::Ahead, format!("{threads}, steps ahead of their transaction")))
}

/// What the sessions of `tpcc history` are without speculation, and in words.
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
    let workers = at_most("--workers", workers, sessions.into(), "the flags")?;
    let Some(teams) = teams(&scheduling, workers as usize, "sessions of a history have no home")? else {
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

fn scheduling(flags: &SchedulingFlags) -> Result<Scheduling, Error> {
    if flags.scheduler == Scheduler::Threads {
        let given = [
            ("--team-size", flags.team_size.is_some()),
            ("--teams", flags.teams.is_some()),
            ("--ctx-points", flags.ctx_points.is_some()),
            ("--policy", flags.policy.is_some()),
            ("--slice-us", flags.slice_us.is_some()),
        ];
        return means_nothing(&given, "--scheduler threads", "pass --scheduler steps or itas, or leave the flag out")
            .map(|()| Scheduling::Threads);
    }
    if flags.scheduler == Scheduler::Itas {
        let given = [("--teams", flags.teams.is_some()), ("--ctx-points", flags.ctx_points.is_some())];
        means_nothing(&given, "--scheduler itas", "pass --scheduler steps, or leave the flag out")?;
        return Ok(Scheduling::Itas {
            fibers: flags.team_size.unwrap_or(TEAM_SIZE),
            policy: flags.policy.unwrap_or(SiblingPolicy::Itas),
            slice_us: flags.slice_us.unwrap_or(SLICE_US),
        });
    }
    let given = [("--policy", flags.policy.is_some()), ("--slice-us", flags.slice_us.is_some())];
    means_nothing(&given, "--scheduler steps", "pass --scheduler itas, or leave the flag out")?;
    let points = flags.ctx_points.clone().unwrap_or(CtxPoints::BuiltIn);
    let alone = [("--teams", flags.teams.is_some() && points == CtxPoints::None)];
    let help = "without points transactions run one after the other; leave one of the two out";
    means_nothing(&alone, "--ctx-points none", help)?;
    let teams_of = flags.teams.unwrap_or(TeamsOf::Transaction);
    Ok(Scheduling::Steps { team_size: flags.team_size.unwrap_or(TEAM_SIZE), teams_of, points })
}

/// Refuses the first flag that was given though `with` leaves it nothing to say.
fn means_nothing(given: &[(&str, bool)], with: &str, help: &str) -> Result<(), Error> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Error::usage(format!("{flag}: means nothing with {with}")).help(help)),
        None => Ok(()),
    }
}

/// The floor is one thread on maps: what asks for more is a mistake, not a setting.
fn floor_has_no(flags: &RunFlags) -> Result<(), Error> {
    if let Some(workers) = flags.machine.workers.filter(|&n| n != 1) {
        return Err(Error::usage(format!("--workers {workers}: the floor is one thread"))
            .help("pass --workers 1, or --engine storage"));
    }
    let (engine, how) = (&flags.engine, &flags.transactions);
    let given = [
        ("--data", flags.directory.data.is_some()),
        ("--durability", how.durability.is_some()),
        ("--isolation", how.isolation.is_some()),
        ("--latches", how.latches.is_some()),
        ("--latch-words", how.latch_words.is_some()),
        ("--large-pages", how.large_pages.is_some()),
        ("--partition", flags.partition.partition.is_some()),
        ("--prefetch", how.prefetch.is_some()),
        ("--preload", how.preload.is_some()),
        ("--read-delay-us", how.read_delay_us.is_some()),
        ("--buffer-pool", engine.buffer_pool.is_some()),
        ("--background", engine.background.is_some()),
        ("--checkpoint-mib", engine.checkpoint_mib.is_some()),
        ("--page-checksums", engine.page_checksums.is_some()),
        ("--ack-stdout", flags.ack_stdout),
        ("--speculate", flags.speculation.speculate != Speculate::Off),
        ("--scheduler steps", flags.scheduling.scheduler == Scheduler::Steps),
        ("--scheduler itas", flags.scheduling.scheduler == Scheduler::Itas),
    ];
    let help = "the floor has no pages, no log and no locks; leave the flag out, or pass --engine storage";
    means_nothing(&given, "--engine floor", help)
}
