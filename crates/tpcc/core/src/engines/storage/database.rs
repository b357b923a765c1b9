//! Opening, loading and closing of database directories, for the commands.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::disk::{FileDisk, LayeredDisk};
use storage::{DatabaseFiles, Hook, OpenError, OpenTable, Options, Recovery, RecoveryPass, Table};

use super::advice::{cannot_create, cannot_open, incomplete, storage_error, store_error};
use super::delayed::{PAGES, ReadDelay};
use super::fiber_hook::StoreHook;
use super::store::Store;
use crate::engines::space;
use crate::workload::database::{Database, PageFinding, RegionReport, StructureReport};
use crate::workload::engine::Engine;
use crate::workload::error::{Error, command};
use crate::workload::loaded::Loaded;
use crate::workload::schema::TableId;
use crate::workload::settings::StoreConfig;
use crate::workload::settings::{Background, Durability, Isolation, LargePages, Latches};
use crate::workload::streams::say;
use crate::workload::words::counted;
use crate::workload::{interrupt, load};

/// Number of concurrent transactions in addition to the workers' transactions, for the threads of the loader and the
/// checker.
const SPARE_TRANSACTIONS: usize = 16;
/// Maximum number of concurrent transactions of the engine.
const MAX_TRANSACTIONS: usize = 1_000;
/// Name of the file that makes a directory a database.
const CONTROL: &str = "control";

impl Database for Store {
    type Hook = Arc<dyn StoreHook>;

    fn open(config: &StoreConfig, hook: Option<&Self::Hook>) -> Result<Option<(Self, Loaded)>, Error> {
        let shown = config.shown();
        match DirectoryContents::inspect(config, hook)? {
            DirectoryContents::Empty => Ok(None),
            DirectoryContents::Complete(store, loaded) => Ok(Some((*store, loaded))),
            DirectoryContents::Incomplete => Err(incomplete(&shown)),
            DirectoryContents::Foreign(table) => {
                Err(Error::failed(format!("{shown}: not a database of tpcc (it has a table '{table}')"))
                    .help("choose another directory with --data"))
            }
            DirectoryContents::Unreadable(error) => Err(error),
        }
    }

    fn clear(
        config: &StoreConfig,
        warehouses: u32,
        consent: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shown = config.shown();
        // The database is opened and closed before the claim below, because both take the same lock of the directory.
        let description = match DirectoryContents::inspect(config, None)? {
            DirectoryContents::Empty => None,
            DirectoryContents::Incomplete => None,
            DirectoryContents::Complete(store, loaded) => {
                Database::close(*store)?;
                Some(counted(loaded.warehouses.into(), "warehouse"))
            }
            DirectoryContents::Foreign(table) => {
                Some(format!("a database of another program (it has a table '{table}')"))
            }
            DirectoryContents::Unreadable(_) => Some("a database that cannot be opened".to_owned()),
        };
        let Some(files) = DatabaseFiles::claim(&config.data).map_err(|error| cannot_open(&error, &shown))? else {
            return Ok(());
        };
        if let [first, more @ ..] = files.foreign() {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            return Err(Error::failed(format!(
                "{shown}: holds '{first}'{more}, no file of a database; nothing was deleted"
            ))
            .help("move away what is not the database's, or choose another directory with --data"));
        }
        space::check(&config.data, warehouses, files.bytes())?;
        if let Some(description) = description {
            consent(&format!("{shown} holds {description}, {} MiB", files.bytes().div_ceil(1 << 20)))?;
        }
        files.delete().map_err(|error| storage_error(&error, &shown))
    }

    fn load(
        config: &StoreConfig,
        hook: Option<&Self::Hook>,
        plan: &load::Population,
        progress: &load::RowsDone,
    ) -> Result<Option<Self>, Error> {
        let shown = config.shown();
        if config.data.join(CONTROL).exists() {
            let loaded = Self::open(config, None)?;
            let held = loaded.map_or(0, |(_, loaded)| loaded.warehouses);
            let warehouses = format!("--warehouses {} --replace", plan.warehouses);
            return Err(Error::failed(format!(
                "{shown}: already holds {}; nothing was changed",
                counted(held.into(), "warehouse")
            ))
            .help(format!(
                "{} deletes that first; or choose another directory with --data",
                command("load", &shown, &warehouses)
            )));
        }
        space::check(&config.data, plan.warehouses, 0)?;
        let options = options(config, hook)?;
        let db = open_files(options, config, true).map_err(|error| cannot_create(&error, &shown))?;
        let store = Store::on(db, config, hook)?;
        let loaded = load::populate(plan, &store, config.workers, progress);
        match loaded.map_err(|error| error.into_error(|error| store_error(error, &shown)))? {
            load::LoadEnd::Done => {
                store.finish_load(&plan.loaded()).map_err(|error| store_error(error, &shown))?;
                Ok(Some(store))
            }
            load::LoadEnd::Cancelled => Ok(None),
        }
    }

    fn preload(&self) -> Result<(), Error> {
        self.database().preload().map(drop).map_err(|error| storage_error(&error, self.database().directory()))
    }

    fn verify(&self) -> Result<(), Error> {
        self.database().verify_pages().map(drop).map_err(|error| storage_error(&error, self.database().directory()))
    }

    fn structure(&self, look: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<StructureReport, Error> {
        let found = self
            .database()
            .check_structure(look)
            .map_err(|error| storage_error(&error, self.database().directory()))?;
        let told = |finding: &storage::Finding| PageFinding {
            rule: finding.rule.name().to_owned(),
            file: finding.file.clone(),
            page: finding.page.0,
            what: finding.what.clone(),
            line: finding.to_string(),
        };
        Ok(StructureReport {
            passed: found.passed(),
            pages: found.pages,
            free_pages: found.free,
            rows: found.rows,
            entries: found.entries,
            findings: found.findings.iter().map(told).collect(),
            more: found.more,
        })
    }

    fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error> {
        Store::fingerprint(self, look).map_err(|error| store_error(error, self.database().directory()))
    }

    fn memory(&self) -> Option<Vec<RegionReport>> {
        let given = self.database().large_pages().ok()?;
        let found = |region: storage::MemoryRegion| RegionReport {
            name: region.name.to_owned(),
            bytes: region.bytes,
            resident: region.resident_bytes,
            large: region.large_bytes,
        };
        Some(given.regions.into_iter().map(found).collect())
    }

    fn close(self) -> Result<(), Error> {
        let shown = self.database().directory().to_owned();
        Store::close(self).map_err(|error| storage_error(&error, &shown))
    }
}

/// Contents of a directory that is to be opened or loaded.
enum DirectoryContents {
    /// No database.
    Empty,
    /// A complete database of this workload.
    Complete(Box<Store>, Loaded),
    /// An incomplete database, left by an interrupted load.
    Incomplete,
    /// A database with other tables, and the name of one of them.
    Foreign(String),
    /// A database that cannot be opened, and the reason.
    Unreadable(Error),
}

impl DirectoryContents {
    /// Opens the database, if there is one, and determines the contents of the directory.
    fn inspect(config: &StoreConfig, hook: Option<&Arc<dyn StoreHook>>) -> Result<DirectoryContents, Error> {
        let shown = config.shown();
        let options = options(config, hook)?;
        let db = match open_files(options.create(false).on_recovery(announce(&shown)), config, false) {
            Ok(db) => db,
            Err(OpenError::Missing { .. }) => return Ok(DirectoryContents::Empty),
            Err(error @ (OpenError::Storage(_) | OpenError::Catalog(_))) => {
                return Ok(DirectoryContents::Unreadable(cannot_open(&error, &shown)));
            }
            Err(error) => return Err(cannot_open(&error, &shown)),
        };
        let names = db.table_names();
        let has = |table: &TableId| names.iter().any(|name| name == table.name());
        if !TableId::LOADED.iter().all(has) {
            // A database of another program gets no tables of this workload. A database of this workload may have further
            // tables, which the shell has created.
            let is_ours = |name: &String| TableId::ALL.iter().any(|table| table.name() == *name);
            return Ok(names
                .into_iter()
                .find(|name| !is_ours(name))
                .map_or(DirectoryContents::Incomplete, DirectoryContents::Foreign));
        }
        let store = Store::on(db, config, hook)?;
        let loaded = store.reader().and_then(|mut reader| Loaded::read(&mut reader));
        Ok(match loaded {
            Ok(Some(loaded)) => DirectoryContents::Complete(Box::new(store), loaded),
            Ok(None) => DirectoryContents::Incomplete,
            Err(error) => DirectoryContents::Unreadable(store_error(error, &shown)),
        })
    }
}

impl Store {
    pub(super) fn on(
        db: storage::Database,
        config: &StoreConfig,
        hook: Option<&Arc<dyn StoreHook>>,
    ) -> Result<Store, Error> {
        let inline = config.background == Background::Inline;
        let isolation = config.isolation.of_storage();
        Store::new(db, isolation, durability(config), config.prefetch, inline, hook.map(|hook| &**hook))
            .map_err(|error| store_error(error, &config.shown()))
    }
}

/// Opens a directory for the shell, and creates the database and the table if they do not exist. At most `sessions`
/// transactions run at the same time.
pub fn open_for_shell(
    config: &StoreConfig,
    hook: Arc<dyn Hook>,
    sessions: usize,
    table: &'static str,
) -> Result<(storage::Database, OpenTable<i64, String>), Error> {
    let shown = config.shown();
    let options = options(config, None)?.transactions(sessions).hook(hook).on_recovery(announce(&shown));
    let db = options.open(&config.data).map_err(|error| cannot_create(&error, &shown))?;
    let table = db.table(&Table::new(table)).map_err(|error| store_error(error.into(), &shown))?;
    Ok((db, table))
}

/// Opens the files of the directory, with the read delay of `config` if there is one.
fn open_files(options: Options, config: &StoreConfig, create: bool) -> Result<storage::Database, OpenError> {
    if config.read_delay_us > 0 {
        let disk = if create { FileDisk::create(&config.data) } else { FileDisk::open(&config.data) };
        // If the directory cannot be opened, the call below reports the reason.
        if let Ok(disk) = disk {
            let delay = Arc::new(ReadDelay(Duration::from_micros(config.read_delay_us)));
            return options.open_on(Arc::new(LayeredDisk::new(disk, PAGES, delay)));
        }
    }
    options.open(&config.data)
}

impl Isolation {
    /// Returns the isolation level of the storage engine.
    pub fn of_storage(self) -> storage::Isolation {
        match self {
            Isolation::Serializable => storage::Isolation::Serializable,
            Isolation::RepeatableRead => storage::Isolation::RepeatableRead,
            Isolation::ReadCommitted => storage::Isolation::ReadCommitted,
        }
    }
}

fn durability(config: &StoreConfig) -> storage::Durability {
    match config.durability {
        Durability::Sync => storage::Durability::Sync,
        Durability::Async => storage::Durability::Async,
    }
}

/// Converts a configuration to options of the storage engine, with an optional hook to a scheduler.
pub fn options(config: &StoreConfig, hook: Option<&Arc<dyn StoreHook>>) -> Result<Options, Error> {
    let team = config.team_size;
    let runs_epochs = config.loop_threads > 1 || config.loops.epochs_on_one_thread;
    let of_loop = if runs_epochs { config.loop_threads * speculate::DEPTH } else { 0 };
    let transactions = config.workers * (team + of_loop) + SPARE_TRANSACTIONS;
    if transactions > MAX_TRANSACTIONS {
        let most = MAX_TRANSACTIONS - SPARE_TRANSACTIONS;
        let workers = format!("--workers {}: at most {}", config.workers, most / (team + of_loop));
        return Err(match team {
            1 if of_loop > 0 => Error::usage(format!("{workers} with loops on {} threads", config.loop_threads)),
            1 => Error::usage(workers),
            _ => Error::usage(format!("{workers} with teams of {team}")),
        }
        .help("a worker serves many terminals; more workers than cores gain nothing"));
    }
    let options = match hook {
        Some(hook) => Options::new().hook(Arc::clone(hook) as Arc<dyn Hook>),
        None => Options::new(),
    };
    let options = options
        .buffer_pool(config.buffer_pool_mib << 20)
        .durability(durability(config))
        .latches(match config.latches {
            Latches::Optimistic => storage::LatchKind::Optimistic,
            Latches::Plain => storage::LatchKind::Plain,
            Latches::Super => storage::LatchKind::Super,
        })
        .large_pages(match config.large_pages {
            LargePages::On => storage::LargePages::On,
            LargePages::Off => storage::LargePages::Off,
            LargePages::Try | LargePages::Code => storage::LargePages::Try,
        })
        .frame_homes(match config.own_frames {
            true => storage::FrameHomes::PerThread,
            false => storage::FrameHomes::Shared,
        })
        .background(match config.background {
            Background::Threads => storage::Background::Threads,
            Background::Inline => storage::Background::Inline,
        })
        .checkpoint_every(config.checkpoint_mib << 20)
        .page_checksums(config.page_checksums)
        .transactions(transactions)
        .loop_threads(config.loop_threads)
        .measure_loops(config.loops);
    Ok(match config.latch_words {
        Some(words) => options.latch_words(words),
        None => options,
    })
}

/// Interval of the lines about the progress of a recovery.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Returns a callback that reports the recovery of a database on stderr, and that cancels the recovery after a signal.
pub fn announce(shown: &str) -> impl FnMut(&Recovery) -> ControlFlow<()> + Send + 'static {
    let (shown, start, mut said) = (shown.to_owned(), Instant::now(), false);
    let mut redo_began = None;
    let mut next_line = PROGRESS_EVERY;
    move |recovery| {
        if recovery.pass == RecoveryPass::Redo {
            let (bytes, total) = (recovery.bytes as f64, recovery.total_bytes.unwrap_or_default() as f64);
            let in_redo = redo_began.get_or_insert_with(Instant::now).elapsed();
            if start.elapsed() >= next_line && bytes > 0.0 {
                next_line = start.elapsed() + PROGRESS_EVERY;
                let left = in_redo.as_secs_f64() * (total / bytes - 1.0).max(0.0);
                say(format_args!(
                    "{shown}: redo has read {:.0}% of {:.0} MB of log, {left:.0} s left",
                    1e2 * bytes / total.max(1.0),
                    total / 1e6,
                ));
            }
        }
        match recovery.pass {
            RecoveryPass::Redo | RecoveryPass::Undo if !said => {
                say(format_args!("{shown}: was not closed; recovering from its log"));
                said = true;
            }
            RecoveryPass::Done if said => say(format_args!(
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
