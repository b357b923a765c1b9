//! Reads through a shared reference: nested reads, several cursors, and statements that begin inside another one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::{NUMBERS, Rng};
use storage::disk::MemDisk;
use storage::{Database, Isolation, Options, Table, Transaction, TxnError};

/// A table with few rows per page.
const WIDE: Table<u64, [u8; 500]> = Table::new("wide");
const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

fn open() -> Database {
    Options::new().buffer_pool(8 << 20).transactions(8).open_on(Arc::new(MemDisk::new())).unwrap()
}

fn row(n: u64) -> [u8; 500] {
    [n as u8; 500]
}

/// Writes or deletes some rows of a table of many pages in this transaction.
fn changed(tx: &mut Transaction<'_>, rng: &mut Rng, rows: &mut BTreeMap<u64, [u8; 500]>) {
    for _ in 0..60 {
        let key = rng.next() % 120;
        if rng.next().is_multiple_of(2) {
            tx.put(&WIDE, &key, &row(key + 1)).unwrap();
            rows.insert(key, row(key + 1));
        } else {
            assert_eq!(tx.delete(&WIDE, &key).unwrap(), rows.remove(&key).is_some());
        }
    }
}

#[test]
fn nested_cursors_and_reads_see_all_rows() {
    for (seed, level) in (0..6).flat_map(|seed| LEVELS.map(|level| (seed, level))) {
        println!("seed {seed}, {level:?}");
        let (db, mut rng) = (open(), Rng::new(seed));
        let mut rows: BTreeMap<u64, [u8; 500]> = (0..100).map(|key| (key, row(key))).collect();
        db.transact(|tx| rows.iter().try_for_each(|(key, row)| tx.insert(&WIDE, key, row))).unwrap();
        let mut tx = db.begin_at(level).unwrap();
        changed(&mut tx, &mut rng, &mut rows);
        let tx = &tx;
        let expected: Vec<_> = rows.clone().into_iter().collect();
        let mut seen = Vec::new();
        for outer in tx.range(&WIDE, ..).unwrap() {
            let outer = outer.unwrap();
            let from = rng.next() % 120;
            let inner: Vec<_> = tx
                .range(&WIDE, from..)
                .unwrap()
                .rev()
                .inspect(|inner| {
                    let (key, row) = inner.as_ref().unwrap();
                    assert_eq!(tx.get(&WIDE, key).unwrap().as_ref(), Some(row));
                })
                .collect::<Result<_, TxnError>>()
                .unwrap();
            let above: Vec<_> = rows.range(from..).rev().map(|(key, row)| (*key, *row)).collect();
            assert_eq!(inner, above);
            assert_eq!(tx.get(&WIDE, &from).unwrap(), rows.get(&from).copied());
            seen.push(outer);
        }
        assert_eq!(seen, expected);
    }
}

#[test]
fn closures_keep_their_rows_while_they_read_others() {
    let db = open();
    db.transact(|tx| (0..100).try_for_each(|key| tx.insert(&WIDE, &key, &row(key)))).unwrap();
    let tx = db.begin().unwrap();
    let key = |n: u64| n.to_be_bytes();
    let (mut up, mut down) = (0, 100);
    tx.raw()
        .scan(&WIDE, &key(0), &key(99), |outer, outer_row| {
            assert_eq!((outer, outer_row), (&key(up)[..], &row(up)[..]));
            let mut within = 0;
            tx.raw()
                .scan(&WIDE, &key(0), &key(99), |inner, inner_row| {
                    tx.raw()
                        .read(&WIDE, outer, |read| {
                            let other = tx.raw().read(&WIDE, inner, |other| assert_eq!(other, inner_row)).unwrap();
                            assert!(other.is_some() && read == outer_row);
                        })
                        .unwrap();
                    assert_eq!((inner, inner_row), (&key(within)[..], &row(within)[..]));
                    within += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!((within, outer, outer_row), (100, &key(up)[..], &row(up)[..]));
            up += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    tx.raw()
        .scan_backward(&WIDE, &key(0), &key(99), |outer, outer_row| {
            down -= 1;
            assert_eq!(tx.count(&WIDE, down..).unwrap(), 100 - down);
            assert_eq!((outer, outer_row), (&key(down)[..], &row(down)[..]));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((up, down), (100, 0));
}

#[test]
fn after_a_panic_in_a_nested_closure_the_transaction_goes_on() {
    let db = open();
    let mut tx = db.begin().unwrap();
    (0..10).for_each(|key| tx.put(&NUMBERS, &key, &key).unwrap());
    let (from, to) = (0u64.to_be_bytes(), 9u64.to_be_bytes());
    let nested = || {
        tx.raw().scan(&NUMBERS, &from, &to, |key, _| {
            tx.raw().read(&NUMBERS, key, |_| panic!("the program's own")).unwrap();
            ControlFlow::Continue(())
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
    assert_eq!(tx.count(&NUMBERS, ..).unwrap(), 10);
    tx.put(&NUMBERS, &10, &10).unwrap();
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().count(&NUMBERS, ..).unwrap(), 11);
}

/// Two cursors of one transaction lock as much as one would: no other transaction inserts between rows that either has
/// read.
#[test]
fn nested_reads_lock_the_gaps_that_they_see() {
    let db = open();
    db.transact(|tx| (0..10).try_for_each(|key| tx.insert(&NUMBERS, &(10 * key), &0))).unwrap();
    let tx = db.begin_at(Isolation::Serializable).unwrap();
    for outer in tx.range(&NUMBERS, ..30).unwrap() {
        assert!(tx.range(&NUMBERS, 50..70).unwrap().all(|row| row.is_ok()), "{outer:?}");
        assert_eq!(tx.get(&NUMBERS, &85).unwrap(), None);
    }
    let mut other = db.begin().unwrap();
    for taken in [5, 25, 55, 65, 85] {
        assert!(matches!(other.insert(&NUMBERS, &taken, &1), Err(TxnError::OwnTask { .. })), "{taken}");
    }
    other.insert(&NUMBERS, &35, &1).unwrap();
}
