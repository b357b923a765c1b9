//! Transactions with a table lock: they write rows without record locks.

use crate::common::{ROWS, on, small};
use storage::disk::SimDisk;
use storage::{Database, TableLock, Transaction};

fn key(n: u16) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Forty rows of 100 bytes: half a page.
fn filled(escalate_at: u32) -> Database {
    let db = small().escalate_at(escalate_at).open_on(on(&SimDisk::new(1))).unwrap();
    db.transact(|tx| (0..40).try_for_each(|n| tx.insert(&ROWS, &key(n * 10), &vec![n as u8; 100]))).unwrap();
    db
}

/// Deletes rows, then fills their page, then rolls everything back.
fn delete_fill_and_roll_back(mut tx: Transaction<'_>) {
    for n in 0..20 {
        assert!(tx.delete(&ROWS, &key(n * 10)).unwrap());
    }
    for n in 0..100 {
        tx.insert(&ROWS, &key(n * 4 + 1), &vec![7; 100]).unwrap();
    }
    tx.rollback().unwrap();
}

fn assert_as_before(db: &Database) {
    let tx = db.begin().unwrap();
    let rows: Vec<_> = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
    let before: Vec<_> = (0..40).map(|n| (key(n * 10), vec![n as u8; 100])).collect();
    assert_eq!(rows, before);
}

/// The ghosts of deleted rows stay while the transaction may revive them, although no record lock names them.
#[test]
fn rollback_under_a_table_lock_finds_what_was_deleted() {
    let db = filled(5000);
    let mut tx = db.begin().unwrap();
    tx.lock_table(&ROWS, TableLock::Exclusive).unwrap();
    delete_fill_and_roll_back(tx);
    assert_as_before(&db);
}

/// The same after lock escalation has replaced many record locks by the table lock.
#[test]
fn rollback_after_escalation_finds_what_was_deleted() {
    let db = filled(8);
    delete_fill_and_roll_back(db.begin().unwrap());
    assert!(db.stats().escalations > 0);
    assert_as_before(&db);
}
