//! Settings that depend on several flags or on the machine. Single values have been parsed before, by `values`.

#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "postgres")]
pub(crate) mod remote;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flags::{EngineFlags, LatchFlags, PartitionFlags, RunFlags, SchedulingFlags, TransactionFlags};
use super::memory;
use super::values::{EngineChoice, MIN_POOL_MIB};
use tpcc_core::driver::hardware;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::deck::Mix;
use tpcc_core::workload::settings::{
    Admission, EngineKind, Latches, Length, Pacing, Partition, RunConfig, Scheduler, Scheduling, SiblingPolicy,
    Speculate, StoreConfig, Switch, SwitchPoints, TeamUnit,
};
use tpcc_core::workload::words::counted;

/// Default directory of the database.
const DATA: &str = "tpcc-data";
/// Default number of concurrent transactions of a team.
const TEAM_SIZE: usize = 16;
/// Default length of a time slice, in microseconds.
const SLICE_US: u64 = 50;

/// Resolves `tpcc run`.
pub(crate) fn run(flags: RunFlags) -> Result<RunConfig, Error> {
    let (engine, work) = (flags.engine.engine.kind(), &flags.work);
    let (how, access) = (&flags.transactions, &flags.access);
    let pacing = flags.pacing.pacing;
    let delivery_results = delivery_results(&flags)?;
    match engine {
        EngineKind::Floor => refuse_ineffective_on_floor(&flags)?,
        EngineKind::Storage | EngineKind::Postgres => {}
    }
    #[cfg(feature = "postgres")]
    remote::check_flags(&flags)?;
    let by_count = work.transactions.is_some();
    // Paced terminals need several cycles to become independent of their start times.
    let (warmup, duration) = if pacing == Pacing::Spec { (60, 60) } else { (2, 10) };
    let length = Length {
        warmup: work.warmup.unwrap_or(Duration::from_secs(if by_count { 0 } else { warmup })),
        duration: work.duration.or((!by_count).then_some(Duration::from_secs(duration))),
        transactions: work.transactions,
    };
    let scheduling = scheduling(&flags.scheduling)?;
    speculation(&flags, &scheduling)?;
    let partition = flags.partition.partition.unwrap_or(Partition::Client);
    pin(&flags)?;
    let defaults = store(flags.directory.data.as_deref(), &flags.engine, flags.machine.workers)?;
    let config = RunConfig {
        partition,
        pin: flags.pin,
        admission: flags.admission.unwrap_or(Admission::default_for(scheduling.team_size(), scheduling.teams_of())),
        engine,
        store: StoreConfig {
            workers: match engine {
                EngineKind::Floor => 1,
                #[cfg(feature = "postgres")]
                EngineKind::Postgres => remote::connections(&flags.remote, flags.machine.workers)?,
                _ => defaults.workers,
            },
            durability: how.durability.unwrap_or(defaults.durability),
            isolation: how.isolation.unwrap_or(defaults.isolation),
            large_pages: access.large_pages.unwrap_or(defaults.large_pages),
            own_frames: partition.divides_server(),
            prefetch: access.prefetch.is_none_or(Switch::is_on),
            preload: access.preload.is_none_or(Switch::is_on),
            read_delay_us: access.read_delay_us.unwrap_or(0),
            team_size: scheduling.team_size(),
            loop_threads: match flags.speculation.speculate {
                Speculate::Off => 1,
                Speculate::On | Speculate::Auto => flags.speculation.epoch_workers,
            },
            ..with_latches(defaults, &access.latches)?
        },
        scheduling,
        warehouses: flags.loaded.warehouses,
        terminals: work.terminals,
        workers_requested: has_thread_count(&flags),
        pacing,
        delivery_results,
        length,
        mix: work.mix,
        steps: work.order,
        speculate: flags.speculation.speculate,
        clock: work.clock,
        seed: work.random.seed,
        counters: flags.counters.is_on(),
        check: flags.check.is_on(),
        acks: flags.ack_stdout,
        json: flags.output.json,
        #[cfg(feature = "lab")]
        report: flags.files.report,
        #[cfg(not(feature = "lab"))]
        report: None,
        csv: flags.files.csv,
        hdr: flags.files.hdr,
    };
    memory::of_run(&config, config.warehouses).check()?;
    Ok(config)
}

/// Returns true if the flags of `tpcc run` give a number of threads.
fn has_thread_count(flags: &RunFlags) -> bool {
    #[cfg(feature = "postgres")]
    if flags.remote.connections.is_some() {
        return true;
    }
    flags.machine.workers.is_some()
}

/// Returns the path of the results of deferred Deliveries, or `None` without pacing. Refuses flags that have no effect on
/// paced terminals, and `--delivery-results` without paced terminals.
fn delivery_results(flags: &RunFlags) -> Result<Option<PathBuf>, Error> {
    let own = &flags.pacing.delivery_results;
    if flags.pacing.pacing == Pacing::None {
        let given = [("--delivery-results", own.is_some())];
        let help = "only paced terminals defer Deliveries; pass --pacing spec, or leave the flag out";
        return refuse_ineffective(&given, "--pacing none", help).map(|()| None);
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
        refuse_ineffective(given, "--pacing spec", help)?;
    }
    Ok(Some(own.clone().unwrap_or_else(|| {
        // `components` removes a slash at the end, which would place the file inside the directory.
        let data = flags.directory.data.as_deref().unwrap_or(Path::new(DATA)).components().collect::<PathBuf>();
        let mut beside = data.into_os_string();
        beside.push(".deliveries");
        beside.into()
    })))
}

/// Refuses `--pin` with speculation or with more workers than cores.
fn pin(flags: &RunFlags) -> Result<(), Error> {
    if flags.pin {
        let help = "a worker's threads would all share its core; leave one of the two out";
        let ahead = flags.speculation.speculate;
        refuse_ineffective(&[("--pin", ahead != Speculate::Off)], &format!("--speculate {}", ahead.name()), help)?;
        let (workers, there) = (flags.machine.workers.unwrap_or_else(cores), hardware::cores::allowed().len());
        if workers > there && flags.engine.engine.kind() == EngineKind::Storage {
            let cores = counted(there as u64, "core");
            return Err(Error::usage(format!("--pin: {workers} workers on {cores}: each needs one of its own"))
                .help(format!("pass --workers {} or fewer, or leave out --pin", there.max(1))));
        }
    }
    Ok(())
}

/// Refuses speculation with a scheduler of fibers.
fn speculation(flags: &RunFlags, scheduling: &Scheduling) -> Result<(), Error> {
    if flags.speculation.speculate == Speculate::Off {
        return Ok(());
    }
    let given = [("--speculate", *scheduling != Scheduling::Threads)];
    let with = format!("--scheduler {}", scheduling.name());
    refuse_ineffective(&given, &with, "fibers of a worker share its core; leave one of the two out")?;
    if flags.speculation.epoch_workers == 1 {
        let how = flags.speculation.speculate.name();
        return Err(Error::usage(format!("--epoch-workers 1: one thread is too few for --speculate {how}"))
            .help("pass 2 or more, or --speculate off"));
    }
    Ok(())
}

/// Resolves the settings of the engine for `command`, which requires a database on disk. Refuses engines without one.
pub(crate) fn on_disk(
    command: &str,
    data: Option<&Path>,
    engine: &EngineFlags,
    workers: Option<usize>,
) -> Result<StoreConfig, Error> {
    match &engine.engine {
        EngineChoice::Local(EngineKind::Storage) => {
            let config = store(data, engine, workers)?;
            memory::of_store(&config).check()?;
            Ok(config)
        }
        #[cfg(feature = "postgres")]
        EngineChoice::Server(url) => Err(Error::usage(format!("--engine {url}: 'tpcc {command}' is for storage"))
            .help("run, load and check work on a server")),
        EngineChoice::Local(_) => Err(Error::usage("--engine floor: keeps nothing on disk").help(format!(
            "'tpcc run --engine floor' loads, runs and checks in memory; 'tpcc {command}' is for storage"
        ))),
    }
}

fn store(data: Option<&Path>, engine: &EngineFlags, workers: Option<usize>) -> Result<StoreConfig, Error> {
    let workers = workers.unwrap_or_else(cores);
    let defaults = StoreConfig::defaults(data.unwrap_or(Path::new(DATA)), workers);
    let resources = &engine.resources;
    if let Some(mib) = resources.buffer_pool.filter(|&mib| mib < MIN_POOL_MIB) {
        return Err(Error::usage(format!("--buffer-pool {mib}: at least {MIN_POOL_MIB} MiB for {workers} workers"))
            .help("1024 MiB hold about ten warehouses"));
    }
    Ok(StoreConfig {
        buffer_pool_mib: resources.buffer_pool.map_or(defaults.buffer_pool_mib, |mib| mib as u64),
        background: resources.background.unwrap_or(defaults.background),
        checkpoint_mib: resources.checkpoint_mib.unwrap_or(defaults.checkpoint_mib),
        page_checksums: resources.page_checksums.is_none_or(Switch::is_on),
        ..defaults
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Sets the kind of page latch and its reader words, if the flags give them.
fn with_latches(store: StoreConfig, flags: &LatchFlags) -> Result<StoreConfig, Error> {
    let latch_words = latch_words(flags)?;
    Ok(StoreConfig { latches: flags.latches.unwrap_or(store.latches), latch_words, ..store })
}

/// Checks the number of reader words: it requires superlatches, and at least one word for each core.
fn latch_words(flags: &LatchFlags) -> Result<Option<usize>, Error> {
    let Some(words) = flags.latch_words else { return Ok(None) };
    if flags.latches != Some(Latches::Super) {
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

fn scheduling(flags: &SchedulingFlags) -> Result<Scheduling, Error> {
    if flags.scheduler == Scheduler::Threads {
        let given = [
            ("--team-size", flags.team_size.is_some()),
            ("--teams", flags.teams.is_some()),
            ("--ctx-points", flags.ctx_points.is_some()),
            ("--policy", flags.policy.is_some()),
            ("--slice-us", flags.slice_us.is_some()),
        ];
        return refuse_ineffective(
            &given,
            "--scheduler threads",
            "pass --scheduler steps or itas, or leave the flag out",
        )
        .map(|()| Scheduling::Threads);
    }
    if flags.scheduler == Scheduler::Itas {
        let given = [("--teams", flags.teams.is_some()), ("--ctx-points", flags.ctx_points.is_some())];
        refuse_ineffective(&given, "--scheduler itas", "pass --scheduler steps, or leave the flag out")?;
        return Ok(Scheduling::Itas {
            fibers: flags.team_size.unwrap_or(TEAM_SIZE),
            policy: flags.policy.unwrap_or(SiblingPolicy::Itas),
            slice_us: flags.slice_us.unwrap_or(SLICE_US),
        });
    }
    let given = [("--policy", flags.policy.is_some()), ("--slice-us", flags.slice_us.is_some())];
    refuse_ineffective(&given, "--scheduler steps", "pass --scheduler itas, or leave the flag out")?;
    let points = flags.ctx_points.clone().unwrap_or(SwitchPoints::BuiltIn);
    let alone = [("--teams", flags.teams.is_some() && points == SwitchPoints::None)];
    let help = "without points transactions run one after the other; leave one of the two out";
    refuse_ineffective(&alone, "--ctx-points none", help)?;
    let teams_of = flags.teams.unwrap_or(TeamUnit::Transaction);
    Ok(Scheduling::Steps { team_size: flags.team_size.unwrap_or(TEAM_SIZE), teams_of, points })
}

/// Refuses the first flag that was given, because it has no effect in combination with `with`.
fn refuse_ineffective(given: &[(&str, bool)], with: &str, help: &str) -> Result<(), Error> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Error::usage(format!("{flag}: means nothing with {with}")).help(help)),
        None => Ok(()),
    }
}

/// Refuses flags that have no effect on the floor, which is one thread on ordered maps.
fn refuse_ineffective_on_floor(flags: &RunFlags) -> Result<(), Error> {
    if let Some(workers) = flags.machine.workers.filter(|&n| n != 1) {
        return Err(Error::usage(format!("--workers {workers}: the floor is one thread"))
            .help("pass --workers 1, or --engine storage"));
    }
    let given = &flags.given;
    let group = given
        .first_of_storage()
        .or_else(|| given.first_of::<TransactionFlags>())
        .or_else(|| given.first_of::<PartitionFlags>());
    let given = [
        (group.as_deref().unwrap_or_default(), group.is_some()),
        ("--ack-stdout", flags.ack_stdout),
        ("--speculate", flags.speculation.speculate != Speculate::Off),
        ("--scheduler steps", flags.scheduling.scheduler == Scheduler::Steps),
        ("--scheduler itas", flags.scheduling.scheduler == Scheduler::Itas),
    ];
    let help = "the floor has no pages, no log and no locks; leave the flag out, or pass --engine storage";
    refuse_ineffective(&given, "--engine floor", help)
}
