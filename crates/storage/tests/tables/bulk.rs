//! Bulk loads concurrent with transactions that use the table.

use std::ops::ControlFlow;
use std::sync::Arc;

use storage::disk::{Crash, MemDisk, SimDisk};
use storage::{Database, Durability, Options, Part, SecondaryIndex, StorageError, Table, Transaction, TxnError};

const ROWS: Table<u64, u64> = Table::new("rows");

fn rows(tx: &mut Transaction<'_>) -> usize {
    let mut rows = 0;
    let visit = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    tx.raw().scan(&ROWS, &[], &[255; 9], visit).unwrap();
    rows
}

/// A loaded part becomes visible only after all transactions have ended that rely on the table being empty.
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

/// A row that is inserted while a part is loaded stays, and the part is refused.
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

/// Unique index: no two rows are equal.
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

/// The pages of a cancelled load are freed, and other tables reuse them.
#[test]
fn a_load_that_is_broken_off_leaves_no_pages_behind() {
    use BrokenOff::{AfterRows, ByRows, BySameValues, Empty, Part as PartAfter};
    for how in [Empty, AfterRows(1), AfterRows(40_000), AfterRows(200_000), BySameValues, ByRows, PartAfter(90_000)] {
        let disk = SimDisk::new(1);
        let db = crate::common::open(&disk);
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
        // Other trees grow in the freed pages.
        let size = db.sizes().unwrap().data_file;
        for n in 0..60u64 {
            db.transact(|tx| (0..50).try_for_each(|i| tx.put(&OTHER, &(n * 50 + i), &n))).unwrap();
        }
        assert_eq!(db.sizes().unwrap().data_file, size, "{how:?}");
        // A completed load keeps its pages.
        let mut load = db.bulk_load(&unique).unwrap();
        (0..30_000).for_each(|n| load.push(&n, &n).unwrap());
        assert_eq!(load.finish().unwrap(), 30_000);
        is_whole(&db);
        db.close().unwrap();
        let db = crate::common::open(&disk);
        is_whole(&db);
        assert_eq!(db.begin().unwrap().range_by::<Halves>(&UNIQUE, ..).unwrap().count(), 30_000);
    }
}

/// Checks the structure of the database and the rows of the loaded table.
fn loaded(db: &Database, rows: u64) {
    is_whole(db);
    let tx = db.begin().unwrap();
    let mut found = 0;
    for row in tx.range(&ROWS, ..).unwrap() {
        let (key, row) = row.unwrap();
        assert_eq!((key, row), (found, found * 3));
        found += 1;
    }
    assert_eq!(found, rows);
}

/// A load is interrupted by a process kill three times in a row, with preloads and other writes in between. The fourth
/// load completes: the table has its rows, and the file does not grow with each attempt.
#[test]
fn a_load_that_kills_cut_off_leaves_nothing_behind() {
    for crash in [Crash::All, Crash::Nothing, Crash::Random(5)] {
        let mut disk = SimDisk::new(3);
        let mut sizes = Vec::new();
        for life in 0..4u64 {
            let db = crate::common::open(&disk);
            is_whole(&db);
            let rows = db.table(&ROWS).unwrap();
            loaded(&db, 0);
            db.transact(|tx| tx.put(&OTHER, &life, &life)).unwrap();
            let mut load = db.bulk_load(&rows).unwrap();
            for key in 0..60_000 {
                load.push(&key, &(key * 3 + (3 - life))).unwrap();
                if key % 7_000 == 1 {
                    db.preload().unwrap();
                    db.transact(|tx| tx.put(&OTHER, &(100 + key), &life)).unwrap();
                }
            }
            if life < 3 {
                sizes.push(db.sizes().unwrap().data_file);
                disk = disk.crash(crash);
                std::mem::forget(load);
                std::mem::forget(db);
                continue;
            }
            assert_eq!(load.finish().unwrap(), 60_000);
            loaded(&db, 60_000);
            db.preload().unwrap();
            db.close().unwrap();
            loaded(&crate::common::open(&disk), 60_000);
        }
        assert!(sizes[2] <= sizes[0] + (1 << 20), "{sizes:?}");
    }
}

/// Two process kills. Before the first one, a load has written pages after commits that were not durable; before the
/// second one, other rows use the same page numbers.
#[test]
fn pages_of_a_load_do_not_hide_later_changes() {
    let disk = SimDisk::new(4);
    let db = crate::common::small().durability(Durability::Async).open_on(crate::common::on(&disk)).unwrap();
    let rows = db.table(&ROWS).unwrap();
    db.transact(|tx| (0..10).try_for_each(|key| tx.put(&OTHER, &key, &0))).unwrap();
    db.checkpoint().unwrap();
    let mut tx = db.begin().unwrap();
    (0..20_000).for_each(|n| tx.put(&OTHER, &(n % 10), &n).unwrap());
    tx.commit_async().unwrap();
    let mut load = db.bulk_load(&rows).unwrap();
    (0..60_000).for_each(|key| load.push(&key, &1).unwrap());
    let disk = disk.crash(Crash::All);
    std::mem::forget(load);
    std::mem::forget(db);

    let db = crate::common::open(&disk);
    db.transact(|tx| (100..20_000).try_for_each(|key| tx.insert(&OTHER, &key, &key))).unwrap();
    let disk = disk.crash(Crash::All);
    std::mem::forget(db);

    let db = crate::common::open(&disk);
    is_whole(&db);
    assert_eq!(db.begin().unwrap().count(&OTHER, 100..).unwrap(), 19_900);
}

/// A table without rows can be loaded, for each way in which ghosts were left in it.
#[test]
fn a_table_of_ghosts_is_empty() {
    for n in [1, 20_000u64] {
        let disk = SimDisk::new(5);
        let db = crate::common::open(&disk);
        let (unique, rows) = (db.table(&UNIQUE).unwrap(), db.table(&ROWS).unwrap());
        db.transact(|tx| (0..n).try_for_each(|key| tx.insert(&UNIQUE, &key, &key))).unwrap();
        assert!(matches!(db.bulk_load(&unique), Err(TxnError::Schema { .. })));
        db.transact(|tx| (0..n).try_for_each(|key| tx.delete(&UNIQUE, &key).map(drop))).unwrap();
        let mut load = db.bulk_load(&unique).unwrap();
        (0..5_000).for_each(|key| load.push(&key, &(key + 1)).unwrap());
        assert_eq!(load.finish().unwrap(), 5_000);
        is_whole(&db);

        // Another transaction inserts and deletes a row while a part is loaded.
        let mut part = db.bulk_load_part(&rows, Part::Rows).unwrap();
        (0..9_000u64).for_each(|key| part.push_raw(&key.to_be_bytes(), &(key * 3).to_le_bytes()).unwrap());
        let mut tx = db.begin().unwrap();
        (0..n).for_each(|key| tx.insert(&ROWS, &(key * 2), &key).unwrap());
        tx.rollback().unwrap();
        assert_eq!(part.finish().unwrap(), 9_000);
        db.close().unwrap();
        let db = crate::common::open(&disk);
        is_whole(&db);
        assert_eq!(db.begin().unwrap().count(&ROWS, ..).unwrap(), 9_000);
        assert_eq!(db.begin().unwrap().range_by::<Halves>(&UNIQUE, ..).unwrap().count(), 5_000);
    }
}

/// A part waits for the transaction whose row conflicts with it, and no longer than that.
#[test]
fn a_part_waits_for_a_row_that_may_be_taken_back() {
    let db = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.table(&ROWS).unwrap();
    let mut writer = db.begin().unwrap();
    writer.insert(&ROWS, &1, &1).unwrap();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut part = db.bulk_load_part(&table, Part::Rows).unwrap();
            part.push_raw(&7u64.to_be_bytes(), &[0; 8]).unwrap();
            part.finish().unwrap()
        });
        while db.stats().lock_waits == 0 && !load.is_finished() {
            std::thread::yield_now();
        }
        writer.rollback().unwrap();
        assert_eq!(load.join().unwrap(), 1);
    });
}

/// Several concurrent loads with interleaved extents, some of which are cancelled.
#[test]
fn loads_beside_each_other_share_the_file() {
    const SECOND: Table<u64, u64> = Table::new("second");
    const THIRD: Table<u64, u64> = Table::new("third");
    for drops in 0..8 {
        let disk = SimDisk::new(drops);
        let db = crate::common::open(&disk);
        let tables = [ROWS, SECOND, THIRD].map(|table| db.table(&table).unwrap());
        let mut loads: Vec<_> = tables.iter().map(|table| Some(db.bulk_load(table).unwrap())).collect();
        for key in 0..40_000 {
            loads.iter_mut().for_each(|load| load.as_mut().unwrap().push(&key, &(key * 3)).unwrap());
        }
        for (i, load) in loads.iter_mut().enumerate() {
            let load = load.take().unwrap();
            if drops >> i & 1 == 0 {
                assert_eq!(load.finish().unwrap(), 40_000)
            } else {
                drop(load)
            }
            is_whole(&db);
        }
        db.transact(|tx| (0..3_000).try_for_each(|key| tx.put(&OTHER, &key, &key))).unwrap();
        is_whole(&db);
        // The freed pages are reused.
        let size = db.sizes().unwrap().data_file;
        if drops == 7 {
            let mut load = db.bulk_load(&tables[0]).unwrap();
            (0..40_000).for_each(|key| load.push(&key, &(key * 3)).unwrap());
            load.finish().unwrap();
            assert_eq!(db.sizes().unwrap().data_file, size);
        }
        let disk = disk.crash(Crash::Nothing);
        drop(loads);
        std::mem::forget(db);
        let db = crate::common::open(&disk);
        is_whole(&db);
        for (i, table) in [ROWS, SECOND, THIRD].into_iter().enumerate() {
            let wanted = if drops >> i & 1 == 0 || drops == 7 && i == 0 { 40_000 } else { 0 };
            assert_eq!(db.begin().unwrap().count(&table, ..).unwrap(), wanted);
        }
    }
}

/// A load that fills the disk frees its pages: the log has reserved space for that.
#[test]
fn a_load_that_finds_the_disk_full_leaves_a_sound_database() {
    let disk = SimDisk::new(2);
    let db = crate::common::open(&disk);
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
    is_whole(&crate::common::open(&disk));
}
