//! Savepoints, and raw statements that correspond to typed ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::common::{NUMBERS, ROWS, Rng, open};
use storage::disk::{Crash, SimDisk};
use storage::{Isolation, TableLock, TxnError};

/// Random statements and savepoints are compared with a map and its copies, at the end and after reopening.
#[test]
fn going_back_restores_what_was() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let db = open(&disk);
        let mut rng = Rng::new(seed);
        let mut committed = BTreeMap::new();
        for _ in 0..4 {
            let mut tx = db.begin().unwrap();
            let mut now: BTreeMap<Vec<u8>, Vec<u8>> = committed.clone();
            let mut places = Vec::new();
            for _ in 0..60 {
                let key = vec![b'k', rng.below(12) as u8];
                match rng.below(8) {
                    0 => places.push((tx.savepoint(), now.clone())),
                    1 if !places.is_empty() => {
                        let at = rng.below(places.len() as u64) as usize;
                        tx.rollback_to(places[at].0).unwrap();
                        now.clone_from(&places[at].1);
                        for (gone, _) in places.drain(at + 1..) {
                            assert!(matches!(tx.rollback_to(gone), Err(TxnError::Savepoint)), "seed {seed}");
                        }
                    }
                    2 | 3 => {
                        assert_eq!(tx.delete(&ROWS, &key).unwrap(), now.remove(&key).is_some(), "seed {seed}");
                    }
                    _ => {
                        let len = rng.below(300) as usize;
                        let row = rng.bytes(len);
                        tx.put(&ROWS, &key, &row).unwrap();
                        now.insert(key, row);
                    }
                }
                let rows: BTreeMap<_, _> = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
                assert_eq!(rows, now, "seed {seed}");
            }
            if rng.once_in(3) {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
                committed = now;
            }
        }
        let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
        assert!(structure.findings.is_empty(), "seed {seed}: {:?}", structure.findings);
        db.close().unwrap();
        let db = open(&disk);
        let rows: BTreeMap<_, _> = db.begin().unwrap().range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, committed, "seed {seed}");
    }
}

#[test]
fn a_savepoint_is_of_one_transaction() {
    let db = open(&SimDisk::new(1));
    let mut one = db.begin().unwrap();
    one.put(&NUMBERS, &1, &1).unwrap();
    let savepoint = one.savepoint();
    one.put(&NUMBERS, &1, &2).unwrap();
    one.commit().unwrap();
    let mut two = db.begin().unwrap();
    two.savepoint();
    two.put(&NUMBERS, &1, &3).unwrap();
    assert!(matches!(two.rollback_to(savepoint), Err(TxnError::Savepoint)));
    assert_eq!(two.get(&NUMBERS, &1).unwrap(), Some(3));
    let other = open(&SimDisk::new(2));
    let mut of_other = other.begin().unwrap();
    let foreign = of_other.savepoint();
    assert!(matches!(two.rollback_to(foreign), Err(TxnError::Savepoint)));
    // Repeated rollbacks to one savepoint.
    let again = two.savepoint();
    for value in 10..13 {
        two.put(&NUMBERS, &1, &value).unwrap();
        two.rollback_to(again).unwrap();
        assert_eq!(two.get(&NUMBERS, &1).unwrap(), Some(3));
    }
    two.lock_table(&NUMBERS, TableLock::Exclusive).unwrap();
    two.commit().unwrap();
}

/// A transaction rolls back repeatedly to one savepoint or to its start. After a power loss in the middle, or after a
/// checkpoint, the restart restores the committed rows.
#[test]
fn going_back_again_and_again_survives_a_crash() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let db = open(&disk);
        let mut rng = Rng::new(seed);
        db.transact(|tx| (0..20).try_for_each(|n| tx.put(&ROWS, &[n], &vec![n; 200]))).unwrap();
        let committed: BTreeMap<_, _> = db.begin().unwrap().range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
        let mut tx = db.begin().unwrap();
        let begin = tx.savepoint();
        let mut now = committed.clone();
        if rng.once_in(2) {
            tx.put(&ROWS, &[3], &vec![9; 10]).unwrap();
            now.insert(vec![3], vec![9; 10]);
        }
        let (then, savepoint) = (now.clone(), tx.savepoint());
        for _ in 0..rng.below(60) {
            for _ in 0..=rng.below(4) {
                let (key, len) = (vec![rng.below(24) as u8], rng.below(300) as usize);
                if rng.once_in(3) {
                    tx.delete(&ROWS, &key).unwrap();
                } else {
                    let row = rng.bytes(len);
                    tx.put(&ROWS, &key, &row).unwrap();
                }
            }
            if rng.once_in(4) {
                db.checkpoint().unwrap();
            }
            tx.rollback_to(savepoint).unwrap();
            if rng.once_in(4) {
                db.checkpoint().unwrap();
            }
        }
        let rows: BTreeMap<_, _> = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, then, "seed {seed}");
        let commits = rng.once_in(3);
        if rng.once_in(3) {
            tx.rollback_to(begin).unwrap();
            now.clone_from(&committed);
        }
        if commits {
            tx.commit().unwrap();
        } else {
            // Leaked: only the restart rolls it back.
            std::mem::forget(tx);
            now = committed;
        }
        let _ = db.checkpoint();
        let after = disk.crash(if rng.once_in(2) { Crash::All } else { Crash::Nothing });
        let db = open(&after);
        let rows: BTreeMap<_, _> = db.begin().unwrap().range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, now, "seed {seed}");
    }
}

#[test]
fn a_closure_may_ask_for_its_isolation() {
    let db = open(&SimDisk::new(4));
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let seen = db.transact_at(isolation, |tx| Ok::<_, TxnError>(tx.isolation())).unwrap();
        assert_eq!(seen, isolation);
    }
}

#[test]
fn bytes_have_the_statements_that_values_have() {
    let db = open(&SimDisk::new(3));
    let key = |n: u64| n.to_be_bytes();
    let mut tx = db.begin().unwrap();
    for n in [5, 1, 3, 1] {
        tx.raw_mut().put(&NUMBERS, &key(n), &(n * 10).to_le_bytes()).unwrap();
    }
    assert_eq!(tx.raw().read_for_update(&NUMBERS, &key(3), <[u8]>::to_vec).unwrap().unwrap(), 30u64.to_le_bytes());
    assert_eq!(tx.raw().read_for_update(&NUMBERS, &key(4), |_| ()).unwrap(), None);
    let mut seen = Vec::new();
    tx.raw()
        .scan_backward(&NUMBERS, &key(1), &key(4), |k, row| {
            seen.push((k.to_vec(), row.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    let expected = [3, 1].map(|n: u64| (key(n).to_vec(), (n * 10).to_le_bytes().to_vec()));
    assert_eq!(seen, expected);
    tx.commit().unwrap();
}
