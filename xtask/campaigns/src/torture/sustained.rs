//! `sustained`: continuous full load for minutes of simulated time. Workers write without a pause, and services get few of
//! the steps. The sizes that may grow are compared with their bounds: the files of the log, all files together, and the log
//! that a restart would read. So is the time without a commit. The seeds alternate between six kinds of load, so that six
//! seeds try each of them. At the end power is lost, and every acknowledged commit must be found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Crash, Disk, MemDisk, SimDisk};
use storage::{
    Background, CopyError, Database, Durability, Extremes, MIN_POOL_BYTES, Options, Service, ServiceThreads, Services,
    StorageError, Table, TxnError,
};

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::order::{Role, Sim};
use crate::sim::panics::{catch_panic, raise_finding};
use crate::sim::rng::Rng;
use crate::sim::watch::ObservedDisk;

const ROWS: Table<u64, Vec<u8>> = Table::new("sustained");
/// Number of rows of each worker. With rows of `BYTES` bytes, all rows together have about two megabytes.
const COUNT: u64 = 1500;
const BYTES: usize = 400;
const WORKERS: u64 = 3;
/// Key that the transaction that holds the log writes. No worker uses this key.
const HOLDER_KEY: u64 = u64::MAX;
/// Minimum number of log bytes that a load writes, as a multiple of the log limit. The next constant is the minimum
/// simulated time of a load.
const MIN_LOG_MULTIPLE: u64 = 20;
const MIN_LOAD_NS: u64 = 120_000_000_000;
/// Maximum simulated time without a commit, except while a transaction holds the log.
const MAX_PAUSE_NS: u64 = 10_000_000_000;
/// Maximum simulated time without a commit if a long reader runs. Each row of the reader is a step of 7 ms on average, and a
/// transaction of 20 rows waits for tens of page reads, each of which takes several rounds of all workers and servants.
const MAX_PAUSE_BESIDE_READER_NS: u64 = 60_000_000_000;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        let load = LoadKind::of(seed);
        let ended =
            catch_panic(
                || if load == LoadKind::Shared { run_shared_services(seed) } else { run_case(plan, seed, load) },
            );
        if let Err(what) = ended.and_then(|ended| ended.unwrap_or_else(|| Err("stopped".into()))) {
            seed_result.fail("sustained", plan.scheduler, seed, format!("{load:?}: {what}"));
        }
        seed_result
    })
}

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadKind {
    /// The buffer pool has the minimum size, so that evictions never end.
    TinyPool,
    /// A checkpoint is due after every few transactions.
    TinyInterval,
    /// Writes and syncs are slow, and the page cleaner gets few steps.
    SlowDisk,
    /// At any time one transaction stays open and holds the log.
    LongTransaction,
    /// Long transactions read all rows, and copies are made, again and again.
    LongReader,
    /// Two databases share one service thread of each kind. This load runs on real threads.
    Shared,
}

impl LoadKind {
    fn of(seed: u64) -> LoadKind {
        use LoadKind::{LongReader, LongTransaction, Shared, SlowDisk, TinyInterval, TinyPool};
        [TinyPool, TinyInterval, SlowDisk, LongTransaction, LongReader, Shared][(seed % 6) as usize]
    }

    /// Returns true if the engine may refuse a transaction because the log is full.
    fn may_refuse(self) -> bool {
        self == LoadKind::LongTransaction
    }

    /// Returns the maximum simulated time without a commit.
    fn longest_pause_ns(self) -> u64 {
        if self == LoadKind::LongReader { MAX_PAUSE_BESIDE_READER_NS } else { MAX_PAUSE_NS }
    }
}

/// Sizes and durability of a run.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    pool: u64,
    every: u64,
    limit: u64,
    segment: u64,
    durability: Durability,
}

impl Sizes {
    fn draw(load: LoadKind, rng: &mut Rng) -> Sizes {
        let limit = rng.pick(&[1 << 20, 1 << 20, 2 << 20]);
        Sizes {
            pool: if load == LoadKind::TinyPool { MIN_POOL_BYTES } else { rng.pick(&[2, 4]) * MIN_POOL_BYTES },
            every: if load == LoadKind::TinyInterval { 64 << 10 } else { limit / 4 },
            limit,
            segment: rng.pick(&[32 << 10, 64 << 10]),
            durability: rng.pick(&[Durability::Sync, Durability::Async]),
        }
    }

    fn options(self, seed: u64) -> Options {
        let extremes = Extremes {
            segment_bytes: self.segment,
            ring_bytes: 128 << 10,
            reader_bytes: 64 << 10,
            lock_buckets: 64,
            shard_frames: 2048,
            contended_at: 32,
        };
        Options::new()
            .buffer_pool(self.pool)
            .checkpoint_every(self.every)
            .log_limit(self.limit)
            .sizes(extremes)
            .durability(self.durability)
            .transactions(8)
            .database_id(seed | 1)
    }

    /// Returns the maximum number of bytes of all files: the log, twice the rows, and the area for pages that are being
    /// written.
    fn bytes(self) -> u64 {
        self.limit + 2 * (WORKERS * COUNT * (BYTES as u64 + 64)) + (4 << 20)
    }
}

/// State shared by workers, servants and the watch.
struct SustainedRun<'a> {
    db: &'a Database,
    sim: &'a dyn Sim,
    disk: &'a SimDisk,
    sizes: Sizes,
    load: LoadKind,
    now_ns: &'a AtomicU64,
    /// Virtual time of the last commit, in nanoseconds.
    committed_ns: AtomicU64,
    /// Number of workers that have not ended.
    working: AtomicU64,
    /// Number of transactions that were refused because the log was full.
    refused: AtomicU64,
    /// For each row: number of changes by acknowledged commits, and number of changes by attempted commits.
    counts: Mutex<Counts>,
}

#[derive(Clone, Default)]
struct Counts {
    acknowledged: Vec<u32>,
    tried: Vec<u32>,
}

fn run_case(plan: &CampaignPlan, seed: u64, load: LoadKind) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x5057_a14e);
    let sizes = Sizes::draw(load, &mut rng);
    let disk = SimDisk::new(seed);
    let now_ns = Arc::new(AtomicU64::new(1));
    let servants = 3;
    let sim = plan.scheduler.sim(seed, WORKERS as usize + servants + 1, Arc::clone(&now_ns));
    let slow = if load == LoadKind::SlowDisk { rng.pick(&[200_000, 2_000_000]) } else { 0 };
    let time = Arc::clone(&now_ns);
    let observed = ObservedDisk::new(&disk, move |_, call| {
        if matches!(call, Call::Write | Call::Sync) {
            time.fetch_add(slow, Ordering::Relaxed);
        }
    });
    let options = sizes.options(seed).clock(Arc::clone(&now_ns)).background(Background::Stepped).hook(sim.clone());
    let db = options.open_on(Arc::new(observed)).map_err(|e| e.to_string())?;
    let counts = Mutex::new(Counts {
        acknowledged: vec![0; (WORKERS * COUNT) as usize],
        tried: vec![0; (WORKERS * COUNT) as usize],
    });
    let shared = SustainedRun {
        db: &db,
        sim: &*sim,
        disk: &disk,
        sizes,
        load,
        now_ns: &now_ns,
        committed_ns: AtomicU64::new(0),
        working: AtomicU64::new(WORKERS),
        refused: AtomicU64::new(0),
        counts,
    };
    let ended = run_load(&shared, &mut rng);
    let left = disk.crash(if rng.once_in(2) { Crash::Nothing } else { Crash::Random(rng.next()) });
    disk.power_off_after(0);
    let counts = lock(&shared.counts).clone();
    drop(db);
    ended?;
    // The restart reads the log since the last checkpoint. `run_load` has already checked its length.
    let again = Arc::new(AtomicU64::new(1));
    let db = sizes.options(seed).clock(again).background(Background::Inline).open_on(Arc::new(left.clone()));
    let db = db.map_err(|e| format!("restart: {e}"))?;
    let found = read(&db, sizes.durability, &counts);
    left.power_off_after(0);
    found
}

/// Runs the workers and servants until the end of the load.
fn run_load(shared: &SustainedRun<'_>, rng: &mut Rng) -> Result<(), String> {
    let setup = || {
        let filled = shared.db.transact(|tx| (0..WORKERS * COUNT).try_for_each(|key| tx.insert(&ROWS, &key, &row(0))));
        match filled {
            Ok(()) => {}
            // A single transaction cannot load the rows, because their log records exceed the capacity of the log.
            Err(TxnError::Storage(StorageError::LogFull { .. })) => fill_in_parts(shared),
            Err(error) => raise_finding(format!("setup: {error}")),
        }
    };
    let mut roles = servants(shared, rng);
    roles.insert(0, Role { serves: false, work: Box::new(setup) });
    shared.sim.run(roles)?;
    shared.committed_ns.store(shared.now_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    let end_ns = shared.now_ns.load(Ordering::Relaxed) + MIN_LOAD_NS;
    let end_bytes = shared.db.stats().log_bytes + MIN_LOG_MULTIPLE * shared.sizes.limit;
    let lasts = move |shared: &SustainedRun<'_>| {
        shared.now_ns.load(Ordering::Relaxed) < end_ns || shared.db.stats().log_bytes < end_bytes
    };
    let mut roles: Vec<Role<'_>> = (0..WORKERS)
        .map(|number| {
            let rng = rng.split();
            Role { serves: false, work: Box::new(move || worker(shared, number, rng, lasts)) }
        })
        .collect();
    match shared.load {
        LoadKind::LongTransaction => roles.push(Role { serves: false, work: Box::new(move || holder(shared, lasts)) }),
        LoadKind::LongReader => roles.push(Role { serves: false, work: Box::new(move || reader(shared, lasts)) }),
        _ => {}
    }
    roles.extend(servants(shared, rng));
    shared.sim.run(roles)?;
    let stats = shared.db.stats();
    let least = if shared.load.may_refuse() { 2 } else { MIN_LOG_MULTIPLE };
    if stats.checkpoints < least {
        return Err(format!(
            "{} checkpoints in {MIN_LOG_MULTIPLE} times the log's limit: {:?}",
            stats.checkpoints, shared.sizes
        ));
    }
    if shared.load == LoadKind::LongTransaction && shared.refused.load(Ordering::Relaxed) == 0 {
        return Err(format!("a transaction held the log, and none was refused: {:?}", shared.sizes));
    }
    Ok(())
}

fn fill_in_parts(shared: &SustainedRun<'_>) {
    for from in (0..WORKERS * COUNT).step_by(100) {
        let part = from..(from + 100).min(WORKERS * COUNT);
        if let Err(error) = shared.db.transact(|tx| part.clone().try_for_each(|key| tx.put(&ROWS, &key, &row(0)))) {
            raise_finding(format!("setup: {error}"));
        }
    }
}

fn row(count: u32) -> Vec<u8> {
    let mut row = vec![count as u8; BYTES];
    row[..4].copy_from_slice(&count.to_le_bytes());
    row
}

fn count_in(row: &[u8]) -> Option<u32> {
    row.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Changes the worker's own rows as fast as possible.
fn worker(shared: &SustainedRun<'_>, number: u64, mut rng: Rng, lasts: impl Fn(&SustainedRun<'_>) -> bool) {
    while lasts(shared) {
        let keys: Vec<u64> = (0..1 + rng.below(20)).map(|_| number * COUNT + rng.below(COUNT)).collect();
        keys.iter().for_each(|key| lock(&shared.counts).tried[*key as usize] += 1);
        let changed = shared.db.transact(|tx| {
            keys.iter().try_for_each(|key| {
                let before = tx.get_for_update(&ROWS, key)?.and_then(|row| count_in(&row)).unwrap_or(0);
                tx.put(&ROWS, key, &row(before + 1)).map(drop)
            })
        });
        let now = shared.now_ns.load(Ordering::Relaxed);
        match changed {
            Ok(()) => {
                keys.iter().for_each(|key| lock(&shared.counts).acknowledged[*key as usize] += 1);
                shared.committed_ns.fetch_max(now, Ordering::Relaxed);
            }
            Err(TxnError::Storage(StorageError::LogFull { holder, .. })) if shared.load.may_refuse() => {
                shared.refused.fetch_add(1, Ordering::Relaxed);
                if holder.is_none_or(|holder| holder.transaction.is_none()) {
                    raise_finding("the log is full, and the transaction that holds it is not named".into());
                }
            }
            Err(error) => raise_finding(format!("worker {number}: {error}")),
        }
        shared.sim.pause();
    }
    shared.working.fetch_sub(1, Ordering::Relaxed);
}

/// Holds the log with one transaction after another. Each transaction stays open until some other transactions were refused.
fn holder(shared: &SustainedRun<'_>, lasts: impl Fn(&SustainedRun<'_>) -> bool) {
    let mut round = 0;
    while lasts(shared) {
        let begun = shared.db.begin().and_then(|mut tx| tx.put(&ROWS, &HOLDER_KEY, &row(round)).map(|_| tx));
        let tx = match begun {
            Ok(tx) => tx,
            // Log records of transactions that waited for the previous holder still fill the log.
            Err(TxnError::Storage(StorageError::LogFull { .. })) => {
                shared.sim.pause();
                continue;
            }
            Err(error) => raise_finding(format!("holder: {error}")),
        };
        let before = shared.refused.load(Ordering::Relaxed);
        while lasts(shared) && shared.refused.load(Ordering::Relaxed) < before + 2 {
            shared.sim.pause();
        }
        // The transaction can end although the log is full, because space is reserved for a commit or a rollback.
        let ended = if round % 2 == 0 { tx.commit() } else { tx.rollback().map(drop) };
        if let Err(error) = ended {
            raise_finding(format!("holder: {error}"));
        }
        shared.committed_ns.fetch_max(shared.now_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        round += 1;
        for _ in 0..200 {
            shared.sim.pause();
        }
    }
}

/// Repeatedly reads all rows slowly in one transaction that blocks no other transaction, and copies the database.
fn reader(shared: &SustainedRun<'_>, lasts: impl Fn(&SustainedRun<'_>) -> bool) {
    while lasts(shared) {
        let Ok(tx) = shared.db.begin_at(storage::Isolation::ReadCommitted) else { continue };
        match tx.range(&ROWS, ..) {
            Ok(rows) => rows.for_each(|row| {
                if let Err(error) = row {
                    raise_finding(format!("reader: {error}"));
                }
                shared.sim.pause();
            }),
            Err(error) => raise_finding(format!("reader: {error}")),
        }
        drop(tx);
        let copy = MemDisk::new();
        match shared.db.copy_on(Arc::new(copy), |_| {
            shared.sim.pause();
            std::ops::ControlFlow::Continue(())
        }) {
            Ok(_) | Err(CopyError::LogLimit { .. }) => {}
            Err(error) => raise_finding(format!("copy: {error}")),
        }
    }
}

/// Returns the servants: services, some of which get few steps, and the watch.
fn servants<'a>(shared: &'a SustainedRun<'a>, rng: &mut Rng) -> Vec<Role<'a>> {
    let mut of_log = rng.split();
    let rests = if shared.load == LoadKind::SlowDisk { 4 } else { 1 + rng.below(2) };
    let serve = move |service: Service| {
        if let Err(error) = shared.db.step_service(service) {
            raise_finding(format!("{service:?}: {error}"));
        }
        check_bounds(shared);
    };
    let log = move || {
        while !shared.sim.is_last() {
            serve(of_log.pick(&[Service::Flusher, Service::PageReader, Service::SegmentMaker]));
            shared.sim.pause();
        }
    };
    // The purger waits for pages that the servant `log` reads, so another servant runs it.
    let purges = move || {
        while !shared.sim.is_over() {
            serve(Service::Purger);
            shared.sim.pause();
        }
    };
    let pages = move || {
        while !shared.sim.is_over() {
            serve(Service::Cleaner);
            (0..rests).for_each(|_| shared.sim.pause());
        }
    };
    [Box::new(log) as Box<dyn FnOnce() + Send>, Box::new(purges), Box::new(pages)]
        .into_iter()
        .map(|work| Role { serves: true, work })
        .collect()
}

/// Compares the sizes that may grow, and the time without a commit, with their bounds.
fn check_bounds(shared: &SustainedRun<'_>) {
    let stats = shared.db.stats();
    let (sizes, used) = (shared.sizes, shared.disk.used());
    if stats.log_disk_bytes > stats.log_limit_bytes || stats.log_limit_bytes > sizes.limit {
        raise_finding(format!("{} bytes of log, of {} at most: {sizes:?}", stats.log_disk_bytes, sizes.limit));
    }
    if used > sizes.bytes() {
        raise_finding(format!("{used} bytes in all files, of {} at most: {sizes:?}", sizes.bytes()));
    }
    let last = shared.committed_ns.load(Ordering::Relaxed);
    let pause = shared.now_ns.load(Ordering::Relaxed).saturating_sub(last);
    let works = shared.working.load(Ordering::Relaxed) > 0 && !shared.load.may_refuse();
    if last > 0 && pause > shared.load.longest_pause_ns() && works {
        let (log, holder) = (stats.log_disk_bytes, stats.log_holder);
        let log = format!("{log} bytes of log, held by {holder:?}, {} pauses", stats.log_pauses);
        raise_finding(format!("nothing has committed for {} ms: {log}, {sizes:?}", pause / 1_000_000));
    }
}

/// Checks that each row has at least the number of acknowledged changes, and at most the number of attempted ones.
fn read(db: &Database, durability: Durability, counts: &Counts) -> Result<(), String> {
    let tx = db.begin().map_err(|e| e.to_string())?;
    let rows = tx.range(&ROWS, ..WORKERS * COUNT).map_err(|e| e.to_string())?;
    let mut keys = 0;
    for found in rows {
        let (key, row) = found.map_err(|e| e.to_string())?;
        let count = count_in(&row).unwrap_or(u32::MAX);
        let (acknowledged, tried) = (counts.acknowledged[key as usize], counts.tried[key as usize]);
        let least = if durability == Durability::Sync { acknowledged } else { 0 };
        if !(least..=tried).contains(&count) {
            return Err(format!("row {key} has {count} changes: {acknowledged} were acknowledged and {tried} tried"));
        }
        keys += 1;
    }
    if keys != WORKERS * COUNT {
        return Err(format!("{keys} rows of {}", WORKERS * COUNT));
    }
    Ok(())
}

/// Runs two databases under load, with disks in memory. One thread of each kind does the background work of both.
fn run_shared_services(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x5057_a14e);
    let count = ServiceThreads { log: 1, pages: 1, reads: 1 };
    let services = Services::with_threads(count).map_err(|e| e.to_string())?;
    let sizes = Sizes::draw(LoadKind::Shared, &mut rng);
    let open = || {
        let disk = MemDisk::new();
        let options = sizes.options(seed).services(&services);
        options.open_on(Arc::new(disk.clone()) as Arc<dyn Disk>).map(|db| (disk, db)).map_err(|e| e.to_string())
    };
    let databases = [open()?, open()?];
    let wrong = Mutex::new(None);
    std::thread::scope(|scope| {
        for (at, (_, db)) in databases.iter().enumerate() {
            for worker in 0..2 {
                let (mut rng, wrong) = (rng.split(), &wrong);
                scope.spawn(move || {
                    // Each write must change the row, because the engine does not log an unchanged row.
                    let mut turn = 0;
                    while db.stats().log_bytes < MIN_LOG_MULTIPLE * sizes.limit && lock(wrong).is_none() {
                        turn += 1;
                        let key = 2 * worker * COUNT + rng.below(COUNT);
                        let put =
                            db.transact(|tx| (0..10).try_for_each(|n| tx.put(&ROWS, &(key + n), &row(turn)).map(drop)));
                        let stats = db.stats();
                        let what = match put {
                            Err(error) => Some(format!("database {at}: {error}")),
                            Ok(()) if stats.log_disk_bytes > sizes.limit => {
                                Some(format!("database {at}: {} bytes of log: {sizes:?}", stats.log_disk_bytes))
                            }
                            Ok(()) => None,
                        };
                        if what.is_some() {
                            *lock(wrong) = what;
                        }
                    }
                });
            }
        }
    });
    if let Some(what) = lock(&wrong).take() {
        return Err(what);
    }
    for (_, db) in databases {
        let taken = db.stats().checkpoints;
        db.close().map_err(|e| e.to_string())?;
        if taken < MIN_LOG_MULTIPLE {
            return Err(format!("{taken} checkpoints in {MIN_LOG_MULTIPLE} times the log's limit: {sizes:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn a_log_that_nothing_cuts_is_found() {
        // The watch must detect a log that exceeds its bound.
        let sizes = Sizes { limit: 1 << 20, ..Sizes::draw(LoadKind::TinyPool, &mut Rng::new(1)) };
        let db = sizes.options(1).log_limit(64 << 20).checkpoint_every(16 << 20).background(Background::Inline);
        let disk = SimDisk::new(1);
        let db = db.open_on(Arc::new(disk.clone())).unwrap_or_else(|e| panic!("{e}"));
        let now_ns = Arc::new(AtomicU64::new(1));
        let sim = Scheduler::Threads.sim(1, 1, Arc::clone(&now_ns));
        let shared = SustainedRun {
            db: &db,
            sim: &*sim,
            disk: &disk,
            sizes,
            load: LoadKind::TinyPool,
            now_ns: &now_ns,
            committed_ns: AtomicU64::new(0),
            working: AtomicU64::new(WORKERS),
            refused: AtomicU64::new(0),
            counts: Mutex::default(),
        };
        let found = catch_panic(|| {
            for key in 0..10_000 {
                db.transact(|tx| tx.put(&ROWS, &(key % COUNT), &row(key as u32)).map(drop))
                    .unwrap_or_else(|e| panic!("{e}"));
                check_bounds(&shared);
            }
        });
        assert!(found.is_err_and(|what| what.contains("bytes of log")));
    }
}
