//! Keys that share lock names: they may wait for each other, without any other effect.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::Rng;
use storage::disk::MemDisk;
use storage::{Database, Isolation, LatchKind, OpenTable, Options, Table, Transaction, TxnError};

type Raw = OpenTable<storage::Raw, storage::Raw>;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const FIRST: Table<(), ()> = Table::new("first");
const SECOND: Table<(), ()> = Table::new("second");
const INDEXED: Table<(), ()> = Table::new("indexed").with_raw_index("by_tail", false, 8, by_tail);

/// Index function: orders rows by the bytes after the first eight.
fn by_tail(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    row.get(8..).map(|tail| out.extend_from_slice(&tail[..tail.len().min(3)])).is_some()
}

fn options(bits: u32) -> Options {
    Options::new().buffer_pool(8 << 20).log_segment(1 << 20).transactions(8).lock_name_bits(bits)
}

fn tables(db: &Database) -> [Raw; 3] {
    [db.raw_table(&FIRST).unwrap(), db.raw_table(&SECOND).unwrap(), db.raw_table(&INDEXED).unwrap()]
}

/// Returns key number `n`: some keys are short and some long, some have common prefixes.
fn key(n: u64) -> Vec<u8> {
    let mut key = (n as u32 / 16).to_be_bytes().to_vec();
    key.resize(if n.is_multiple_of(5) { 40 } else { 6 }, 7);
    key.extend_from_slice(&(n as u16).to_be_bytes());
    key
}

/// Returns a row of at least eight bytes, so that every row has a counter.
fn row(rng: &mut Rng) -> Vec<u8> {
    let more = [0, 3, 40, 300][rng.below(4) as usize];
    rng.bytes(8 + more)
}

fn count(head: &mut [u8]) {
    let next = u64::from_le_bytes(head[..8].try_into().unwrap()).wrapping_add(1);
    head[..8].copy_from_slice(&next.to_le_bytes());
}

/// Runs a random statement on the table and on a map, and compares the results.
fn statement(tx: &mut Transaction<'_>, table: &Raw, model: &mut Rows, rng: &mut Rng, indexed: bool) {
    let n = rng.below(120);
    let (one, other) = (key(n), key(n + rng.below(12)));
    let key_of = key;
    let (key, to) = if one <= other { (one, other) } else { (other, one) };
    let in_range = |model: &Rows| -> Vec<(Vec<u8>, Vec<u8>)> {
        let range = (Bound::Included(key.clone()), Bound::Included(to.clone()));
        model.range(range).map(|(k, r)| (k.clone(), r.clone())).collect()
    };
    match rng.below(12) {
        0 => {
            let keys: Vec<_> = (0..1 + rng.below(20)).map(|_| key_of(rng.below(120))).collect();
            tx.raw().prefetch(keys.iter().map(|key| (*table, key.as_slice(), 64)));
            tx.raw_mut().prefetch_insert(table, &keys[0]);
        }
        1 | 2 => assert_eq!(tx.raw().read(table, &key, <[u8]>::to_vec).unwrap().as_ref(), model.get(&key), "{key:?}"),
        3 => {
            let row = row(rng);
            match tx.raw_mut().insert(table, &key, &row) {
                Ok(()) => assert!(model.insert(key, row).is_none()),
                Err(TxnError::DuplicateKey { .. }) => assert!(model.contains_key(&key)),
                Err(error) => panic!("{error}"),
            }
        }
        4 => {
            let row = row(rng);
            let done = tx.raw_mut().update(table, &key, |bytes| bytes.clone_from(&row)).unwrap();
            assert_eq!(done.is_some(), model.contains_key(&key));
            model.entry(key).and_modify(|there| *there = row);
        }
        5 => {
            let done = tx.raw_mut().update_head(table, &key, 8, |head, _| count(head)).unwrap();
            assert_eq!(done.is_some(), model.contains_key(&key));
            model.entry(key).and_modify(|row| count(row));
        }
        6 => {
            let keys: Vec<_> = (0..rng.below(40)).map(|_| key_of(rng.below(120))).collect();
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            tx.find_together(rng.below(4) > 0);
            tx.raw_mut().prefetch_along(table, &key, 8);
            let done = tx.raw_mut().update_heads(table, &borrowed, 8, |_, head, _| count(head)).unwrap();
            assert_eq!(done, keys.iter().filter(|key| model.contains_key(*key)).count());
            for key in keys {
                model.entry(key).and_modify(|row| count(row));
            }
        }
        7 => assert_eq!(tx.raw_mut().delete(table, &key).unwrap(), model.remove(&key).is_some()),
        8 => {
            let first = in_range(model).first().map(|(key, _)| key.clone());
            assert_eq!(tx.raw_mut().take_first(table, &key, &to).unwrap(), first);
            first.map(|key| model.remove(&key));
        }
        9 => {
            let mut found = Vec::new();
            let visit = |key: &[u8], row: &[u8]| {
                found.push((key.to_vec(), row.to_vec()));
                ControlFlow::Continue(())
            };
            tx.raw().scan(table, &key, &to, visit).unwrap();
            assert_eq!(found, in_range(model));
        }
        10 if !indexed => {
            let done = tx.raw_mut().update_run(table, &key, &to, |_, row| count(row)).unwrap();
            let there = in_range(model);
            assert_eq!(done, there.len());
            for (key, _) in there {
                model.entry(key).and_modify(|row| count(row));
            }
        }
        _ => {
            let rows: Vec<_> = (0..1 + rng.below(6)).map(|i| (key_of(n + i), row(rng))).collect();
            let mut rows = rows;
            rows.sort();
            let borrowed: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
            match tx.raw_mut().insert_run(table, &borrowed) {
                Ok(()) => rows.into_iter().for_each(|(key, row)| assert!(model.insert(key, row).is_none())),
                Err(TxnError::DuplicateKey { .. }) => assert!(rows.iter().any(|(key, _)| model.contains_key(key))),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Compares every row of the tables and of their indexes with the models.
fn check(db: &Database, tables: &[Raw; 3], models: &[Rows; 3]) {
    let tx = db.begin().unwrap();
    for (table, model) in tables.iter().zip(models) {
        let mut found = Rows::new();
        let visit = |key: &[u8], row: &[u8]| {
            found.insert(key.to_vec(), row.to_vec());
            ControlFlow::Continue(())
        };
        tx.raw().scan(table, &[], &[255; 9], visit).unwrap();
        assert!(found == *model);
    }
    let mut entries = 0;
    let visit = |_: &[u8], key: &[u8]| {
        assert!(models[2].contains_key(key));
        entries += 1;
        ControlFlow::Continue(())
    };
    tx.raw().scan_index(&tables[2], 0, &[], &[255; 9], false, visit).unwrap();
    assert_eq!(entries, models[2].len());
}

#[test]
fn statements_on_keys_that_share_names_do_what_they_do_on_others() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let bits = [0, 1, 3, 6][rng.below(4) as usize];
        let isolation =
            [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted][rng.below(3) as usize];
        let latches = [LatchKind::Optimistic, LatchKind::Plain][rng.below(2) as usize];
        println!("seed {seed}: {bits} bits, {isolation:?}, {latches:?}");
        let escalate_at = [5, 5000][rng.below(2) as usize];
        let options =
            options(bits).isolation(isolation).latches(latches).escalate_at(escalate_at).database_id(seed + 1);
        let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
        let tables = tables(&db);
        let mut models: [Rows; 3] = Default::default();
        for _ in 0..if cfg!(miri) { 2 } else { 30 } {
            let mut tx = db.begin().unwrap();
            let mut after = models.clone();
            for _ in 0..1 + rng.below(60) {
                let at = rng.below(3) as usize;
                statement(&mut tx, &tables[at], &mut after[at], &mut rng, at == 2);
            }
            if rng.once_in(4) {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
                models = after;
            }
            check(&db, &tables, &models);
        }
        db.verify_pages().unwrap();
    }
}

/// Concurrent transfers between accounts in two tables, with occasional lock escalation: every reader reads the same
/// sum.
#[test]
fn transactions_whose_keys_share_names_stay_apart() {
    const ACCOUNTS: u64 = 12;
    for (bits, escalate_at) in [(0, 5000), (2, 4), (1, 3), (61, 4)] {
        let db = options(bits).escalate_at(escalate_at).open_on(Arc::new(MemDisk::new())).unwrap();
        let tables = &tables(&db)[..2];
        let hundred = 100u64.to_le_bytes();
        for table in tables {
            db.transact(|tx| (0..ACCOUNTS).try_for_each(|n| tx.raw_mut().insert(table, &key(n), &hundred))).unwrap();
        }
        let sums = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (db, sums) = (&db, &sums);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for round in 0..if cfg!(miri) { 3 } else { 150 } {
                        let moves: Vec<_> = (0..1 + rng.below(4))
                            .map(|_| [rng.below(2), rng.below(ACCOUNTS), rng.below(2), rng.below(ACCOUNTS)])
                            .collect();
                        let add = |tx: &mut Transaction<'_>, [table, n]: [u64; 2], by: u64| {
                            let change = |row: &mut [u8], _: &[u8]| {
                                let sum = u64::from_le_bytes((*row).try_into().unwrap()).wrapping_add(by);
                                row.copy_from_slice(&sum.to_le_bytes());
                            };
                            tx.raw_mut().update_head(&tables[table as usize], &key(n), 8, change).map(drop)
                        };
                        let moved = db.transact(|tx| {
                            moves.iter().try_for_each(|[from, a, to, b]| {
                                add(tx, [*from, *a], 1u64.wrapping_neg())?;
                                add(tx, [*to, *b], 1)
                            })
                        });
                        assert!(moved.is_ok(), "{moved:?}, {bits} bits, escalation at {escalate_at}");
                        if round % 8 == 0 {
                            let sum = db.transact(|tx| {
                                let mut sum = 0u64;
                                for table in tables {
                                    let visit = |_: &[u8], row: &[u8]| {
                                        sum = sum.wrapping_add(u64::from_le_bytes(row.try_into().unwrap()));
                                        ControlFlow::Continue(())
                                    };
                                    tx.raw().scan(table, &[], &[255; 9], visit)?;
                                }
                                Ok::<_, TxnError>(sum)
                            });
                            let told = format!("{bits} bits, escalation at {escalate_at}");
                            assert_eq!(sum.expect(&told), 2 * 100 * ACCOUNTS, "{told}");
                            sums.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(sums.into_inner() > 0);
    }
}

/// Lock names of one database do not predict those of another, so no client can construct colliding keys.
#[test]
fn names_are_drawn_anew_for_every_database() {
    // With one bit, a key and the end of the table either share a lock name or not: if they do, a reader of the end
    // waits for a writer of the key. The test requires that databases differ in this.
    let shares = |id: u64| {
        let db = options(1).database_id(id).open_on(Arc::new(MemDisk::new())).unwrap();
        let [table, ..] = tables(&db);
        db.transact(|tx| (0..2).try_for_each(|n| tx.raw_mut().insert(&table, &key(n), &[0; 8]))).unwrap();
        let mut writer = db.begin().unwrap();
        writer.raw_mut().update_head(&table, &key(0), 8, |head, _| count(head)).unwrap();
        std::thread::scope(|scope| {
            let (db, table) = (&db, &table);
            // Begun by a separate thread, so that it is not refused as a conflict within this thread.
            let read = scope.spawn(move || db.begin().unwrap().raw().read(table, &key(1), |_| ()).unwrap());
            while db.stats().lock_waits == 0 && !read.is_finished() {
                std::thread::yield_now();
            }
            let waited = db.stats().lock_waits > 0;
            drop(writer);
            assert_eq!(read.join().unwrap(), Some(()));
            waited
        })
    };
    let of_ids: Vec<bool> = (1..=16).map(shares).collect();
    assert!(of_ids.contains(&true) && of_ids.contains(&false), "{of_ids:?}");
    assert_eq!(of_ids, (1..=16).map(shares).collect::<Vec<_>>());
}
