//! Transactions that own a share of their database.

use std::sync::Arc;

use crate::common::{NUMBERS, on, open, small};
use storage::disk::SimDisk;
use storage::{Isolation, OwnedTransaction, TxnError};

#[test]
fn a_dropped_transaction_is_rolled_back_and_a_committed_one_is_not() {
    let db = Arc::new(open(&SimDisk::new(1)));
    let mut dropped = db.begin_owned().unwrap();
    dropped.with(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    drop(dropped);
    let mut committed = db.begin_owned_at(Isolation::ReadCommitted).unwrap();
    assert_eq!(committed.read(|tx| tx.isolation()), Isolation::ReadCommitted);
    committed.with(|tx| tx.put(&NUMBERS, &2, &2)).unwrap();
    committed.commit().unwrap();
    let mut rolled_back = db.begin_owned().unwrap();
    rolled_back.with(|tx| tx.put(&NUMBERS, &3, &3)).unwrap();
    rolled_back.rollback().unwrap();
    let last = db.begin_owned().unwrap();
    let rows: Vec<(u64, u64)> = last.read(|tx| tx.range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect());
    assert_eq!(rows, [(2, 2)]);
}

#[test]
fn the_database_stays_open_as_long_as_a_transaction() {
    let disk = SimDisk::new(1);
    let db = Arc::new(open(&disk));
    let mut open_one = db.begin_owned().unwrap();
    assert!(Arc::ptr_eq(open_one.database(), &db));
    drop(db);
    assert!(small().open_on(on(&disk)).is_err(), "the transaction has the database open");
    open_one.with(|tx| tx.put(&NUMBERS, &1, &7)).unwrap();
    open_one.commit().unwrap();
    let again = small().open_on(on(&disk)).unwrap();
    assert_eq!(again.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(7));
}

#[test]
fn a_transaction_moves_between_threads() {
    fn is_send<T: Send + 'static>(value: T) -> T {
        value
    }
    let db = Arc::new(open(&SimDisk::new(1)));
    let mut one: OwnedTransaction = is_send(db.begin_owned().unwrap());
    one.with(|tx| {
        tx.hand_over();
        tx.put(&NUMBERS, &1, &1)
    })
    .unwrap();
    std::thread::spawn(move || one.commit()).join().unwrap().unwrap();
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(1));
}

#[test]
fn errors_are_those_of_a_borrowed_transaction() {
    let db = Arc::new(open(&SimDisk::new(1)));
    let mut one = db.begin_owned().unwrap();
    one.with(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    let mut other = db.begin_owned().unwrap();
    let refused = other.with(|tx| tx.put(&NUMBERS, &1, &2));
    assert!(matches!(refused, Err(TxnError::OwnTask { .. })), "{refused:?}");
}
