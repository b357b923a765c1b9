//! Opening, loading and closing a database directory for the commands.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use storage::disk::{Disk, FileDisk, LockError};
use storage::{Hook, OpenError, OpenTable, Options, Recovery, RecoveryPass, StorageError, Table, TxnError};

use super::steps::{self, StepsHook};
use super::storage::{Store, StoreError};
use crate::config::StoreConfig;
use crate::database::Database;
use crate::engine::Engine;
use crate::error::Error;
use crate::flags::{Background, Durability, Latches};
use crate::report::json;
use crate::report::summary::counted;
use crate::schema::TableId;
use crate::schema::meta::Loaded;
use crate::space;
use crate::structure::Structure;
use crate::{interrupt, load, progress};

/// Transactions beside the workers': those of the loader's and the checker's threads.
const SPARE_TRANSACTIONS: usize = 16;
/// The engine's bound on transactions at once.
const MOST_TRANSACTIONS: usize = 1_000;
/// The file that makes a directory a database.
const CONTROL: &str = "control";

impl Database for Store {
    fn open(config: &StoreConfig) -> Result<Option<(Self, Loaded)>, Error> {
        let shown = config.shown();
        let (options, hook) = options(config)?;
        let db = match options.create(false).on_recovery(announce(&shown)).open(&config.data) {
            Ok(db) => db,
            Err(OpenError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(cannot_open(&error)),
        };
        let names = db.table_names();
        let has = |table: &TableId| names.iter().any(|name| name == table.name());
        if !TableId::LOADED.iter().all(has) {
            // A database of somebody else gets no tables of ours. Beside ours others may lie: those of the shell.
            let is_ours = |name: &&String| TableId::ALL.iter().any(|table| table.name() == *name);
            return Err(match names.iter().find(|name| !is_ours(name)) {
                Some(other) => Error::failed(format!("{shown}: not a database of tpcc (it has a table '{other}')"))
                    .help("choose another directory with --data"),
                None => incomplete(&shown),
            });
        }
        let store = Store::on(db, config, hook)?;
        let mut reader = store.reader().map_err(failed)?;
        let loaded = Loaded::read(&mut reader).map_err(failed)?;
        drop(reader);
        match loaded {
            Some(loaded) => Ok(Some((store, loaded))),
            None => Err(incomplete(&shown)),
        }
    }

    fn load(
        config: &StoreConfig,
        plan: &load::Plan,
        replace: bool,
        progress: &load::Progress,
    ) -> Result<Option<Self>, Error> {
        let shown = config.shown();
        if config.data.join(CONTROL).exists() {
            if !replace {
                let loaded = Self::open(config)?;
                let held = loaded.map_or(0, |(_, loaded)| loaded.warehouses);
                return Err(Error::failed(format!(
                    "{shown}: already holds {}; nothing was changed",
                    counted(held.into(), "warehouse")
                ))
                .help("'tpcc load --replace' deletes them first; or choose another directory with --data"));
            }
            remove(&config.data)?;
        }
        space::check(&config.data, plan.warehouses)?;
        let (options, hook) = options(config)?;
        let db = options.open(&config.data).map_err(|error| cannot_create(&error, &shown))?;
        let store = Store::on(db, config, hook)?;
        match load::populate(plan, &store, config.workers, progress).map_err(failed)? {
            load::Loading::Done => {
                store.finish_load(&plan.loaded()).map_err(failed)?;
                Ok(Some(store))
            }
            load::Loading::Cancelled => Ok(None),
        }
    }

    fn preload(&self) -> Result<(), Error> {
        self.database().preload().map(drop).map_err(|error| below(&error))
    }

    fn verify(&self) -> Result<(), Error> {
        self.database().verify_pages().map(drop).map_err(|error| below(&error))
    }

    fn structure(&self, look: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Structure, Error> {
        let found = self.database().check_structure(look).map_err(|error| below(&error))?;
        let told = |finding: &storage::Finding| json::Finding {
            rule: finding.rule.name().to_owned(),
            file: finding.file.clone(),
            page: finding.page.0,
            what: finding.what.clone(),
        };
        Ok(Structure {
            lines: found.findings.iter().map(ToString::to_string).collect(),
            told: json::Structure {
                passed: found.passed(),
                pages: found.pages,
                free_pages: found.free,
                rows: found.rows,
                entries: found.entries,
                seconds: 0.0,
                findings: found.findings.iter().map(told).collect(),
                more: found.more,
            },
        })
    }

    fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error> {
        Store::fingerprint(self, look).map_err(failed)
    }

    fn close(self) -> Result<(), Error> {
        Store::close(self).map_err(|error| below(&error))
    }
}

impl Store {
    fn on(db: storage::Database, config: &StoreConfig, hook: Option<Arc<StepsHook>>) -> Result<Store, Error> {
        let inline = config.background == Background::Inline;
        let isolation = config.isolation.of_storage();
        Store::new(db, isolation, durability(config), config.prefetch, inline, hook).map_err(failed)
    }
}

/// Opens a directory for the shell, creating the database and the table if they are not there. At most `sessions`
/// transactions run at once.
pub(crate) fn open_for_shell(
    config: &StoreConfig,
    hook: Arc<dyn Hook>,
    sessions: usize,
    table: &'static str,
) -> Result<(storage::Database, OpenTable<i64, String>), Error> {
    let shown = config.shown();
    let options = options(config)?.0.transactions(sessions).hook(hook).on_recovery(announce(&shown));
    let db = options.open(&config.data).map_err(|error| cannot_create(&error, &shown))?;
    let table = db.table(&Table::new(table)).map_err(|error| failed(error.into()))?;
    Ok((db, table))
}

fn durability(config: &StoreConfig) -> storage::Durability {
    match config.durability {
        Durability::Sync => storage::Durability::Sync,
        Durability::Async => storage::Durability::Async,
    }
}

/// How the engine is opened, and the hook that schedules it.
pub(crate) fn options(config: &StoreConfig) -> Result<(Options, Option<Arc<StepsHook>>), Error> {
    let team = config.scheduling.team_size();
    let transactions = config.workers * team + SPARE_TRANSACTIONS;
    if transactions > MOST_TRANSACTIONS {
        let most = MOST_TRANSACTIONS - SPARE_TRANSACTIONS;
        let workers = format!("--workers {}: at most {}", config.workers, most / team);
        return Err(match team {
            1 => Error::usage(workers),
            _ => Error::usage(format!("{workers} with teams of {team}")),
        }
        .help("a worker serves many terminals; more workers than cores gain nothing"));
    }
    let hook = steps::hook(&config.scheduling)?;
    let options = match &hook {
        Some(hook) => Options::new().hook(Arc::clone(hook) as Arc<dyn Hook>),
        None => Options::new(),
    };
    let options = options
        .buffer_pool(config.buffer_pool_mib << 20)
        .durability(durability(config))
        .latches(match config.latches {
            Latches::Optimistic => storage::LatchKind::Optimistic,
            Latches::Plain => storage::LatchKind::Plain,
        })
        .background(match config.background {
            Background::Threads => storage::Background::Threads,
            Background::Inline => storage::Background::Inline,
        })
        .checkpoint_every(config.checkpoint_mib << 20)
        .page_checksums(config.page_checksums)
        .transactions(transactions);
    Ok((options, hook))
}

/// Says that a database is being recovered, and lets Ctrl-C break that off.
pub(crate) fn announce(shown: &str) -> impl FnMut(&Recovery) -> ControlFlow<()> + Send + 'static {
    let (shown, start, mut said) = (shown.to_owned(), Instant::now(), false);
    move |recovery| {
        match recovery.pass {
            RecoveryPass::Redo | RecoveryPass::Undo if !said => {
                progress::note(&format!("{shown}: was not closed; recovering from its log"));
                said = true;
            }
            RecoveryPass::Done if said => progress::note(&format!(
                "{shown}: recovered {} records, {} bytes in {:.0} ms; {} transactions rolled back",
                recovery.records,
                recovery.bytes,
                start.elapsed().as_secs_f64() * 1e3,
                recovery.losers
            )),
            _ => {}
        }
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn incomplete(shown: &str) -> Error {
    Error::failed(format!("{shown}: incomplete load")).help("'tpcc load --replace' deletes it and loads again")
}

fn in_use(directory: &str, holder: &str) -> Error {
    Error::failed(format!("{directory}: in use by process {holder}; stop it or choose another --data"))
}

fn cannot_create(error: &OpenError, shown: &str) -> Error {
    match error {
        OpenError::Missing { .. } => {
            Error::failed(format!("{shown}: cannot be created there")).help("choose another directory with --data")
        }
        error => cannot_open(error),
    }
}

/// Why the engine cannot be opened, and what to do.
pub(crate) fn cannot_open(error: &OpenError) -> Error {
    match error {
        OpenError::Setting { setting: "buffer_pool", what } => {
            Error::usage(format!("--buffer-pool: {what}")).help("pass more MiB")
        }
        OpenError::InUse { directory, holder } => in_use(directory, holder),
        OpenError::NotADatabase { .. } => {
            Error::failed(error.to_string()).help("choose another directory with --data; nothing was changed")
        }
        OpenError::Cancelled { .. } => Error::failed(error.to_string()).help("the same command again goes on"),
        OpenError::Storage(error) | OpenError::Catalog(TxnError::Storage(error)) => below(error),
        _ => Error::failed(error.to_string()),
    }
}

/// What to do when files or pages fail.
pub(crate) fn below(error: &StorageError) -> Error {
    let failed = Error::failed(error.to_string());
    match error {
        StorageError::CorruptPage { .. } | StorageError::CorruptFile { .. } => {
            failed.help("restore a copy, or delete and load again with 'tpcc load --replace'")
        }
        StorageError::Format { .. } => failed.help("use the build that wrote it, or 'tpcc load --replace'"),
        StorageError::PoolExhausted { .. } => failed.help("pass a larger --buffer-pool, or fewer --workers"),
        StorageError::NoSpace { .. } => failed.help("free space on that disk; nothing acknowledged is lost"),
        _ => failed,
    }
}

fn failed(error: StoreError) -> Error {
    match &error {
        StoreError::Storage(error) => below(error),
        StoreError::Transaction(error) => failed_transaction(error),
        _ => Error::failed(error.to_string()),
    }
}

/// Why a transaction failed that should not have, and what to do.
pub(crate) fn failed_transaction(error: &TxnError) -> Error {
    match error {
        TxnError::Storage(error) => below(error),
        _ => Error::failed(error.to_string()),
    }
}

/// Deletes the files of a database that nobody has open: the control file first, without which the rest is nothing.
fn remove(data: &Path) -> Result<(), Error> {
    let shown = data.display().to_string();
    let cannot = |error: io::Error| Error::failed(format!("{shown}: cannot be replaced: {error}"));
    let disk = FileDisk::open(data).map_err(cannot)?;
    let _lock = disk.lock().map_err(|error| match error {
        LockError::Held { dir, pid } => in_use(&dir, &pid.map_or("another".to_owned(), |pid| pid.to_string())),
        _ => Error::failed(error.to_string()),
    })?;
    disk.remove(CONTROL).map_err(cannot)?;
    disk.sync_dir().map_err(cannot)?;
    for name in disk.list().map_err(cannot)? {
        if name.starts_with("pages.") || name.starts_with("log.") {
            disk.remove(&name).map_err(cannot)?;
        }
    }
    Ok(())
}
