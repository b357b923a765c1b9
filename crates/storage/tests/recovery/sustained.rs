//! Continuous load: the log files stay within their limit, and the holder of the log is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::Rng;
use storage::disk::{Disk, MemDisk, OpenMode};
use storage::{
    Background, CopyError, Database, Durability, Options, Services, StorageError, Table, Transaction, TxnError,
};

const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
const KIB: u64 = 1 << 10;
const LIMIT: u64 = 2 << 20;

/// Options with a log of at most 2 MiB, in files of 64 KiB.
fn options() -> Options {
    Options::new()
        .durability(Durability::Async)
        .buffer_pool(4 << 20)
        .checkpoint_every(512 * KIB)
        .log_limit(LIMIT)
        .log_segment(64 * KIB)
        .log_buffer(512 << 10)
}

fn on_disk(disk: &MemDisk) -> u64 {
    let names = disk.list().unwrap();
    let logs = names.iter().filter(|name| name.starts_with("log."));
    logs.filter_map(|name| disk.open(name, OpenMode::Existing).ok()?.len().ok()).sum()
}

/// Puts ten random rows.
fn some(tx: &mut Transaction<'_>, rng: &mut Rng) -> Result<(), TxnError> {
    (0..10).try_for_each(|_| tx.put(&ROWS, &rng.below(4000), &vec![rng.below(256) as u8; 300]))
}

/// Runs two threads under full load during `f`, which gets the maximum size of the log so far.
fn under_load(db: &Database, disk: &MemDisk, f: impl FnOnce(&AtomicU64)) -> u64 {
    let (stop, most, full) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (stop, full) = (&stop, &full);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    match db.transact(|tx| some(tx, &mut rng)) {
                        Ok(()) => {}
                        Err(TxnError::Storage(StorageError::LogFull { .. })) => {
                            _ = full.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let (watched, watching) = (&stop, &most);
        scope.spawn(move || {
            while !watched.load(Ordering::Relaxed) {
                watching.fetch_max(on_disk(disk), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        f(&most);
    });
    let most = most.load(Ordering::Relaxed);
    assert!(most <= LIMIT, "{most} bytes of log, with a limit of {LIMIT}");
    full.load(Ordering::Relaxed)
}

fn until(mut what: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_log_stays_within_its_limit_whoever_does_the_work() {
    let services = Services::new().unwrap();
    let ways: [(&str, Options); 3] = [
        ("threads", options()),
        ("inline", options().background(Background::Inline)),
        ("shared", options().services(&services)),
    ];
    for (way, options) in ways {
        let disk = MemDisk::new();
        let db = options.open_on(Arc::new(disk.clone())).unwrap();
        let full = under_load(&db, &disk, |_| until(|| db.stats().log_bytes > 24 << 20));
        let stats = db.stats();
        assert_eq!(full, 0, "{way}: no transaction was refused");
        assert!(stats.checkpoints >= 12, "{way}: {} checkpoints", stats.checkpoints);
        assert!(stats.log_limit_bytes == LIMIT && stats.log_disk_bytes <= LIMIT, "{way}: {stats:?}");
        db.close().unwrap();
    }
}

/// A pool so small that the cleaner never has enough free frames.
#[test]
fn the_log_stays_within_its_limit_in_a_pool_that_is_always_short() {
    let disk = MemDisk::new();
    let db = options().buffer_pool(storage::MIN_POOL_BYTES).open_on(Arc::new(disk.clone())).unwrap();
    let full = under_load(&db, &disk, |_| until(|| db.stats().log_bytes > 12 << 20));
    assert!(full == 0 && db.stats().checkpoints >= 6, "{full} refused, {} checkpoints", db.stats().checkpoints);
}

#[test]
fn a_transaction_that_holds_the_log_is_named_and_writers_are_refused_until_it_ends() {
    let disk = MemDisk::new();
    let db = options().open_on(Arc::new(disk.clone())).unwrap();
    let mut long = db.begin().unwrap();
    long.put(&ROWS, &1_000_000, &vec![1]).unwrap();
    let age = long.age();
    let mut rng = Rng::new(9);
    let error = loop {
        match db.transact(|tx| some(tx, &mut rng)) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    let told = error.to_string();
    let TxnError::Storage(StorageError::LogFull { limit, holder, .. }) = error else { panic!("{error}") };
    let holder = holder.unwrap();
    assert_eq!((limit, holder.transaction), (LIMIT, Some(age)));
    assert!(holder.bytes > LIMIT / 4 && told.contains("larger 'checkpoint_every'"), "{told}");
    assert_eq!(db.stats().log_holder.and_then(|holder| holder.transaction), Some(age));
    assert!(on_disk(&disk) <= LIMIT);
    // The transaction can commit or roll back: its end has reserved space.
    long.commit().unwrap();
    // Checked before the next checkpoint, which may never happen.
    assert_ne!(db.stats().log_holder.and_then(|holder| holder.transaction), Some(age));
    until(|| db.transact(|tx| some(tx, &mut rng)).is_ok());
    for _ in 0..2000 {
        db.transact(|tx| some(tx, &mut rng)).unwrap();
    }
    // The database's own service may have a transaction that is about to end.
    until(|| db.stats().log_holder.is_none());
    assert_eq!(db.begin().unwrap().get(&ROWS, &1_000_000).unwrap(), Some(vec![1]));
}

#[test]
fn a_transaction_larger_than_the_log_is_refused_and_rolls_back() {
    for background in [Background::Threads, Background::Inline] {
        let disk = MemDisk::new();
        let db = options().background(background).open_on(Arc::new(disk.clone())).unwrap();
        db.transact(|tx| tx.put(&ROWS, &7, &vec![7])).unwrap();
        let refused = db.transact(|tx| (0..100_000).try_for_each(|key| tx.put(&ROWS, &key, &vec![1; 300])));
        let error: TxnError = refused.unwrap_err();
        assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
        assert!(on_disk(&disk) <= LIMIT + 64 * KIB, "{} bytes", on_disk(&disk));
        let rows: Vec<_> = db.begin().unwrap().range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, [(7, vec![7])]);
        let mut rng = Rng::new(3);
        until(|| db.transact(|tx| some(tx, &mut rng)).is_ok());
    }
}

#[test]
fn a_copy_that_holds_the_log_is_broken_off() {
    let disk = MemDisk::new();
    let db = options().open_on(Arc::new(disk.clone())).unwrap();
    db.transact(|tx| (0..2000).try_for_each(|key| tx.put(&ROWS, &key, &vec![1; 300]))).unwrap();
    let full = under_load(&db, &disk, |_| {
        let from = db.stats().log_bytes;
        let copy = MemDisk::new();
        let copied = db.copy_on(Arc::new(copy.clone()), |copying| {
            if copying.pages > 0 {
                until(|| db.stats().log_bytes > from + 8 * LIMIT);
            }
            std::ops::ControlFlow::Continue(())
        });
        assert!(matches!(copied, Err(CopyError::LogLimit { limit: LIMIT, .. })), "{copied:?}");
        assert!(copy.list().unwrap().iter().all(|name| name == "lock"), "nothing is left of it");
    });
    assert_eq!(full, 0, "the database works on");
}
