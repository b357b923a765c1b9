//! Rows inserted in runs of ascending keys are compared with an ordered map: the cached position of a thread's last
//! insert must never place a row differently from a search.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::prelude::*;
use storage::disk::MemDisk;
use storage::{Background, Database, LatchKind, Options, Table, TxnError};

const EVENTS: Table<u64, Vec<u8>> = Table::new("events");

#[derive(Clone, Debug)]
enum Step {
    /// Inserts the next rows of a run, one by one.
    Append {
        run: u8,
        rows: u8,
        bytes: u16,
    },
    /// Inserts the next rows of a run, in one statement.
    AppendRun {
        run: u8,
        rows: u8,
        bytes: u16,
    },
    /// Inserts a row between others, perhaps just above the run's newest row, perhaps with an existing key.
    Between {
        run: u8,
        at: u16,
    },
    Delete {
        run: u8,
        at: u16,
    },
    /// Deletes a whole run: pages become empty and are freed.
    Clear {
        run: u8,
    },
    Commit,
    Rollback,
    /// Switches to the other of two databases, in the same thread and with the same keys.
    Other,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let run = || 0u8..6;
    prop_oneof![
        12 => (run(), 1u8..40, 0u16..400).prop_map(|(run, rows, bytes)| Step::Append { run, rows, bytes }),
        6 => (run(), 1u8..40, 0u16..400).prop_map(|(run, rows, bytes)| Step::AppendRun { run, rows, bytes }),
        5 => (run(), 0u16..600).prop_map(|(run, at)| Step::Between { run, at }),
        5 => (run(), 0u16..600).prop_map(|(run, at)| Step::Delete { run, at }),
        1 => run().prop_map(|run| Step::Clear { run }),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        3 => Just(Step::Other),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<u64, Vec<u8>>;

struct Side {
    disk: Arc<MemDisk>,
    db: Option<Database>,
    committed: Model,
    /// Highest number ever used in each run: numbers are not reused.
    newest: [u64; 6],
}

fn open(disk: &Arc<MemDisk>, latches: LatchKind) -> Database {
    Options::new()
        .buffer_pool(1 << 20)
        .log_segment(64 << 10)
        .log_buffer(512 << 10)
        .checkpoint_every(1 << 20)
        .background(Background::Inline)
        .latches(latches)
        .open_on(disk.clone())
        .unwrap()
}

fn key(run: u8, number: u64) -> u64 {
    u64::from(run) << 32 | number
}

/// Runs steps until the end of a transaction.
fn transaction(side: &mut Side, steps: &mut impl Iterator<Item = Step>) -> Option<Step> {
    let db = side.db.as_ref().unwrap();
    let mut model = side.committed.clone();
    let mut tx = db.begin().unwrap();
    let end = loop {
        match steps.next() {
            Some(Step::Append { run, rows, bytes }) => {
                for i in 0..rows {
                    side.newest[usize::from(run)] += 2;
                    let (key, row) = (key(run, side.newest[usize::from(run)]), vec![i; usize::from(bytes)]);
                    tx.insert(&EVENTS, &key, &row).unwrap();
                    model.insert(key, row);
                }
            }
            Some(Step::AppendRun { run, rows, bytes }) => {
                let mut batch = Vec::new();
                for i in 0..rows {
                    side.newest[usize::from(run)] += 2;
                    batch.push((key(run, side.newest[usize::from(run)]), vec![i; usize::from(bytes)]));
                }
                let keys: Vec<[u8; 8]> = batch.iter().map(|(key, _)| key.to_be_bytes()).collect();
                let rows: Vec<_> = keys.iter().zip(&batch).map(|(key, (_, row))| (&key[..], &row[..])).collect();
                tx.raw_mut().insert_run(&EVENTS, &rows).unwrap();
                model.extend(batch);
            }
            Some(Step::Between { run, at }) => {
                let key = key(run, u64::from(at));
                match tx.insert(&EVENTS, &key, &vec![7; 30]) {
                    Ok(()) => assert!(model.insert(key, vec![7; 30]).is_none(), "{key:#x} was there"),
                    Err(TxnError::DuplicateKey { .. }) => assert!(model.contains_key(&key), "{key:#x} was not there"),
                    Err(e) => panic!("{e}"),
                }
                // The run continues above this row.
                side.newest[usize::from(run)] = side.newest[usize::from(run)].max(u64::from(at));
            }
            Some(Step::Delete { run, at }) => {
                let key = key(run, u64::from(at));
                assert_eq!(tx.delete(&EVENTS, &key).unwrap(), model.remove(&key).is_some());
            }
            Some(Step::Clear { run }) => {
                let keys: Vec<u64> = model.range(key(run, 0)..key(run + 1, 0)).map(|(key, _)| *key).collect();
                for key in keys {
                    assert!(tx.delete(&EVENTS, &key).unwrap());
                    model.remove(&key);
                }
            }
            end => break end,
        }
    };
    if matches!(end, Some(Step::Rollback)) {
        tx.rollback().unwrap();
    } else {
        tx.commit().unwrap();
        side.committed = model;
    }
    end
}

fn same(side: &Side) {
    let db = side.db.as_ref().unwrap();
    let tx = db.begin().unwrap();
    let found: Vec<(u64, Vec<u8>)> = tx.range(&EVENTS, ..).unwrap().map(Result::unwrap).collect();
    let expected: Vec<(u64, Vec<u8>)> = side.committed.iter().map(|(key, row)| (*key, row.clone())).collect();
    assert!(found == expected, "{} rows, {} expected", found.len(), expected.len());
    // Read by key: a search misses a row that is in a wrong leaf.
    for (key, row) in &side.committed {
        assert_eq!(tx.get(&EVENTS, key).unwrap().as_ref(), Some(row), "{key:#x}");
    }
    tx.commit().unwrap();
    let report = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(report.passed(), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_go_where_they_belong(steps in prop::collection::vec(step(), 1..160), plain in any::<bool>()) {
        let latches = if plain { LatchKind::Plain } else { LatchKind::Optimistic };
        let mut sides = [(); 2].map(|()| {
            let disk = Arc::new(MemDisk::new());
            let db = Some(open(&disk, latches));
            Side { disk, db, committed: Model::new(), newest: [0; 6] }
        });
        let (mut at, mut steps) = (0, steps.into_iter());
        loop {
            match transaction(&mut sides[at], &mut steps) {
                Some(Step::Other) => at = 1 - at,
                Some(Step::Reopen) => {
                    let side = &mut sides[at];
                    side.db.take().unwrap().close().unwrap();
                    side.db = Some(open(&side.disk, latches));
                }
                Some(_) => {}
                None => break,
            }
        }
        sides.iter().for_each(same);
    }
}
