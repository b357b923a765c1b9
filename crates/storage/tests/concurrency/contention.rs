//! Contended leaves: they are split between the rows that are written, and stay split for a while.

use std::ops::ControlFlow;
use std::sync::Arc;

use storage::disk::{Crash, MemDisk, SimDisk};
use storage::{Database, Transaction, TxnError};

use crate::common::{NUMBERS, open, small};

/// Number of contended writes that split a leaf, and a few more.
const ENOUGH: u64 = 40;

/// Updates row `a` while another transaction updates row `b` between the read and the write of row `a`.
fn try_contend(db: &Database, a: u64, b: u64) -> Result<(), TxnError> {
    let mut other = db.begin()?;
    let mut tx = db.begin()?;
    let mut disturbed = Ok(());
    increment(&mut tx, a, || disturbed = increment(&mut other, b, || ()))?;
    disturbed?;
    tx.commit()?;
    other.commit()
}

fn contend(db: &Database, a: u64, b: u64) {
    try_contend(db, a, b).unwrap();
}

/// Adds one to a row. Calls `meanwhile` between the read and the write of the row.
fn increment(tx: &mut Transaction<'_>, key: u64, meanwhile: impl FnOnce()) -> Result<(), TxnError> {
    let add = |number: &mut [u8], _: &[u8]| {
        meanwhile();
        let next = u64::from_le_bytes((&*number).try_into().unwrap()) + 1;
        number.copy_from_slice(&next.to_le_bytes());
    };
    let found = tx.raw_mut().update_head(&NUMBERS, &key.to_be_bytes(), 8, add)?;
    assert!(found.is_some());
    Ok(())
}

fn with_rows(db: &Database, rows: u64) {
    db.transact(|tx| (0..rows).try_for_each(|key| tx.insert(&NUMBERS, &key, &0))).unwrap();
}

fn splits(db: &Database) -> u64 {
    let contention = db.contention();
    let of = contention.iter().find(|of| of.table == NUMBERS.name()).unwrap();
    assert!(of.leaves_contended >= of.splits_for_contention);
    of.splits_for_contention
}

fn is_whole(db: &Database) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
}

#[test]
fn rows_written_at_the_same_time_come_to_lie_on_leaves_of_their_own() {
    let db = small().open_on(Arc::new(MemDisk::new())).unwrap();
    with_rows(&db, 8);
    for _ in 0..ENOUGH {
        contend(&db, 2, 5);
        contend(&db, 5, 2);
    }
    assert_eq!(splits(&db), 1);
    let contended = db.contention()[0].leaves_contended;
    contend(&db, 2, 5);
    assert_eq!(db.contention()[0].leaves_contended, contended, "the rows lie on different leaves");
    for key in 0..8 {
        let value = db.transact(|tx| tx.get(&NUMBERS, &key)).unwrap();
        assert_eq!(value, Some(if [2, 5].contains(&key) { 2 * ENOUGH + 1 } else { 0 }));
    }
    is_whole(&db);
}

#[test]
fn one_row_is_no_reason_to_split() {
    let db = small().open_on(Arc::new(MemDisk::new())).unwrap();
    with_rows(&db, 8);
    // The rows that disturb row 2 are not the ones whose writers are disturbed.
    for i in 0..4 * ENOUGH {
        contend(&db, 2, 3 + i % 5);
    }
    assert_eq!(splits(&db), 0);
}

#[test]
fn all_of_many_hot_rows_are_divided() {
    let db = small().open_on(Arc::new(MemDisk::new())).unwrap();
    with_rows(&db, 16);
    for i in 0..1000 * ENOUGH {
        let a = i * 7 % 16;
        contend(&db, a, (a + 1 + i % 15) % 16);
    }
    assert_eq!(splits(&db), 15, "each row has a leaf of its own");
    is_whole(&db);
}

#[test]
fn contended_leaves_are_not_merged_at_once_and_survive_a_restart() {
    let disk = SimDisk::new(7);
    let db = open(&disk);
    with_rows(&db, 8);
    for _ in 0..ENOUGH {
        contend(&db, 2, 5);
        contend(&db, 5, 2);
    }
    // A ghost makes the purge service visit the leaf, which is nearly empty.
    db.transact(|tx| tx.delete(&NUMBERS, &1).map(drop)).unwrap();
    for _ in 0..20 {
        db.step().unwrap();
    }
    let contended = db.contention()[0].leaves_contended;
    contend(&db, 2, 5);
    assert_eq!(db.contention()[0].leaves_contended, contended);
    drop(db);
    let db = open(&disk);
    assert_eq!(db.transact(|tx| tx.get(&NUMBERS, &2)).unwrap(), Some(2 * ENOUGH + 1));
    is_whole(&db);
}

#[test]
fn a_crash_around_a_split_for_contention_loses_nothing() {
    let (mut split, mut unsplit) = (0, 0);
    for seed in 0..150 {
        let disk = SimDisk::new(seed);
        let db = open(&disk);
        with_rows(&db, 8);
        disk.power_off_after(2 * seed);
        let pairs = (0..2 * ENOUGH).map(|i| if i % 2 == 0 { (2, 5) } else { (5, 2) });
        let committed = pairs.map_while(|(a, b)| try_contend(&db, a, b).ok()).count() as u64;
        if splits(&db) > 0 {
            split += 1
        } else {
            unsplit += 1
        }
        std::mem::forget(db);
        let db = open(&disk.crash(Crash::Random(seed)));
        for key in [2, 5] {
            let value = db.transact(|tx| tx.get(&NUMBERS, &key)).unwrap().unwrap();
            assert!((committed..=committed + 1).contains(&value), "seed {seed}: {value} after {committed} commits");
        }
        is_whole(&db);
    }
    assert!(split > 10 && unsplit > 10, "crashes after a split: {split}, before it: {unsplit}");
}
