//! Bulk loads beside transactions that use the table.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;

use storage::disk::{MemDisk, SimDisk};
use storage::{Database, Options, Part, SecondaryIndex, StorageError, Table, Transaction, TxnError};

const ROWS: Table<u64, u64> = Table::new("rows");

fn rows(tx: &mut Transaction<'_>) -> usize {
    let mut rows = 0;
    let visit = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    tx.scan_raw(&ROWS, &[], &[255; 9], visit).unwrap();
    rows
}

/// A part of a table appears once no transaction relies on the table's being empty any more.
#[test]
fn a_part_waits_for_the_readers_of_the_empty_table() {
    let db = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.table(&ROWS).unwrap();
    let mut reader = db.begin().unwrap();
    assert_eq!(rows(&mut reader), 0);
    std::thread::scope(|scope| {
        let (db, table) = (&db, &table);
        let load = scope.spawn(move || {
            let mut part = db.bulk_load_part(table, Part::Rows).unwrap();
            for key in 0..1000u64 {
                part.push_raw(&key.to_be_bytes(), &[0; 8]).unwrap();
            }
            part.finish().unwrap()
        });
        while db.stats().lock_waits == 0 && !load.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(rows(&mut reader), 0, "rows that were not there before");
        reader.commit().unwrap();
        assert_eq!(load.join().unwrap(), 1000);
    });
    assert_eq!(rows(&mut db.begin().unwrap()), 1000);
}

/// A row that comes into the table while a part is loaded stays, and the part is refused.
#[test]
fn a_part_of_a_table_that_is_no_longer_empty_is_refused() {
    let db = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.table(&ROWS).unwrap();
    let mut part = db.bulk_load_part(&table, Part::Rows).unwrap();
    part.push_raw(&7u64.to_be_bytes(), &[0; 8]).unwrap();
    db.transact(|tx| tx.put(&ROWS, &1, &1)).unwrap();
    assert!(matches!(part.finish(), Err(TxnError::Schema { .. })));
    assert_eq!(rows(&mut db.begin().unwrap()), 1);
    db.verify_pages().unwrap();
}

/// Checks that every page belongs to a tree or to the free list.
fn is_whole(db: &Database) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
    db.verify_pages().unwrap();
}

const UNIQUE: Table<u64, u64> = Table::new("unique").with_index::<Halves>();

const OTHER: Table<u64, u64> = Table::new("other");

/// No two rows are equal.
struct Halves;
impl SecondaryIndex for Halves {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "halves";
    const UNIQUE: bool = true;
    fn by(_: &u64, row: &u64) -> Option<u64> {
        Some(*row)
    }
}

/// Ways in which a load ends without loading rows.
#[derive(Clone, Copy, Debug)]
enum BrokenOff {
    Empty,
    AfterRows(u64),
    BySameValues,
    ByRows,
    Part(u64),
}

/// The pages of a load that is broken off are given back, and other tables use them.
#[test]
fn a_load_that_is_broken_off_leaves_no_pages_behind() {
    use BrokenOff::{AfterRows, ByRows, BySameValues, Empty, Part as PartAfter};
    for how in [Empty, AfterRows(1), AfterRows(40_000), AfterRows(200_000), BySameValues, ByRows, PartAfter(90_000)] {
        let disk = SimDisk::new(1);
        let db = common::open(&disk);
        db.table(&OTHER).unwrap();
        let (rows, unique) = (db.table(&ROWS).unwrap(), db.table(&UNIQUE).unwrap());
        for round in 0..2 {
            match how {
                Empty | AfterRows(_) => {
                    let mut load = db.bulk_load(&unique).unwrap();
                    let n = if let AfterRows(n) = how { n } else { 0 };
                    (0..n).for_each(|n| load.push(&n, &n).unwrap());
                }
                BySameValues => {
                    let mut load = db.bulk_load(&unique).unwrap();
                    (0..50_000).for_each(|n| load.push(&n, &(n / 2)).unwrap());
                    assert!(matches!(load.finish(), Err(TxnError::DuplicateKey { .. })));
                }
                ByRows => {
                    let mut part = db.bulk_load_part(&rows, Part::Rows).unwrap();
                    (1..50_000u64).for_each(|n| part.push_raw(&n.to_be_bytes(), &[0; 8]).unwrap());
                    db.transact(|tx| tx.put(&ROWS, &1, &1)).unwrap();
                    assert!(matches!(part.finish(), Err(TxnError::Schema { .. })));
                    db.truncate("rows").unwrap();
                }
                PartAfter(n) => {
                    let mut part = db.bulk_load_part(&unique, Part::Index(0)).unwrap();
                    (0..n).for_each(|n| part.push_raw(&n.to_be_bytes(), &[0; 8]).unwrap());
                }
            }
            is_whole(&db);
            assert_eq!(db.begin().unwrap().count(&UNIQUE, ..).unwrap(), 0, "{how:?}, round {round}");
        }
        // Other trees grow in its pages.
        let size = db.sizes().unwrap().data_file;
        for n in 0..60u64 {
            db.transact(|tx| (0..50).try_for_each(|i| tx.put(&OTHER, &(n * 50 + i), &n))).unwrap();
        }
        assert_eq!(db.sizes().unwrap().data_file, size, "{how:?}");
        // A load that comes to its end keeps its pages.
        let mut load = db.bulk_load(&unique).unwrap();
        (0..30_000).for_each(|n| load.push(&n, &n).unwrap());
        assert_eq!(load.finish().unwrap(), 30_000);
        is_whole(&db);
        db.close().unwrap();
        let db = common::open(&disk);
        is_whole(&db);
        assert_eq!(db.begin().unwrap().range_by::<Halves>(&UNIQUE, ..).unwrap().count(), 30_000);
    }
}

/// A load that finds the disk full gives its pages back: the log had room for that.
#[test]
fn a_load_that_finds_the_disk_full_leaves_a_sound_database() {
    let disk = SimDisk::new(2);
    let db = common::open(&disk);
    let unique = db.table(&UNIQUE).unwrap();
    disk.set_capacity(disk.used() + (3 << 20));
    let mut load = db.bulk_load(&unique).unwrap();
    let error = (0..1_000_000).find_map(|n| load.push(&n, &n).err()).unwrap();
    assert!(matches!(error, TxnError::Storage(StorageError::NoSpace { .. })), "{error}");
    drop(load);
    disk.set_capacity(u64::MAX);
    db.transact(|tx| tx.put(&UNIQUE, &1, &1)).unwrap();
    is_whole(&db);
    db.close().unwrap();
    is_whole(&common::open(&disk));
}
