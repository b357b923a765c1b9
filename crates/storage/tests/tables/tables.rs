//! Operations on many rows or whole tables: range deletes, counts, drops, truncations, sizes; with crashes at every
//! step.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{ByHead, NUMBERS, ROWS, Rng, StopAtEnd, StopOnPanic, on, small};
use storage::disk::{Call, Crash, Fault, MemDisk, SimDisk, When};
use storage::{Database, Options, StorageError, Table, TxnError};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(db: &Database) -> Model {
    let tx = db.begin().unwrap();
    let rows: Model = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
    let indexed = tx.range_by::<ByHead>(&ROWS, ..).unwrap().count();
    assert_eq!(indexed, rows.values().filter(|row| !row.is_empty()).count(), "index and rows differ");
    rows
}

fn is_whole(db: &Database) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
    db.verify_pages().unwrap();
}

/// Returns a long key, so that a few hundred rows make three levels.
fn key(n: u64) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(380, 7);
    key
}

fn fill(db: &Database, rows: u64, seed: u64) -> Model {
    let mut rng = Rng::new(seed);
    let model: Model = (0..rows).map(|n| (key(n), rng.bytes(900))).collect();
    for part in model.iter().collect::<Vec<_>>().chunks(40) {
        db.transact(|tx| part.iter().try_for_each(|(key, row)| tx.put(&ROWS, key, row))).unwrap();
    }
    model
}

#[test]
fn ranges_are_counted_and_deleted_as_in_a_model() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let db = crate::common::open(&disk);
        let mut rng = Rng::new(seed);
        let mut model = Model::new();
        for _ in 0..30 {
            let mut next = model.clone();
            let mut tx = db.begin().unwrap();
            for _ in 0..rng.below(60) {
                let (n, size) = (rng.below(300), rng.below(40) as usize);
                let row = rng.bytes(size);
                tx.put(&ROWS, n.to_be_bytes().as_ref(), &row).unwrap();
                next.insert(n.to_be_bytes().to_vec(), row);
            }
            let bound = |rng: &mut Rng| {
                let key = rng.below(300).to_be_bytes().to_vec();
                [Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded][rng.below(3) as usize].clone()
            };
            let range = (bound(&mut rng), bound(&mut rng));
            let is_in = |key: &Vec<u8>| std::ops::RangeBounds::contains(&range, key);
            let there = next.keys().filter(|key| is_in(key)).count() as u64;
            assert_eq!(tx.count(&ROWS, range.clone()).unwrap(), there, "seed {seed}: {range:?}");
            if rng.once_in(2) {
                assert_eq!(tx.delete_range(&ROWS, range.clone()).unwrap(), there, "seed {seed}: {range:?}");
                next.retain(|key, _| !is_in(key));
                assert_eq!(tx.count(&ROWS, range.clone()).unwrap(), 0);
            }
            assert_eq!(tx.count(&ROWS, ..).unwrap(), next.len() as u64);
            if rng.once_in(3) {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
                model = next;
            }
        }
        assert!(contents(&db) == model, "seed {seed}");
        is_whole(&db);
        assert_eq!(db.begin().unwrap().count(&NUMBERS, ..).unwrap(), 0, "of a table that does not exist");
    }
}

#[test]
fn a_range_delete_that_meets_an_error_leaves_all_rows() {
    let mut failed = 0;
    for n in 1..40 {
        let disk = SimDisk::new(n);
        let db = crate::common::open(&disk);
        let mut model = fill(&db, 700, n);
        let mut tx = db.begin().unwrap();
        tx.put(&ROWS, &[1], &vec![2]).unwrap();
        model.insert(vec![1], vec![2]);
        disk.plan(Some(Call::Read), When::Once(n * 3), Fault::Eio);
        if let Err(error) = tx.delete_range(&ROWS, key(100)..key(600)) {
            assert!(matches!(error, TxnError::Storage(StorageError::Io { .. })), "{error}");
            failed += 1;
        } else {
            model.retain(|k, _| *k < key(100) || *k >= key(600));
        }
        disk.heal();
        tx.commit().unwrap();
        assert!(contents(&db) == model, "read {n}");
        is_whole(&db);
    }
    assert!(failed > 10, "it failed {failed} times");
}

#[test]
fn a_table_is_dropped_and_its_pages_are_used_again() {
    let disk = SimDisk::new(1);
    let db = crate::common::open(&disk);
    let handle = db.table(&ROWS).unwrap();
    db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    for round in 0..4 {
        fill(&db, 300, round);
        let sizes = db.sizes().unwrap();
        let rows = sizes.tables.iter().find(|table| table.name == "rows").unwrap();
        assert!(rows.rows > 300 * 900 && rows.indexes[0].1 >= 8192 && sizes.log > 0, "{sizes:?}");
        assert!(db.drop_table("rows").unwrap());
        assert!(!db.drop_table("rows").unwrap(), "twice");
        is_whole(&db);
        assert_eq!(db.table_names(), ["numbers"]);
        assert_eq!(contents(&db), Model::new());
        if round > 0 {
            assert!(sizes.data_file <= 8192 * 1200, "round {round}: {} bytes", sizes.data_file);
        }
        let mut tx = db.begin().unwrap();
        let error = tx.put(&handle, &[1], &vec![1]).unwrap_err();
        assert!(matches!(error, TxnError::Dropped { .. }), "{error}");
        assert!(matches!(tx.get(&handle, &[1]), Err(TxnError::Ended)));
        assert!(tx.commit().is_err());
        let tx = db.begin().unwrap();
        assert!(matches!(tx.get(&handle, &[1]), Err(TxnError::Dropped { .. })));
        drop(tx);
        assert!(matches!(db.bulk_load(&handle), Err(TxnError::Dropped { .. })));
    }
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(1));
    db.close().unwrap();
    let db = crate::common::open(&disk);
    is_whole(&db);
    assert_eq!(db.table_names(), ["numbers"]);
}

#[test]
fn a_table_is_emptied_and_handles_stay_good() {
    let disk = SimDisk::new(2);
    let db = crate::common::open(&disk);
    let handle = db.table(&ROWS).unwrap();
    assert!(!db.truncate("numbers").unwrap());
    for (round, rows) in [300, 3, 0, 120].into_iter().enumerate() {
        let model = fill(&db, rows, round as u64);
        assert!(contents(&db) == model, "round {round}");
        assert!(db.truncate("rows").unwrap());
        assert_eq!(contents(&db), Model::new());
        is_whole(&db);
        db.transact(|tx| tx.put(&handle, &[1], &vec![1])).unwrap();
        assert_eq!(db.transact(|tx| tx.delete_range(&handle, ..)).unwrap(), 1);
        assert_eq!(db.begin().unwrap().count(&handle, ..).unwrap(), 0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Drop,
    Empty,
}

fn act(db: &Database, what: What) -> Result<bool, TxnError> {
    match what {
        What::Drop => db.drop_table("rows"),
        What::Empty => db.truncate("rows"),
    }
}

/// Power loss after each call of the disk, and again in the restart that completes the work: all of the table is there,
/// or nothing.
fn crashes(what: What) {
    let (mut before, mut after) = (0, 0);
    let mut calls = 0;
    loop {
        // Each of the first calls, and ever fewer of the later ones.
        calls += 1 + calls / 12;
        assert!(calls < 20_000, "it never ends");
        let disk = SimDisk::new(calls);
        let db = crate::common::open(&disk);
        let model = fill(&db, 900, calls);
        db.transact(|tx| tx.put(&NUMBERS, &1, &7)).unwrap();
        // A transaction that the restart must roll back, in another table.
        let mut open = db.begin().unwrap();
        open.put(&NUMBERS, &2, &9).unwrap();
        disk.power_off_after(calls);
        let result = act(&db, what);
        let how = [Crash::All, Crash::Nothing, Crash::Random(calls), Crash::Random(!calls)][calls as usize % 4];
        let mut disk = disk.crash(how);
        std::mem::forget(open);
        std::mem::forget(db);
        let mut rng = Rng::new(calls);
        for _ in 0..rng.below(3) {
            disk.power_off_after(1 + rng.below(60));
            if let Ok(open) = small().open_on(on(&disk)) {
                std::mem::forget(open);
            }
            disk = disk.crash(Crash::Random(rng.next()));
        }
        let db = crate::common::open(&disk);
        is_whole(&db);
        let found = contents(&db);
        assert!(found.is_empty() || found == model, "{what:?} after {calls} calls: {} rows", found.len());
        assert!(result.is_err() || found.is_empty(), "{what:?} after {calls} calls: it had been done");
        let is_there = db.table_names().contains(&"rows".to_owned());
        assert_eq!(is_there, what == What::Empty || !found.is_empty(), "{what:?} after {calls} calls");
        assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(7));
        assert_eq!(db.begin().unwrap().get(&NUMBERS, &2).unwrap(), None);
        if found.is_empty() {
            after += 1
        } else {
            before += 1
        }
        // The database stays usable.
        let model = fill(&db, 30, 5);
        act(&db, what).unwrap();
        assert!(contents(&db) != model);
        is_whole(&db);
        if result.is_ok() {
            break;
        }
    }
    assert!(before > 0 && after > 12, "before the decision {before}, behind it {after}");
}

#[test]
fn a_crash_leaves_all_of_a_table_that_is_dropped_or_nothing() {
    crashes(What::Drop);
}

#[test]
fn a_crash_leaves_all_rows_of_a_table_that_is_emptied_or_none() {
    crashes(What::Empty);
}

/// A transaction that waits for a table gets an error if the table is dropped. A transaction that names the table then
/// finds none, and creates a new one.
#[test]
fn who_waits_for_a_table_that_is_dropped_is_told() {
    const COUNTS: Table<u64, u64> = Table::new("counts");
    let options = Options::new().buffer_pool(2 << 20).log_segment(256 << 10);
    let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _told = StopAtEnd(&stop);
        let writers: Vec<_> = (0..2u64)
            .map(|worker| {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    let _told = StopOnPanic(stop);
                    let (mut done, mut dropped) = (0u64, 0u64);
                    let mut handle = db.table(&COUNTS).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        let both = db.transact(|tx| {
                            tx.put(&handle, &worker, &done)?;
                            tx.put(&handle, &(10 + worker), &done)
                        });
                        match both {
                            Ok(()) => done += 1,
                            Err(TxnError::Dropped { .. }) => {
                                dropped += 1;
                                handle = db.table(&COUNTS).unwrap();
                            }
                            Err(error) => panic!("{error}"),
                        }
                        let pair = db.transact(|tx| {
                            Ok::<_, TxnError>((tx.get(&COUNTS, &worker)?, tx.get(&COUNTS, &(10 + worker))?))
                        });
                        match pair {
                            Ok((first, second)) => assert_eq!(first, second, "half a transaction"),
                            Err(TxnError::Dropped { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    (done, dropped)
                })
            })
            .collect();
        for round in 0..60 {
            // Waits until both kinds of threads have done some work.
            while db.begin().unwrap().count(&COUNTS, ..).unwrap_or(0) == 0 && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            if round % 3 == 0 {
                db.truncate("counts").unwrap();
            } else {
                db.drop_table("counts").unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            let (done, dropped) = writer.join().unwrap();
            assert!(done > 0 && dropped > 0, "{done} done, {dropped} refused");
        }
    });
    is_whole(&db);
}

#[test]
fn a_full_disk_lets_a_table_be_dropped_later() {
    let disk = SimDisk::new(4);
    let db = crate::common::open(&disk);
    let model = fill(&db, 300, 4);
    disk.set_capacity(disk.used());
    // Inserts rows until the log is full.
    let mut n = 0;
    while db.transact(|tx| tx.put(&NUMBERS, &n, &n)).is_ok() {
        n += 1;
    }
    match db.drop_table("rows") {
        Ok(done) => assert!(done),
        Err(TxnError::Storage(StorageError::NoSpace { .. })) => {
            disk.set_capacity(u64::MAX);
            let found = contents(&db);
            assert!(found == model || found.is_empty());
            db.drop_table("rows").unwrap();
        }
        Err(error) => panic!("{error}"),
    }
    disk.set_capacity(u64::MAX);
    db.close().unwrap();
    let db = crate::common::open(&disk);
    is_whole(&db);
    assert_eq!(contents(&db), Model::new());
}
