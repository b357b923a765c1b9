//! Settings as resolved: every default filled in, every combination possible.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flags;
use crate::doors::history;
use crate::driver::Plan;
use crate::workload::error::Error;
use crate::workload::generate::fresh_seed;
use crate::workload::schema::TableId;
use crate::workload::settings::{
    Admission, Background, CtxPoints, Durability, EngineKind, Form, Isolation, Latches, Length, RunConfig, Scheduler,
    Scheduling, StoreConfig, Switch, TeamsOf,
};
use crate::workload::txn::Steps;
use crate::workload::words::counted;

/// Directory of the database unless another is named.
const DATA: &str = "tpcc-data";
/// Least buffer pool, MiB: below this a worker's transaction may not find room for its pages.
pub(crate) const LEAST_POOL_MIB: u64 = 16;
/// Most warehouses: their numbers share 32 bits with a table's number in random streams.
const MOST_WAREHOUSES: i64 = 1_000_000;
/// Most threads.
const MOST_WORKERS: i64 = 1_024;
/// Most terminals.
const MOST_TERMINALS: i64 = 10_000_000;
/// Longest name of a table, as the engine has it, bytes.
const LONGEST_TABLE_NAME: usize = 200;
/// Transactions of a team unless another number is named.
const TEAM_SIZE: usize = 16;
/// Most transactions of a team: each needs a transaction slot of the engine.
const MOST_TEAM: i64 = 256;
/// Longest delay of a read, microseconds: ten seconds.
const LONGEST_DELAY_US: i64 = 10_000_000;
/// Longest run, seconds: a year.
const LONGEST: f64 = 31_536_000.0;

/// `tpcc load`.
#[derive(Clone, Debug)]
pub(crate) struct LoadConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// Warehouses.
    pub(crate) warehouses: u32,
    /// Whether to delete what is there.
    pub(crate) replace: bool,
    /// Whether that was agreed to beforehand.
    pub(crate) yes: bool,
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// Where to write everything.
    pub(crate) json: Option<PathBuf>,
}

/// `tpcc check`.
#[derive(Clone, Debug)]
pub(crate) struct CheckConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// Whether the structure is proved as well.
    pub(crate) structure: bool,
    /// Whether a digest of all rows is wanted.
    pub(crate) fingerprint: bool,
    /// Where to write everything.
    pub(crate) json: Option<PathBuf>,
}

/// `tpcc copy`.
#[derive(Clone, Debug)]
pub(crate) struct CopyConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// Directory of the copy.
    pub(crate) to: PathBuf,
    /// Where to write everything.
    pub(crate) json: Option<PathBuf>,
}

/// `tpcc history`.
#[derive(Clone, Debug)]
pub(crate) struct HistoryConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// What is run.
    pub(crate) params: history::Params,
    /// The fibers that sessions are; none if they are threads.
    pub(crate) teams: Option<history::Teams>,
    /// How sessions run, in words.
    pub(crate) scheduler: String,
    /// The form as typed.
    pub(crate) form: Form,
    /// Where the history goes.
    pub(crate) out: PathBuf,
}

/// `tpcc verify`.
#[derive(Clone, Debug)]
pub(crate) struct VerifyConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// What was acknowledged.
    pub(crate) acks: PathBuf,
    /// Where to write everything.
    pub(crate) json: Option<PathBuf>,
}

/// `tpcc shell`.
#[derive(Clone, Debug)]
pub(crate) struct ShellConfig {
    /// How the engine is opened.
    pub(crate) store: StoreConfig,
    /// Which table.
    pub(crate) table: String,
}

/// Resolves `tpcc run`.
pub(crate) fn run(flags: flags::Run) -> Result<RunConfig, Error> {
    if flags.engine.engine == EngineKind::Floor {
        floor_has_no(&flags)?;
    }
    let transactions = flags.work.transactions.map(|n| number("--transactions", n, 1, i64::MAX)).transpose()?;
    let seconds = |flag: &str, given: Option<f64>, least: f64| match given {
        Some(s) if !(least..=LONGEST).contains(&s) => {
            Err(Error::usage(format!("{flag} {s}: from {least} to {LONGEST} seconds"))
                .help("seconds, also with a decimal point"))
        }
        given => Ok(given.map(Duration::from_secs_f64)),
    };
    let duration = seconds("--duration", flags.work.duration, 0.001)?;
    let warmup = seconds("--warmup", flags.work.warmup, 0.0)?;
    let counted = transactions.is_some();
    let length = Length {
        warmup: warmup.unwrap_or(Duration::from_secs(if counted { 0 } else { 2 })),
        duration: duration.or((!counted).then_some(Duration::from_secs(10))),
        transactions,
    };
    let mut store = store(flags.data.data.as_deref(), &flags.engine, &flags.machine)?;
    if flags.engine.engine == EngineKind::Floor {
        store.workers = 1;
    }
    let how = &flags.transactions;
    store.durability = how.durability.unwrap_or(store.durability);
    store.isolation = how.isolation.unwrap_or(store.isolation);
    store.latches = how.latches.unwrap_or(store.latches);
    store.prefetch = how.prefetch.is_none_or(Switch::is_on);
    store.preload = how.preload.is_none_or(Switch::is_on);
    store.read_delay_us = how.read_delay_us.map_or(Ok(0), |n| number("--read-delay-us", n, 0, LONGEST_DELAY_US))?;
    let scheduling = scheduling(&flags.scheduling)?;
    store.team_size = scheduling.team_size();
    let terminals = flags.work.terminals.map(|n| number("--terminals", n, 1, MOST_TERMINALS)).transpose()?;
    let usual = Admission::usual(scheduling.team_size(), scheduling.teams_of());
    Ok(RunConfig {
        admission: flags.admission.unwrap_or(usual),
        engine: flags.engine.engine,
        store,
        scheduling,
        warehouses: warehouses(&flags.data)?,
        terminals: terminals.map(|n| n as u32),
        workers_asked: flags.machine.workers.is_some(),
        length,
        mix: flags.work.mix,
        steps: flags.transactions.order,
        seed: flags.work.seed.unwrap_or_else(fresh_seed),
        check: flags.check.is_on(),
        acks: flags.ack_stdout,
        json: flags.output.json,
    })
}

/// Resolves `tpcc load`.
pub(crate) fn load(flags: flags::Load) -> Result<LoadConfig, Error> {
    no_floor(&flags.engine, "load")?;
    Ok(LoadConfig {
        store: store(flags.data.data.as_deref(), &flags.engine, &flags.machine)?,
        warehouses: warehouses(&flags.data)?.unwrap_or(1),
        replace: flags.replace,
        yes: flags.yes,
        seed: flags.seed.unwrap_or_else(fresh_seed),
        json: flags.output.json,
    })
}

/// Resolves `tpcc check`.
pub(crate) fn check(flags: flags::Check) -> Result<CheckConfig, Error> {
    no_floor(&flags.engine, "check")?;
    let store = store(flags.data.as_deref(), &flags.engine, &flags.machine)?;
    Ok(CheckConfig { store, structure: flags.structure, fingerprint: flags.fingerprint, json: flags.output.json })
}

/// Resolves `tpcc copy`.
pub(crate) fn copy(flags: flags::Copy) -> Result<CopyConfig, Error> {
    no_floor(&flags.engine, "copy")?;
    let store = store(flags.data.as_deref(), &flags.engine, &flags::Machine { workers: Some(1) })?;
    Ok(CopyConfig { store, to: flags.to, json: flags.output.json })
}

/// Resolves `tpcc verify`.
pub(crate) fn verify(flags: flags::Verify) -> Result<VerifyConfig, Error> {
    no_floor(&flags.engine, "verify")?;
    Ok(VerifyConfig {
        store: store(flags.data.as_deref(), &flags.engine, &flags.machine)?,
        acks: flags.acks,
        json: flags.output.json,
    })
}

/// Resolves `tpcc shell`.
pub(crate) fn shell(flags: flags::Shell) -> Result<ShellConfig, Error> {
    no_floor(&flags.engine, "shell")?;
    let table = flags.table;
    if table.is_empty() || table.len() > LONGEST_TABLE_NAME {
        return Err(Error::usage(format!("--table {table}: a name of 1 to {LONGEST_TABLE_NAME} bytes"))
            .help("leave it out for the table 'shell'"));
    }
    if TableId::ALL.iter().any(|ours| ours.name() == table) {
        return Err(Error::usage(format!("--table {table}: belongs to the workload, whose rows are of another kind"))
            .help("choose another name"));
    }
    Ok(ShellConfig { store: store(flags.data.as_deref(), &flags.engine, &flags::Machine { workers: Some(1) })?, table })
}

/// Resolves the program that `tpcc footprint` traces: one worker that does all that an engine's services do, too.
pub(crate) fn traced(flags: &flags::Footprint) -> Result<(StoreConfig, Plan), Error> {
    let config = StoreConfig {
        data: flags.data.clone().unwrap_or_else(|| DATA.into()),
        workers: 1,
        buffer_pool_mib: 1_024,
        durability: Durability::Async,
        isolation: Isolation::Serializable,
        latches: Latches::Optimistic,
        prefetch: flags.prefetch.is_on(),
        preload: true,
        background: Background::Inline,
        checkpoint_mib: 2_048,
        page_checksums: true,
        read_delay_us: 0,
        team_size: 1,
    };
    let length = Length { warmup: Duration::ZERO, duration: None, transactions: None };
    let seed = flags.seed.unwrap_or_else(fresh_seed);
    let plan = Plan {
        warehouses: 1,
        workers: 1,
        terminals: 10,
        mix: flags.mix,
        steps: Steps::HotLast,
        length,
        seed,
        admission: Admission::Fifo,
    };
    Ok((config, plan))
}

fn store(data: Option<&Path>, engine: &flags::Engine, machine: &flags::Machine) -> Result<StoreConfig, Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = match machine.workers {
        Some(n) => number("--workers", n, 1, MOST_WORKERS)? as usize,
        None => cores,
    };
    let buffer_pool_mib = match engine.buffer_pool {
        Some(n) if n < LEAST_POOL_MIB as i64 => {
            return Err(Error::usage(format!(
                "--buffer-pool {n}: at least {LEAST_POOL_MIB} MiB for {workers} workers"
            ))
            .help("1024 MiB hold about ten warehouses"));
        }
        Some(n) => number("--buffer-pool", n, LEAST_POOL_MIB, 1 << 24)?,
        None => 1_024,
    };
    let checkpoint_mib = match engine.checkpoint_mib {
        Some(n) => number("--checkpoint-mib", n, 1, 1 << 24)?,
        None => 2_048,
    };
    Ok(StoreConfig {
        data: data.unwrap_or(Path::new(DATA)).to_owned(),
        workers,
        buffer_pool_mib,
        durability: Durability::Sync,
        isolation: Isolation::Serializable,
        latches: Latches::Optimistic,
        prefetch: true,
        preload: false,
        background: engine.background.unwrap_or(Background::Threads),
        checkpoint_mib,
        page_checksums: engine.page_checksums.is_none_or(Switch::is_on),
        read_delay_us: 0,
        team_size: 1,
    })
}

/// Resolves `tpcc history`.
pub(crate) fn history(flags: flags::History) -> Result<HistoryConfig, Error> {
    let number = |flag: &str, given: i64, least: u64, most: u64| {
        number(flag, given, least, most as i64)
            .map_err(|error| error.help(format!("'tpcc history --help' explains {flag}")))
    };
    let sessions = number("--sessions", flags.sessions, 1, history::Params::MOST_SESSIONS.into())?;
    let most = history::Params::MOST_TRANSACTIONS / sessions;
    let transactions = number("--transactions", flags.transactions, 1, most)?;
    let keys = number("--keys", flags.keys, 1, history::Params::MOST_KEYS)?;
    let abort_percent = number("--abort-percent", flags.abort_percent, 0, 100)?;
    let params = history::Params {
        form: match flags.form {
            Form::ListAppend => history::Form::ListAppend,
            Form::Register => history::Form::Register,
        },
        sessions: sessions as u32,
        transactions: transactions as u32,
        keys,
        isolation: flags.isolation.of_storage(),
        abort_percent: abort_percent as u32,
        range: history::Params::RANGE,
        list_full: history::Params::LIST_FULL,
        seed: flags.seed.unwrap_or_else(fresh_seed),
    };
    let store = StoreConfig {
        data: flags.data,
        workers: params.sessions as usize,
        buffer_pool_mib: number("--buffer-pool", flags.buffer_pool, LEAST_POOL_MIB, 1 << 24)?,
        durability: flags.durability,
        isolation: flags.isolation,
        latches: flags.latches,
        prefetch: false,
        preload: false,
        background: Background::Threads,
        checkpoint_mib: 64,
        page_checksums: true,
        read_delay_us: 0,
        team_size: 1,
    };
    let (teams, scheduler) = teams(&flags.scheduling, flags.workers, params.sessions)?;
    Ok(HistoryConfig { store, params, teams, scheduler, form: flags.form, out: flags.out })
}

/// The teams of `tpcc history`, and how its sessions run in words.
fn teams(
    flags: &flags::Scheduling,
    workers: Option<i64>,
    sessions: u32,
) -> Result<(Option<history::Teams>, String), Error> {
    let of_history = |error: Error| error.help("'tpcc history --help' explains the flags");
    let scheduling = scheduling(flags)?;
    let Scheduling::Steps { team_size, teams_of, points } = &scheduling else {
        if workers.is_some() {
            return Err(Error::usage("--workers: means nothing with --scheduler threads")
                .help("every session has a thread of its own; pass --scheduler steps, or leave the flag out"));
        }
        return Ok((None, Scheduler::Threads.name().to_owned()));
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = match workers {
        Some(n) => number("--workers", n, 1, i64::from(sessions)).map_err(of_history)? as usize,
        None => cores.min(sessions as usize),
    };
    let (name, at) = (scheduling.name(), scheduling.points().unwrap_or_default());
    let said = format!("{name}, {}, teams of at most {team_size}, points {at}", counted(workers as u64, "worker"));
    Ok((Some(history::Teams::as_run(workers, *team_size, *teams_of, points)?), said))
}

fn scheduling(flags: &flags::Scheduling) -> Result<Scheduling, Error> {
    let team_size = flags.team_size.map(|n| number("--team-size", n, 1, MOST_TEAM)).transpose()?;
    if flags.scheduler == Scheduler::Threads {
        let given = [
            ("--team-size", team_size.is_some()),
            ("--teams", flags.teams.is_some()),
            ("--ctx-points", flags.ctx_points.is_some()),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            None => Ok(Scheduling::Threads),
            Some((flag, _)) => Err(Error::usage(format!("{flag}: means nothing with --scheduler threads"))
                .help("pass --scheduler steps, or leave the flag out")),
        };
    }
    let points = ctx_points(flags.ctx_points.as_deref())?;
    if flags.teams.is_some() && points == CtxPoints::None {
        return Err(Error::usage("--teams: means nothing with --ctx-points none")
            .help("without points transactions run one after the other; leave one of the two out"));
    }
    let teams_of = flags.teams.unwrap_or(TeamsOf::Transaction);
    Ok(Scheduling::Steps { team_size: team_size.map_or(TEAM_SIZE, |n| n as usize), teams_of, points })
}

/// Resolves `--ctx-points`.
pub(crate) fn ctx_points(given: Option<&str>) -> Result<CtxPoints, Error> {
    Ok(match given {
        None => CtxPoints::BuiltIn,
        Some("all") => CtxPoints::All,
        Some("none") => CtxPoints::None,
        Some("") => return Err(Error::usage("--ctx-points: needs a value").help("a file, all, or none")),
        Some(file) => CtxPoints::File(file.into()),
    })
}

fn warehouses(data: &flags::Data) -> Result<Option<u32>, Error> {
    data.warehouses.map(|n| number("--warehouses", n, 1, MOST_WAREHOUSES).map(|n| n as u32)).transpose()
}

fn number(flag: &str, given: i64, least: impl Into<i128>, most: i64) -> Result<u64, Error> {
    let least = least.into();
    if (least..=i128::from(most)).contains(&i128::from(given)) {
        return Ok(given as u64);
    }
    Err(if i128::from(given) < least {
        Error::usage(format!("{flag} {given}: at least {least}"))
    } else {
        Error::usage(format!("{flag} {given}: at most {most}"))
    }
    .help(format!("'tpcc run --help' explains {flag}")))
}

fn no_floor(engine: &flags::Engine, command: &str) -> Result<(), Error> {
    match engine.engine {
        EngineKind::Storage => Ok(()),
        EngineKind::Floor => Err(Error::usage("--engine floor: keeps nothing on disk").help(format!(
            "'tpcc run --engine floor' loads, runs and checks in memory; 'tpcc {command}' is for storage"
        ))),
    }
}

/// The floor is one thread on maps: what asks for more is a mistake, not a setting.
fn floor_has_no(flags: &flags::Run) -> Result<(), Error> {
    if let Some(workers) = flags.machine.workers.filter(|&n| n != 1) {
        return Err(Error::usage(format!("--workers {workers}: the floor is one thread"))
            .help("pass --workers 1, or --engine storage"));
    }
    let (engine, how) = (&flags.engine, &flags.transactions);
    let given = [
        ("--data", flags.data.data.is_some()),
        ("--durability", how.durability.is_some()),
        ("--isolation", how.isolation.is_some()),
        ("--latches", how.latches.is_some()),
        ("--prefetch", how.prefetch.is_some()),
        ("--preload", how.preload.is_some()),
        ("--read-delay-us", how.read_delay_us.is_some()),
        ("--buffer-pool", engine.buffer_pool.is_some()),
        ("--background", engine.background.is_some()),
        ("--checkpoint-mib", engine.checkpoint_mib.is_some()),
        ("--page-checksums", engine.page_checksums.is_some()),
        ("--ack-stdout", flags.ack_stdout),
        ("--scheduler steps", flags.scheduling.scheduler == Scheduler::Steps),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Error::usage(format!("{flag}: means nothing with --engine floor"))
            .help("the floor has no pages, no log and no locks; leave the flag out, or pass --engine storage")),
        None => Ok(()),
    }
}
