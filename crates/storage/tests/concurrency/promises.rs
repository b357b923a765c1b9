//! Locks of each statement on one key that finds no row: the key, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use storage::disk::MemDisk;
use storage::{Database, Durability, Isolation, Options, SecondaryIndex, Table, Transaction, TxnError};

/// Rows by number, with a unique index on the row.
const ROWS: Table<u64, u64> = Table::new("rows").with_index::<ByRow>();

#[derive(Debug)]
struct ByRow;
impl SecondaryIndex for ByRow {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "by_row";
    const UNIQUE: bool = true;
    fn by(_: &u64, row: &u64) -> Option<u64> {
        Some(*row)
    }
}

type Statement = fn(&mut Transaction<'_>, u64) -> Result<(), TxnError>;

fn raw(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Statements whose answer is that a key has no row.
const ABSENT: [(&str, Statement); 13] = [
    ("get", |tx, key| tx.get(&ROWS, &key).map(drop)),
    ("get_many", |tx, key| tx.get_many(&ROWS, &[key]).map(drop)),
    ("read_raw", |tx, key| tx.raw().read(&ROWS, &raw(key), |_| ()).map(drop)),
    ("read_columns_of_raw", |tx, key| {
        tx.raw().read_columns_of(&ROWS, &[&raw(key)], &[0..4, 4..8], |_, _| ()).map(drop)
    }),
    ("get_for_update", |tx, key| tx.get_for_update(&ROWS, &key).map(drop)),
    ("read_for_update_raw", |tx, key| tx.raw().read_for_update(&ROWS, &raw(key), |_| ()).map(drop)),
    ("update", |tx, key| tx.update(&ROWS, &key, &1).map(drop)),
    ("update_raw", |tx, key| tx.raw_mut().update(&ROWS, &raw(key), |_| ()).map(drop)),
    ("update_head_raw", |tx, key| tx.raw_mut().update_head(&ROWS, &raw(key), 0, |_, _| ()).map(drop)),
    ("update_heads_raw", |tx, key| tx.raw_mut().update_heads(&ROWS, &[&raw(key)], 0, |_, _, _| ()).map(drop)),
    ("delete", |tx, key| tx.delete(&ROWS, &key).map(drop)),
    ("delete_raw", |tx, key| tx.raw_mut().delete(&ROWS, &raw(key)).map(drop)),
    ("delete, after it was there", |tx, key| {
        tx.insert(&ROWS, &key, &key)?;
        tx.delete(&ROWS, &key)?;
        tx.delete(&ROWS, &key).map(drop)
    }),
];

/// Statements that insert a row.
const NEW: [(&str, Statement); 5] = [
    ("insert", |tx, key| tx.insert(&ROWS, &key, &key)),
    ("put", |tx, key| tx.put(&ROWS, &key, &key)),
    ("put_many", |tx, key| tx.put_many(&ROWS, &[(key, key)])),
    ("insert_raw", |tx, key| tx.raw_mut().insert(&ROWS, &raw(key), &raw(key))),
    ("put_raw", |tx, key| tx.raw_mut().put(&ROWS, &raw(key), &raw(key))),
];

fn open() -> Database {
    let options = Options::new().buffer_pool(8 << 20).log_segment(1 << 20).durability(Durability::Async).reruns(1000);
    let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
    db.transact(|tx| (0..10).try_for_each(|key| tx.put(&ROWS, &(key * 100), &(key * 100)))).unwrap();
    db
}

/// No waits: other transactions insert rows next to a key that was found absent or inserted.
#[test]
fn keys_beside_one_that_was_looked_for_come_without_a_wait() {
    for (first_name, first) in ABSENT.iter().chain(&NEW) {
        for (second_name, second) in NEW {
            let db = open();
            let mut tx = db.begin().unwrap();
            first(&mut tx, 450).unwrap();
            let waits = db.stats().lock_waits;
            for key in [449, 451, 401, 499] {
                db.transact(|other| second(other, key)).unwrap();
            }
            assert_eq!(db.stats().lock_waits, waits, "{first_name}, then {second_name}");
            tx.commit().unwrap();
        }
    }
}

/// A key that was found absent stays absent under serializable; lower levels guarantee nothing.
#[test]
fn a_key_that_was_found_absent_stays_absent() {
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted] {
        for (first_name, first) in &ABSENT[..ABSENT.len() - 1] {
            for (second_name, second) in NEW {
                let db = open();
                let mut tx = db.begin_at(isolation).unwrap();
                first(&mut tx, 450).unwrap();
                let waits = db.stats().lock_waits;
                let waited = thread::scope(|scope| {
                    let other = scope.spawn(|| db.transact(|other| second(other, 450)).unwrap());
                    while !other.is_finished() && db.stats().lock_waits == waits {
                        thread::yield_now();
                    }
                    let waited = db.stats().lock_waits > waits;
                    assert_eq!(tx.get(&ROWS, &450).unwrap().is_none(), waited);
                    tx.commit().unwrap();
                    waited
                });
                let promised = isolation == Isolation::Serializable;
                assert_eq!(waited, promised, "{isolation:?}: {first_name}, then {second_name}");
            }
        }
    }
}

/// Two transactions find a key absent, different keys or the same one, and insert it: no deadlock, if they announced
/// the write. (Two transactions that only read the same key and then insert it cannot both succeed.)
#[test]
fn who_looks_and_inserts_does_not_deadlock() {
    for (name, look) in &ABSENT[4..ABSENT.len() - 1] {
        let db = open();
        db.transact(|tx| tx.put(&ROWS, &450, &450)).unwrap();
        db.transact(|tx| tx.delete(&ROWS, &450).map(drop)).unwrap();
        thread::scope(|scope| {
            for thread in 0..3u64 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..40u64 {
                        // In each third round all threads search for the same key; an existing row is deleted again.
                        let key = if round % 3 == 0 { 5_000 } else { 1_000 + 10 * round + thread };
                        db.transact(|tx| {
                            look(tx, key)?;
                            thread::yield_now();
                            if !tx.delete(&ROWS, &key)? {
                                tx.insert(&ROWS, &key, &key)?;
                            }
                            Ok::<_, TxnError>(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.stats().deadlocks, 0, "{name}");
    }
}

/// A put of a new key does not wait for puts of other keys, like an insert.
#[test]
fn puts_of_new_keys_do_not_meet() {
    let db = open();
    let next = AtomicU64::new(10_000);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (db, next) = (&db, &next);
            scope.spawn(move || {
                for _ in 0..200 {
                    let mut keys = [0; 5];
                    for key in &mut keys {
                        thread::yield_now();
                        *key = next.fetch_add(1, Ordering::Relaxed);
                    }
                    db.transact(|tx| {
                        if thread % 2 == 0 {
                            return tx.put_many(&ROWS, &keys.map(|key| (key, key)));
                        }
                        for key in keys {
                            tx.put(&ROWS, &key, &key)?;
                            thread::yield_now();
                        }
                        Ok::<_, TxnError>(())
                    })
                    .unwrap();
                }
            });
        }
    });
    let stats = db.stats();
    assert!(
        stats.deadlocks == 0 && stats.lock_waits < 200,
        "{} waits, {} deadlocks",
        stats.lock_waits,
        stats.deadlocks
    );
    assert_eq!(db.begin().unwrap().count(&ROWS, 10_000..).unwrap(), 4_000);
}

/// A put of a new key in a range that another transaction has read waits for that transaction.
#[test]
fn a_put_waits_for_readers_of_its_range() {
    for (name, new) in NEW {
        let db = open();
        let tx = db.begin().unwrap();
        assert_eq!(tx.count(&ROWS, 410..490).unwrap(), 0);
        let waits = db.stats().lock_waits;
        thread::scope(|scope| {
            let other = scope.spawn(|| db.transact(|other| new(other, 450)).unwrap());
            while !other.is_finished() && db.stats().lock_waits == waits {
                thread::yield_now();
            }
            assert!(!other.is_finished(), "{name}");
            assert_eq!(tx.count(&ROWS, 410..490).unwrap(), 0, "{name}");
            drop(tx);
        });
    }
}

/// Entries of a unique index are keys like others: an insert waits for a value that another transaction has inserted or
/// deleted without committing, and not for other values.
#[test]
fn unique_values_are_locked_one_by_one() {
    let db = open();
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &1_000, &5_500).unwrap();
    assert!(matches!(tx.insert(&ROWS, &1_001, &300), Err(TxnError::DuplicateKey { .. })));
    let waits = db.stats().lock_waits;
    db.transact(|other| other.put(&ROWS, &1_002, &5_499)).unwrap();
    db.transact(|other| other.put(&ROWS, &1_003, &5_501)).unwrap();
    db.transact(|other| other.put(&ROWS, &1_004, &301)).unwrap();
    assert_eq!(db.stats().lock_waits, waits);
    thread::scope(|scope| {
        let other = scope.spawn(|| db.transact(|other| other.put(&ROWS, &1_005, &5_500)));
        while db.stats().lock_waits == waits {
            thread::yield_now();
        }
        tx.commit().unwrap();
        assert!(matches!(other.join().unwrap(), Err(TxnError::DuplicateKey { .. })));
    });
}
