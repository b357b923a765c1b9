//! Waits that could not end, and waits with a limit: conflicts within a thread, and lock timeouts.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{NUMBERS, Rng};
use storage::disk::MemDisk;
use storage::{Database, Options, Table, TableLock, Transaction, TxnError};

const OTHERS: Table<u64, u64> = Table::new("others");

fn open(options: Options) -> Database {
    let db =
        options.buffer_pool(8 << 20).log_segment(1 << 20).transactions(16).open_on(Arc::new(MemDisk::new())).unwrap();
    for table in [&NUMBERS, &OTHERS] {
        db.transact(|tx| (0..10).try_for_each(|key| tx.put(table, &(key * 10), &0))).unwrap();
    }
    db
}

/// Spins until this number of lock waits has begun.
fn until_waits(db: &Database, waits: u64) {
    while db.stats().lock_waits < waits {
        thread::yield_now();
    }
}

/// Checks that a wait is counted with its duration, in the totals and for the table of the lock.
#[test]
fn a_wait_for_a_lock_is_counted_for_its_table() {
    let db = open(Options::new());
    let before = db.waits();
    assert_eq!(before.lock.count, 0);
    let mut first = db.begin().unwrap();
    first.put(&NUMBERS, &50, &7).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| db.transact(|tx| tx.put(&NUMBERS, &50, &8)));
        until_waits(&db, 1);
        first.commit().unwrap();
        waiter.join().unwrap().unwrap();
    });
    let after = db.waits();
    assert!(after.lock.count == 1 && after.lock.ns > 0, "{after:?}");
    for of in &after.tables {
        let expected = if of.table == "numbers" { after.lock } else { storage::Wait::default() };
        assert_eq!(of.lock, expected, "{}", of.table);
    }
    assert_eq!((after.log_room, after.log_place), (before.log_room, before.log_place));
}

fn is_own<T: std::fmt::Debug>(result: Result<T, TxnError>) {
    assert!(matches!(&result, Err(TxnError::OwnTask { table }) if &**table == "numbers"), "{result:?}");
}

type Statement = fn(&mut Transaction<'_>) -> Result<(), TxnError>;

/// Every kind of statement, all on the row 50 and the gap before it.
const STATEMENTS: [(&str, Statement); 16] = [
    ("get", |tx| tx.get(&NUMBERS, &50).map(drop)),
    ("get_for_update", |tx| tx.get_for_update(&NUMBERS, &50).map(drop)),
    ("put", |tx| tx.put(&NUMBERS, &50, &1)),
    ("insert", |tx| tx.insert(&NUMBERS, &45, &1)),
    ("update", |tx| tx.update(&NUMBERS, &50, &1).map(drop)),
    ("delete", |tx| tx.delete(&NUMBERS, &50).map(drop)),
    ("range", |tx| tx.range(&NUMBERS, 41..=50)?.try_for_each(|row| row.map(drop))),
    ("backward", |tx| tx.range(&NUMBERS, 41..=50)?.rev().try_for_each(|row| row.map(drop))),
    ("lock_table", |tx| tx.lock_table(&NUMBERS, TableLock::Exclusive)),
    ("read_raw", |tx| tx.raw().read(&NUMBERS, &50u64.to_be_bytes(), |_| ()).map(drop)),
    ("update_raw", |tx| tx.raw_mut().update(&NUMBERS, &50u64.to_be_bytes(), |_| ()).map(drop)),
    ("update_head_raw", |tx| tx.raw_mut().update_head(&NUMBERS, &50u64.to_be_bytes(), 8, |_, _| ()).map(drop)),
    ("update_heads_raw", |tx| tx.raw_mut().update_heads(&NUMBERS, &[&50u64.to_be_bytes()], 8, |_, _, _| ()).map(drop)),
    ("delete_raw", |tx| tx.raw_mut().delete(&NUMBERS, &50u64.to_be_bytes()).map(drop)),
    ("take_first_raw", |tx| tx.raw_mut().take_first(&NUMBERS, &41u64.to_be_bytes(), &50u64.to_be_bytes()).map(drop)),
    ("scan_raw", |tx| {
        tx.raw().scan(&NUMBERS, &41u64.to_be_bytes(), &50u64.to_be_bytes(), |_, _| ControlFlow::Continue(()))
    }),
];

/// Regression: the second transaction waited forever.
#[test]
fn a_second_transaction_of_a_thread_is_told_that_the_first_is_in_the_way() {
    let db = open(Options::new());
    for (name, statement) in STATEMENTS {
        let mut first = db.begin().unwrap();
        // Locks the row and the gap, in a mode that conflicts with every other.
        first.lock_table(&NUMBERS, TableLock::IntentExclusive).unwrap();
        first.range(&NUMBERS, 41..=50).unwrap().for_each(|row| assert!(row.is_ok()));
        first.put(&NUMBERS, &50, &7).unwrap();
        let mut second = db.begin().unwrap();
        second.put(&OTHERS, &0, &3).unwrap();
        is_own(statement(&mut second));
        assert!(!second.is_victim(), "{name}");
        // Only the statement failed.
        assert_eq!(second.get(&OTHERS, &0).unwrap(), Some(3));
        first.rollback().unwrap();
        statement(&mut second).unwrap();
        second.rollback().unwrap();
    }
    let begin_inside = db.transact(|tx| {
        tx.put(&NUMBERS, &50, &7)?;
        let inner = db.begin()?;
        inner.get(&NUMBERS, &50)
    });
    is_own(begin_inside);
    // Two transactions of a thread are allowed if they do not conflict.
    db.transact(|tx| {
        tx.put(&NUMBERS, &50, &7)?;
        db.transact(|inner| inner.put(&NUMBERS, &0, &7))
    })
    .unwrap();
}

/// A table on whose absence the thread itself relies is not created, and the creation does not wait for the thread.
#[test]
fn creating_a_table_that_an_own_transaction_relies_on_is_refused() {
    const MISSING: Table<u64, u64> = Table::new("missing");
    let db = open(Options::new());
    let reader = db.begin().unwrap();
    assert_eq!(reader.get(&MISSING, &1).unwrap(), None);
    assert!(matches!(db.table(&MISSING), Err(TxnError::OwnTask { table }) if &*table == "missing"));
    drop(reader);
    db.table(&MISSING).unwrap();
}

/// The thread waits for another thread, which waits for the first transaction of this thread, no matter which of them
/// closes the cycle.
#[test]
fn the_way_back_to_the_own_thread_may_lead_over_others() {
    for this_thread_closes in [true, false] {
        let db = &open(Options::new());
        let mut first = db.begin().unwrap();
        first.put(&NUMBERS, &10, &1).unwrap();
        let waits = db.stats().lock_waits;
        let (has_locked, locked) = mpsc::channel();
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut tx = db.begin().unwrap();
                tx.put(&NUMBERS, &20, &1).unwrap();
                has_locked.send(()).unwrap();
                if !this_thread_closes {
                    until_waits(db, waits + 1);
                }
                let result = tx.put(&NUMBERS, &10, &2);
                assert!(!tx.is_victim());
                result.and_then(|()| tx.commit())
            });
            locked.recv().unwrap();
            if this_thread_closes {
                until_waits(db, waits + 1);
            }
            let second = db.begin().unwrap();
            is_own(second.get(&NUMBERS, &20));
            drop(second);
            first.commit().unwrap();
            other.join().unwrap().unwrap();
        });
        assert_eq!(db.begin().unwrap().get(&NUMBERS, &10).unwrap(), Some(2));
        assert_eq!(db.stats().deadlocks, 0);
    }
}

#[test]
fn a_transaction_that_was_handed_over_is_waited_for() {
    let db = &open(Options::new());
    let mut first = db.begin().unwrap();
    first.put(&NUMBERS, &10, &1).unwrap();
    first.hand_over();
    let waits = db.stats().lock_waits;
    thread::scope(|scope| {
        scope.spawn(move || {
            until_waits(db, waits + 1);
            first.commit().unwrap();
        });
        assert_eq!(db.begin().unwrap().get(&NUMBERS, &10).unwrap(), Some(1));
    });
}

#[test]
fn a_wait_that_lasts_too_long_fails_its_statement_and_no_more() {
    let db = &open(Options::new().lock_timeout(Duration::from_millis(2)));
    let (holds, held) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut holder = db.begin().unwrap();
            holder.range(&NUMBERS, 41..=50).unwrap().for_each(|row| assert!(row.is_ok()));
            holder.put(&NUMBERS, &50, &7).unwrap();
            holds.send(holder.age()).unwrap();
            let _ = is_done.recv();
            holder.rollback().unwrap();
        });
        let age = held.recv().unwrap();
        for (name, statement) in STATEMENTS {
            let mut tx = db.begin().unwrap();
            tx.put(&OTHERS, &0, &3).unwrap();
            match statement(&mut tx) {
                Err(error @ TxnError::LockTimeout { .. }) => {
                    assert!(error.is_retryable());
                    let TxnError::LockTimeout { table, holder: Some(holder) } = error else {
                        panic!("{name}: {error}")
                    };
                    assert_eq!((&*table, holder.age, holder.waits), ("numbers", age, false), "{name}");
                }
                other => panic!("{name}: {other:?}"),
            }
            assert!(!tx.is_victim());
            assert_eq!(tx.get(&OTHERS, &0).unwrap(), Some(3));
            tx.commit().unwrap();
        }
        drop(done);
    });
    let mut tx = db.begin().unwrap();
    STATEMENTS.iter().for_each(|(_, statement)| statement(&mut tx).unwrap());
}

/// Waits that end in time, too late, and in cycles, all at once: no update is lost and no transaction waits forever.
#[test]
fn timeouts_and_deadlocks_beside_each_other() {
    const THREADS: u64 = 4;
    let db = &open(Options::new().lock_timeout(Duration::from_micros(300)));
    let counted: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut rng, mut counted) = (Rng::new(seed), 0);
                    for _ in 0..300 {
                        let mut tx = db.begin().unwrap();
                        let mut added = 0;
                        for _ in 0..3 {
                            let key = rng.below(4) * 10;
                            let step = (|| {
                                let now = if rng.once_in(2) {
                                    tx.get(&NUMBERS, &key)?
                                } else {
                                    tx.get_for_update(&NUMBERS, &key)?
                                };
                                thread::yield_now();
                                tx.put(&NUMBERS, &key, &(now.unwrap() + 1))
                            })();
                            match step {
                                Ok(()) => added += 1,
                                // The transaction continues without this statement.
                                Err(TxnError::LockTimeout { .. }) => {}
                                Err(TxnError::Deadlock { .. }) => break,
                                Err(error) => panic!("seed {seed}: {error}"),
                            }
                        }
                        if tx.is_victim() {
                            tx.rollback().unwrap();
                        } else {
                            tx.commit().unwrap();
                            counted += added;
                        }
                    }
                    counted
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let mut tx = db.begin().unwrap();
    let sum: u64 = tx.range(&NUMBERS, ..).unwrap().map(|row| row.unwrap().1).sum();
    assert_eq!(sum, counted);
    tx.lock_table(&NUMBERS, TableLock::Exclusive).unwrap();
}
