//! Space of deleted rows is reused without any reader passing by.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{NUMBERS, ROWS, Rng, on, open, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, Options, Table, TableLock, TxnError};

const PAGE: u64 = 8192;

/// Steps the services 300 times, with short pauses.
fn settle(db: &Database) {
    for _ in 0..300 {
        db.step().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Returns the total size of the pages of tables.
fn of_tables(db: &Database) -> u64 {
    db.sizes()
        .unwrap()
        .tables
        .iter()
        .map(|table| table.rows + table.indexes.iter().map(|(_, bytes)| bytes).sum::<u64>())
        .sum()
}

fn is_whole(db: &Database) {
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.passed(), "{:?}", structure.findings);
}

#[test]
fn rows_under_growing_keys_leave_nothing_behind() {
    let db = open(&SimDisk::new(1));
    let mut files = Vec::new();
    for round in 0..6_u64 {
        let keys = |part: u64| (0..500).map(move |i| round * 1_000_000 + part * 500 + i);
        for part in 0..8 {
            db.transact(|tx| keys(part).try_for_each(|key| tx.put(&ROWS, key.to_be_bytes().as_slice(), &vec![7; 200])))
                .unwrap();
        }
        for part in 0..8 {
            db.transact(|tx| keys(part).try_for_each(|key| tx.delete(&ROWS, key.to_be_bytes().as_slice()).map(drop)))
                .unwrap();
        }
        settle(&db);
        files.push(db.sizes().unwrap().data_file);
        // Only the roots of the rows and of the index are left.
        assert_eq!(of_tables(&db), 2 * PAGE, "round {round}");
    }
    assert!(files.iter().all(|bytes| *bytes == files[0]), "{files:?}");
    is_whole(&db);
    db.close().unwrap();
}

#[test]
fn entries_of_an_index_whose_rows_change_leave_nothing_behind() {
    let db = open(&SimDisk::new(2));
    let key = |i: u64| i.to_be_bytes().to_vec();
    let row = |i: u64, round: u64| [(round as u16).to_be_bytes().to_vec(), vec![i as u8; 60]].concat();
    db.transact(|tx| (0..2000).try_for_each(|i| tx.put(&ROWS, &key(i), &row(i, 0)))).unwrap();
    settle(&db);
    let once = of_tables(&db);
    for round in 1..12 {
        db.transact(|tx| (0..2000).try_for_each(|i| tx.put(&ROWS, &key(i), &row(i, round)))).unwrap();
        settle(&db);
        assert!(of_tables(&db) < 2 * once, "round {round}: {} of {once}", of_tables(&db));
    }
    is_whole(&db);
}

#[test]
fn rows_that_go_in_any_order_leave_pages_at_least_half_full() {
    let db = open(&SimDisk::new(3));
    let mut rng = Rng::new(3);
    let mut keys: Vec<u64> = (0..6000).collect();
    db.transact(|tx| keys.iter().try_for_each(|key| tx.put(&NUMBERS, key, key))).unwrap();
    settle(&db);
    let full = of_tables(&db);
    for left in [3000_usize, 1000, 300, 60, 1, 0] {
        while keys.len() > left {
            let some: Vec<u64> = (0..(keys.len() - left).min(100))
                .map(|_| keys.swap_remove(rng.below(keys.len() as u64) as usize))
                .collect();
            db.transact(|tx| some.iter().try_for_each(|key| tx.delete(&NUMBERS, key).map(drop))).unwrap();
        }
        settle(&db);
        let share = full * left as u64 / 6000;
        assert!(of_tables(&db) <= (2 * share).max(4 * PAGE), "{left} rows: {} of {full}", of_tables(&db));
        let found: Vec<u64> = db
            .transact(|tx| tx.range(&NUMBERS, ..)?.map(|row| row.map(|row| row.0)).collect::<Result<_, TxnError>>())
            .unwrap();
        keys.sort_unstable();
        assert_eq!(found, keys);
    }
    assert_eq!(of_tables(&db), PAGE);
    is_whole(&db);
}

#[test]
fn what_a_transaction_may_yet_bring_back_stays() {
    for (lock, escalate) in [(false, 5000), (false, 20), (true, 5000)] {
        let db = small().escalate_at(escalate).open_on(on(&SimDisk::new(4))).unwrap();
        db.transact(|tx| (0..400_u64).try_for_each(|key| tx.insert(&NUMBERS, &key, &key))).unwrap();
        let numbers = db.table(&NUMBERS).unwrap();
        let mut tx = db.begin().unwrap();
        if lock {
            tx.lock_table(&numbers, TableLock::Exclusive).unwrap();
        }
        for key in 0..400 {
            assert!(tx.delete(&NUMBERS, &key).unwrap());
        }
        settle(&db);
        tx.rollback().unwrap();
        settle(&db);
        let sum = db
            .transact(|tx| tx.range(&NUMBERS, ..)?.map(|row| row.map(|row| row.1)).sum::<Result<u64, TxnError>>())
            .unwrap();
        assert_eq!(sum, 399 * 400 / 2);
        is_whole(&db);
    }
}

#[test]
fn sizes_tell_what_lives_and_what_is_dead() {
    let db = open(&SimDisk::new(7));
    let key = |i: u64| i.to_be_bytes().to_vec();
    let row = vec![7; 100];
    db.transact(|tx| (0..2000).try_for_each(|i| tx.put(&ROWS, &key(i), &row))).unwrap();
    settle(&db);
    // Bytes of a row with its key, a slot and its version; bytes of an index entry with the row's head, the key and the
    // key again.
    let (of_row, of_entry) = (108 + 16, 2 + 8 + 8 + 16);
    let about = |bytes: u64, rows: u64| {
        let expected = rows * (of_row + of_entry);
        // The common prefix of a page's keys is stored once, and zeros in a key are escaped.
        bytes <= expected * 12 / 10 && bytes >= expected * 8 / 10
    };
    let sizes = db.sizes().unwrap();
    let table = &sizes.tables[0];
    assert!(about(table.live, 2000) && table.dead == 0, "{table:?}");
    assert!(
        sizes.free + table.rows + table.large_values + table.indexes[0].1 + 3 * PAGE == sizes.data_file,
        "{sizes:?}"
    );
    let reader = db.begin().unwrap();
    assert_eq!(reader.range(&ROWS, ..).unwrap().count(), 2000);
    drop(reader);
    let mut tx = db.begin().unwrap();
    for i in 0..500 {
        assert!(tx.delete(&ROWS, &key(i)).unwrap());
    }
    settle(&db);
    let table = db.sizes().unwrap().tables.remove(0);
    assert!(about(table.live, 1500) && about(table.dead, 500), "{table:?}");
    tx.commit().unwrap();
    settle(&db);
    let table = db.sizes().unwrap().tables.remove(0);
    assert!(about(table.live, 1500) && table.dead == 0, "{table:?}");
}

/// A transaction that relies on the absence of a row prevents its insertion, with or without a ghost.
#[test]
fn a_gap_that_is_locked_under_a_ghosts_key_stays_locked() {
    let db = small().lock_timeout(std::time::Duration::from_millis(20)).open_on(on(&SimDisk::new(5))).unwrap();
    db.transact(|tx| (0..100_u64).try_for_each(|key| tx.insert(&NUMBERS, &(10 * key), &key))).unwrap();
    db.transact(|tx| tx.delete(&NUMBERS, &500).map(drop)).unwrap();
    let reader = db.begin().unwrap();
    assert_eq!(reader.range(&NUMBERS, 491..500).unwrap().count(), 0);
    settle(&db);
    let inserted = db.transact(|tx| tx.insert(&NUMBERS, &495, &0));
    assert!(matches!(inserted, Err(TxnError::LockTimeout { .. } | TxnError::OwnTask { .. })), "{inserted:?}");
    drop(reader);
    settle(&db);
    db.transact(|tx| tx.insert(&NUMBERS, &495, &0)).unwrap();
    is_whole(&db);
}

#[test]
fn what_was_left_before_a_restart_is_found() {
    for crash in [false, true] {
        let mut disk = SimDisk::new(6);
        let now = Arc::new(AtomicU64::new(1));
        let options = || small().clock(Arc::clone(&now));
        let db = options().open_on(on(&disk)).unwrap();
        db.transact(|tx| (0..3000_u64).try_for_each(|key| tx.put(&ROWS, key.to_be_bytes().as_slice(), &vec![7; 200])))
            .unwrap();
        db.transact(|tx| (0..3000_u64).try_for_each(|key| tx.delete(&ROWS, key.to_be_bytes().as_slice()).map(drop)))
            .unwrap();
        if crash {
            db.checkpoint().unwrap();
            disk.power_off_after(0);
            drop(db);
            disk = disk.crash(Crash::Random(9));
        } else {
            db.close().unwrap();
        }
        let db = options().open_on(on(&disk)).unwrap();
        // A close purges most of it, and a crash nothing.
        assert_eq!(of_tables(&db) > 50 * PAGE, crash);
        for _ in 0..2000 {
            now.fetch_add(60_000_000, Ordering::Relaxed);
            db.step().unwrap();
        }
        assert_eq!(of_tables(&db), 2 * PAGE, "crash: {crash}");
        is_whole(&db);
    }
}

/// Purging concurrent with writers that insert, delete, revive and roll back in the same places.
#[test]
fn threads_find_their_rows_while_ghosts_go() {
    const THREADS: u64 = 3;
    const SHARED: Table<u64, u64> = Table::new("shared");
    for latches in [storage::LatchKind::Optimistic, storage::LatchKind::Plain, storage::LatchKind::Super] {
        let directory = std::env::temp_dir().join(format!("lockstep-space-{}-{latches:?}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let options = Options::new().buffer_pool(2 << 20).latches(latches).durability(storage::Durability::Async);
        let db = Database::open(&directory, options).unwrap();
        db.table(&SHARED).unwrap();
        std::thread::scope(|scope| {
            for me in 0..THREADS {
                let db = &db;
                scope.spawn(move || {
                    let mut rng = Rng::new(me);
                    let mut mine = std::collections::BTreeSet::new();
                    for _ in 0..600 {
                        let base = rng.below(20_000);
                        let keys: Vec<u64> = (0..rng.below(60)).map(|i| (base + i) * THREADS + me).collect();
                        let rolls_back = rng.once_in(5);
                        let mut after = mine.clone();
                        let result = db.transact(|tx| {
                            after.clone_from(&mine);
                            for key in &keys {
                                if mine.contains(key) {
                                    assert!(tx.delete(&SHARED, key)?, "row {key} is gone");
                                    after.remove(key);
                                } else {
                                    tx.insert(&SHARED, key, &me)?;
                                    after.insert(*key);
                                }
                            }
                            if rolls_back { Err(TxnError::TooManyLocks { table: "none".into() }) } else { Ok(()) }
                        });
                        if result.is_ok() {
                            std::mem::swap(&mut mine, &mut after);
                        } else {
                            assert!(rolls_back, "{result:?}");
                        }
                    }
                    let found: Vec<u64> = db
                        .transact(|tx| {
                            tx.range(&SHARED, ..)?
                                .filter(|row| row.as_ref().map_or(true, |row| row.1 == me))
                                .map(|row| row.map(|row| row.0))
                                .collect::<Result<_, _>>()
                        })
                        .unwrap();
                    assert!(found.iter().eq(mine.iter()), "rows of thread {me}");
                });
            }
        });
        is_whole(&db);
        db.close().unwrap();
        let _ = std::fs::remove_dir_all(&directory);
    }
}

fn all(db: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.transact(|tx| tx.range(&ROWS, ..)?.collect::<Result<_, TxnError>>()).unwrap()
}

/// Returns a database most of whose rows were deleted in random order, and a table created when the file was large.
fn thinned(disk: &SimDisk, rows: u64, seed: u64) -> Database {
    let db = open(disk);
    let mut rng = Rng::new(seed);
    let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    for part in 0..rows / 200 {
        let some = part * 200..(part + 1) * 200;
        db.transact(|tx| some.clone().try_for_each(|i| tx.put(&ROWS, &key(i), &vec![i as u8; 200]))).unwrap();
        db.step().unwrap();
    }
    for part in 0..rows / 200 {
        let some: Vec<u64> = (part * 200..(part + 1) * 200).filter(|_| !rng.once_in(10)).collect();
        db.transact(|tx| some.iter().try_for_each(|i| tx.delete(&ROWS, &key(*i)).map(drop))).unwrap();
        db.step().unwrap();
    }
    db
}

#[test]
fn the_file_gets_as_short_as_what_is_in_it() {
    let disk = SimDisk::new(8);
    let db = thinned(&disk, 30_000, 8);
    let (rows, before) = (all(&db), disk.used());
    let compacted = db.compact().unwrap();
    assert!(compacted.before > 9 << 20 && compacted.after < 3 << 20 && compacted.moved > 50, "{compacted:?}");
    assert_eq!(compacted.after, db.sizes().unwrap().data_file);
    assert!(before - disk.used() > 5 << 20, "{before} bytes of files were {}", disk.used());
    assert!(rows == all(&db));
    is_whole(&db);
    let again = db.compact().unwrap();
    assert_eq!((again.before, again.after), (compacted.after, compacted.after));
    // The database stays usable, and the file can grow again.
    db.transact(|tx| (0..5000_u64).try_for_each(|i| tx.put(&NUMBERS, &i, &i))).unwrap();
    db.close().unwrap();
    let db = open(&disk);
    assert!(rows == all(&db));
    is_whole(&db);
    assert!(db.truncate("rows").unwrap() && db.truncate("numbers").unwrap());
    db.compact().unwrap();
    is_whole(&db);
    db.close().unwrap();
}

#[test]
fn compacting_again_finds_nothing_more() {
    for seed in 0..40 {
        let db = thinned(&SimDisk::new(seed), 3000, seed);
        let compacted = db.compact().unwrap();
        let again = db.compact().unwrap();
        assert_eq!((again.after, again.moved), (compacted.after, 0), "seed {seed}");
    }
}

#[test]
fn a_crash_while_pages_move_or_the_file_is_cut_loses_nothing() {
    let start = SimDisk::new(9);
    let db = thinned(&start, 3000, 8);
    let rows = all(&db);
    settle(&db);
    db.close().unwrap();
    let mut rng = Rng::new(9);
    let (mut whole, mut calls) = (false, 0);
    while !whole {
        let mut disk = start.crash(Crash::Nothing);
        for kill in 0..2 {
            let db = open(&disk);
            disk.power_off_after(if kill == 0 { calls } else { rng.below(60) });
            let compacted = db.compact().is_ok();
            whole |= compacted && kill == 0;
            disk.power_off_after(0);
            drop(db);
            disk = disk.crash(Crash::Random(rng.next()));
        }
        let db = open(&disk);
        assert!(rows == all(&db), "after {calls} calls");
        is_whole(&db);
        db.transact(|tx| (0..500_u64).try_for_each(|i| tx.put(&NUMBERS, &i, &i))).unwrap();
        is_whole(&db);
        db.close().unwrap();
        calls += 1 + rng.below(12);
    }
    assert!(calls > 40, "{calls}");
}

#[test]
fn compacting_beside_writers_and_a_copy() {
    const SHARED: Table<u64, Vec<u8>> = Table::new("shared");
    let directory = std::env::temp_dir().join(format!("lockstep-compact-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let options = || Options::new().buffer_pool(4 << 20).durability(storage::Durability::Async);
    let db = Database::open(directory.join("db"), options()).unwrap();
    for part in 0..100_u64 {
        db.transact(|tx| (0..200).try_for_each(|i| tx.put(&SHARED, &(part * 200 + i), &vec![1; 300]))).unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|me| {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    let mut rng = Rng::new(me);
                    let mut model = std::collections::BTreeMap::new();
                    while !stop.load(Ordering::Relaxed) {
                        let keys: Vec<u64> = (0..50).map(|_| 2 * rng.below(10_000) + me).collect();
                        let bytes = 20 + rng.below(600) as usize;
                        let deletes = rng.once_in(2);
                        db.transact(|tx| {
                            keys.iter().try_for_each(|key| match deletes {
                                true => tx.delete(&SHARED, key).map(drop),
                                false => tx.put(&SHARED, key, &vec![me as u8; bytes]),
                            })
                        })
                        .unwrap();
                        model.extend(keys.iter().map(|key| (*key, (!deletes).then_some(bytes))));
                    }
                    for (key, row) in model {
                        let found = db.transact(|tx| tx.get(&SHARED, &key)).unwrap();
                        assert_eq!(found.map(|row| row.len()), row, "row {key}");
                    }
                })
            })
            .collect();
        let copier = scope.spawn(|| {
            for n in 0..3 {
                db.copy_to(directory.join(format!("copy-{n}"))).unwrap();
            }
        });
        for _ in 0..6 {
            let compacted = db.compact().unwrap();
            assert!(compacted.after > 0, "{compacted:?}");
        }
        copier.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    is_whole(&db);
    db.close().unwrap();
    for n in 0..3 {
        let copy = Database::open(directory.join(format!("copy-{n}")), options()).unwrap();
        is_whole(&copy);
    }
    let db = Database::open(directory.join("db"), options()).unwrap();
    is_whole(&db);
    drop(db);
    let _ = std::fs::remove_dir_all(&directory);
}

/// The purge service, in its own thread, frees the space of deleted rows, and the next rows use it.
#[test]
fn the_background_frees_the_space_of_rows_that_are_put_and_deleted() {
    let directory = std::env::temp_dir().join(format!("lockstep-frees-space-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let options = Options::new().durability(storage::Durability::Async).checkpoint_every(32 << 20);
    let db = Database::open(&directory, options).unwrap();
    let mut sizes = Vec::new();
    for round in 0..6_u64 {
        for part in 0..10 {
            let keys = (0..2000_u64).map(|i| (round * 1_000_000 + part * 2000 + i).to_be_bytes());
            let row = vec![1; 200];
            db.transact(|tx| keys.clone().try_for_each(|key| tx.put(&ROWS, key.as_slice(), &row))).unwrap();
        }
        for part in 0..10 {
            let keys = (0..2000_u64).map(|i| (round * 1_000_000 + part * 2000 + i).to_be_bytes());
            db.transact(|tx| keys.clone().try_for_each(|key| tx.delete(&ROWS, key.as_slice()).map(drop))).unwrap();
        }
        let patience = std::time::Instant::now();
        while db.sizes().unwrap().tables.iter().any(|table| table.rows > 1 << 20) {
            assert!(patience.elapsed().as_secs() < 60, "round {round}: deleted rows keep their pages");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        sizes.push(db.sizes().unwrap().data_file >> 20);
    }
    assert!(sizes[5] <= 2 * sizes[0], "MiB of the data file after each round: {sizes:?}");
    is_whole(&db);
    db.close().unwrap();
    let _ = std::fs::remove_dir_all(&directory);
}
