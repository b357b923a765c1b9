//! Restarts after specific crashes. Random crashes are in `crash.rs`.

use std::collections::BTreeMap;

use crate::common::{NUMBERS, ROWS, Rng, on, open, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, OpenError, StorageError, Table, TxnError};

/// Rows whose first byte is a counter.
const COUNTS: Table<u64, Vec<u8>> = Table::new("counts");

fn all(db: &Database) -> Vec<(u64, u64)> {
    let tx = db.begin().unwrap();
    tx.range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect()
}

fn put(db: &Database, key: u64, row: u64) {
    db.transact(|tx| tx.put(&NUMBERS, &key, &row)).unwrap();
}

/// Returns a database with rows of `bytes` bytes, all in the data file.
fn with_counts(disk: &SimDisk, rows: u64, bytes: usize) -> Database {
    let db = open(disk);
    db.transact(|tx| (0..rows).try_for_each(|key| tx.insert(&COUNTS, &key, &vec![0; bytes]))).unwrap();
    db.checkpoint().unwrap();
    db
}

/// Runs one statement that increments the counters of these keys, in this order.
fn count(tx: &mut storage::Transaction<'_>, keys: &[u64]) -> Result<(), TxnError> {
    let keys: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let rows = tx.raw_mut().update_heads(&COUNTS, &keys, 1, |_, head, _| head[0] += 1)?;
    assert_eq!(rows, keys.len());
    Ok(())
}

/// Returns the counter of each row; rows with a zero counter are left out.
fn counts(db: &Database) -> BTreeMap<u64, u8> {
    let tx = db.begin().unwrap();
    let rows = tx.range(&COUNTS, ..).unwrap().map(Result::unwrap);
    rows.map(|(key, row)| (key, row[0])).filter(|(_, count)| *count > 0).collect()
}

/// Regression: the record of one statement changed the pages A, B, A. Redo assumed that the sections of a page are
/// adjacent and skipped the third section, because A already had the record's LSN: half of a durable commit was lost.
#[test]
fn a_statement_that_comes_back_to_a_page_is_redone_as_a_whole() {
    let disk = SimDisk::new(1);
    let db = with_counts(&disk, 200, 60);
    db.transact(|tx| count(tx, &[1, 199, 2])).unwrap();
    let after = disk.crash(Crash::Nothing);
    std::mem::forget(db);
    assert_eq!(counts(&open(&after)), [(1, 1), (2, 1), (199, 1)].into());
}

/// The same for statements on arbitrary keys in any order, also repeated, of transactions that commit, roll back, or
/// are running at the power loss: redo, compensation, undo.
#[test]
fn statements_in_any_order_of_keys_survive_whole_or_not_at_all() {
    for seed in 0..30 {
        let (disk, mut rng) = (SimDisk::new(seed), Rng::new(seed));
        let db = with_counts(&disk, 600, 60);
        let mut expected = BTreeMap::new();
        for _ in 0..12 {
            // Few leaves, so that statements return to them.
            let keys: Vec<u64> = (0..2 + rng.below(30)).map(|_| rng.below(600)).collect();
            let mut tx = db.begin().unwrap();
            count(&mut tx, &keys).unwrap();
            if rng.once_in(3) {
                tx.rollback().unwrap();
                continue;
            }
            tx.commit().unwrap();
            keys.iter().for_each(|key| *expected.entry(*key).or_default() += 1);
        }
        let mut running = db.begin().unwrap();
        let keys: Vec<u64> = (0..30).map(|_| rng.below(600)).collect();
        count(&mut running, &keys).unwrap();
        // The record of the running transaction becomes durable with this commit.
        db.transact(|tx| tx.put(&NUMBERS, &0, &0)).unwrap();
        std::mem::forget(running);
        let after = disk.crash(if rng.once_in(2) { Crash::Nothing } else { Crash::All });
        std::mem::forget(db);
        // The restart begins again after any interruption, also during the undo of a statement.
        after.power_off_after(rng.below(60));
        let first = small().open_on(on(&after));
        let again = after.crash(Crash::All);
        std::mem::forget(first);
        assert_eq!(counts(&open(&again)), expected, "seed {seed}");
    }
}

/// A power loss during a long rollback leaves a statement that is undone in part: the log is written when its buffer is full, in
/// the middle of a statement. The restart undoes the other rows, and none twice: a second undo of a difference would do the
/// change again.
#[test]
fn a_statement_undone_in_part_is_undone_once() {
    let keys = (0..16).map(|n| n * 20).collect::<Vec<u64>>();
    for calls in 1..=12 {
        let disk = SimDisk::new(calls);
        let db = small().checkpoint_every(16 << 20).open_on(on(&disk)).unwrap();
        db.transact(|tx| (0..320).try_for_each(|key| tx.insert(&COUNTS, &key, &vec![0; 100]))).unwrap();
        db.transact(|tx| count(tx, &keys)).unwrap();
        let mut running = db.begin().unwrap();
        for n in 0..1000 {
            let keys: Vec<u64> = keys.iter().map(|key| key + n % 20).collect();
            count(&mut running, &keys).unwrap();
        }
        disk.power_off_after(calls);
        // The rollback may end if its last records are in memory.
        drop(running.rollback());
        let after = disk.crash(Crash::All);
        std::mem::forget(db);
        assert_eq!(counts(&open(&after)), keys.iter().map(|key| (*key, 1)).collect(), "{calls} calls");
    }
}

/// Redo that evicts pages writes copies of them to the control file, over copies from which the restart may have
/// repaired pages.
#[test]
fn redo_in_a_pool_that_is_too_small_for_its_changes_repeats_all() {
    for seed in 0..24 {
        let (disk, mut rng) = (SimDisk::new(seed), Rng::new(seed));
        // About four times as many pages as the pool has frames.
        let rows = 3500;
        let db = with_counts(&disk, rows, 1000);
        let mut expected = BTreeMap::new();
        // The log is short: redo has read it into memory before the first page is evicted.
        for _ in 0..10 + rng.below(50) {
            let keys: Vec<u64> = (0..16).map(|_| rng.below(rows)).collect();
            db.transact(|tx| count(tx, &keys)).unwrap();
            keys.iter().for_each(|key| *expected.entry(*key).or_default() += 1);
        }
        let after = disk.crash(Crash::Nothing);
        std::mem::forget(db);
        let db = small().open_on(on(&after)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(counts(&db) == expected, "seed {seed}");
    }
}

/// Regression: a transaction that was visible to checkpoints but had logged nothing was listed as unfinished, with a
/// record of another transaction as its last record; the restart then undid that record.
#[test]
fn a_transaction_that_logged_nothing_is_no_loser() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    put(&db, 1, 10);
    let mut other = db.begin().unwrap();
    let mut idle = db.begin().unwrap();
    let key = 1u64.to_be_bytes();
    assert_eq!(idle.raw_mut().update_run(&NUMBERS, &key, &key, |_, _| ()).unwrap(), 1);
    idle.commit().unwrap();
    other.put(&NUMBERS, &2, &20).unwrap();
    other.commit().unwrap();
    db.checkpoint().unwrap();
    let after = disk.crash(Crash::Nothing);
    std::mem::forget(db);
    assert_eq!(all(&open(&after)), [(1, 10), (2, 20)]);
}

/// The same on a full disk.
#[test]
fn a_transaction_whose_first_record_found_no_space_is_no_loser() {
    let disk = SimDisk::new(2);
    let db = open(&disk);
    put(&db, 1, 10);
    let mut other = db.begin().unwrap();
    disk.set_capacity(disk.used());
    // Fills the log until it is full.
    let mut rows = 0u64;
    let error = loop {
        let mut tx = db.begin().unwrap();
        match tx.put(&ROWS, rows.to_be_bytes().as_ref(), &vec![7; 3000]) {
            Ok(()) => tx.commit().unwrap(),
            Err(error) => break error,
        }
        rows += 1;
    };
    assert!(matches!(error, TxnError::Storage(StorageError::NoSpace { .. })), "{error}");
    disk.set_capacity(u64::MAX);
    other.put(&NUMBERS, &2, &20).unwrap();
    other.commit().unwrap();
    db.checkpoint().unwrap();
    let after = disk.crash(Crash::Nothing);
    std::mem::forget(db);
    let db = open(&after);
    assert_eq!(all(&db), [(1, 10), (2, 20)]);
    assert_eq!(db.begin().unwrap().range(&ROWS, ..).unwrap().count() as u64, rows);
}

/// A database without its control file must not be mistaken for an empty directory.
#[test]
fn a_lost_control_file_does_not_wipe_the_database() {
    use storage::disk::Disk;
    let disk = SimDisk::new(3);
    let db = open(&disk);
    put(&db, 1, 10);
    db.close().unwrap();
    let length = disk.open("pages.0", storage::disk::OpenMode::Existing).unwrap().len().unwrap();
    disk.remove("control").unwrap();
    let error = small().open_on(on(&disk)).unwrap_err();
    assert!(error.to_string().contains("control"), "{error}");
    assert_eq!(disk.open("pages.0", storage::disk::OpenMode::Existing).unwrap().len().unwrap(), length);
}

/// After a crash during the creation of the files, the directory can be opened.
#[test]
fn a_crash_during_creation_is_created_again() {
    for calls in 0..60 {
        for how in [Crash::All, Crash::Nothing, Crash::Random(calls)] {
            let disk = SimDisk::new(calls);
            disk.power_off_after(calls);
            let made = small().open_on(on(&disk)).and_then(|db| {
                db.transact(|tx| tx.put(&NUMBERS, &1, &10))?;
                std::mem::forget(db);
                Ok(())
            });
            let after = disk.crash(how);
            let db = small().open_on(on(&after)).unwrap_or_else(|e| panic!("{calls} calls, {how:?}: {e}"));
            let found = all(&db);
            assert!(found == [(1, 10)] || (found.is_empty() && made.is_err()), "{calls} calls, {how:?}: {found:?}");
        }
    }
}

/// Rows and index entries of a bulk load appear atomically, for a power loss at any moment.
#[test]
fn a_bulk_load_is_whole_or_absent() {
    let load = |db: &Database| -> Result<(), TxnError> {
        let table = db.table(&ROWS)?;
        let mut load = db.bulk_load(&table)?;
        let mut rng = Rng::new(5);
        for key in 0..300u32 {
            load.push(&key.to_be_bytes().to_vec(), &rng.bytes(200))?;
        }
        load.finish().map(drop)
    };
    let mut calls = 0;
    let mut seen = [0; 2];
    loop {
        let disk = SimDisk::new(calls);
        let db = open(&disk);
        db.table(&ROWS).unwrap();
        disk.power_off_after(calls);
        let done = load(&db).is_ok();
        let after = disk.crash(Crash::All);
        let after = if calls % 2 == 0 { after } else { disk.crash(Crash::Random(calls)) };
        std::mem::forget(db);
        let db = open(&after);
        let tx = db.begin().unwrap();
        let rows = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).count();
        let entries = tx.range_by::<crate::common::ByHead>(&ROWS, ..).unwrap().map(Result::unwrap).count();
        assert_eq!(rows, entries, "{calls} calls");
        assert!(rows == 300 || (rows == 0 && !done), "{calls} calls: {rows} rows, done {done}");
        seen[usize::from(rows > 0)] += 1;
        drop(tx);
        db.verify_pages().unwrap_or_else(|e| panic!("{calls} calls: {e}"));
        if done {
            break;
        }
        calls += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0);
}

#[test]
fn a_cancelled_recovery_is_done_by_a_later_open() {
    use std::ops::ControlFlow;
    use storage::RecoveryPass;
    for at in [RecoveryPass::Analysis, RecoveryPass::Redo, RecoveryPass::Undo] {
        let disk = SimDisk::new(9);
        let db = open(&disk);
        for key in 0..200 {
            put(&db, key, key);
        }
        let mut open_tx = db.begin().unwrap();
        for key in 100..300 {
            open_tx.put(&NUMBERS, &key, &0).unwrap();
        }
        // The records of the running transaction become durable with this commit.
        put(&db, 50, 50);
        std::mem::forget(open_tx);
        let after = disk.crash(Crash::Nothing);
        std::mem::forget(db);
        let mut crashed = after;
        for round in 0..3 {
            let hear = move |r: &storage::Recovery| {
                if r.pass == at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let error = small().on_recovery(hear).open_on(on(&crashed)).unwrap_err();
            assert!(matches!(error, OpenError::Cancelled { .. }), "{error}");
            if round == 1 {
                crashed = crashed.crash(Crash::Random(4));
            }
        }
        let hear = move |r: &storage::Recovery| {
            assert_ne!(r.pass, at, "the listener's own fault");
            ControlFlow::Continue(())
        };
        let opened = || drop(small().on_recovery(hear).open_on(on(&crashed)));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(opened)).unwrap_err();
        let db = open(&crashed);
        let expected: Vec<_> = (0..200).map(|k| (k, k)).collect();
        assert_eq!(all(&db), expected);
    }
}
