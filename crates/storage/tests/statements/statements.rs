//! Guarantees of single statements: atomicity, typed errors, no partial changes.

use std::sync::Arc;

use crate::common::{ByHead, NUMBERS, ROWS, Rng, on, open, small};
use storage::disk::{Call, Fault, MemDisk, SimDisk, When};
use storage::{Database, Isolation, Options, SecondaryIndex, StorageError, Table, TxnError};

fn memory() -> Database {
    Options::new().buffer_pool(8 << 20).log_segment(1 << 20).transactions(8).open_on(Arc::new(MemDisk::new())).unwrap()
}

#[test]
fn a_table_declared_with_other_indexes_is_refused() {
    const PLAIN: Table<Vec<u8>, Vec<u8>> = Table::new("rows");
    let disk = Arc::new(MemDisk::new());
    let db = Options::new().buffer_pool(8 << 20).open_on(disk.clone()).unwrap();
    db.table(&ROWS).unwrap();
    // In the process that has the table open ...
    assert!(matches!(db.table(&PLAIN), Err(TxnError::Schema { .. })));
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.put(&PLAIN, &[1], &vec![2]), Err(TxnError::Schema { .. })));
    drop(tx);
    db.close().unwrap();
    // ... and in a later one.
    let db = Options::new().buffer_pool(8 << 20).open_on(disk).unwrap();
    assert!(matches!(db.table(&PLAIN), Err(TxnError::Schema { .. })));
    db.table(&ROWS).unwrap();
}

struct ByValue;
impl SecondaryIndex for ByValue {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "by_value";
    const UNIQUE: bool = true;
    fn by(_: &u64, row: &u64) -> Option<u64> {
        (*row != 0).then_some(*row)
    }
}
const UNIQUE: Table<u64, u64> = Table::new("unique").with_index::<ByValue>();

#[test]
fn a_duplicate_in_a_unique_index_takes_the_statement_back_and_no_more() {
    let db = memory();
    let mut tx = db.begin().unwrap();
    tx.insert(&UNIQUE, &1, &100).unwrap();
    tx.insert(&UNIQUE, &2, &200).unwrap();
    let refused = |r: Result<(), TxnError>| match r {
        Err(TxnError::DuplicateKey { table, index }) => assert_eq!((&*table, &*index), ("unique", "by_value")),
        other => panic!("{other:?}"),
    };
    refused(tx.insert(&UNIQUE, &3, &100));
    refused(tx.put(&UNIQUE, &3, &200));
    refused(tx.put(&UNIQUE, &1, &200));
    refused(tx.update(&UNIQUE, &1, &200).map(drop));
    let rows: [(Vec<u8>, Vec<u8>); 3] =
        [5u64, 6, 7].map(|k| (k.to_be_bytes().to_vec(), (if k == 6 { 100 } else { k }).to_le_bytes().to_vec()));
    let run: Vec<(&[u8], &[u8])> = rows.iter().map(|(k, r)| (k.as_slice(), r.as_slice())).collect();
    refused(tx.raw_mut().insert_run(&UNIQUE, &run));
    // Another row may at once take a released value, and rows without a value do not conflict.
    tx.put(&UNIQUE, &1, &101).unwrap();
    tx.put(&UNIQUE, &3, &100).unwrap();
    tx.put(&UNIQUE, &8, &0).unwrap();
    tx.put(&UNIQUE, &9, &0).unwrap();
    tx.delete(&UNIQUE, &2).unwrap();
    tx.insert(&UNIQUE, &4, &200).unwrap();
    tx.commit().unwrap();
    let tx = db.begin().unwrap();
    let rows: Vec<_> = tx.range(&UNIQUE, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [(1, 101), (3, 100), (4, 200), (8, 0), (9, 0)]);
    let by: Vec<_> = tx.range_by::<ByValue>(&UNIQUE, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(by, [(3, 100), (1, 101), (4, 200)]);
    let back: Vec<_> = tx.range_by::<ByValue>(&UNIQUE, 100..=101).unwrap().rev().map(Result::unwrap).collect();
    assert_eq!(back, [(1, 101), (3, 100)]);
}

#[test]
fn sizes_are_checked_and_named() {
    let db = memory();
    let mut tx = db.begin().unwrap();
    // Two bytes end the key's encoding.
    let longest = vec![1; 2046];
    let head = vec![b'x'; 4000];
    // The index entry would be longer than the maximum key: the insert of the row is undone.
    assert!(matches!(tx.insert(&ROWS, &longest, &head), Err(TxnError::KeyTooLong { bytes: 2052, limit: 2048, .. })));
    assert_eq!(tx.get(&ROWS, &longest).unwrap(), None);
    tx.insert(&ROWS, &longest, &vec![]).unwrap();
    assert!(matches!(tx.insert(&ROWS, &vec![1; 2047], &vec![]), Err(TxnError::KeyTooLong { bytes: 2049, .. })));
    tx.insert(&ROWS, &[1], &vec![1; 4000]).unwrap();
    assert!(matches!(tx.update(&ROWS, &longest, &vec![1; 4001]), Err(TxnError::KeyTooLong { .. })));
    assert_eq!(tx.get(&ROWS, &vec![1; 2600]).unwrap(), None);
    assert!(!tx.delete(&ROWS, &vec![1; 2600]).unwrap());
    tx.insert(&ROWS, &[], &vec![]).unwrap();
    tx.commit().unwrap();
    let tx = db.begin().unwrap();
    let lengths: Vec<_> = tx.range(&ROWS, ..).unwrap().map(|r| r.map(|(k, r)| (k.len(), r.len())).unwrap()).collect();
    assert_eq!(lengths, [(0, 0), (1, 4000), (2046, 0)]);
    assert_eq!(tx.range_by::<ByHead>(&ROWS, ..).unwrap().count(), 1);
}

#[test]
fn a_bulk_load_refuses_what_a_statement_would() {
    let db = memory();
    let table = db.table(&ROWS).unwrap();
    let mut load = db.bulk_load(&table).unwrap();
    load.push(&vec![5], &vec![1, 2, 3]).unwrap();
    assert!(matches!(load.push(&vec![5], &vec![]), Err(TxnError::NotAscending { .. })));
    assert!(matches!(load.push(&vec![4], &vec![]), Err(TxnError::NotAscending { .. })));
    assert!(matches!(load.push(&vec![6; 2600], &vec![]), Err(TxnError::KeyTooLong { bytes: 2602, .. })));
    // Dropping the load discards its rows, and its pages do no harm.
    drop(load);
    db.verify_pages().unwrap();
    let mut load = db.bulk_load(&table).unwrap();
    load.push(&vec![5], &vec![1, 2, 3]).unwrap();
    assert_eq!(load.finish().unwrap(), 1);
    assert!(matches!(db.bulk_load(&table), Err(TxnError::Schema { .. })));
    let table = db.table(&UNIQUE).unwrap();
    let mut load = db.bulk_load(&table).unwrap();
    load.push(&1, &7).unwrap();
    load.push(&2, &7).unwrap();
    assert!(matches!(load.finish(), Err(TxnError::DuplicateKey { .. })));
    let tx = db.begin().unwrap();
    assert_eq!(tx.range(&UNIQUE, ..).unwrap().count(), 0);
    assert_eq!(tx.range(&ROWS, ..).unwrap().count(), 1);
    drop(tx);
    db.verify_pages().unwrap();
}

#[test]
fn guards_roll_back_and_slots_are_limited() {
    let db = Options::new().buffer_pool(8 << 20).transactions(2).open_on(Arc::new(MemDisk::new())).unwrap();
    db.table(&NUMBERS).unwrap();
    let mut a = db.begin().unwrap();
    let b = db.begin().unwrap();
    assert!(matches!(db.begin(), Err(TxnError::Storage(StorageError::TooManyTransactions { limit: 2 }))));
    a.put(&NUMBERS, &1, &1).unwrap();
    drop((a, b));
    let a = db.begin().unwrap();
    assert_eq!(a.get(&NUMBERS, &1).unwrap(), None);
    let failed: Result<(), TxnError> = db.transact(|tx| {
        tx.put(&NUMBERS, &2, &2)?;
        Err(TxnError::Ended)
    });
    assert!(failed.is_err());
    assert_eq!(a.get(&NUMBERS, &2).unwrap(), None);
}

/// A run of updates that fails in the middle is undone completely.
#[test]
fn a_failed_run_of_updates_takes_back_its_first_part() {
    let disk = SimDisk::new(4);
    let db = open(&disk);
    const PLAIN: Table<u64, Vec<u8>> = Table::new("plain");
    let mut rng = Rng::new(4);
    for chunk in 0..20u64 {
        db.transact(|tx| (0..50).try_for_each(|i| tx.put(&PLAIN, &(chunk * 50 + i), &rng.bytes(2000)))).unwrap();
        db.step().unwrap();
    }
    db.checkpoint().unwrap();
    let before: Vec<_> = db.begin().unwrap().range(&PLAIN, ..).unwrap().map(Result::unwrap).collect();
    let mut failures = 0;
    for fail_at in [1, 20, 100] {
        let mut tx = db.begin().unwrap();
        disk.plan(Some(Call::Read), When::Once(fail_at), Fault::Eio);
        let result =
            tx.raw_mut().update_run(&PLAIN, &0u64.to_be_bytes(), &u64::MAX.to_be_bytes(), |_, row| row.fill(0));
        disk.heal();
        failures += usize::from(matches!(result, Err(TxnError::Storage(StorageError::Io { .. }))));
        if result.is_ok() {
            continue;
        }
        // The statement failed; the transaction stays open, and commits without any change.
        tx.commit().unwrap();
        let after: Vec<_> = db.begin().unwrap().range(&PLAIN, ..).unwrap().map(Result::unwrap).collect();
        assert!(before == after, "rows changed by a failed statement (read {fail_at})");
    }
    assert!(failures >= 2);
}

/// A deadlock in a cursor ends its transaction as in any other statement, so that `transact` runs it again.
#[test]
fn a_deadlock_in_a_cursor_is_run_again() {
    for by_index in [false, true] {
        let db = memory();
        db.transact(|tx| {
            tx.put(&UNIQUE, &1, &1)?;
            tx.put(&UNIQUE, &2, &2)
        })
        .unwrap();
        let barrier = std::sync::Barrier::new(2);
        let runs = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (mine, other) in [(1u64, 2u64), (2, 1)] {
                let (db, barrier, runs) = (&db, &barrier, &runs);
                scope.spawn(move || {
                    let mut first = true;
                    db.transact(|tx| {
                        runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        tx.put(&UNIQUE, &mine, &(mine + 10))?;
                        if std::mem::take(&mut first) {
                            barrier.wait();
                        }
                        if by_index {
                            tx.range_by::<ByValue>(&UNIQUE, ..)?.try_for_each(|r| r.map(drop))
                        } else {
                            tx.range(&UNIQUE, other..=other)?.try_for_each(|r| r.map(drop))
                        }
                    })
                    .unwrap();
                });
            }
        });
        assert!(runs.into_inner() >= 3, "there was a deadlock");
    }
}

#[test]
fn after_a_deadlock_only_rolling_back_is_left() {
    let db = memory();
    db.transact(|tx| {
        tx.put(&NUMBERS, &1, &1)?;
        tx.put(&NUMBERS, &2, &2)
    })
    .unwrap();
    let barrier = std::sync::Barrier::new(2);
    let victims = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (mine, other) in [(1u64, 2u64), (2, 1)] {
            let (db, barrier, victims) = (&db, &barrier, &victims);
            scope.spawn(move || {
                let mut tx = db.begin().unwrap();
                tx.put(&NUMBERS, &mine, &(mine + 10)).unwrap();
                barrier.wait();
                match tx.put(&NUMBERS, &other, &(mine + 10)) {
                    Ok(()) => tx.commit().unwrap(),
                    Err(error) => {
                        assert!(matches!(error, TxnError::Deadlock { .. }) && error.is_retryable(), "{error}");
                        assert!(tx.is_victim());
                        assert!(matches!(tx.get(&NUMBERS, &1), Err(TxnError::Ended)));
                        assert!(matches!(tx.range(&NUMBERS, ..), Err(TxnError::Ended)));
                        assert!(matches!(tx.commit(), Err(TxnError::Ended)));
                        victims.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(victims.into_inner(), 1);
    let rows: Vec<_> = db.begin().unwrap().range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect();
    assert!(rows == [(1, 11), (2, 11)] || rows == [(1, 12), (2, 12)], "{rows:?}");
}

/// `put` never finds a duplicate, whatever other transactions do concurrently.
#[test]
fn put_replaces_or_inserts_at_every_level() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let db = Options::new().buffer_pool(8 << 20).isolation(isolation).open_on(Arc::new(MemDisk::new())).unwrap();
        db.table(&NUMBERS).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..3000u64 {
                        let key = round % 3;
                        let done = db.transact(|tx| {
                            if (round + thread) % 4 == 0 {
                                tx.delete(&NUMBERS, &key).map(drop)
                            } else {
                                tx.put(&NUMBERS, &key, &thread)
                            }
                        });
                        done.unwrap_or_else(|e| panic!("{isolation:?}: {e}"));
                    }
                });
            }
        });
    }
}

/// Under read committed an index entry's row may be deleted before it is read: the row is skipped.
#[test]
fn index_cursors_pass_over_rows_that_go_meanwhile() {
    let db = Options::new()
        .buffer_pool(8 << 20)
        .isolation(Isolation::ReadCommitted)
        .open_on(Arc::new(MemDisk::new()))
        .unwrap();
    db.transact(|tx| (1..=10u64).try_for_each(|k| tx.put(&UNIQUE, &k, &k))).unwrap();
    for back in [false, true] {
        let tx = db.begin().unwrap();
        let mut cursor = tx.range_by::<ByValue>(&UNIQUE, ..).unwrap();
        let first = if back { cursor.next_back() } else { cursor.next() };
        let gone = if back { [3, 4] } else { [5, 6] };
        assert!(first.unwrap().is_ok());
        db.transact(|tx| gone.iter().try_for_each(|k| tx.delete(&UNIQUE, k).map(drop))).unwrap();
        let rest: Result<Vec<_>, _> = cursor.map(|r| r.map(|(k, _)| k)).collect();
        let rest = rest.unwrap();
        assert!(!rest.contains(&gone[0]) && !rest.contains(&gone[1]), "{rest:?}");
    }
}

/// Regression: a leaf has one row, and a second row does not fit after it; the transaction itself has read the gap that
/// is divided. It waited forever for itself.
#[test]
fn a_put_behind_a_lone_large_row_splits_its_own_gap() {
    let db = memory();
    db.transact(|tx| (0..5u8).try_for_each(|k| tx.put(&ROWS, &[k], &vec![k; 4000]))).unwrap();
    let count_and_put = |key: Vec<u8>, row: Vec<u8>| {
        db.transact(|tx| {
            assert_eq!(tx.count(&ROWS, key.clone()..)?, u64::from(key[0] == 8));
            tx.put(&ROWS, &key, &row)
        })
        .unwrap();
    };
    count_and_put(vec![9; 500], vec![]);
    count_and_put(vec![8; 300], vec![1; 3990]);
    assert_eq!(db.begin().unwrap().range(&ROWS, ..).unwrap().count(), 7);
}

/// Fences may be longer than the keys of neighbouring rows: splits and bulk loads leave space for them.
#[test]
fn long_keys_between_short_ones_find_room() {
    let row = |i: u32| -> (Vec<u8>, Vec<u8>) {
        let mut key = i.to_be_bytes().to_vec();
        if i % 9 == 8 {
            key.resize(500, 5);
        }
        (key, vec![7; (i * i % 61) as usize])
    };
    let db = memory();
    let table = db.table(&ROWS).unwrap();
    let mut load = db.bulk_load(&table).unwrap();
    for i in 1..6000u32 {
        let (key, value) = row(i);
        load.push(&key, &value).unwrap();
    }
    assert_eq!(load.finish().unwrap(), 5999);
    let tx = db.begin().unwrap();
    let found: Vec<_> = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
    assert!(found == (1..6000).map(row).collect::<Vec<_>>());
    for i in 1..6000 {
        assert_eq!(tx.get(&ROWS, &row(i).0).unwrap(), Some(row(i).1));
    }
    drop(tx);
    // [small, large, large]: the middle by bytes would leave nearly all bytes, and a long fence, on the right.
    let db = memory();
    for round in 0..40u8 {
        db.transact(|tx| {
            tx.put(&ROWS, &[round, 1], &vec![])?;
            tx.put(&ROWS, &[vec![round, 2], vec![3; 490]].concat(), &vec![1; 3400])?;
            tx.put(&ROWS, &[round, 3], &vec![1; 3900])?;
            tx.put(&ROWS, &[round, 2, 9], &vec![1; 300])
        })
        .unwrap();
    }
    assert_eq!(db.begin().unwrap().range(&ROWS, ..).unwrap().map(Result::unwrap).count(), 160);
}

/// Removing ghosts is optional: a scan continues if the log has no space for the removal.
#[test]
fn a_full_disk_does_not_stop_readers() {
    let disk = SimDisk::new(6);
    let db = open(&disk);
    db.transact(|tx| (0..2000u64).try_for_each(|k| tx.put(&NUMBERS, &k, &k))).unwrap();
    db.transact(|tx| (0..1990u64).try_for_each(|k| tx.delete(&NUMBERS, &k).map(drop))).unwrap();
    disk.set_capacity(disk.used());
    let mut n = 0u64;
    while db.transact(|tx| tx.put(&ROWS, n.to_be_bytes().as_ref(), &vec![7; 1000])).is_ok() {
        n += 1;
    }
    let tx = db.begin().unwrap();
    let left: Vec<_> = tx.range(&NUMBERS, ..).unwrap().map(|r| r.unwrap().0).collect();
    assert_eq!(left, (1990..2000).collect::<Vec<_>>());
    drop(tx);
    let reopened = small().open_on(on(&disk));
    assert!(reopened.is_err(), "the directory is taken while it is open");
}

/// Pages freed by deletes are reused if the file cannot grow.
#[test]
fn a_full_disk_has_the_pages_of_the_free_list() {
    let disk = SimDisk::new(7);
    // A log that has allocated all its space from the start.
    let db = small().log_segment(16 << 20).checkpoint_every(12 << 20).open_on(on(&disk)).unwrap();
    let row = |n: u64| (n.to_be_bytes().to_vec(), vec![7u8; 1000]);
    let put = |n: u64| db.transact(|tx| tx.put(&ROWS, &row(n).0, &row(n).1));
    (0..1000).try_for_each(put).unwrap();
    disk.plan(Some(Call::Allocate), When::From(1), Fault::Enospc);
    let mut n = 1000;
    let refusal = loop {
        match put(n) {
            Ok(()) => n += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(refusal.contains("pages"), "{refusal}");
    for key in 0..900 {
        db.transact(|tx| tx.delete(&ROWS, &row(key).0).map(drop)).unwrap();
    }
    // A scan removes the deleted rows, and sometimes a leaf that has become empty.
    for _ in 0..200 {
        assert_eq!(db.begin().unwrap().range(&ROWS, ..).unwrap().count() as u64, n - 900);
    }
    let structure = || db.check_structure(|_, _| std::ops::ControlFlow::Continue(())).unwrap();
    let free = structure().free;
    assert!(free > 20, "{free} free pages");
    (n..n + 100).try_for_each(put).unwrap();
    assert_eq!(db.begin().unwrap().range(&ROWS, ..).unwrap().count() as u64, n - 800);
    assert!(structure().passed() && structure().free < free);
}

/// An index on the first eight bytes of the row, which are unique.
struct ByNumber;
impl SecondaryIndex for ByNumber {
    type Key = u64;
    type Row = Vec<u8>;
    type By = u64;
    const NAME: &'static str = "by_number";
    const UNIQUE: bool = true;
    fn by(_: &u64, row: &Vec<u8>) -> Option<u64> {
        row.first_chunk().map(|head| u64::from_be_bytes(*head))
    }
}
const WIDE: Table<u64, Vec<u8>> = Table::new("wide").with_index::<ByNumber>();

/// A statement fails at its last row, and its undo cannot read the log, so that a part of its changes remains. They
/// must never commit.
#[test]
fn a_statement_that_cannot_be_taken_back_ends_its_transaction() {
    for heals in [true, false] {
        let disk = SimDisk::new(11);
        // The pages stay in memory; only the log cannot be read.
        let db = small().buffer_pool(8 << 20).log_buffer(512 << 10).open_on(on(&disk)).unwrap();
        let table = db.table(&WIDE).unwrap();
        let mut tx = db.begin().unwrap();
        tx.insert(&NUMBERS, &1, &1).unwrap();
        // More bytes than the log keeps in memory; the last row's number exists already.
        let rows: Vec<([u8; 8], Vec<u8>)> = (0..250u64)
            .map(|i| {
                let mut row = vec![7; 3_000];
                row[..8].copy_from_slice(&(i % 249).to_be_bytes());
                (i.to_be_bytes(), row)
            })
            .collect();
        let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
        disk.plan(Some(Call::Read), When::From(1), Fault::Eio);
        let error = tx.raw_mut().insert_run(&table, &rows).unwrap_err();
        assert!(matches!(error, TxnError::Storage(StorageError::Io { .. })), "{error}");
        assert!(matches!(tx.get(&NUMBERS, &1), Err(TxnError::Ended)));
        assert!(matches!(tx.put(&NUMBERS, &2, &2), Err(TxnError::Ended)));
        if heals {
            disk.heal();
        }
        assert!(matches!(tx.commit(), Err(TxnError::Ended)));
        disk.heal();
        let later = db.transact(|tx| tx.put(&NUMBERS, &3, &3));
        let db = if heals {
            later.unwrap();
            db
        } else {
            // The statement could not be undone: the instance is closed, and the next open undoes it.
            assert!(matches!(later, Err(TxnError::Storage(StorageError::Poisoned { .. }))), "{later:?}");
            drop(db);
            open(&disk)
        };
        let tx = db.begin().unwrap();
        assert_eq!(tx.get(&NUMBERS, &1).unwrap(), None);
        assert_eq!(tx.get(&NUMBERS, &3).unwrap(), heals.then_some(3));
        assert_eq!(tx.range(&WIDE, ..).unwrap().count(), 0);
        assert_eq!(tx.range_by::<ByNumber>(&WIDE, ..).unwrap().count(), 0);
    }
}

/// An error may reveal rows that were read; these must be durable before the error is returned.
#[test]
fn an_error_is_told_when_what_it_read_is_durable() {
    let disk = SimDisk::new(12);
    let db = open(&disk);
    db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &1, &2).unwrap();
    let end = tx.commit_async().unwrap();
    assert!(db.durable() < end, "no thread has flushed it yet");
    let told = db.transact(|tx| -> Result<(), Box<dyn std::error::Error>> {
        Err(format!("overdrawn: {:?}", tx.get(&NUMBERS, &1)?).into())
    });
    assert_eq!(told.unwrap_err().to_string(), "overdrawn: Some(2)");
    assert!(db.durable() >= end);
}

/// A closure that hides a deadlock runs again like any other: its partial changes are gone.
#[test]
fn a_victim_is_run_again_whatever_its_closure_returns() {
    for returns_ok in [true, false] {
        for reruns in [100, 0] {
            let options = Options::new().buffer_pool(8 << 20).log_segment(1 << 20).reruns(reruns);
            let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
            db.transact(|tx| {
                tx.put(&NUMBERS, &1, &0)?;
                tx.put(&NUMBERS, &2, &0)
            })
            .unwrap();
            let barrier = std::sync::Barrier::new(2);
            let results = std::thread::scope(|scope| {
                let threads = [(1u64, 2u64), (2, 1)].map(|(mine, other)| {
                    let (db, barrier) = (&db, &barrier);
                    scope.spawn(move || {
                        let mut first = true;
                        db.transact(|tx| {
                            let row = tx.get_for_update(&NUMBERS, &mine)?.unwrap();
                            tx.put(&NUMBERS, &mine, &(row + 1))?;
                            if std::mem::take(&mut first) {
                                barrier.wait();
                            }
                            match tx.get_for_update(&NUMBERS, &other) {
                                Ok(row) => tx.put(&NUMBERS, &other, &(row.unwrap() + 1)),
                                Err(_) if returns_ok => Ok(()),
                                Err(_) => Err(TxnError::Ended),
                            }
                        })
                    })
                });
                threads.map(|thread| thread.join().unwrap())
            });
            let tx = db.begin().unwrap();
            let rows = (tx.get(&NUMBERS, &1).unwrap(), tx.get(&NUMBERS, &2).unwrap());
            if reruns > 0 {
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                assert_eq!(rows, (Some(2), Some(2)), "returns_ok {returns_ok}");
            } else {
                let refused = results.iter().find_map(|r| r.as_ref().err()).unwrap();
                let wanted = if returns_ok { "deadlock" } else { "ended" };
                assert!(refused.to_string().contains(wanted), "{refused}");
                assert_eq!(rows, (Some(1), Some(1)), "returns_ok {returns_ok}");
            }
        }
    }
}

/// A table may be used for the first time in the only transaction that the limit allows.
#[test]
fn a_table_is_created_within_the_last_transaction() {
    let db = Options::new().buffer_pool(8 << 20).transactions(1).open_on(Arc::new(MemDisk::new())).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &1, &1).unwrap();
    tx.put(&ROWS, &[1], &vec![2]).unwrap();
    assert!(matches!(db.begin(), Err(TxnError::Storage(StorageError::TooManyTransactions { limit: 1 }))));
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(1));
}

/// The end of a bulk load is one record, for any number of indexes and the smallest log buffer.
#[test]
fn a_table_with_many_indexes_is_loaded_through_a_small_log_buffer() {
    fn extract(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(row);
        true
    }
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let table =
        NAMES.iter().fold(Table::<u64, Vec<u8>>::new("many"), |t, name| t.with_raw_index(name, false, 0, extract));
    let disk = SimDisk::new(13);
    let db = small().log_buffer(512 << 10).open_on(on(&disk)).unwrap();
    let open_table = db.table(&table).unwrap();
    let mut load = db.bulk_load(&open_table).unwrap();
    // Rows that nearly fill every root, so that the page images have no gap.
    for key in 0..25u64 {
        load.push(&key, &vec![key as u8; 250]).unwrap();
    }
    assert_eq!(load.finish().unwrap(), 25);
    drop(db);
    let db = open(&disk);
    let open_table = db.table(&table).unwrap();
    let tx = db.begin().unwrap();
    for index in 0..NAMES.len() {
        let mut entries = 0;
        tx.raw()
            .scan_index(&open_table, index, &[], &[u8::MAX; 400], false, |_, _| {
                entries += 1;
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(entries, 25);
    }
}

/// A transaction makes rows shorter, other rows use the space, and the disk is full when the transaction rolls back.
/// The rows still get their old length back, because space was reserved, and the instance is not closed.
#[test]
fn rows_made_shorter_grow_back_on_a_full_disk() {
    const FAT: Table<u64, Vec<u8>> = Table::new("fat");
    const JUNK: Table<u64, Vec<u8>> = Table::new("junk");
    const ROWS: u64 = 40;
    let disk = SimDisk::new(14);
    let db = small().log_segment(16 << 20).checkpoint_every(1 << 30).open_on(on(&disk)).unwrap();
    // Two rows per page.
    db.transact(|tx| (0..ROWS).try_for_each(|k| tx.put(&FAT, &(k * 1000), &vec![1; 3_900]))).unwrap();
    let mut shorter = db.begin().unwrap();
    for k in 0..ROWS {
        shorter.put(&FAT, &(k * 1000), &vec![2; 10]).unwrap();
    }
    // Other rows fill the pages again.
    db.transact(|tx| (0..ROWS * 10).try_for_each(|i| tx.put(&FAT, &(i / 10 * 1000 + i % 10 + 1), &vec![3; 350])))
        .unwrap();
    // Fills the disk, including the space allocated to the data file before.
    disk.set_capacity(disk.used());
    let mut junk = 0;
    let full = loop {
        match db.transact(|tx| tx.put(&JUNK, &junk, &vec![4; 4_000])) {
            Ok(()) => junk += 1,
            Err(error) => break error,
        }
        assert!(junk < 100_000);
    };
    let TxnError::Storage(StorageError::NoSpace { file }) = &full else { panic!("{full}") };
    assert!(file.contains("pages"), "{file}");
    // No more space can be reserved, so no more rows can be made shorter; the statement returns an error and changes
    // nothing.
    assert!(matches!(shorter.put(&FAT, &1, &vec![5; 9]), Err(TxnError::Storage(StorageError::NoSpace { .. }))));
    shorter.rollback().unwrap();
    disk.set_capacity(u64::MAX);
    db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    let tx = db.begin().unwrap();
    let rows: Vec<_> = tx.range(&FAT, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len() as u64, ROWS * 11);
    for (key, row) in rows {
        let wanted = if key % 1000 == 0 { (3_900, 1) } else { (350, 3) };
        assert_eq!((row.len(), row[0]), wanted, "row {key}");
    }
    drop(tx);
    db.verify_pages().unwrap();
}

/// Space reserved for undo is released when the transaction has ended.
#[test]
fn room_kept_for_undo_is_given_back() {
    let disk = SimDisk::new(15);
    let db = open(&disk);
    db.transact(|tx| tx.put(&ROWS, &[1], &vec![1; 3_000])).unwrap();
    let before = disk.used();
    for round in 0..2_000u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&ROWS, &[1], &vec![2; 100 + round as usize % 2]).unwrap();
        tx.put(&ROWS, &[1], &vec![2; 50]).unwrap();
        if round % 2 == 0 {
            tx.commit().unwrap()
        } else {
            let _ = tx.rollback().unwrap();
        }
        db.step().unwrap();
    }
    assert!(disk.used() < before + (8 << 20), "{} bytes more", disk.used() - before);
}
