//! Opening, closing, and operations on a whole database.

use crate::base::sync::plain::{AtomicBool, AtomicU64, Ordering};
use std::path::Path;
use std::sync::Arc;

use super::background::BackgroundServices;
use super::files::{self, DirectoryContent, LogFront};
use super::loop_threads::LoopThreads;
use super::options::{MAX_LOOP_THREADS, MOST_POOL_BYTES, Options, cores};
use crate::base::arena::PageSize;
use crate::base::asserting_hook::with_assertions;
use crate::base::config::{Background, LargePages, LatchKind, Service};
use crate::base::error::{LogHolder, OpenError, StorageError, TxnError};
use crate::base::fair_lock::FairLock;
use crate::base::hook::BlockReason;
use crate::base::ids::{Lsn, PAGE_SIZE, SlotId};
use crate::base::poison::Poison;
use crate::base::sync::Mutex;
use crate::base::waits::Wait;
use crate::btree::extent;
use crate::btree::ops;
use crate::btree::space::SPACE_PAGE;
use crate::buffer::{BufferPool, LARGE_FRAMES, PoolOptions};
use crate::io::memory::large_pages_available;
use crate::io::{Disk, DiskLock, FileDisk};
use crate::lock::{LockOptions, LockTable};
use crate::log::{Log, LogOptions};
use crate::recovery::checkpoint::Checkpointer;
use crate::recovery::control::ControlFile;
use crate::recovery::redo::{self, RedoOptions};
use crate::recovery::restart::{self, Reporter};
use crate::table::catalog::Catalog;
use crate::table::contended::TableContention;
use crate::table::declared::Declared;
use crate::table::index::AccessMode;
use crate::table::info::TableInfo;
use crate::table::waits::Waits;
use crate::txn::active::{SYSTEM_SLOTS, Slots, SystemPurpose};
use crate::txn::engine::Engine;

/// An open database. Share the value between threads by reference or in an [`Arc`]. Dropping the value closes the
/// database.
pub struct Database {
    pub(crate) engine: Arc<Engine>,
    pub(crate) catalog: Arc<Catalog>,
    pub(super) background: Arc<BackgroundServices>,
    pub(super) reruns: u32,
    pub(super) large_pages: LargePages,
    pub(super) loops: LoopThreads,
    closed: Mutex<bool>,
    /// Lock that admits one compacting thread at a time.
    pub(super) compacting: FairLock<()>,
    directory: String,
    _lock: DiskLock,
}

impl Options {
    /// Opens the database in a directory of files.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Database, OpenError> {
        let directory = directory.as_ref();
        let disk = if self.create { FileDisk::create(directory) } else { FileDisk::open(directory) };
        let disk = disk.map_err(|source| OpenError::directory(directory, source))?;
        self.open_on(Arc::new(disk))
    }

    /// Opens the database on any disk: in memory, or simulated.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_on(self, disk: Arc<dyn Disk>) -> Result<Database, OpenError> {
        Database::open_with(disk, self)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Returns a random identifier for a new database, never zero.
pub(super) fn new_id() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    hasher.finish() | 1
}

impl Database {
    /// Opens the database in a directory with these settings; creates it if there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Database, OpenError> {
        options.open(directory)
    }

    pub(crate) fn open_with(disk: Arc<dyn Disk>, mut options: Options) -> Result<Database, OpenError> {
        options.hook = with_assertions(options.hook);
        let directory = files::directory(&*disk);
        options.check()?;
        if options.large_pages == LargePages::On {
            large_pages_available().map_err(|what| OpenError::Setting { setting: "large_pages", what })?;
        }
        let pool_bytes = options.pool_bytes.min(MOST_POOL_BYTES);
        let frames = (pool_bytes / size_of::<crate::buffer::frame::Frame>() as u64) as usize;
        let memory = options.large_pages.pages(frames >= LARGE_FRAMES);
        let found = files::inspect_directory(&*disk)?;
        if found == DirectoryContent::Nothing && !options.create {
            return Err(OpenError::Missing { directory });
        }
        let lock = disk.lock().map_err(files::not_locked)?;
        let found = files::inspect_directory(&*disk)?;
        let poison = Arc::new(Poison::default());
        let segment_bytes = options.log_file_bytes();
        let log_bounds = (options.checkpoint_bytes, options.log_limit_bytes());
        let log_options = |database| LogOptions {
            segment_bytes,
            ring_bytes: options.ring_bytes,
            memory,
            // One slot for each transaction of users, one for each concurrent transaction of the engine, and one for
            // checkpoints and restart.
            slots: options.transactions + SYSTEM_SLOTS + 1,
            reserve_bytes: segment_bytes / 4,
            checkpoint_every: Some(log_bounds),
            database,
            // Zeros written ahead would not make single syncs cheaper on the file systems that were measured, but would
            // write every log byte twice.
            zero_segments: false,
            reader_bytes: options.reader_bytes,
            clock: options.clock.clone(),
            ..LogOptions::default()
        };
        let mut on_recovery = options.on_recovery.take();
        let mut report = Reporter::new(on_recovery.as_mut(), directory.clone());
        let (file, control, log, analysis) = if found == DirectoryContent::Nothing {
            let database = options.database_id.unwrap_or_else(new_id);
            let log =
                Log::create(Arc::clone(&disk), log_options(database), Arc::clone(&poison), Arc::clone(&options.hook))?;
            let (file, control) = files::create(&*disk, database)?;
            (file, control, log, None)
        } else {
            let file = ControlFile::open(&*disk)?;
            let control = file.read()?;
            let analysis = restart::analyse(&disk, &control, options.reader_bytes, &mut report)?;
            let (redo, keep, clean) = (analysis.redo, analysis.keep, analysis.clean);
            let (losers, reader) = analysis.into_parts();
            let log =
                Log::open(reader, keep, log_options(control.database), Arc::clone(&poison), Arc::clone(&options.hook))?;
            (file, control, log, Some((redo, clean, losers)))
        };
        let log = Arc::new(log);
        let service_slot = SlotId((options.transactions + SYSTEM_SLOTS) as u16);
        let driven = Arc::new(AtomicBool::new(false));
        let front = LogFront { log: Arc::clone(&log), hook: Arc::clone(&options.hook), driven: Arc::clone(&driven) };
        let restart_reads = (analysis.as_ref().map_or(log.tail(), |(redo, ..)| *redo), log.tail());
        let shared = PoolOptions::new(frames);
        let pool = BufferPool::open(
            Arc::new(files::open_pages(&*disk, &file, control.database, frames, restart_reads)?),
            PoolOptions {
                latches: options.latches,
                promote_at: options.promote_at,
                contended_at: options.contended_at,
                latch_words: options.latch_words.unwrap_or_else(cores),
                checksums: options.page_checksums,
                sound: options.page_checksums,
                memory,
                homes: options.frame_homes,
                simulated: options.clock.is_simulated(),
                clock: options.clock.clone(),
                shard_frames: options.shard_frames.unwrap_or(shared.shard_frames),
                home_chunk: options.shard_frames.map_or(shared.home_chunk, |frames| (frames / 4).max(1)),
                ..shared
            },
            Arc::new(front),
            Arc::clone(&poison),
            Arc::clone(&options.hook),
        )?;
        let pool = Arc::new(pool);
        let mut redo_from = log.tail();
        let mut work = None;
        if let Some((redo, clean, losers)) = analysis {
            redo_from = redo;
            if !clean {
                let redone = redo::redo(&pool, &log, log.reader_of_old(redo), redo_options(&options), &mut report)?;
                restart::ensure_pages(&pool, redone.pages)?;
                restart::undo(&pool, &log, &losers, service_slot, &mut report)?;
                work = Some((redone.records, redone.bytes));
            } else {
                restart::ensure_pages(&pool, 0)?;
            }
        }
        let engine = Self::engine(&options, memory, control.database, pool, log, poison, driven)?;
        let checkpointer = Checkpointer::new(file, control, redo_from, service_slot);
        match extent::reclaim(engine.structure_change(service_slot)) {
            // A damaged allocator page is reported to the transactions that need it.
            Ok(()) | Err(StorageError::CorruptPage { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some((records, bytes)) = work {
            // The background services write the pages and take the next checkpoint. A crash before that repeats this restart.
            report.done(records, bytes);
        }
        let catalog = Arc::new(Catalog::load(&engine)?);
        let every = engine.log.bounds().every;
        let background = BackgroundServices::new(Arc::clone(&engine), Arc::clone(&catalog), checkpointer, every);
        match (options.background, &options.services) {
            (Background::Threads, Some(services)) => background.share(services),
            (Background::Threads, None) => {
                background.start().map_err(|source| OpenError::Thread { source })?;
            }
            (Background::Stepped, _) => background.start_stepped(),
            (Background::Inline, _) => background.start_inline(),
        }
        Ok(Database {
            engine,
            catalog,
            background,
            reruns: options.reruns,
            loops: LoopThreads::new(
                options.loop_threads.unwrap_or_else(|| cores().min(MAX_LOOP_THREADS)),
                options.loop_measurement,
            ),
            large_pages: options.large_pages,
            closed: Mutex::new(false),
            compacting: FairLock::new((), BlockReason::Room),
            directory,
            _lock: lock,
        })
    }

    /// Returns the number of threads of a loop: see [`Options::loop_threads`].
    pub fn loop_threads(&self) -> usize {
        self.loops.threads()
    }

    pub(super) fn checkpointer(&self) -> &Checkpointer {
        &self.background.checkpointer
    }

    fn engine(
        options: &Options,
        memory: PageSize,
        database: u64,
        pool: Arc<BufferPool>,
        log: Arc<Log>,
        poison: Arc<Poison>,
        driven: Arc<AtomicBool>,
    ) -> Result<Arc<Engine>, StorageError> {
        let locks = LockTable::new(
            LockOptions {
                slots: options.transactions + SYSTEM_SLOTS,
                buckets: options.lock_buckets,
                memory,
                escalate_at: options.escalate_at,
                timeout: options.lock_timeout,
                seed: database,
                name_bits: options.lock_name_bits,
                clock: options.clock.clone(),
                ..LockOptions::default()
            },
            Arc::clone(&options.hook),
        )
        .map_err(|e| StorageError::io("reserving memory", "lock table", 0, e))?;
        static OPENED: AtomicU64 = AtomicU64::new(1);
        Ok(Arc::new(Engine {
            instance: OPENED.fetch_add(1, Ordering::Relaxed),
            pool,
            log,
            slots: Slots::new(options.transactions, &locks, !options.clock.is_simulated()),
            locks,
            poison,
            hook: Arc::clone(&options.hook),
            clock: options.clock.clone(),
            durability: options.durability,
            isolation: options.isolation,
            driven,
        }))
    }

    /// Returns the table with this declaration, or `None` if no table has its name. The returned memory is not reused
    /// for another table before the end of a transaction that the caller began before this call.
    #[inline]
    pub(crate) fn find(&self, declared: &Declared<'_>) -> Result<Option<&TableInfo>, TxnError> {
        match self.catalog.declared(declared) {
            Some(info) => Ok(Some(info)),
            None => self.open_known(declared),
        }
    }

    #[cold]
    fn open_known(&self, declared: &Declared<'_>) -> Result<Option<&TableInfo>, TxnError> {
        Ok(self.catalog.open(&self.engine, declared)?.map(|(info, _)| info))
    }

    /// Returns the table with this declaration, and the table's ticket. Creates the table if no table has its name.
    pub(super) fn open_or_create(&self, declared: &Declared<'_>) -> Result<(&TableInfo, u64), TxnError> {
        let mut created = false;
        loop {
            if let Some(open) = self.catalog.open(&self.engine, declared)? {
                if created {
                    self.engine.answer(self.engine.log.tail())?;
                }
                return Ok(open);
            }
            created = true;
            if !self.catalog.create(&self.engine, declared, false)? {
                // Other transactions rely on the table's absence. The transaction that locks the absence does not
                // create the table itself.
                let mut txn = self.engine.begin_system(SystemPurpose::Maintenance)?;
                txn.lock_absence(declared.name, AccessMode::Write)?;
                self.catalog.create(&self.engine, declared, true)?;
            }
        }
    }

    /// Returns the names of all tables.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog.names()
    }

    /// Returns the number, table name and index name of every index (for the primary index, the table name twice).
    /// [`Operation::index`](crate::Operation::index) is such a number.
    pub fn indexes(&self) -> Vec<(u32, String, String)> {
        self.catalog.indexes()
    }

    /// Returns the log position before which all commits are on disk. See
    /// [`Transaction::commit_async`](crate::Transaction::commit_async).
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.engine.log.durable()
    }

    /// Requests a flush of the log up to a commit's position and does not wait. A position beyond the log's end
    /// requests a flush of the whole log ([`Database::wait_durable`] refuses such a position).
    #[inline]
    pub fn request_flush(&self, commit: Lsn) {
        self.engine.log.request_flush(commit);
    }

    /// Waits until the log before a commit's position is on disk. A position is a plain number: waiting for a position
    /// of another database says nothing about the durability of that database.
    ///
    /// # Errors
    /// An error if the instance is closed to commits. [`StorageError::BeyondLog`], at once, if the log ends before the
    /// position: no commit of this open database has such a position.
    pub fn wait_durable(&self, commit: Lsn) -> Result<(), StorageError> {
        self.engine.wait_to_answer(commit)
    }

    /// Waits until all commits before the call are durable, also with [`Durability::Async`](crate::Durability::Async).
    /// For programs that end without closing the database, for example because it is in a `static`.
    ///
    /// # Errors
    /// An error if the instance is closed to commits.
    pub fn sync(&self) -> Result<(), StorageError> {
        self.engine.wait_to_answer(self.engine.log.tail())
    }

    /// Takes a checkpoint immediately, so that a restart has little to redo.
    ///
    /// # Errors
    /// An error if a write fails.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        self.engine.pool.flush_all()?;
        self.background.checkpointer.take(&self.engine)
    }

    /// Runs a part of the background work. For databases opened with [`Background::Inline`], which have no background
    /// threads.
    ///
    /// # Errors
    /// Errors of the services.
    pub fn step(&self) -> Result<(), StorageError> {
        self.background.step_inline()
    }

    /// Runs one bounded step of a background service; returns true if it did any work. For databases opened with
    /// [`Background::Stepped`], where the program schedules the services; harmless otherwise. The cleaner and the
    /// checkpointer may wait for the log through the [`Hook`](crate::Hook), so the thread or fiber that steps these two
    /// services must not also step the flusher. Such a thread or fiber steps no other service while it waits.
    ///
    /// # Errors
    /// A failed write or sync closes the instance; a full disk is temporary.
    pub fn step_service(&self, service: Service) -> Result<bool, StorageError> {
        self.background.step(service)
    }

    /// Reads pages of the database into the buffer pool, until all pages are read or the pool is full. Returns the
    /// number of pages read.
    ///
    /// # Errors
    /// An error if a read fails.
    pub fn preload(&self) -> Result<u32, StorageError> {
        // The file may contain more pages than are in use, for example pages left over from interrupted work.
        let used = self.engine.pool.get_or_load(SPACE_PAGE)?.bytes().u32(ops::space::END);
        self.engine.pool.preload(used.min(self.engine.pool.file_pages()))
    }

    /// Reads and verifies every page in use. Returns the number of pages.
    ///
    /// # Errors
    /// [`StorageError::CorruptPage`] names the first page that is damaged.
    pub fn verify_pages(&self) -> Result<u64, StorageError> {
        super::verify::verify_pages(&self.engine, &self.catalog)
    }

    /// Returns the statistics of the database, counted since it was opened.
    pub fn stats(&self) -> Stats {
        let (log, pool, locks) = (self.engine.log.stats(), self.engine.pool.stats(), self.engine.locks.stats());
        let latches = self.engine.pool.latches().stats();
        let (loop_epochs, loop_repeats) = self.loops.epochs_and_repeats();
        Stats {
            log_bytes: log.bytes,
            log_flushes: log.flushes,
            log_direct: log.direct,
            pool_hits: self.engine.slots.hits(),
            pool_reads: pool.reads,
            pool_writes: pool.writes,
            pool_evictions: pool.evictions,
            image_bytes: pool.images * PAGE_SIZE as u64,
            lock_waits: locks.waits,
            deadlocks: locks.deadlocks,
            escalations: locks.escalations,
            latch_promotions: latches.promotions,
            latch_demotions: latches.demotions,
            latch_promotions_refused: latches.refused,
            checkpoints: self.background.checkpointer.taken(),
            log_disk_bytes: self.engine.log.disk_bytes(),
            log_limit_bytes: self.engine.log.limit_bytes(),
            log_pauses: self.engine.log.pauses(),
            log_holder: self.background.checkpointer.holder_now(&self.engine),
            loop_epochs,
            loop_repeats,
        }
    }

    /// Returns the contention for the leaves of each table that was used since the database was opened. The counters begin
    /// at zero when a table is first used.
    pub fn contention(&self) -> Vec<TableContention> {
        self.catalog.contention()
    }

    /// Returns the waits for locks, for latches and for the log since the database was opened.
    pub fn waits(&self) -> Waits {
        let (engine, locks) = (&self.engine, self.engine.locks.stats());
        let (latches, log) = (engine.pool.latches().waits(), engine.log.waits());
        Waits {
            lock: Wait { count: locks.waits, ns: locks.wait_ns },
            latch: latches.total(),
            log_room: log.room.read(),
            log_place: log.place.read(),
            tables: self.catalog.waits(&engine.locks, latches),
        }
    }

    /// Returns the page latch kind with which the database was opened.
    pub fn latches(&self) -> LatchKind {
        self.engine.pool.latches().kind()
    }

    /// Returns the path of the database directory.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Closes the database. Writes all changes, so that the next open needs no recovery. Dropping the database does the
    /// same, but ignores errors.
    ///
    /// # Errors
    /// An error if a write fails; the next open then recovers.
    pub fn close(self) -> Result<(), StorageError> {
        self.shut_down()
    }

    /// Stops the services without writing pages. A panic may have left a page partly changed, and such a page must not
    /// be written to disk. The next open recovers from the log.
    fn abandon(&self) {
        if self.engine.poison.is_forked_child() {
            return self.leave_to_the_parent();
        }
        if !std::mem::replace(&mut *self.closed.lock(), true) {
            self.engine.poison.close(&StorageError::Closing, self.engine.log.durable());
            self.engine.locks.close();
            self.background.stop();
        }
    }

    /// Leaks the engine in a forked child process: the engine's threads, locks and files belong to the parent process.
    #[cold]
    fn leave_to_the_parent(&self) {
        std::mem::forget((Arc::clone(&self.engine), Arc::clone(&self.background)));
    }

    fn shut_down(&self) -> Result<(), StorageError> {
        if self.engine.poison.is_forked_child() {
            self.leave_to_the_parent();
            return Err(StorageError::Forked);
        }
        if std::mem::replace(&mut *self.closed.lock(), true) {
            return Ok(());
        }
        self.engine.locks.close();
        self.background.stop();
        self.background.finish_purging();
        self.engine.log.wait_durable_inline(self.engine.log.tail())?;
        self.engine.pool.flush_all()?;
        self.background.checkpointer.take(&self.engine)?;
        self.engine.log.shut_down()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.abandon();
        }
        // The error is ignored: a program that needs it calls `close`, and the next open recovers.
        let _ = self.shut_down();
    }
}

/// Statistics of a database. Events are counted since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Number of log flushes.
    pub log_flushes: u64,
    /// True if the log bypasses the system's page cache (`O_DIRECT`), which not every file system supports.
    pub log_direct: bool,
    /// Number of page accesses that found the page in the buffer pool. Only accesses of ended transactions are counted.
    pub pool_hits: u64,
    /// Number of pages read from the data file.
    pub pool_reads: u64,
    /// Number of pages written to the data file.
    pub pool_writes: u64,
    /// Number of pages evicted from the buffer pool.
    pub pool_evictions: u64,
    /// Bytes of page copies written to the control file to protect against torn pages. Not part of `log_bytes`.
    pub image_bytes: u64,
    /// Number of waits for a lock.
    pub lock_waits: u64,
    /// Number of deadlocks resolved.
    pub deadlocks: u64,
    /// Number of lock escalations from record locks to a table lock.
    pub escalations: u64,
    /// Number of checkpoints taken.
    pub checkpoints: u64,
    /// Number of latches promoted to reader words, under [`LatchKind::Super`].
    pub latch_promotions: u64,
    /// Number of promoted latches demoted by a writer or an eviction.
    pub latch_demotions: u64,
    /// Current size of the log files in bytes.
    pub log_disk_bytes: u64,
    /// Maximum size of the log files in bytes: see [`Options::checkpoint_every`](crate::Options::checkpoint_every).
    pub log_limit_bytes: u64,
    /// Number of times that a statement paused because the log was near its limit.
    pub log_pauses: u64,
    /// Transaction or other obstacle that kept the newest checkpoint from truncating the log at the start of redo;
    /// `None` if there was none, or if it no longer exists.
    pub log_holder: Option<LogHolder>,
    /// Number of promotions refused because the process had no free reader words. The latches concerned were not
    /// promoted.
    pub latch_promotions_refused: u64,
    /// Number of iterations that loops on several threads have run
    /// ([`Transaction::in_order`](crate::Transaction::in_order)). Loops that panicked are not counted.
    pub loop_epochs: u64,
    /// Number of times that such an iteration was rolled back to run again.
    pub loop_repeats: u64,
}

/// Returns the size of the redo pass: a worker for each core. An instance without threads of its own, or with simulated time,
/// redoes in the calling thread.
fn redo_options(options: &Options) -> RedoOptions {
    let threads = options.background == Background::Threads && !options.clock.is_simulated();
    RedoOptions { workers: if threads { cores() } else { 1 }, batch_bytes: 8 * options.reader_bytes }
}
