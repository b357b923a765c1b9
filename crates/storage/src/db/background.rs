//! The background work of one database: flusher, segment maker, cleaner with checkpointer, purger, readers.
//!
//! Each service is a state machine that runs one bounded step at a time. Under
//! [`Background::Threads`](crate::Background::Threads) a thread for each service runs the steps or, with
//! [`Options::services`](crate::Options::services), threads that several databases share. Under
//! [`Background::Inline`](crate::Background::Inline) the threads that commit or wait run the steps, and under
//! [`Background::Stepped`](crate::Background::Stepped) the program does.

use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crate::base::config::Service;
use crate::base::error::StorageError;
use crate::base::fault::{FaultKind, should_fail};
use crate::base::ids::Lsn;
use crate::base::lane::{LanePlace, NextTurn, Work};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::buffer::{CleanGoal, CleanStep};
use crate::db::purger::{PurgeSuspension, Purger};
use crate::db::services::Services;
use crate::recovery::checkpoint::Checkpointer;
use crate::table::catalog::Catalog;
use crate::txn::engine::Engine;

/// Sleep time of an idle cleaner.
const IDLE: Duration = Duration::from_millis(50);
/// Sleep time of an idle cleaner while the log grows towards the next checkpoint.
const IDLE_IN_NEED: Duration = Duration::from_millis(5);
/// Number of page reader threads of a database, which is the maximum number of their concurrent reads.
const READERS: usize = 16;
/// Interval in nanoseconds between estimates of a checkpoint's gain. The interval is shorter if much log was written
/// after the last estimate.
const ESTIMATE_EVERY_NS: u64 = 200_000_000;
/// Maximum duration of the sweep in one step of the purge service, in nanoseconds: in the service's own thread, and
/// (`SWEEP_INLINE_NS`) in a thread that has other work.
const SWEEP_NS: u64 = 2_000_000;
const SWEEP_INLINE_NS: u64 = 50_000;

/// The background services of one database and their shared state.
#[derive(Debug)]
pub(crate) struct BackgroundServices {
    pub(crate) engine: Arc<Engine>,
    catalog: Arc<Catalog>,
    pub(crate) checkpointer: Checkpointer,
    purger: Purger,
    /// Bytes of log between two checkpoints.
    pub(crate) every: u64,
    /// Time of the cleaner's last estimate of a checkpoint's gain.
    estimated_ns: AtomicU64,
    /// Tail of the log at the last estimate of a checkpoint's gain.
    estimated_at: AtomicU64,
    stop: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Positions of the services in the lanes of shared threads; set if shared threads run the services.
    places: OnceLock<ServicePlaces>,
}

/// Positions in the lanes of shared threads, one for each service of a database.
#[derive(Debug)]
struct ServicePlaces {
    flusher: LanePlace,
    maker: LanePlace,
    cleaner: LanePlace,
    purger: LanePlace,
    reader: LanePlace,
    /// Keeps the shared threads alive.
    _services: Services,
}

/// One service of a database, as work for shared threads.
struct ServiceWork {
    of: Arc<BackgroundServices>,
    service: Service,
}

impl Work for ServiceWork {
    fn turn(&self) -> NextTurn {
        let engine = &self.of.engine;
        match self.service {
            Service::Flusher => engine.log.flusher_turn(&engine.clock),
            Service::SegmentMaker => engine.log.maker_turn(&engine.clock),
            Service::Cleaner | Service::Checkpointer => self.of.clean_some(),
            Service::Purger => self.of.purge_some(),
            Service::PageReader if engine.pool.step_reader() => NextTurn::Now,
            Service::PageReader => NextTurn::WhenCalled,
        }
    }

    fn panicked(&self) {
        self.of.engine.log.close_because("a background service panicked");
    }
}

impl BackgroundServices {
    pub(crate) fn new(
        engine: Arc<Engine>,
        catalog: Arc<Catalog>,
        checkpointer: Checkpointer,
        every: u64,
    ) -> Arc<BackgroundServices> {
        Arc::new(BackgroundServices {
            engine,
            catalog,
            checkpointer,
            purger: Purger::new(),
            every,
            estimated_ns: AtomicU64::new(0),
            estimated_at: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            threads: Mutex::default(),
            places: OnceLock::new(),
        })
    }

    /// Runs one step of cleaning and checkpointing; returns false if there was no work. The checkpoint is considered
    /// first; otherwise a cleaner that always has pages to write would never take one.
    ///
    /// # Errors
    /// Errors of the pool and the log.
    pub(crate) fn clean(&self) -> Result<bool, StorageError> {
        let tail = self.engine.log.tail();
        let distance = self.checkpointer.distance(tail);
        let wants = distance > self.every / 2 || self.engine.log.is_throttled();
        let wants = wants && !is_mutant(Mutant::SkipCheckpoints);
        let considered =
            if wants && self.due(self.engine.clock.now_ns(), tail) { self.advance(tail) } else { Ok(false) };
        // From half the checkpoint distance on, the cleaner writes the oldest pages, so that the checkpoint need not
        // wait for their writes. Beyond the full distance it writes more of them.
        let behind = match distance {
            _ if distance > self.every => self.every / 4,
            _ if distance > self.every / 2 => self.every / 2,
            _ => u64::MAX,
        };
        let goal = CleanGoal { write_before: Lsn(tail.0.saturating_sub(behind)), step: self.step_bytes() };
        let step = self.engine.pool.clean_step(self.engine.clock.now_ns(), goal);
        // An error of one part does not prevent the other part.
        Ok(considered? | (step? != CleanStep::Idle))
    }

    /// Returns true if the gain of a checkpoint should be estimated now. Estimates are rare, because each one examines
    /// every frame.
    fn due(&self, now: u64, tail: Lsn) -> bool {
        let (last, at) = (self.estimated_ns.load(Ordering::Relaxed), self.estimated_at.load(Ordering::Relaxed));
        let grown = tail.0.saturating_sub(at) >= self.step_bytes() || self.engine.log.is_throttled();
        let pause = if grown { self.engine.pool.look_pause_ns() } else { ESTIMATE_EVERY_NS };
        let due = now.saturating_sub(last) >= pause;
        if due {
            self.estimated_ns.store(now, Ordering::Relaxed);
            self.estimated_at.store(tail.0, Ordering::Relaxed);
        }
        due
    }

    /// Returns the number of bytes of log after which the gain of a checkpoint is estimated again.
    fn step_bytes(&self) -> u64 {
        self.every / 8
    }

    /// Syncs the pages written so far and takes a checkpoint, if the checkpoint moves the start of redo by a notable
    /// distance or truncates a log that is near its limit. Returns false if no checkpoint was taken.
    fn advance(&self, tail: Lsn) -> Result<bool, StorageError> {
        let Engine { pool, log, slots, .. } = &*self.engine;
        let dirty = pool.oldest_dirty_lsn().unwrap_or(tail).min(tail);
        let gains = dirty.0.saturating_sub(self.checkpointer.redo().0) >= self.step_bytes();
        // A transaction or copy that kept the log from being truncated may have ended since the last checkpoint.
        let keep = || slots.active().iter().map(|a| a.first).min().unwrap_or(dirty).min(dirty);
        let cuts = |keep| log.would_cut(keep) >= self.step_bytes() || log.would_shrink(keep);
        if !(gains || log.is_throttled() && !log.is_pinned() && cuts(keep())) {
            return Ok(false);
        }
        pool.sync()?;
        self.checkpointer.take(&self.engine)?;
        Ok(true)
    }

    /// Runs a bounded amount of due work, for [`Background::Inline`](crate::Background::Inline).
    pub(crate) fn step_inline(&self) -> Result<(), StorageError> {
        let now = self.engine.clock.now_ns();
        self.engine.log.make_step(now);
        self.engine.log.step(now);
        if self.purger.is_due(&self.engine, now) {
            self.purge(SWEEP_INLINE_NS);
        }
        self.clean().map(drop)
    }

    /// Runs one step of the purge service. Returns false if there was no work, and while the log slows transactions.
    /// Steps are then small and rare, because their log records take the space for which transactions wait. A step
    /// never waits for log space, since its own thread may have to truncate the log.
    fn purge(&self, sweep_ns: u64) -> bool {
        let is_throttled = self.engine.log.is_throttled();
        self.purger.step(&self.engine, &self.catalog, if is_throttled { 0 } else { sweep_ns }) && !is_throttled
    }

    /// Runs the last steps of the purge service, after the service threads have ended.
    pub(crate) fn finish_purging(&self) {
        self.purger.finish(&self.engine, &self.catalog, || self.make_log_room());
    }

    /// Removes all ghost records that no transaction needs.
    ///
    /// # Errors
    /// An error if the instance is closed.
    pub(crate) fn purge_all(&self) -> Result<(), StorageError> {
        self.purger.purge_all(&self.engine, &self.catalog, || self.make_log_room())
    }

    /// Creates a log segment. Also truncates a log that is near its limit, unless a transaction or a copy prevents the
    /// truncation.
    ///
    /// # Errors
    /// Errors of the pool and the log.
    fn make_log_room(&self) -> Result<(), StorageError> {
        let Engine { pool, log, clock, .. } = &*self.engine;
        log.make_step(clock.now_ns());
        if log.is_throttled() && !log.is_pinned() {
            pool.flush_all()?;
            self.checkpointer.take(&self.engine)?;
        }
        Ok(())
    }

    /// Keeps the purge service from changing pages until the guard is dropped.
    pub(crate) fn suspend_purger(&self) -> PurgeSuspension<'_> {
        self.purger.suspend(&self.engine)
    }

    /// Runs one step of the purge service; returns the time of the next one.
    fn purge_some(&self) -> NextTurn {
        if self.purge(SWEEP_NS) {
            return NextTurn::Now;
        }
        NextTurn::Within(self.purger.pause(self.engine.clock.now_ns()))
    }

    fn run_purger(&self) {
        while !self.stop.load(Ordering::Acquire) {
            if let NextTurn::Within(pause) = self.purge_some() {
                self.sleep(pause);
            }
        }
    }

    /// Runs one step of a service; returns true if it did any work.
    ///
    /// # Errors
    /// Errors of the pool and the log.
    pub(crate) fn step(&self, service: Service) -> Result<bool, StorageError> {
        let now = self.engine.clock.now_ns();
        match service {
            Service::Flusher => Ok(self.engine.log.step(now).did_work),
            Service::SegmentMaker => Ok(self.engine.log.make_step(now).did_work),
            Service::Cleaner => self.clean(),
            Service::Purger => Ok(self.purge(SWEEP_NS)),
            Service::Checkpointer => self.checkpointer.take(&self.engine).map(|()| true),
            Service::PageReader => {
                if self.engine.driven.load(Ordering::Acquire) {
                    self.engine.pool.open_readers();
                }
                Ok(self.engine.pool.step_reader())
            }
        }
    }

    /// Starts the services for [`Background::Inline`](crate::Background::Inline): transactions do the cleaner's work
    /// when the log is near its limit.
    pub(crate) fn start_inline(self: &Arc<Self>) {
        let services = Arc::downgrade(self);
        // The error of a full disk is reported to the transaction that needs the space.
        self.set_log_callbacks(move || services.upgrade().is_some_and(|services| services.clean().unwrap_or(false)));
    }

    /// Sets the log's callbacks, among them `cut`, which transactions call when the log is near its limit.
    fn set_log_callbacks(self: &Arc<Self>, cut: impl Fn() -> bool + Send + Sync + 'static) {
        let services = Arc::downgrade(self);
        self.engine.log.set_callbacks(cut, move |slot| {
            services.upgrade().map_or(Lsn::ZERO, |services| services.engine.slots.first_record(slot))
        });
    }

    /// Starts the services for `Background::Stepped`: only the program runs steps; waiting threads do not.
    pub(crate) fn start_stepped(self: &Arc<Self>) {
        self.set_log_callbacks(|| false);
        self.engine.driven.store(true, Ordering::Release);
    }

    /// Starts the service threads. If one thread cannot be started, no thread stays running.
    ///
    /// # Errors
    /// An error if the system refuses a thread.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        self.start_all().inspect_err(|_| self.stop())
    }

    fn start_all(self: &Arc<Self>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        threads.push(self.spawn("log-flusher", |s| s.engine.log.run_flusher(&s.engine.clock, &s.stop))?);
        threads.push(self.spawn("log-maker", |s| s.engine.log.run_maker(&s.engine.clock, &s.stop))?);
        let cleaner = self.spawn("cleaner", BackgroundServices::run_cleaner)?;
        let wake: Thread = cleaner.thread().clone();
        let throttled = wake.clone();
        self.engine.pool.on_cleaner_wanted(Box::new(move || wake.unpark()));
        self.set_log_callbacks(move || {
            throttled.unpark();
            false
        });
        threads.push(cleaner);
        threads.push(self.spawn("purger", BackgroundServices::run_purger)?);
        if self.engine.hook.is_cooperative() {
            self.start_readers(&mut threads)?;
        } else {
            self.start_readers_when_wanted();
        }
        self.engine.driven.store(true, Ordering::Release);
        Ok(())
    }

    fn start_readers_when_wanted(self: &Arc<Self>) {
        let services = Arc::downgrade(self);
        self.engine.pool.on_readers_wanted(Box::new(move || {
            if let Some(services) = services.upgrade() {
                services.want_readers();
            }
        }));
    }

    /// Starts the services on the shared threads of `services`.
    pub(crate) fn share(self: &Arc<Self>, services: &Services) {
        let places = self.places.get_or_init(|| ServicePlaces {
            flusher: services.log().place(),
            maker: services.pages().place(),
            cleaner: services.pages().place(),
            purger: services.pages().place(),
            reader: services.reads().place(),
            _services: services.clone(),
        });
        self.engine.log.set_lane_places(places.flusher.clone(), places.maker.clone());
        let (cleaner, throttled) = (places.cleaner.clone(), places.cleaner.clone());
        self.engine.pool.on_cleaner_wanted(Box::new(move || cleaner.call()));
        self.set_log_callbacks(move || {
            throttled.call();
            false
        });
        let work = |service| Arc::new(ServiceWork { of: Arc::clone(self), service });
        places.flusher.join(work(Service::Flusher), 1);
        places.maker.join(work(Service::SegmentMaker), 1);
        places.cleaner.join(work(Service::Cleaner), 1);
        places.purger.join(work(Service::Purger), 1);
        if services.reads_pages() {
            places.reader.join(work(Service::PageReader), READERS);
            self.engine.pool.call_for_reads(places.reader.clone());
            if self.engine.hook.is_cooperative() {
                self.engine.pool.open_readers();
            } else {
                self.start_readers_when_wanted();
            }
        }
        self.engine.driven.store(true, Ordering::Release);
    }

    fn spawn(self: &Arc<Self>, name: &str, run: fn(&BackgroundServices)) -> std::io::Result<JoinHandle<()>> {
        if should_fail(FaultKind::Thread) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let services = Arc::clone(self);
        std::thread::Builder::new().name(name.into()).stack_size(512 << 10).spawn(move || run(&services))
    }

    fn start_readers(self: &Arc<Self>, threads: &mut Vec<JoinHandle<()>>) -> std::io::Result<()> {
        self.engine.pool.open_readers();
        if self.places.get().is_some() {
            return Ok(());
        }
        for _ in 0..READERS {
            threads.push(self.spawn("page-reader", |s| s.engine.pool.run_reader())?);
        }
        Ok(())
    }

    /// Starts the page reader threads, unless they are running. If the system refuses a thread, the database uses the
    /// readers that did start. Without any reader, each transaction reads its pages itself.
    #[cold]
    fn want_readers(self: &Arc<Self>) {
        let mut threads = self.threads.lock();
        if self.stop.load(Ordering::Acquire) || self.engine.pool.has_readers() {
            return;
        }
        let before = threads.len();
        if self.start_readers(&mut threads).is_err() && threads.len() == before {
            self.engine.pool.close_readers();
        }
    }

    fn run_cleaner(&self) {
        while !self.stop.load(Ordering::Acquire) {
            if let NextTurn::Within(pause) = self.clean_some() {
                self.sleep(pause);
            }
        }
    }

    /// Runs one step of cleaning and checkpointing; returns the time of the next one.
    fn clean_some(&self) -> NextTurn {
        match self.clean() {
            Ok(true) => NextTurn::Now,
            // After a failure the step is retried late: a full disk may get space again, and a closed instance stays
            // closed.
            Ok(false) if self.checkpointer.distance(self.engine.log.tail()) > self.every / 2 => {
                NextTurn::Within(IDLE_IN_NEED)
            }
            Ok(false) | Err(_) => NextTurn::Within(IDLE),
        }
    }

    #[allow(clippy::disallowed_methods)]
    fn sleep(&self, time: Duration) {
        std::thread::park_timeout(time);
    }

    /// Ends the service threads. Afterwards the log is durable to its end, unless the instance is closed.
    pub(crate) fn stop(&self) {
        self.engine.driven.store(false, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        if let Some(places) = self.places.get() {
            return self.leave(places);
        }
        self.engine.log.nudge();
        // A transaction that starts readers holds this lock. So either the list contains the readers, or the
        // transaction finds `stop` set and starts none.
        let threads = std::mem::take(&mut *self.threads.lock());
        self.engine.pool.close_readers();
        for thread in threads {
            thread.thread().unpark();
            // A service that panicked has already reported the panic.
            let _ = thread.join();
        }
    }

    /// Removes the services of this database from the shared threads. The flusher is removed last, because the other
    /// services wait for the flusher.
    fn leave(&self, places: &ServicePlaces) {
        // A transaction that opens the readers holds this lock. So either the readers are closed here, or the
        // transaction finds `stop` set and opens none.
        drop(self.threads.lock());
        self.engine.pool.close_readers();
        for place in [&places.reader, &places.purger, &places.cleaner, &places.maker, &places.flusher] {
            place.leave();
        }
        self.engine.log.end_flusher();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use crate::base::error::OpenError;
    use crate::base::fault::{self, FaultKind};
    use crate::db::options::Options;
    use crate::db::services::Services;
    use crate::db::table::Table;
    use crate::io::{MemDisk, SimDisk};

    #[test]
    fn a_service_that_does_not_start_ends_those_before_it() {
        for n in 1..=4 {
            let disk = Arc::new(MemDisk::new());
            fault::plan(FaultKind::Thread, n);
            let opened = Options::new().buffer_pool(1 << 20).open_on(disk.clone());
            assert!(!fault::clear(), "service {n} was not to be started");
            assert!(matches!(opened, Err(OpenError::Thread { .. })), "{opened:?}");
            // A thread that is still running would hold a reference to the disk, and the next open would find the disk
            // in use.
            assert_eq!(Arc::strong_count(&disk), 1, "without service {n}");
            Options::new().buffer_pool(1 << 20).open_on(disk).unwrap().close().unwrap();
        }
    }

    #[test]
    fn readers_that_do_not_all_start_serve_and_without_any_transactions_read_themselves() {
        for refused in [1, 2, 17] {
            let disk = Arc::new(MemDisk::new());
            let db = Options::new().buffer_pool(1 << 20).open_on(disk.clone()).unwrap();
            let pool = &db.background.engine.pool;
            assert!(pool.reads_in_parallel() && !pool.has_readers(), "readers start when they are wanted");
            fault::plan(FaultKind::Thread, refused);
            db.background.want_readers();
            assert_eq!(fault::clear(), refused == 17);
            assert_eq!((pool.has_readers(), pool.reads_in_parallel()), (refused > 1, refused > 1));
            db.close().unwrap();
            assert_eq!(Arc::strong_count(&disk), 1, "a reader went on running");
        }
    }

    #[test]
    fn shared_threads_that_do_not_all_start_end() {
        for n in 1..=7 {
            fault::plan(FaultKind::Thread, n);
            let started = Services::new();
            assert!(!fault::clear(), "thread {n} was not to be started");
            assert!(matches!(started, Err(OpenError::Thread { .. })), "{started:?}");
        }
    }

    #[test]
    fn shared_threads_read_the_pages_of_a_group() {
        const ROWS: Table<u64, u64> = Table::new("rows");
        let services = Services::new().unwrap();
        let disk = Arc::new(SimDisk::new(1));
        let open = || Options::new().buffer_pool(4 << 20).services(&services).open_on(disk.clone()).unwrap();
        let db = open();
        for from in (0..100_000).step_by(5_000) {
            db.transact(|tx| (from..from + 5_000).try_for_each(|n| tx.put(&ROWS, &n, &(n * 2)))).unwrap();
        }
        db.close().unwrap();
        let db = open();
        let pool = &db.background.engine.pool;
        for round in 0..20 {
            assert!(pool.reads_in_parallel());
            let keys: Vec<u64> = (0..16).map(|n| n * 6_000 + round * 300).collect();
            let rows = db.begin().unwrap().get_many(&ROWS, &keys).unwrap();
            assert!(rows.iter().zip(&keys).all(|(row, key)| *row == Some(key * 2)), "{rows:?}");
        }
        assert!(pool.has_readers() && pool.stats().handed_over > 20, "{:?}", pool.stats());
        db.close().unwrap();
        assert_eq!(Arc::strong_count(&disk), 1, "shared threads keep a database that is closed");
    }
}
