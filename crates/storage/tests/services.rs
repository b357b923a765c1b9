//! Databases that share background threads.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{NUMBERS, StopAtEnd, on, small};
use storage::disk::{Call, Crash, Disk, DiskFile, Fault, Layer, LayeredDisk, SimDisk, When};
use storage::{Background, Database, Durability, OpenError, Options, ServiceThreads, Services, StorageError, TxnError};

const ONE_EACH: ServiceThreads = ServiceThreads { log: 1, pages: 1, reads: 1 };

fn shared(services: &Services) -> Options {
    small().background(Background::Threads).services(services)
}

fn put(db: &Database, key: u64, row: u64) -> Result<(), TxnError> {
    db.transact(|tx| tx.put(&NUMBERS, &key, &row))
}

fn rows(db: &Database) -> Vec<(u64, u64)> {
    let tx = db.begin().unwrap();
    tx.range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}: it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls a function before each sync.
struct BeforeSync<F>(F);

impl<F> std::fmt::Debug for BeforeSync<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeSync")
    }
}

impl<F: Fn() + Send + Sync> Layer for BeforeSync<F> {
    fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        (self.0)();
        file.sync()
    }
}

/// Returns a disk that calls `before_sync` before each sync of a log file.
fn watched(disk: &SimDisk, before_sync: impl Fn() + Send + Sync + 'static) -> Arc<dyn Disk> {
    Arc::new(LayeredDisk::new(disk.clone(), "log.", Arc::new(BeforeSync(before_sync))))
}

/// Returns true on a thread that writes logs for several databases.
fn is_log_service() -> bool {
    std::thread::current().name() == Some("log-service")
}

#[test]
fn commits_of_several_databases_are_durable_in_both_modes() {
    for count in [ONE_EACH, ServiceThreads::default(), ServiceThreads { reads: 0, ..ONE_EACH }] {
        let services = Services::with_threads(count).unwrap();
        let disks: Vec<SimDisk> = (0..6).map(SimDisk::new).collect();
        let modes = [Durability::Sync, Durability::Async];
        let dbs: Vec<Database> = (disks.iter().zip(modes.iter().cycle()))
            .map(|(disk, mode)| shared(&services).durability(*mode).open_on(on(disk)).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for db in &dbs {
                scope.spawn(move || (0..100).for_each(|n| put(db, n, n * 2).unwrap()));
            }
        });
        let expected: Vec<_> = (0..100).map(|n| (n, n * 2)).collect();
        let at_once: Vec<SimDisk> = disks.iter().map(|disk| disk.crash(Crash::Nothing)).collect();
        // Nothing requests the flush of an asynchronous commit: the flusher checks periodically.
        for db in &dbs {
            let end = db.begin().unwrap().commit_async().unwrap();
            wait_until("an asynchronous commit becomes durable", || db.durable() >= end);
        }
        for (db, (disk, before)) in dbs.iter().zip(disks.iter().zip(&at_once)).step_by(2) {
            assert_eq!(rows(&small().open_on(on(before)).unwrap()), expected, "a commit was acknowledged too early");
            assert_eq!(rows(db), expected);
            assert_eq!(rows(&small().open_on(on(&disk.crash(Crash::Nothing))).unwrap()), expected);
        }
        for disk in &disks {
            assert_eq!(rows(&small().open_on(on(&disk.crash(Crash::Nothing))).unwrap()), expected);
        }
        drop(dbs);
        for disk in &disks {
            let db = shared(&services).open_on(on(disk)).unwrap();
            assert_eq!(rows(&db), expected);
            db.close().unwrap();
        }
    }
}

#[test]
fn checkpoints_are_taken_and_pages_written_for_all() {
    let services = Services::with_threads(ONE_EACH).unwrap();
    let disks: Vec<SimDisk> = (0..3).map(SimDisk::new).collect();
    let open = |disk: &SimDisk| shared(&services).checkpoint_every(128 << 10).open_on(on(disk)).unwrap();
    let dbs: Vec<Database> = disks.iter().map(open).collect();
    for round in 0..200 {
        for db in &dbs {
            // More rows than fit the pool.
            db.transact(|tx| (0..400).try_for_each(|n| tx.put(&NUMBERS, &(round * 400 + n), &n))).unwrap();
        }
    }
    for (db, disk) in dbs.iter().zip(&disks) {
        wait_until("a checkpoint", || db.stats().checkpoints > 2);
        assert!(db.stats().pool_writes > 100, "{:?}", db.stats());
        assert_eq!(rows(db).len(), 80_000);
        let crashed = disk.crash(Crash::All);
        assert_eq!(rows(&open(&crashed)).len(), 80_000);
    }
}

#[test]
fn one_is_closed_and_opened_while_others_work() {
    let services = Services::new().unwrap();
    let disks: Vec<SimDisk> = (0..3).map(SimDisk::new).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _told = StopAtEnd(&stop);
        for disk in &disks[1..] {
            let db = shared(&services).open_on(on(disk)).unwrap();
            let stop = &stop;
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    put(&db, n % 50, n).unwrap();
                    n += 1;
                }
                assert!(n > 100, "{n} commits beside a database that was opened and closed");
            });
        }
        for round in 0..30 {
            let db = shared(&services).open_on(on(&disks[0])).unwrap();
            assert_eq!(rows(&db).len(), round);
            put(&db, round as u64, 1).unwrap();
            if round % 2 == 0 { db.close().unwrap() } else { drop(db) }
        }
    });
}

#[test]
fn an_error_of_one_disk_closes_its_database_alone() {
    for call in [Call::Sync, Call::Write] {
        let services = Services::with_threads(ONE_EACH).unwrap();
        let (bad_disk, good_disk) = (SimDisk::new(1), SimDisk::new(2));
        let bad = shared(&services).open_on(on(&bad_disk)).unwrap();
        let good = shared(&services).open_on(on(&good_disk)).unwrap();
        put(&bad, 1, 1).unwrap();
        bad_disk.plan(Some(call), When::From(1), Fault::Eio);
        let refused = put(&bad, 2, 2).unwrap_err();
        assert!(matches!(refused, TxnError::Storage(StorageError::Poisoned { .. })), "{refused}");
        (0..100).for_each(|n| put(&good, n, n).unwrap());
        good.checkpoint().unwrap();
        assert!(put(&bad, 3, 3).is_err());
        assert!(bad.close().is_err());
        put(&good, 100, 100).unwrap();
        bad_disk.heal();
        let bad = shared(&services).open_on(on(&bad_disk.crash(Crash::Nothing))).unwrap();
        assert_eq!(rows(&bad), [(1, 1)]);
        put(&bad, 2, 2).unwrap();
        good.close().unwrap();
    }
}

#[test]
fn a_panic_in_a_step_closes_its_database_alone() {
    let services = Services::with_threads(ONE_EACH).unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let disk = SimDisk::new(1);
    let watched = watched(&disk, {
        let panics = panics.clone();
        move || assert!(!(is_log_service() && panics.load(Ordering::SeqCst)), "a fault of a test")
    });
    let bad = shared(&services).open_on(watched).unwrap();
    let good = shared(&services).open_on(on(&SimDisk::new(2))).unwrap();
    put(&bad, 1, 1).unwrap();
    panics.store(true, Ordering::SeqCst);
    let told = put(&bad, 2, 2).unwrap_err().to_string();
    assert!(told.contains("a background service panicked"), "{told}");
    (0..100).for_each(|n| put(&good, n, n).unwrap());
    assert!(put(&bad, 3, 3).is_err());
    assert!(bad.close().is_err());
    put(&good, 100, 100).unwrap();
    panics.store(false, Ordering::SeqCst);
    let bad = shared(&services).open_on(on(&disk.crash(Crash::Nothing))).unwrap();
    assert_eq!(rows(&bad), [(1, 1)]);
}

/// Releases a hanging disk when dropped, also by a panic: threads wait for it.
struct Released<'a>(&'a AtomicBool);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A sync that does not end occupies one of two threads.
#[test]
fn a_disk_that_hangs_leaves_the_other_threads_to_the_other_databases() {
    let services = Services::with_threads(ServiceThreads { log: 2, pages: 1, reads: 1 }).unwrap();
    let (hangs, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let watched = watched(&SimDisk::new(1), {
        let (hangs, inside) = (hangs.clone(), inside.clone());
        move || {
            while is_log_service() && hangs.load(Ordering::SeqCst) {
                inside.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let released = Released(&hangs);
    let slow = shared(&services).open_on(watched).unwrap();
    let others: Vec<Database> =
        (2..6).map(|seed| shared(&services).open_on(on(&SimDisk::new(seed))).unwrap()).collect();
    put(&slow, 0, 0).unwrap();
    hangs.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&slow, 1, 1));
        wait_until("the sync begins", || inside.load(Ordering::SeqCst));
        for n in 0..50 {
            others.iter().for_each(|db| put(db, n, n).unwrap());
        }
        for db in others {
            db.close().unwrap();
        }
        assert!(!waiting.is_finished());
        drop(released);
        waiting.join().unwrap().unwrap();
    });
    slow.close().unwrap();
}

/// With one thread for all logs, the other databases wait for slow syncs, but each gets its turn.
#[test]
fn a_slow_disk_delays_others_on_one_thread_and_no_more() {
    let services = Services::with_threads(ONE_EACH).unwrap();
    let slow_disk = watched(&SimDisk::new(1), || {
        if is_log_service() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let slow = shared(&services).open_on(slow_disk).unwrap();
    let quick = shared(&services).open_on(on(&SimDisk::new(2))).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _told = StopAtEnd(&stop);
        for thread in 0..2 {
            let (slow, stop) = (&slow, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    put(slow, thread, 0).unwrap();
                }
            });
        }
        (0..30).for_each(|n| put(&quick, n, n).unwrap());
    });
}

#[test]
fn handle_and_databases_are_dropped_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let disks = [SimDisk::new(1), SimDisk::new(2)];
        let services = Services::new().unwrap();
        let dbs = [0, 1].map(|n| shared(&services).open_on(on(&disks[n])).unwrap());
        let [first, second] = dbs.map(Some);
        let (mut handle, mut first, mut second) = (Some(services), first, second);
        for (done, drop_now) in order.into_iter().enumerate() {
            match drop_now {
                0 => drop(handle.take()),
                1 => drop(first.take()),
                _ => drop(second.take()),
            }
            for db in [&first, &second].into_iter().flatten() {
                put(db, done as u64, 7).unwrap();
            }
        }
        for disk in &disks {
            assert!(rows(&small().open_on(on(disk)).unwrap()).len() <= 2);
        }
    }
}

/// A panic does not close the database cleanly: the database is abandoned and removed from the lanes.
#[test]
fn a_database_dropped_by_a_panic_leaves_the_threads_to_others() {
    let services = Services::with_threads(ONE_EACH).unwrap();
    let disk = SimDisk::new(1);
    let other = shared(&services).open_on(on(&SimDisk::new(2))).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let db = shared(&services).open_on(on(&disk)).unwrap();
        put(&db, 1, 1).unwrap();
        panic!("a fault of a test");
    }));
    assert!(panicked.is_err());
    put(&other, 1, 1).unwrap();
    assert_eq!(rows(&shared(&services).open_on(on(&disk)).unwrap()), [(1, 1)]);
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let refused = |options: Options| match options.open_on(on(&SimDisk::new(1))) {
        Err(OpenError::Setting { setting, what }) => (setting, what),
        other => panic!("{other:?}"),
    };
    let small = || small().background(Background::Threads);
    for (options, setting) in [
        (small().buffer_pool((1 << 20) - 1), "buffer_pool"),
        (small().log_buffer((512 << 10) - 1), "log_buffer"),
        (small().log_buffer((1 << 30) + 1), "log_buffer"),
        (small().log_segment((64 << 10) - 1), "log_segment"),
        (small().log_segment((1 << 30) + 1), "log_segment"),
        (small().lock_table(255), "lock_table"),
        (small().lock_table((1 << 24) + 1), "lock_table"),
        (small().transactions(0), "transactions"),
        (small().transactions(1001), "transactions"),
    ] {
        assert_eq!(refused(options).0, setting);
    }
    assert_eq!(
        refused(small().lock_table(255)).1,
        "255; at least 256 is needed",
        "the error says what would be possible"
    );
    let services = Services::new().unwrap();
    for background in [Background::Inline, Background::Stepped] {
        assert_eq!(refused(shared(&services).background(background)).0, "services");
    }
    for count in [
        ServiceThreads { log: 0, ..ONE_EACH },
        ServiceThreads { pages: 0, ..ONE_EACH },
        ServiceThreads { log: 65, ..ONE_EACH },
        ServiceThreads { pages: 65, ..ONE_EACH },
        ServiceThreads { reads: 65, ..ONE_EACH },
    ] {
        assert!(matches!(Services::with_threads(count), Err(OpenError::Setting { .. })), "{count:?}");
    }
    // The smallest values work.
    let least =
        small().buffer_pool(1 << 20).log_buffer(512 << 10).log_segment(64 << 10).lock_table(256).transactions(1);
    let db = least.services(&services).open_on(on(&SimDisk::new(1))).unwrap();
    put(&db, 1, 1).unwrap();
    db.close().unwrap();
}
