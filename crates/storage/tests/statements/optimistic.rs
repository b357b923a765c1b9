//! Optimistic reads: rows are read without locks, and later locked at their cached positions.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Rng, StopAtEnd};
use storage::disk::{Crash, MemDisk, SimDisk};
use storage::optimistic::{Peeker, Place};
use storage::{Database, LatchKind, OpenTable, Options, Raw, Table, TxnError};

const PLAIN: Table<(), ()> = Table::new("plain");
const INDEXED: Table<(), ()> = Table::new("indexed").with_raw_index("by_last", false, 0, by_last);

fn by_last(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    row.last().map(|last| out.push(*last)).is_some()
}

fn options() -> Options {
    Options::new().buffer_pool(8 << 20).log_segment(1 << 20).transactions(8)
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

type Handle = OpenTable<Raw, Raw>;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Columns of a row that were read some time ago.
struct Old {
    key: [u8; 8],
    place: Place,
    columns: Vec<Range<usize>>,
    row: Option<Vec<u8>>,
}

#[expect(clippy::single_range_in_vec_init, reason = "a list of one part")]
fn whole() -> Vec<Range<usize>> {
    vec![0..usize::MAX]
}

/// Returns the range of the whole row, or some ranges, which may lie beyond its end.
fn some_columns(rng: &mut Rng) -> Vec<Range<usize>> {
    if rng.once_in(3) {
        return whole();
    }
    let mut part = || {
        let from = rng.below(200) as usize;
        from..if rng.once_in(5) { usize::MAX } else { from + rng.below(40) as usize }
    };
    let first = part();
    if first.start.is_multiple_of(2) { vec![first] } else { vec![first, part()] }
}

/// Returns these parts of a row, concatenated, up to the first that the row does not have.
fn parts(row: &[u8], columns: &[Range<usize>]) -> Vec<u8> {
    let of = |part: &Range<usize>| row.get(part.start..if part.end == usize::MAX { row.len() } else { part.end });
    columns.iter().map_while(of).flatten().copied().collect()
}

fn all(db: &Database, table: &Handle) -> Rows {
    let mut rows = Rows::new();
    let tx = db.begin().unwrap();
    tx.raw()
        .scan(table, &[], &[0xFF; 9], |key, row| {
            rows.insert(key.to_vec(), row.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

/// Cached positions of any age: in between, leaves were split, merged and replaced by other pages.
#[test]
fn what_is_confirmed_is_what_is_there() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let options = options().buffer_pool(1 << 20).lock_name_bits(if seed % 3 == 0 { 6 } else { 61 });
        let latches = if seed % 2 == 0 { LatchKind::Optimistic } else { LatchKind::Plain };
        let db = options.latches(latches).open_on(Arc::new(MemDisk::new())).unwrap();
        let tables = [db.raw_table(&PLAIN).unwrap(), db.raw_table(&INDEXED).unwrap()];
        let table = &tables[seed as usize % 2];
        let (mut rows, mut peeker, mut old) = (Rows::new(), Peeker::default(), Vec::<Old>::new());
        for _ in 0..600 {
            let mut tx = db.begin().unwrap();
            let before = rows.clone();
            for _ in 0..rng.below(30) {
                let key = key(rng.below(600));
                if rng.once_in(3) {
                    assert_eq!(tx.raw_mut().delete(table, &key).unwrap(), rows.remove(&key[..]).is_some());
                } else {
                    let len = rng.below(300) as usize + 1;
                    let row = rng.bytes(len);
                    tx.raw_mut().put(table, &key, &row).unwrap();
                    rows.insert(key.to_vec(), row);
                }
            }
            // Rows that were read are replaced, if they are unchanged.
            let mut seen = Vec::new();
            while !old.is_empty() && !rng.once_in(12) {
                let Old { key, mut place, columns, row } = old.swap_remove(rng.below(old.len() as u64) as usize);
                let to_write = rng.once_in(2);
                if rng.once_in(10)
                    && let Some(other) = old.last()
                {
                    // The position of another key costs a search.
                    place = other.place;
                }
                let same =
                    tx.raw_mut().confirm_columns(table, &key, &place, (&columns, row.as_deref()), to_write).unwrap();
                assert_eq!(same, rows.get(&key[..]).map(|row| parts(row, &columns)) == row, "{key:?} {columns:?}");
                let new = rows.get(&key[..]).map_or_else(|| b"absent".to_vec(), |row| rng.bytes(row.len()));
                // Sometimes another length, and sometimes the same key twice.
                let new = if rng.once_in(6) { rng.bytes(20) } else { new };
                seen.push((key, place, new.clone()));
                if rng.once_in(8) {
                    seen.push((key, place, new.iter().rev().copied().collect()));
                }
            }
            let found = seen.iter().filter(|(key, ..)| rows.contains_key(&key[..])).count();
            let written = seen.iter().map(|(key, place, row)| (&key[..], *place, &row[..]));
            assert_eq!(tx.raw_mut().replace_many(table, written).unwrap(), found);
            for (key, _, row) in seen {
                rows.entry(key.to_vec()).and_modify(|old| *old = row);
            }
            if rng.once_in(4) {
                tx.rollback().unwrap();
                rows = before;
            } else {
                tx.commit_async().unwrap();
            }
            let keys: Vec<[u8; 8]> = (0..rng.below(40)).map(|_| key(rng.below(600))).collect();
            if rng.once_in(2) {
                db.raw().announce(&mut peeker, keys.iter().map(|key| (*table, &key[..], 64)));
            }
            for key in keys {
                let (row, _) = db.raw().peek(&mut peeker, table, &key).unwrap();
                assert_eq!(row, rows.get(&key[..]).map(|row| &row[..]));
                let columns = some_columns(&mut rng);
                let (row, place) = db.raw().peek_columns(&mut peeker, table, &key, &columns).unwrap();
                let row = row.map(<[u8]>::to_vec);
                assert_eq!(row, rows.get(&key[..]).map(|row| parts(row, &columns)), "{key:?} {columns:?}");
                old.push(Old { key, place, columns, row });
            }
            let (from, to) = (key(rng.below(600)), key(rng.below(600)));
            let mut ranged = Vec::new();
            let most = rng.below(200) as usize;
            db.raw()
                .peek_range(&mut peeker, table, (&from, &to), most + 1, |key, row, place| {
                    ranged.push((key.to_vec(), row.to_vec()));
                    old.push(Old { key: key.try_into().unwrap(), place, columns: whole(), row: Some(row.to_vec()) });
                    ControlFlow::Continue(())
                })
                .unwrap();
            let bounds = (Bound::Included(from.to_vec()), Bound::Included(to.to_vec()));
            let expected: Vec<_> = if from > to {
                Vec::new()
            } else {
                rows.range(bounds).take(most + 1).map(|(key, row)| (key.clone(), row.clone())).collect()
            };
            assert_eq!(ranged, expected);
        }
        assert_eq!(all(&db, table), rows);
        assert!(db.check_structure(|_, _| ControlFlow::Continue(())).unwrap().passed());
    }
}

/// A row, an absent key in a gap, and a row for writing: none of them changes until the transaction ends.
#[test]
fn what_is_confirmed_stays() {
    let db = options().open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.raw_table(&PLAIN).unwrap();
    db.transact(|tx| (0..9).step_by(2).try_for_each(|n| tx.raw_mut().insert(&table, &key(n), b"row"))).unwrap();
    let mut peeker = Peeker::default();
    let mut seen = |n| {
        let (row, place) = db.raw().peek(&mut peeker, &table, &key(n)).unwrap();
        (place, row.map(<[u8]>::to_vec))
    };
    let (two, three, six) = (seen(2), seen(3), seen(6));
    let mut tx = db.begin().unwrap();
    for (n, (place, row), to_write) in [(2, &two, false), (3, &three, false), (6, &six, true)] {
        assert!(tx.raw_mut().confirm(&table, &key(n), place, row.as_deref(), to_write).unwrap());
    }
    // With the position of another key, the given key is locked.
    assert!(tx.raw_mut().confirm(&table, &key(8), &two.0, Some(b"row"), true).unwrap());
    let mut other = db.begin().unwrap();
    let waits = |result: Result<_, TxnError>| matches!(result, Err(TxnError::OwnTask { .. }));
    assert_eq!(other.raw().read(&table, &key(2), |_| ()).unwrap(), Some(()), "a reader shares");
    assert!(waits(other.raw_mut().put(&table, &key(2), b"new")));
    assert!(waits(other.raw_mut().insert(&table, &key(3), b"new")));
    assert!(waits(other.raw().read(&table, &key(6), |_| ()).map(drop)));
    assert!(waits(other.raw().read(&table, &key(8), |_| ()).map(drop)));
    drop(tx);
    other.raw_mut().put(&table, &key(2), b"new").unwrap();
    other.raw_mut().insert(&table, &key(3), b"new").unwrap();
    other.commit().unwrap();
    let mut tx = db.begin().unwrap();
    for (n, (place, row)) in [(2, two), (3, three)] {
        assert!(!tx.raw_mut().confirm(&table, &key(n), &place, row.as_deref(), false).unwrap());
    }
}

/// An optimistic read returns uncommitted rows; the transaction that confirms waits for the writer.
#[test]
fn a_peek_may_see_what_is_rolled_back() {
    let db = options().open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.raw_table(&PLAIN).unwrap();
    let mut writer = db.begin().unwrap();
    writer.raw_mut().insert(&table, &key(1), b"soon gone").unwrap();
    let mut peeker = Peeker::default();
    let (row, place) = db.raw().peek(&mut peeker, &table, &key(1)).unwrap();
    let row = row.map(<[u8]>::to_vec);
    assert_eq!(row.as_deref(), Some(&b"soon gone"[..]));
    writer.rollback().unwrap();
    let mut tx = db.begin().unwrap();
    assert!(!tx.raw_mut().confirm(&table, &key(1), &place, row.as_deref(), false).unwrap());
}

/// Positions, announcements and handles of one database have no effect in another.
#[test]
fn places_of_another_database_do_no_harm() {
    let dbs = [0, 1].map(|_| options().open_on(Arc::new(MemDisk::new())).unwrap());
    let tables = dbs.each_ref().map(|db| db.raw_table(&PLAIN).unwrap());
    for (db, table) in dbs.iter().zip(&tables) {
        db.transact(|tx| (0..500).try_for_each(|n| tx.raw_mut().insert(table, &key(n), b"a"))).unwrap();
    }
    let mut peeker = Peeker::default();
    let keys: Vec<_> = (0..500).map(key).collect();
    for key in &keys {
        dbs[0].raw().announce(&mut peeker, std::iter::once((tables[0], &key[..], 8)));
        let (row, place) = dbs[0].raw().peek(&mut peeker, &tables[0], key).unwrap();
        let row = row.map(<[u8]>::to_vec);
        let mut tx = dbs[1].begin().unwrap();
        assert!(tx.raw_mut().confirm(&tables[1], key, &place, row.as_deref(), true).unwrap());
        assert_eq!(tx.raw_mut().replace_many(&tables[1], std::iter::once((&key[..], place, &b"c"[..]))).unwrap(), 1);
        dbs[1].raw().peek(&mut peeker, &tables[1], key).unwrap();
        tx.commit_async().unwrap();
    }
    assert!(matches!(dbs[1].raw().peek(&mut peeker, &tables[0], &keys[0]), Err(TxnError::ForeignHandle { .. })));
    assert!(all(&dbs[1], &tables[1]).values().all(|row| row == b"c"));
}

/// Rows replaced together are one change: after a crash all are there if the change was committed, and none otherwise.
#[test]
fn rows_replaced_together_survive_a_crash_together() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        let db = crate::common::open(&disk);
        let table = db.raw_table(&PLAIN).unwrap();
        let rows = 400;
        db.transact(|tx| (0..rows).try_for_each(|n| tx.raw_mut().insert(&table, &key(n), &[0; 100]))).unwrap();
        let mut peeker = Peeker::default();
        let mut rounds = 0;
        for round in 1..=rng.below(20) as u8 + 1 {
            let mut tx = db.begin().unwrap();
            let mut seen = Vec::new();
            for n in 0..rows {
                let (_, place) = db.raw().peek(&mut peeker, &table, &key(n)).unwrap();
                seen.push((key(n), place));
            }
            let row = [round; 100];
            tx.raw_mut().replace_many(&table, seen.iter().map(|(key, place)| (&key[..], *place, &row[..]))).unwrap();
            if rng.once_in(5) {
                // The crash interrupts this transaction.
                std::mem::forget(tx);
                break;
            }
            tx.commit().unwrap();
            rounds = round;
        }
        let disk = disk.crash(Crash::Random(seed));
        let db = crate::common::open(&disk);
        let table = db.raw_table(&PLAIN).unwrap();
        let found = all(&db, &table);
        assert_eq!(found.len(), rows as usize, "seed {seed}");
        assert!(found.values().all(|row| *row == vec![rounds; 100]), "seed {seed}");
    }
}

/// Optimistic reads concurrent with writers: each row is complete.
#[test]
fn a_peek_never_sees_half_a_row() {
    let db = options().open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.raw_table(&PLAIN).unwrap();
    db.transact(|tx| (0..40).try_for_each(|n| tx.raw_mut().insert(&table, &key(n), &[0; 200]))).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, table, done) = (&db, &table, &done);
        let _told = StopAtEnd(done);
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut peeker, mut rng, mut looks) = (Peeker::default(), Rng::new(seed), 0_u64);
                    let whole = |row: &[u8]| row.iter().all(|byte| *byte == row[0]);
                    while !done.load(Ordering::Relaxed) || looks < 1_000 {
                        let key = key(rng.below(60));
                        if rng.once_in(2) {
                            db.raw().announce(&mut peeker, std::iter::once((*table, &key[..], 200)));
                        }
                        let (row, _) = db.raw().peek(&mut peeker, table, &key).unwrap();
                        assert!(row.is_none_or(whole));
                        let show = |_: &[u8], row: &[u8], _| {
                            assert!(whole(row));
                            ControlFlow::Continue(())
                        };
                        db.raw().peek_range(&mut peeker, table, (&key, &[0xFF; 8]), usize::MAX, show).unwrap();
                        looks += 1;
                    }
                })
            })
            .collect();
        let mut rng = Rng::new(9);
        for _ in 0..3_000 {
            let mut tx = db.begin().unwrap();
            let key = key(rng.below(60));
            if rng.once_in(3) {
                tx.raw_mut().delete(table, &key).unwrap();
            } else {
                let row = vec![rng.next() as u8; rng.below(400) as usize + 1];
                tx.raw_mut().put(table, &key, &row).unwrap();
            }
            tx.commit_async().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
