//! Rollbacks of long transactions: most of their records have left the log buffer and are read back from the log files.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::common::{NUMBERS, ROWS, Rng, on, open, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, Transaction};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs one random statement on [`ROWS`] and on the model. Keys are close to each other or random, so that the rollback
/// stays in a leaf or changes leaves. Rows have random lengths, so that they move.
fn statement(tx: &mut Transaction<'_>, now: &mut Rows, rng: &mut Rng, near: &mut u64) {
    *near = if rng.once_in(8) { rng.below(4000) } else { (*near + rng.below(3)) % 4000 };
    let key = near.to_be_bytes()[6..].to_vec();
    if rng.once_in(4) {
        assert_eq!(tx.delete(&ROWS, &key).unwrap(), now.remove(&key).is_some());
    } else {
        let len = rng.below(400) as usize;
        let row = rng.bytes(len);
        tx.put(&ROWS, &key, &row).unwrap();
        now.insert(key, row);
    }
}

fn rows(tx: &mut Transaction<'_>) -> Rows {
    tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect()
}

fn all(db: &Database) -> Rows {
    rows(&mut db.begin().unwrap())
}

fn sound(db: &Database, seed: u64) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.findings.is_empty(), "seed {seed}: {:?}", structure.findings);
}

/// Returns a database with rows that are committed before the rolled back transaction begins.
fn with_rows(disk: &SimDisk, rng: &mut Rng) -> (Database, Rows) {
    let db = open(disk);
    let mut committed = Rows::new();
    let mut tx = db.begin().unwrap();
    let mut near = 0;
    (0..800).for_each(|_| statement(&mut tx, &mut committed, rng, &mut near));
    tx.commit().unwrap();
    (db, committed)
}

/// Runs statements whose log records fill the log buffer or more, with records of other transactions in between.
fn long(db: &Database, tx: &mut Transaction<'_>, now: &mut Rows, rng: &mut Rng) {
    let mut near = 0;
    for n in 0..1800 {
        statement(tx, now, rng, &mut near);
        if rng.once_in(40) {
            // Records of other transactions: few, or more than one read of the log reader.
            let others = if rng.once_in(6) { 300 } else { 3 };
            db.transact(|tx| (0..others).try_for_each(|key| tx.put(&NUMBERS, &key, &n))).unwrap();
        }
    }
}

#[test]
fn long_rollbacks_restore_what_was() {
    for seed in 0..6 {
        let (disk, mut rng) = (SimDisk::new(seed), Rng::new(seed));
        let (db, committed) = with_rows(&disk, &mut rng);
        let mut tx = db.begin().unwrap();
        let mut now = committed.clone();
        long(&db, &mut tx, &mut now, &mut rng);
        let (place, then) = (tx.savepoint(), now.clone());
        long(&db, &mut tx, &mut now, &mut rng);
        assert!(rows(&mut tx) == now, "seed {seed}");
        tx.rollback_to(place).unwrap();
        assert!(rows(&mut tx) == then, "seed {seed}");
        // Compensation records lie between these records and the earlier ones.
        now = then;
        long(&db, &mut tx, &mut now, &mut rng);
        assert!(rows(&mut tx) == now, "seed {seed}");
        tx.rollback().unwrap();
        assert!(all(&db) == committed, "seed {seed}");
        sound(&db, seed);
        db.close().unwrap();
        assert!(all(&open(&disk)) == committed, "seed {seed}");
    }
}

/// Power loss at calls of the disk throughout a long rollback, and again in the restart that continues it.
#[test]
fn long_rollbacks_survive_crashes_all_through() {
    // Only every seventh call, to limit the run time; the odd step covers calls of every kind.
    for calls in (0..).step_by(7) {
        let (disk, mut rng) = (SimDisk::new(7), Rng::new(7));
        let (db, committed) = with_rows(&disk, &mut rng);
        let mut tx = db.begin().unwrap();
        let mut now = committed.clone();
        (0..3).for_each(|_| long(&db, &mut tx, &mut now, &mut rng));
        disk.power_off_after(calls);
        let over = tx.rollback().is_ok() && !disk.is_off();
        let how = [Crash::All, Crash::Nothing, Crash::Random(calls)][calls as usize % 3];
        let after = disk.crash(how);
        std::mem::forget(db);
        after.power_off_after(calls % 50);
        let first = small().open_on(on(&after));
        let again = after.crash(Crash::All);
        std::mem::forget(first);
        let db = open(&again);
        assert!(all(&db) == committed, "after {calls} calls");
        sound(&db, calls);
        if over {
            assert!(calls > 100, "a long rollback writes its log");
            break;
        }
    }
}
