//! The log has no room just when the tree's structure changes: the change has not happened, in memory either.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod common;

use common::{NUMBERS, ROWS, on, open, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, StorageError, Table, TxnError};

const LOADED: Table<u64, u64> = Table::new("loaded");

fn rows(db: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut tx = db.begin().unwrap();
    tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect()
}

/// A database on a disk that is full, whose log so many updates have filled further.
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

/// The root of a small table grows with a record of two pages' images. With the log nearly full to different degrees,
/// some of these records are the one that does not fit.
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
            // There is space again.
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

/// What a refused growth leaves in memory is not mistaken for the page that a load has written past the pool.
#[test]
fn a_bulk_load_after_a_refusal_keeps_all_its_rows() {
    let mut refused = 0;
    for updates in (0..330).step_by(3) {
        let disk = SimDisk::new(1);
        let db = nearly_full(&disk, updates);
        let loaded = db.table(&LOADED).unwrap();
        for n in 0..60u8 {
            match db.transact(|tx| tx.insert(&ROWS, &vec![n], &vec![n; 180])) {
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
