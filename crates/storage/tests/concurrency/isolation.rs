//! Guarantees of each isolation level, with threads that use the same rows.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::{ByHead, NUMBERS, ROWS, Rng, StopAtEnd, StopOnPanic, on, small};
use storage::disk::{Call, Fault, MemDisk, SimDisk, When};
use storage::{Database, Durability, Isolation, LatchKind, Options, StorageError, Table, TxnError};

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];
const LATCHES: [LatchKind; 2] = [LatchKind::Optimistic, LatchKind::Plain];
const COUNTERS: Table<u64, u64> = Table::new("counters");

fn open(isolation: Isolation, latches: LatchKind) -> Database {
    let options = Options::new().buffer_pool(4 << 20).log_segment(1 << 20).reruns(10_000).durability(Durability::Async);
    options.isolation(isolation).latches(latches).open_on(Arc::new(MemDisk::new())).unwrap()
}

fn all_levels(f: impl Fn(Isolation, LatchKind)) {
    for isolation in LEVELS {
        for latches in LATCHES {
            f(isolation, latches);
        }
    }
}

/// Minimum number of rounds of writers, and number of reader answers after which writers stop: transactions must
/// overlap, however the system schedules the threads.
const ROUNDS: usize = 800;
const ANSWERS: usize = 3;

/// Transfers between few accounts keep the sum. Under serializable and repeatable read every reader reads this sum too.
#[test]
fn transfers_keep_the_sum() {
    all_levels(|isolation, latches| {
        let db = open(isolation, latches);
        const N: u64 = 12;
        db.transact(|tx| (0..N).try_for_each(|k| tx.put(&NUMBERS, &k, &1000))).unwrap();
        let (stop, sums) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _told = StopAtEnd(&stop);
            let reader = scope.spawn(|| {
                let _told = StopOnPanic(&stop);
                while !stop.load(Ordering::Relaxed) {
                    // A balance may be temporarily negative.
                    let add = |sum: u64, r: Result<(u64, u64), TxnError>| Ok::<_, TxnError>(sum.wrapping_add(r?.1));
                    let sum = db.transact(|tx| tx.range(&NUMBERS, ..)?.try_fold(0, add)).unwrap();
                    if isolation != Isolation::ReadCommitted {
                        assert_eq!(sum, N * 1000, "{isolation:?} {latches:?}");
                    }
                    sums.fetch_add(1, Ordering::Relaxed);
                }
            });
            let writers: Vec<_> = (0..3u64)
                .map(|seed| {
                    let (db, sums, stop) = (&db, &sums, &stop);
                    scope.spawn(move || {
                        let (mut rng, mut round) = (Rng::new(seed), 0);
                        let waits = || sums.load(Ordering::Relaxed) < ANSWERS && !stop.load(Ordering::Relaxed);
                        while round < ROUNDS || waits() {
                            round += 1;
                            let (from, to, n) = (rng.below(N), rng.below(N), rng.below(50));
                            let moved: Result<(), TxnError> = db.transact(|tx| {
                                let a = tx.get_for_update(&NUMBERS, &from)?.unwrap();
                                tx.put(&NUMBERS, &from, &(a.wrapping_sub(n)))?;
                                let b = tx.get_for_update(&NUMBERS, &to)?.unwrap();
                                tx.put(&NUMBERS, &to, &(b.wrapping_add(n)))?;
                                if n == 7 { Err(TxnError::Ended) } else { Ok(()) }
                            });
                            assert!(moved.is_ok() || n == 7);
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        let sum = db.begin().unwrap().range(&NUMBERS, ..).unwrap().fold(0u64, |sum, r| sum.wrapping_add(r.unwrap().1));
        assert_eq!(sum, N * 1000, "{isolation:?} {latches:?}");
    });
}

/// A reader of the start of a range does not block a transaction that appends to the preceding range, for any leaf
/// boundaries.
#[test]
fn a_range_that_was_read_ends_at_its_beginning() {
    for before in 1..16 {
        let db = open(Isolation::Serializable, LatchKind::Optimistic);
        let row = vec![7; 1500];
        let insert = |key: &[u8]| db.transact(|tx| tx.insert(&ROWS, key, &row)).unwrap();
        (0..8).for_each(|n| insert(&[b'b', n]));
        (0..before).for_each(|n| insert(&[b'a', n]));
        std::thread::scope(|scope| {
            let reader = db.begin().unwrap();
            assert!(reader.range(&ROWS, vec![b'b']..).unwrap().next().unwrap().is_ok());
            let waits = db.stats().lock_waits;
            let writer = scope.spawn(|| insert(b"a~"));
            while !writer.is_finished() && db.stats().lock_waits == waits {
                std::thread::yield_now();
            }
            let waits = db.stats().lock_waits > waits;
            drop(reader);
            assert!(!waits, "behind {before} rows");
        });
    }
}

/// Rows are inserted and deleted, and a counter row has their number. Under serializable every count of the range,
/// forward or backward, equals the counter, and so does the number of rows of a cursor.
#[test]
fn a_range_has_no_phantoms_under_serializable() {
    for latches in LATCHES {
        let db = open(Isolation::Serializable, latches);
        db.transact(|tx| tx.put(&COUNTERS, &0, &0)).unwrap();
        db.table(&ROWS).unwrap();
        let (stop, seen) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        std::thread::scope(|scope| {
            let _told = StopAtEnd(&stop);
            let writers: Vec<_> = (0..2u64)
                .map(|seed| {
                    let (db, seen, stop) = (&db, &seen, &stop);
                    scope.spawn(move || {
                        let (mut rng, mut round) = (Rng::new(seed), 0);
                        let answered = || seen.iter().all(|seen| seen.load(Ordering::Relaxed) >= ANSWERS);
                        while round < ROUNDS || !(answered() || stop.load(Ordering::Relaxed)) {
                            round += 1;
                            let key = rng.below(60).to_be_bytes()[6..].to_vec();
                            let row = vec![1; rng.below(1500) as usize];
                            let delete = rng.once_in(2);
                            db.transact(|tx| {
                                // The row is changed before the counter, so that it may appear in a range whose reader
                                // waits for the counter.
                                let change = if delete {
                                    u64::MAX * u64::from(tx.delete(&ROWS, &key)?)
                                } else {
                                    match tx.insert(&ROWS, &key, &row) {
                                        Ok(()) => 1,
                                        Err(TxnError::DuplicateKey { .. }) => 0,
                                        Err(error) => return Err(error),
                                    }
                                };
                                let n = tx.get_for_update(&COUNTERS, &0)?.unwrap();
                                tx.put(&COUNTERS, &0, &n.wrapping_add(change))
                            })
                            .unwrap();
                        }
                    })
                })
                .collect();
            let readers: Vec<_> = (0..2)
                .map(|i| {
                    let (db, stop, seen) = (&db, &stop, &seen);
                    scope.spawn(move || {
                        let _told = StopOnPanic(stop);
                        while !stop.load(Ordering::Relaxed) {
                            let (rows, n) = db
                                .transact(|tx| {
                                    let mut rows = 0;
                                    let mut last = None;
                                    let cursor = tx.range(&ROWS, ..)?;
                                    let mut each = |r: Result<(Vec<u8>, Vec<u8>), TxnError>| {
                                        let key = r?.0;
                                        assert!(last.as_ref() != Some(&key), "twice");
                                        last = Some(key);
                                        rows += 1;
                                        Ok::<_, TxnError>(())
                                    };
                                    if i == 0 {
                                        cursor.into_iter().try_for_each(&mut each)?
                                    } else {
                                        cursor.rev().try_for_each(&mut each)?
                                    }
                                    Ok::<_, TxnError>((rows, tx.get(&COUNTERS, &0)?.unwrap()))
                                })
                                .unwrap();
                            assert_eq!(rows, n, "{latches:?} reader {i}");
                            seen[i].fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}

/// A range is read twice, with an insert into it in between: the levels differ.
#[test]
fn phantoms_and_changes_by_level() {
    all_levels(|isolation, latches| {
        let db = open(isolation, latches);
        db.transact(|tx| (0..10u64).try_for_each(|k| tx.put(&NUMBERS, &(k * 10), &0))).unwrap();
        let (inserted, updated) = (AtomicBool::new(false), AtomicBool::new(false));
        let waits = db.stats().lock_waits;
        let tx = db.begin().unwrap();
        let before: Vec<_> = tx.range(&NUMBERS, 20..=60).unwrap().map(Result::unwrap).collect();
        std::thread::scope(|scope| {
            let done = [(&inserted, 35u64), (&updated, 40)].map(|(done, key)| {
                let db = &db;
                scope.spawn(move || {
                    db.transact(|tx| tx.put(&NUMBERS, &key, &1)).unwrap();
                    done.store(true, Ordering::Release);
                })
            });
            // Waits until each statement has ended or waits for a lock.
            let ended = || usize::from(inserted.load(Ordering::Acquire)) + usize::from(updated.load(Ordering::Acquire));
            while ended() as u64 + (db.stats().lock_waits - waits) < 2 {
                std::thread::yield_now();
            }
            assert_eq!(inserted.load(Ordering::Acquire), isolation != Isolation::Serializable, "{isolation:?}");
            assert_eq!(updated.load(Ordering::Acquire), isolation == Isolation::ReadCommitted, "{isolation:?}");
            let after: Vec<_> = tx.range(&NUMBERS, 20..=60).unwrap().map(Result::unwrap).collect();
            match isolation {
                Isolation::Serializable => assert_eq!(before, after),
                Isolation::RepeatableRead => {
                    assert_eq!(after.iter().filter(|r| before.contains(r)).count(), before.len())
                }
                Isolation::ReadCommitted => assert!(after.contains(&(40, 1)) && after.contains(&(35, 1))),
            }
            tx.commit().unwrap();
            for thread in done {
                thread.join().unwrap();
            }
        });
    });
}

/// Write skew: two rows, each set by a transaction that read the other as unset. Read locks (serializable, repeatable
/// read) prevent it for existing rows; under read committed it happens.
#[test]
fn write_skew_by_level() {
    all_levels(|isolation, latches| {
        let db = open(isolation, latches);
        db.transact(|tx| {
            tx.put(&NUMBERS, &0, &0)?;
            tx.put(&NUMBERS, &1, &0)
        })
        .unwrap();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for mine in [0u64, 1] {
                let (db, barrier) = (&db, &barrier);
                scope.spawn(move || {
                    let mut first = true;
                    db.transact(|tx| {
                        let other = tx.get(&NUMBERS, &(1 - mine))?.unwrap();
                        if std::mem::take(&mut first) {
                            barrier.wait();
                        }
                        if other == 0 {
                            tx.put(&NUMBERS, &mine, &1)?;
                        }
                        Ok::<_, TxnError>(())
                    })
                    .unwrap();
                });
            }
        });
        let sum: u64 = db.begin().unwrap().range(&NUMBERS, ..).unwrap().map(|r| r.unwrap().1).sum();
        assert_eq!(sum, if isolation == Isolation::ReadCommitted { 2 } else { 1 }, "{isolation:?} {latches:?}");
    });
}

/// The same with rows that do not exist yet: only serializable locks absent rows.
#[test]
fn write_skew_on_absent_rows_by_level() {
    all_levels(|isolation, latches| {
        let db = open(isolation, latches);
        db.table(&NUMBERS).unwrap();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for mine in [1u64, 2] {
                let (db, barrier) = (&db, &barrier);
                scope.spawn(move || {
                    let mut first = true;
                    db.transact(|tx| {
                        let other = tx.get(&NUMBERS, &(3 - mine))?;
                        if std::mem::take(&mut first) {
                            barrier.wait();
                        }
                        if other.is_none() {
                            tx.insert(&NUMBERS, &mine, &1)?;
                        }
                        Ok::<_, TxnError>(())
                    })
                    .unwrap();
                });
            }
        });
        let n = db.begin().unwrap().range(&NUMBERS, ..).unwrap().count();
        assert_eq!(n, if isolation == Isolation::Serializable { 1 } else { 2 }, "{isolation:?} {latches:?}");
    });
}

/// Increments read for update are never lost, at any level.
#[test]
fn no_update_is_lost_that_was_read_for_update() {
    all_levels(|isolation, latches| {
        let db = open(isolation, latches);
        db.transact(|tx| tx.put(&NUMBERS, &1, &0)).unwrap();
        let runs = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        db.transact(|tx| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            let n = tx.get_for_update(&NUMBERS, &1)?.unwrap();
                            tx.put(&NUMBERS, &1, &(n + 1))
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(2000), "{isolation:?} {latches:?}");
        assert_eq!(runs.into_inner(), 2000, "update locks wait for each other without deadlocks");
    });
}

/// A transaction is rolled back after other transactions have moved its rows to other leaves.
#[test]
fn rollback_finds_rows_that_splits_have_moved() {
    for latches in LATCHES {
        let db = open(Isolation::RepeatableRead, latches);
        db.transact(|tx| (0..20u16).try_for_each(|k| tx.put(&ROWS, (k * 100).to_be_bytes().as_ref(), &vec![1; 300])))
            .unwrap();
        let mut tx = db.begin().unwrap();
        for k in 0..20u16 {
            let key = (k * 100).to_be_bytes().to_vec();
            match k % 4 {
                0 => drop(tx.delete(&ROWS, &key).unwrap()),
                // Shrinks the row, so that undo needs space again.
                1 => tx.put(&ROWS, &key, &vec![2; 3]).unwrap(),
                2 => tx.put(&ROWS, &key, &vec![2; 300]).unwrap(),
                _ => tx.insert(&ROWS, (k * 100 + 50).to_be_bytes().as_ref(), &vec![3; 100]).unwrap(),
            }
        }
        std::thread::scope(|scope| {
            for thread in 0..3u16 {
                let db = &db;
                scope.spawn(move || {
                    for k in (0..2000u16).filter(|k| k % 3 == thread && k % 50 != 0) {
                        db.transact(|tx| tx.insert(&ROWS, k.to_be_bytes().as_ref(), &vec![4; 200])).unwrap();
                    }
                });
            }
        });
        tx.rollback().unwrap();
        let tx = db.begin().unwrap();
        let rows: Vec<_> = tx.range(&ROWS, ..).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 20 + 1960);
        for (key, row) in rows {
            let k = u16::from_be_bytes([key[0], key[1]]);
            assert_eq!(row, if k % 100 == 0 { vec![1; 300] } else { vec![4; 200] }, "{k}");
        }
    }
}

/// A cursor over an index fetches entries ahead of the rows that it returns. Under read committed the index key of such
/// a row may change in between: then the row is not in the range and must not be returned.
#[test]
fn a_row_that_has_left_the_range_of_an_index_is_not_shown() {
    for latches in LATCHES {
        let db = open(Isolation::ReadCommitted, latches);
        let key = |n: u8| vec![n];
        db.transact(|tx| (1..=6).try_for_each(|n| tx.put(&ROWS, &key(n), &b"aa".to_vec()))).unwrap();
        for backward in [false, true] {
            let tx = db.begin().unwrap();
            let range = b"aa".to_vec()..=b"aa".to_vec();
            let mut cursor = tx.range_by::<ByHead>(&ROWS, range).unwrap();
            let mut next = || if backward { cursor.next_back() } else { cursor.next() };
            let first = next().unwrap().unwrap().0;
            assert_eq!(first, key(if backward { 6 } else { 1 }));
            db.transact(|tx| {
                tx.put(&ROWS, &key(2), &b"bb".to_vec())?;
                tx.put(&ROWS, &key(3), &b"aa and more".to_vec())?;
                tx.delete(&ROWS, &key(4))?;
                tx.put(&ROWS, &key(5), &Vec::new())
            })
            .unwrap();
            let mut rest: Vec<_> = std::iter::from_fn(next).map(Result::unwrap).collect();
            rest.sort();
            let last = (key(if backward { 1 } else { 6 }), b"aa".to_vec());
            let mut want = vec![(key(3), b"aa and more".to_vec()), last];
            want.sort();
            assert_eq!(rest, want, "{latches:?}");
            drop(tx);
            db.transact(|tx| (1..=6).try_for_each(|n| tx.put(&ROWS, &key(n), &b"aa".to_vec()))).unwrap();
        }
    }
}

/// A deadlock victim whose closure hides the error had no effect: it runs again all the same.
#[test]
fn a_victim_that_hides_it_is_run_again() {
    let db = open(Isolation::Serializable, LatchKind::Optimistic);
    db.transact(|tx| (0..2u64).try_for_each(|k| tx.put(&NUMBERS, &k, &0))).unwrap();
    let (older_has_begun, both_hold) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let older = scope.spawn(|| {
            let mut first = true;
            db.transact(|tx| {
                tx.put(&NUMBERS, &0, &1)?;
                if std::mem::take(&mut first) {
                    older_has_begun.wait();
                    both_hold.wait();
                }
                tx.put(&NUMBERS, &1, &1)
            })
        });
        let younger = scope.spawn(|| {
            older_has_begun.wait();
            let mut runs = 0;
            let ended: Result<(), TxnError> = db.transact(|tx| {
                tx.put(&NUMBERS, &1, &2)?;
                runs += 1;
                if runs == 1 {
                    both_hold.wait();
                }
                let _ = tx.put(&NUMBERS, &0, &2);
                Ok(())
            });
            (ended, runs)
        });
        older.join().unwrap().unwrap();
        let (ended, runs) = younger.join().unwrap();
        ended.unwrap();
        assert_eq!(runs, 2);
    });
    let rows: Vec<_> = db.begin().unwrap().range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [(0, 2), (1, 2)]);
}

/// A rollback that cannot read the log leaves rows of an uncommitted transaction in memory and releases its locks. No
/// reader may commit after reading such rows, not even a read-only one.
#[test]
fn what_a_failed_rollback_leaves_is_never_read() {
    for level in LEVELS {
        let disk = SimDisk::new(13);
        // The pages stay in memory; only the log cannot be read.
        let settings = || small().buffer_pool(8 << 20).log_buffer(512 << 10);
        let db = settings().open_on(on(&disk)).unwrap();
        db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
        let early = db.begin_at(level).unwrap();
        assert_eq!(early.get(&NUMBERS, &2).unwrap(), None);
        let mut tx = db.begin().unwrap();
        tx.put(&NUMBERS, &1, &2).unwrap();
        // More bytes than the log keeps in memory.
        for key in 0..250u64 {
            tx.put(&ROWS, &key.to_be_bytes(), &vec![7; 3_000]).unwrap();
        }
        disk.plan(Some(Call::Read), When::From(1), Fault::Eio);
        assert!(matches!(tx.rollback(), Err(TxnError::Storage(StorageError::Io { .. }))), "{level:?}");
        disk.heal();
        // The commit does not wait for the log, which makes no progress any more.
        let read = || -> Result<Option<u64>, TxnError> {
            let tx = db.begin_at(level)?;
            let found = tx.get(&NUMBERS, &1)?;
            tx.commit_async()?;
            Ok(found)
        };
        let later = read();
        assert!(matches!(later, Err(TxnError::Storage(StorageError::Poisoned { .. }))), "{level:?}: {later:?}");
        let told = early.commit_async();
        assert!(matches!(told, Err(TxnError::Storage(StorageError::Poisoned { .. }))), "{level:?}: {told:?}");
        drop(db);
        let db = settings().open_on(on(&disk)).unwrap();
        assert_eq!(db.transact(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(1), "{level:?}");
    }
}
