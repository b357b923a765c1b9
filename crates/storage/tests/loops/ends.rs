//! Ends of loops: errors, panics, savepoints, and calls that a loop does not allow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::NUMBERS;
use storage::disk::MemDisk;
use storage::{Database, Options, TableLock, Transaction, TxnError};

fn database(threads: usize) -> Database {
    Options::new().buffer_pool(4 << 20).loop_threads(threads).open_on(Arc::new(MemDisk::new())).unwrap()
}

fn all(tx: &Transaction<'_>) -> Vec<(u64, u64)> {
    tx.range(&NUMBERS, ..).unwrap().collect::<Result<_, _>>().unwrap()
}

fn put(tx: &mut Transaction<'_>, n: &u64) -> Result<u64, TxnError> {
    tx.put(&NUMBERS, n, n)?;
    Ok(*n)
}

#[test]
fn results_come_in_order_and_all_or_nothing_is_committed() {
    let db = database(3);
    db.table(&NUMBERS).unwrap();
    for commits in [false, true] {
        let mut tx = db.begin().unwrap();
        let mut results = Vec::new();
        tx.in_order(0..500, put, |n| results.push(n)).unwrap();
        assert!(results.iter().copied().eq(0..500));
        tx.in_order(500..700, put, |_| ()).unwrap();
        assert_eq!(all(&tx).len(), 700);
        if commits {
            tx.commit().unwrap();
        } else {
            tx.rollback().unwrap();
        }
        assert_eq!(all(&db.begin().unwrap()).len(), if commits { 700 } else { 0 });
    }
    assert_eq!(db.stats().lock_waits, 0, "iterations on rows of their own wait for nobody");
    db.close().unwrap();
}

/// The threads of a loop release the locks of their iterations when the transaction ends.
#[test]
fn after_the_end_of_a_transaction_with_many_locks_no_lock_is_left() {
    for threads in [2, 4] {
        let db = database(threads);
        for round in 0..20_u64 {
            let mut tx = db.begin().unwrap();
            // Each iteration takes some time, so that all threads take part.
            tx.in_order(
                0..8_u64,
                |tx, part| {
                    (0..50).try_for_each(|n| put(tx, &(part * 50 + n)).map(drop))?;
                    std::thread::yield_now();
                    Ok::<_, TxnError>(())
                },
                drop,
            )
            .unwrap();
            if round % 3 == 2 {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
            }
            // This thread would fail with `OwnTask` if a lock was left.
            let mut next = db.begin().unwrap();
            assert_eq!(next.delete_range(&NUMBERS, ..).unwrap(), if round % 3 == 2 { 0 } else { 400 });
            next.commit().unwrap();
        }
    }
}

#[test]
fn a_dependence_of_each_iteration_on_the_one_before_is_kept() {
    let db = database(4);
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &0, &1).unwrap();
    let step = |tx: &mut Transaction<'_>, n: &u64| {
        let sum = tx.get(&NUMBERS, &0)?.unwrap_or(0);
        std::thread::yield_now();
        tx.put(&NUMBERS, &0, &((sum * 3 + n) % 10_007))?;
        Ok::<_, TxnError>(sum)
    };
    let mut found = Vec::new();
    tx.in_order(1..200_u64, step, |sum| found.push(sum)).unwrap();
    let mut expected = vec![1];
    (1..199_u64).for_each(|n| expected.push((expected[expected.len() - 1] * 3 + n) % 10_007));
    assert_eq!(found, expected);
}

#[test]
fn the_first_error_in_the_order_of_the_loop_is_returned_and_nothing_after_it_stays() {
    let db = database(4);
    for round in 0..30 {
        let mut tx = db.begin().unwrap();
        tx.put(&NUMBERS, &9000, &1).unwrap();
        let fails = |tx: &mut Transaction<'_>, n: &u64| {
            put(tx, n)?;
            if *n % 5 == round % 5 && *n >= 40 {
                Err(TxnError::DuplicateKey { table: "x".into(), index: n.to_string().into() })
            } else {
                Ok(())
            }
        };
        let error = tx.in_order(0..100_u64, fails, |()| ()).unwrap_err();
        let first = (40..).find(|n| n % 5 == round % 5).unwrap();
        assert!(matches!(&error, TxnError::DuplicateKey { index, .. } if **index == *first.to_string()), "{error}");
        // The transaction goes on.
        tx.put(&NUMBERS, &9001, &1).unwrap();
        let keys: Vec<u64> = all(&tx).into_iter().map(|(key, _)| key).collect();
        assert!(keys.into_iter().eq((0..=first).chain([9000, 9001])));
        tx.rollback().unwrap();
    }
}

#[test]
fn panics_of_the_program_come_through_and_the_transaction_goes_on() {
    let db = database(3);
    let mut tx = db.begin().unwrap();
    let panic_of = |tx: &mut Transaction<'_>, place: usize| {
        let count = AtomicUsize::new(0);
        let items = (0..50_u64).inspect(|n| assert!(place != 0 || *n < 20));
        let body = |tx: &mut Transaction<'_>, n: &u64| {
            assert!(place != 1 || *n < 20);
            put(tx, n)
        };
        let then = |_| assert!(place != 2 || count.fetch_add(1, Ordering::Relaxed) < 20);
        catch_unwind(AssertUnwindSafe(|| tx.in_order(items, body, then))).is_err()
    };
    for place in 0..3 {
        let before = tx.savepoint();
        assert!(panic_of(&mut tx, place), "{place}");
        let rows = all(&tx).len();
        assert!((0..=21).contains(&rows), "{place}: {rows}");
        tx.rollback_to(before).unwrap();
        assert_eq!(all(&tx), []);
    }
    tx.in_order(0..50, put, |_| ()).unwrap();
    tx.commit().unwrap();
    assert_eq!(all(&db.begin().unwrap()).len(), 50);
}

#[test]
fn savepoints_before_between_and_after_loops() {
    let db = database(3);
    let mut tx = db.begin().unwrap();
    let start = tx.savepoint();
    tx.put(&NUMBERS, &1000, &1).unwrap();
    tx.in_order(0..50, put, |_| ()).unwrap();
    let first = tx.savepoint();
    tx.in_order(50..90, put, |_| ()).unwrap();
    tx.put(&NUMBERS, &0, &5).unwrap();
    let second = tx.savepoint();
    tx.in_order(0..90, |tx, n| tx.delete(&NUMBERS, n), |_| ()).unwrap();
    assert_eq!(all(&tx), [(1000, 1)]);
    tx.rollback_to(second).unwrap();
    assert_eq!((all(&tx).len(), tx.get(&NUMBERS, &0).unwrap()), (91, Some(5)));
    tx.rollback_to(first).unwrap();
    assert_eq!((all(&tx).len(), tx.get(&NUMBERS, &0).unwrap()), (51, Some(0)));
    tx.in_order(200..220, put, |_| ()).unwrap();
    tx.rollback_to(start).unwrap();
    assert_eq!(all(&tx), []);
    tx.in_order(0..10, put, |_| ()).unwrap();
    tx.commit().unwrap();
    assert_eq!(all(&db.begin().unwrap()).len(), 10);
}

#[test]
fn an_iteration_cannot_lock_a_table_and_may_have_a_loop_and_savepoints() {
    let db = database(2);
    let mut tx = db.begin().unwrap();
    let locks = |tx: &mut Transaction<'_>, n: &u64| {
        put(tx, n)?;
        tx.lock_table(&NUMBERS, TableLock::Exclusive)
    };
    assert!(matches!(tx.in_order(0..20, locks, |()| ()), Err(TxnError::LockInLoop { .. })));
    tx.lock_table(&NUMBERS, TableLock::Exclusive).unwrap();
    let inner = |tx: &mut Transaction<'_>, n: &u64| {
        let before = tx.savepoint();
        tx.in_order(0..*n, |tx, m| tx.put(&NUMBERS, &(100 * n + m), m), |()| ())?;
        if n % 2 == 1 {
            tx.rollback_to(before)?;
        }
        Ok::<_, TxnError>(())
    };
    tx.in_order(1..20_u64, inner, |()| ()).unwrap();
    let rows = all(&tx).len() as u64;
    assert_eq!(rows, 1 + (1..20).filter(|n| n % 2 == 0).sum::<u64>());
    tx.commit().unwrap();
}

#[test]
fn a_loop_with_too_few_transactions_runs_on_those_it_gets_or_says_so() {
    let db =
        Options::new().buffer_pool(4 << 20).loop_threads(4).transactions(3).open_on(Arc::new(MemDisk::new())).unwrap();
    let mut tx = db.begin().unwrap();
    tx.in_order(0..200, put, |_| ()).unwrap();
    drop(tx);
    let mut tx = db.begin().unwrap();
    let others = [db.begin().unwrap(), db.begin().unwrap()];
    assert!(matches!(tx.in_order(0..200, put, |_| ()), Err(TxnError::Storage(_))));
    drop(others);
    tx.in_order(0..200, put, |_| ()).unwrap();
    tx.commit().unwrap();
    assert_eq!(all(&db.begin().unwrap()).len(), 200);
}

/// Regression test: members removed the ghosts of rows that their transaction had deleted under a lock on the table, so that
/// they could not be restored.
#[test]
fn members_leave_the_rows_that_their_transaction_has_deleted() {
    for locks in [false, true] {
        let db = database(3);
        db.transact(|tx| (0..2000).try_for_each(|n| tx.put(&NUMBERS, &(2 * n), &n))).unwrap();
        let mut tx = db.begin().unwrap();
        if locks {
            tx.lock_table(&NUMBERS, TableLock::Exclusive).unwrap();
        }
        for n in 0..1000 {
            tx.delete(&NUMBERS, &(4 * n)).unwrap();
        }
        // Members delete too, in enough epochs for an escalation, and fill the leaves.
        let delete = |tx: &mut Transaction<'_>, n: &u64| tx.delete(&NUMBERS, &(4 * n + 2)).map(drop);
        tx.in_order(0..500_u64, delete, |()| ()).unwrap();
        let fill =
            |tx: &mut Transaction<'_>, n: &u64| (0..8).try_for_each(|m| tx.put(&NUMBERS, &(16 * n + 2 * m + 1), n));
        tx.in_order(0..250_u64, fill, |()| ()).unwrap();
        tx.rollback().unwrap();
        assert!(all(&db.begin().unwrap()).into_iter().eq((0..2000).map(|n| (2 * n, n))), "{locks}");
        db.close().unwrap();
    }
}
