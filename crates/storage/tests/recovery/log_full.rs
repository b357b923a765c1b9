//! The log has no space during a structure change of a tree: then the change is not made, in memory either.

use crate::common::{NUMBERS, ROWS, Rng, on, open, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, StorageError, Table, TxnError};

const LOADED: Table<u64, u64> = Table::new("loaded");
const WIDE: Table<u64, Vec<u8>> = Table::new("wide");

fn rows(db: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let tx = db.begin().unwrap();
    tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect()
}

/// Returns a database on a full disk, with a log nearly filled by updates.
fn nearly_full(disk: &SimDisk, updates: u64) -> Database {
    let db = small().open_on(on(disk)).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &0, &0)).unwrap();
    db.table(&ROWS).unwrap();
    db.table(&LOADED).unwrap();
    disk.set_capacity(disk.used());
    for n in 0..updates {
        db.transact(|tx| tx.put(&NUMBERS, &0, &n)).unwrap();
    }
    db
}

/// The growth of a small table's root logs a record with the images of two pages. With the log filled to different
/// degrees, some of these records do not fit.
#[test]
fn a_root_that_could_not_grow_is_as_it_was() {
    let mut refused = 0;
    for updates in (0..330).step_by(3) {
        let disk = SimDisk::new(1);
        let db = nearly_full(&disk, updates);
        let mut expected = Vec::new();
        for round in 0..2 {
            for n in 0..60u8 {
                let (key, row) = (vec![n, round], vec![n; 180]);
                let inserted = db.transact(|tx| tx.insert(&ROWS, &key, &row));
                match inserted {
                    Ok(()) => expected.push((key, row)),
                    Err(TxnError::Storage(StorageError::NoSpace { .. })) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            // The disk has space again.
            disk.set_capacity(u64::MAX);
        }
        expected.sort();
        assert!(rows(&db) == expected, "after {updates} updates");
        let after = disk.crash(Crash::All);
        std::mem::forget(db);
        assert!(rows(&small().open_on(on(&after)).unwrap()) == expected, "after {updates} updates and a crash");
    }
    assert!(refused > 100, "the log was full {refused} times");
}

/// A page that a refused growth leaves in memory is not mistaken for a page that a bulk load has written without the
/// pool.
#[test]
fn a_bulk_load_after_a_refusal_keeps_all_its_rows() {
    let mut refused = 0;
    for updates in (0..330).step_by(3) {
        let disk = SimDisk::new(1);
        let db = nearly_full(&disk, updates);
        let loaded = db.table(&LOADED).unwrap();
        for n in 0..60u8 {
            match db.transact(|tx| tx.insert(&ROWS, &[n], &vec![n; 180])) {
                Ok(()) => {}
                Err(TxnError::Storage(StorageError::NoSpace { .. })) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        disk.set_capacity(u64::MAX);
        let mut load = db.bulk_load(&loaded).unwrap();
        for n in 0..5000 {
            load.push(&n, &n).unwrap();
        }
        assert_eq!(load.finish().unwrap(), 5000);
        let all = |db: &Database| db.begin().unwrap().range(&LOADED, ..).unwrap().filter(Result::is_ok).count();
        assert_eq!(all(&db), 5000, "after {updates} updates");
        db.close().unwrap();
        assert_eq!(all(&open(&disk)), 5000, "after {updates} updates, opened again");
    }
    assert!(refused > 20, "the log was full {refused} times");
}

/// A process died on a full disk. The restart needs only reserved space, also if its pages do not fit the pool.
#[test]
fn a_database_that_was_killed_on_a_full_disk_opens_on_it() {
    for seed in 0..12 {
        let (disk, mut rng) = (SimDisk::new(seed), Rng::new(seed));
        let db = open(&disk);
        // More pages than the pool has frames.
        let row = |n: u64| vec![n as u8; 1000];
        let mut expected: Vec<u64> = vec![0; 1500];
        db.transact(|tx| (0..1500).try_for_each(|key| tx.insert(&WIDE, &key, &row(0)))).unwrap();
        db.checkpoint().unwrap();
        disk.set_capacity(disk.used() + rng.below(256 << 10));
        let (mut refused, mut n) = (0, 0);
        while refused < 8 && n < 6000 {
            n += 1;
            // One of the keys is new, so that pages are allocated.
            let keys: Vec<u64> = (0..4).map(|_| rng.below(expected.len() as u64)).collect();
            let new = expected.len() as u64;
            let written = db.transact(|tx| {
                keys.iter().try_for_each(|key| tx.put(&WIDE, key, &row(n)))?;
                tx.insert(&WIDE, &new, &row(n))
            });
            match written {
                Ok(()) => {
                    keys.iter().for_each(|key| expected[*key as usize] = n);
                    expected.push(n);
                }
                Err(TxnError::Storage(StorageError::NoSpace { .. })) => refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if rng.once_in(8) {
                match db.step() {
                    Ok(()) | Err(StorageError::NoSpace { .. }) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
        }
        assert_eq!(refused, 8, "seed {seed}: the disk was not full");
        // A running transaction to undo; some of its updates may fail for lack of space.
        let mut running = db.begin().unwrap();
        let _ = (0..9).try_for_each(|key| running.put(&WIDE, &(key * 37), &row(255)));
        std::mem::forget(running);
        let mut left = disk.crash(if seed % 2 == 0 { Crash::All } else { Crash::Random(seed) });
        std::mem::forget(db);
        // An interrupted restart is completed by the next one, also on the full disk.
        left.power_off_after(rng.below(300));
        let cut = small().open_on(on(&left));
        let off = left.is_off();
        assert!(off || cut.is_ok(), "seed {seed}: {cut:?}");
        if off {
            left = left.crash(Crash::Random(seed + 1));
            std::mem::forget(cut);
        } else {
            left.power_off_after(u64::MAX);
            drop(cut);
        }
        for time in ["killed", "closed"] {
            let db = small().open_on(on(&left)).unwrap_or_else(|error| panic!("seed {seed}, {time}: {error}"));
            let rows: Vec<_> = db.begin().unwrap().range(&WIDE, ..).unwrap().map(|row| row.unwrap().1[0]).collect();
            assert!(rows.iter().copied().eq(expected.iter().map(|n| *n as u8)), "seed {seed}, {time}");
            db.verify_pages().unwrap();
            db.close().unwrap_or_else(|error| panic!("seed {seed}, {time}: {error}"));
        }
    }
}
