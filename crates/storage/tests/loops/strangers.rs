//! Loops beside other transactions on the same rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{NUMBERS, Rng};
use storage::disk::MemDisk;
use storage::{Database, Options, Transaction, TxnError};

const ACCOUNTS: u64 = 40;

fn database() -> Database {
    let db = Options::new().buffer_pool(4 << 20).loop_threads(3).open_on(Arc::new(MemDisk::new())).unwrap();
    db.transact(|tx| (0..ACCOUNTS).try_for_each(|n| tx.put(&NUMBERS, &n, &1000))).unwrap();
    db
}

fn sum(tx: &Transaction<'_>) -> Result<u64, TxnError> {
    let rows = tx.range(&NUMBERS, ..ACCOUNTS)?.collect::<Result<Vec<(u64, u64)>, _>>()?;
    Ok(rows.iter().map(|(_, row)| row).sum())
}

fn transfer(tx: &mut Transaction<'_>, (from, to): &(u64, u64)) -> Result<(), TxnError> {
    let (a, b) = (tx.get(&NUMBERS, from)?.unwrap_or(0), tx.get_for_update(&NUMBERS, to)?.unwrap_or(0));
    if from != to && a > 0 {
        tx.put(&NUMBERS, from, &(a - 1))?;
        tx.put(&NUMBERS, to, &(b + 1))?;
    }
    Ok(())
}

/// Transfers in loops, transfers one by one, and readers that add up: the sum never changes.
#[test]
fn transfers_of_loops_and_of_others_keep_the_sum() {
    let db = database();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (db, done) = (&db, &done);
        let loops = s.spawn(move || {
            let mut rng = Rng::new(1);
            for _ in 0..60 {
                let pairs: Vec<(u64, u64)> = (0..30).map(|_| (rng.next() % ACCOUNTS, rng.next() % ACCOUNTS)).collect();
                db.transact(|tx| tx.in_order(pairs.iter().copied(), transfer, |()| ())).unwrap();
            }
        });
        for seed in 2..4 {
            s.spawn(move || {
                let mut rng = Rng::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let pair = (rng.next() % ACCOUNTS, rng.next() % ACCOUNTS);
                    db.transact(|tx| transfer(tx, &pair)).unwrap();
                    if rng.next().is_multiple_of(8) {
                        assert_eq!(db.transact(|tx| sum(tx)).unwrap(), 1000 * ACCOUNTS);
                    }
                }
            });
        }
        loops.join().unwrap();
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(sum(&db.begin().unwrap()).unwrap(), 1000 * ACCOUNTS);
    db.close().unwrap();
}

/// A member of a loop and another transaction wait for each other: one of the two transactions is the victim, as a whole.
#[test]
fn a_deadlock_with_a_member_has_one_victim() {
    let db = database();
    for is_older in [false, true] {
        let (at_loop, at_other) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|s| {
            let (db, at_loop, at_other) = (&db, &at_loop, &at_other);
            let first = is_older.then(|| db.begin().unwrap());
            let mut tx = db.begin().unwrap();
            let other = s.spawn(move || {
                let mut other = first.unwrap_or_else(|| db.begin().unwrap());
                other.hand_over();
                other.put(&NUMBERS, &30, &5).unwrap();
                at_other.wait();
                at_loop.wait();
                let result = other.put(&NUMBERS, &5, &5);
                let victim = other.is_victim();
                drop(other);
                (victim, result)
            });
            at_other.wait();
            let is_first = AtomicBool::new(true);
            let looped = tx.in_order(
                0..40_u64,
                |tx, n| {
                    tx.put(&NUMBERS, n, &7)?;
                    if *n == 5 && is_first.swap(false, Ordering::Relaxed) {
                        at_loop.wait();
                    }
                    Ok::<_, TxnError>(())
                },
                |()| (),
            );
            let victim = tx.is_victim();
            assert_eq!(looped.is_err(), victim);
            drop(tx);
            let (other_is_victim, _) = other.join().unwrap();
            assert!(victim != other_is_victim, "{victim} {other_is_victim}");
            assert_eq!(victim, is_older, "the younger one is the victim");
        });
    }
}
