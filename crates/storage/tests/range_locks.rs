//! What a scan keeps from changing: its rows and gaps, from one end of its range to the other, whatever happens to the leaf.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::NUMBERS;
use storage::disk::MemDisk;
use storage::{Database, Isolation, Options, Table, Transaction, TxnError};

/// Rows of which about forty fill a leaf.
const WIDE: Table<u64, Vec<u8>> = Table::new("wide");

fn open() -> Database {
    Options::new().buffer_pool(4 << 20).open_on(Arc::new(MemDisk::new())).unwrap()
}

/// Keys 0, 10, and so on up to 1000.
fn tens() -> Database {
    let db = open();
    db.transact(|tx| (0..=100).try_for_each(|k| tx.insert(&NUMBERS, &(10 * k), &k))).unwrap();
    db
}

/// Whether the change has to wait for the other transaction, which this thread has begun.
fn must_wait(db: &Database, change: impl FnOnce(&mut Transaction<'_>) -> Result<(), TxnError>) -> bool {
    let mut tx = db.begin().unwrap();
    match change(&mut tx) {
        Ok(()) => false,
        Err(TxnError::OwnTask { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

fn insert(db: &Database, key: u64) -> bool {
    must_wait(db, |tx| tx.insert(&NUMBERS, &key, &0))
}

fn update(db: &Database, key: u64) -> bool {
    must_wait(db, |tx| tx.put(&NUMBERS, &key, &0))
}

fn delete(db: &Database, key: u64) -> bool {
    must_wait(db, |tx| tx.delete(&NUMBERS, &key).map(drop))
}

fn scan(tx: &Transaction<'_>, from: u64, to: u64, back: bool) -> Vec<u64> {
    let rows = tx.range(&NUMBERS, from..=to).unwrap();
    let keys = |row: Result<(u64, u64), TxnError>| row.unwrap().0;
    if back { rows.rev().map(keys).collect() } else { rows.map(keys).collect() }
}

#[test]
fn the_range_ends_where_the_scan_ended() {
    for back in [false, true] {
        let db = tens();
        let tx = db.begin().unwrap();
        assert_eq!(scan(&tx, 105, 895, back).len(), 79);
        // Before the others: what an insert that was refused has written down of the last gap has no upper end.
        for outside in [99, 101, 104, 896, 899, 901] {
            assert!(!insert(&db, outside), "{outside}");
        }
        for outside in [100, 900] {
            assert!(!update(&db, outside) && !delete(&db, outside), "{outside}");
        }
        for inside in [105, 106, 109, 111, 499, 501, 891, 894, 895] {
            assert!(insert(&db, inside), "{inside}");
        }
        for inside in [110, 120, 500, 880, 890] {
            assert!(update(&db, inside) && delete(&db, inside), "{inside}");
        }
        assert_eq!(scan(&tx, 105, 895, back).len(), 79);
        tx.commit().unwrap();
        assert!(!insert(&db, 501) && !update(&db, 500) && !delete(&db, 110));
    }
}

#[test]
fn a_range_without_an_end_reaches_to_the_end() {
    let db = tens();
    let tx = db.begin().unwrap();
    assert_eq!(tx.range(&NUMBERS, 500..).unwrap().count(), 51);
    assert!(insert(&db, 1001) && insert(&db, u64::MAX) && insert(&db, 501));
    assert!(!insert(&db, 499));
}

/// A cursor that stops locks what it has fetched, not the rest.
#[test]
fn a_cursor_that_stops_locks_no_more_than_it_has_read() {
    let db = open();
    db.transact(|tx| (0..10_000).try_for_each(|k| tx.insert(&NUMBERS, &(10 * k), &k))).unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(tx.range(&NUMBERS, 0..).unwrap().take(20).count(), 20);
    assert!(insert(&db, 1) && update(&db, 190));
    assert!(!insert(&db, 90_001) && !update(&db, 90_000));
}

#[test]
fn keys_that_are_deleted_and_inserted_again_stay_in_the_range() {
    let db = tens();
    let mut tx = db.begin().unwrap();
    assert_eq!(scan(&tx, 100, 900, false).len(), 81);
    assert!(tx.delete(&NUMBERS, &500).unwrap());
    assert!(insert(&db, 500) && insert(&db, 499) && insert(&db, 501));
    tx.insert(&NUMBERS, &500, &1).unwrap();
    tx.insert(&NUMBERS, &505, &1).unwrap();
    assert!(insert(&db, 504) && insert(&db, 506) && update(&db, 505));
    assert_eq!(scan(&tx, 100, 900, false).len(), 82);
    tx.rollback().unwrap();
    // The ghosts of a rollback are not locked.
    assert!(!insert(&db, 505) && !insert(&db, 504));

    // A ghost that another transaction has left, in a range that is read later.
    db.transact(|tx| tx.delete(&NUMBERS, &300)).unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(scan(&tx, 200, 400, false).len(), 20);
    assert!(insert(&db, 300));
}

#[test]
fn a_leaf_that_is_split_in_the_middle_of_a_range_changes_nothing() {
    let db = open();
    db.transact(|tx| (0..40).try_for_each(|k| tx.insert(&WIDE, &(100 * k), &vec![7; 100]))).unwrap();
    let tx = db.begin().unwrap();
    let keys = || tx.range(&WIDE, 500..=2000).unwrap().map(|row| row.unwrap().0).collect::<Vec<_>>();
    let before = keys();
    // Splits the leaf, and then both halves, from outside of the range.
    for side in [2_001..2_600, 1..500] {
        let mut other = db.begin().unwrap();
        for key in side.filter(|key| key % 100 != 0) {
            other.insert(&WIDE, &key, &vec![8; 100]).unwrap();
        }
        other.commit().unwrap();
    }
    for key in (500..=2000).step_by(50) {
        assert!(must_wait(&db, |tx| tx.put(&WIDE, &key, &vec![9; 100])), "{key}");
    }
    assert_eq!(keys(), before);
}

/// A writer of a range keeps readers of all isolation levels out, but not from what lies beside it.
#[test]
fn a_range_that_is_written_is_not_read() {
    let db = tens();
    let raw = db.raw_table(&NUMBERS).unwrap();
    let key = |k: u64| {
        // As the table's codec orders them.
        k.to_be_bytes()
    };
    let mut tx = db.begin().unwrap();
    let rows = tx.update_run_raw(&raw, &key(200), &key(400), |_, row| row[0] ^= 1).unwrap();
    assert_eq!(rows, 21);
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted] {
        for k in (0..=1000).step_by(10) {
            let other = db.begin_at(isolation).unwrap();
            let waits = match other.get(&NUMBERS, &k) {
                Err(TxnError::OwnTask { .. }) => true,
                row => row.unwrap().is_none(),
            };
            assert_eq!(waits, (200..=400).contains(&k), "{k} {isolation:?}");
        }
        let other = db.begin_at(isolation).unwrap();
        let mut rows = other.range(&NUMBERS, ..).unwrap();
        let refused = rows.find_map(Result::err);
        assert!(matches!(refused, Some(TxnError::OwnTask { .. })), "{isolation:?}: {refused:?}");
    }
    assert!(insert(&db, 205) && update(&db, 200) && delete(&db, 400) && !insert(&db, 405));
    // Its own statements go on in it.
    assert!(tx.get(&NUMBERS, &300).unwrap().is_some());
    tx.insert(&NUMBERS, &301, &1).unwrap();
    tx.delete(&NUMBERS, &310).unwrap();
    tx.rollback().unwrap();
    assert!(!insert(&db, 205) && !update(&db, 200));
}

/// Going back to a savepoint keeps all locks.
#[test]
fn a_range_outlives_a_savepoint() {
    let db = tens();
    let mut tx = db.begin().unwrap();
    let savepoint = tx.savepoint();
    assert_eq!(scan(&tx, 100, 900, false).len(), 81);
    tx.put(&NUMBERS, &0, &1).unwrap();
    tx.rollback_to(savepoint).unwrap();
    assert!(insert(&db, 501) && update(&db, 500));
}

/// Below serializable a range read protects rows at most.
#[test]
fn lower_levels_lock_no_gaps() {
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let db = tens();
        let tx = db.begin_at(isolation).unwrap();
        assert_eq!(scan(&tx, 100, 900, false).len(), 81);
        assert!(!insert(&db, 501));
        assert_eq!(update(&db, 500), isolation == Isolation::RepeatableRead);
    }
}

/// Two that have read one range and write in it: one is rolled back and runs again.
#[test]
fn two_that_read_a_range_and_write_in_it_go_one_after_the_other() {
    let db = tens();
    let sum =
        |tx: &Transaction<'_>| -> u64 { tx.range(&NUMBERS, ..).unwrap().map_while(Result::ok).map(|r| r.1).sum() };
    std::thread::scope(|scope| {
        for worker in 0..3u64 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..60u64 {
                    db.transact(|tx| {
                        let rows: Result<Vec<_>, _> = tx.range(&NUMBERS, ..)?.collect();
                        let all: u64 = rows?.iter().map(|row| row.1).sum();
                        // The sum of all rows grows by exactly one in each transaction.
                        let key = 10 * ((round * 7 + worker * 13) % 101);
                        let row = tx.get(&NUMBERS, &key)?.unwrap();
                        tx.put(&NUMBERS, &key, &(row + 1))?;
                        if round % 3 == 0 {
                            tx.put(&NUMBERS, &(100_000 + all), &0)?;
                        }
                        Ok::<_, TxnError>(())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(sum(&db.begin().unwrap()), 5050 + 180);
    // No two transactions have seen the same sum.
    assert_eq!(db.begin().unwrap().range(&NUMBERS, 100_000..).unwrap().count(), 60);
}

#[test]
fn a_wait_for_a_range_ends_in_time() {
    let options = Options::new().lock_timeout(Duration::from_millis(20));
    let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
    db.transact(|tx| (0..100u64).try_for_each(|k| tx.insert(&NUMBERS, &(10 * k), &k))).unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(scan(&tx, 100, 900, false).len(), 81);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut late = db.begin().unwrap();
            (late.insert(&NUMBERS, &501, &0), late.put(&NUMBERS, &500, &0))
        });
        let (inserted, updated) = other.join().unwrap();
        assert!(matches!(inserted, Err(TxnError::LockTimeout { holder: Some(_), .. })), "{inserted:?}");
        assert!(matches!(updated, Err(TxnError::LockTimeout { holder: Some(_), .. })), "{updated:?}");
    });
}

/// A table that is mostly read is locked as a whole by its readers, and by its writers.
#[test]
fn a_table_that_is_mostly_read() {
    let db = tens();
    let table = db.table(&NUMBERS).unwrap();
    db.read_mostly(&table).unwrap();
    let (tx, also) = (db.begin().unwrap(), db.begin().unwrap());
    assert_eq!((tx.get(&table, &10).unwrap(), also.get(&table, &10).unwrap()), (Some(1), Some(1)));
    assert!(update(&db, 20) && insert(&db, 21) && delete(&db, 30));
    drop((tx, also));
    assert!(!update(&db, 20));
    let mut writer = db.begin().unwrap();
    writer.put(&table, &20, &5).unwrap();
    assert!(must_wait(&db, |tx| tx.get(&table, &500).map(drop)));
    // Writers share it, and readers at read committed ask for rows.
    assert!(!update(&db, 30) && update(&db, 20));
    let instant = db.begin_at(Isolation::ReadCommitted).unwrap();
    assert_eq!(instant.get(&table, &500).unwrap(), Some(50));
    assert!(matches!(instant.get(&table, &20), Err(TxnError::OwnTask { .. })));
    drop(instant);
    writer.commit().unwrap();
    // A reader that writes later.
    let mut both = db.begin().unwrap();
    assert_eq!(both.get(&table, &20).unwrap(), Some(5));
    both.put(&table, &20, &6).unwrap();
    both.commit().unwrap();
}

#[test]
fn readers_and_writers_of_a_table_that_is_mostly_read_lose_nothing() {
    let db = open();
    db.transact(|tx| (0..10).try_for_each(|k| tx.insert(&NUMBERS, &k, &100))).unwrap();
    let table = db.table(&NUMBERS).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for round in 0..200u64 {
                    if worker == 0 && round == 50 {
                        db.read_mostly(table).unwrap();
                    }
                    let (from, to) = ((worker + round) % 10, (worker * 3 + round * 7) % 10);
                    if round % 4 == 0 {
                        db.transact(|tx| {
                            let a = tx.get_for_update(table, &from)?.unwrap();
                            tx.put(table, &from, &(a.wrapping_sub(3)))?;
                            let b = tx.get_for_update(table, &to)?.unwrap();
                            tx.put(table, &to, &(b.wrapping_add(3)))
                        })
                        .unwrap();
                    } else {
                        let add = |sum: u64, key: u64, tx: &Transaction<'_>| {
                            Ok::<_, TxnError>(sum.wrapping_add(tx.get(table, &key)?.unwrap()))
                        };
                        let sum = db.transact(|tx| (0..10).try_fold(0, |sum, key| add(sum, key, tx))).unwrap();
                        assert_eq!(sum, 1000);
                    }
                }
            });
        }
    });
}
