//! Each kind of read at each position, combined with each kind of write: the guarantees of the isolation level hold for
//! the rows that were read, in both orders.
//!
//! One thread runs both transactions: a statement that would have to wait for the other transaction is refused at once
//! ([`TxnError::OwnTask`]). The refusal proves that the expected lock is held.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::common::{ByHead, ROWS, small};
use storage::disk::MemDisk;
use storage::optimistic::Peeker;
use storage::{Database, Isolation, LatchKind, OpenTable, Transaction, TxnError};

/// A key and its row, encoded.
type Pair = (Vec<u8>, Vec<u8>);

/// Number of keys; the odd ones have rows.
const KEYS: u8 = 6;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;
type Read<'a> = Box<dyn Fn(&mut Transaction<'_>) -> Result<Rows, TxnError> + 'a>;
type Write<'a> = Box<dyn Fn(&mut Transaction<'_>) -> Result<(), TxnError> + 'a>;

fn key(n: u8) -> Vec<u8> {
    vec![n]
}

/// Returns the key as the typed table encodes it.
fn encoded(n: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    storage::Key::encode(&key(n), &mut bytes);
    bytes
}

/// Returns a row that the index orders by `class`. Few long rows fill a page, so that gaps lie at the ends of leaves.
fn row(class: u8, long: bool) -> Vec<u8> {
    let mut row = vec![class; if long { 3500 } else { 12 }];
    row[1] = 0;
    row
}

fn fill(db: &Database, long: bool) {
    db.transact(|tx| {
        tx.delete_range(&ROWS, ..)?;
        (1..KEYS).step_by(2).try_for_each(|n| tx.put(&ROWS, &key(n), &row(n, long)))
    })
    .unwrap();
}

/// Returns every kind of read, at every position.
fn reads<'a>(db: &'a Database, rows: &'a OpenTable<Vec<u8>, Vec<u8>>) -> Vec<(String, Read<'a>)> {
    let mut all: Vec<(String, Read<'a>)> = Vec::new();
    let one = |n: u8, found: Option<Vec<u8>>| Ok(found.into_iter().map(|row| (key(n), row)).collect());
    for n in 0..=KEYS {
        all.push((format!("get {n}"), Box::new(move |tx| one(n, tx.get(rows, &key(n))?))));
        all.push((format!("get for update {n}"), Box::new(move |tx| one(n, tx.get_for_update(rows, &key(n))?))));
        all.push((format!("read {n}"), Box::new(move |tx| one(n, tx.raw().read(rows, &encoded(n), <[u8]>::to_vec)?))));
        all.push((
            format!("confirm {n}"),
            Box::new(move |tx| {
                let mut peeker = Peeker::default();
                let (seen, place) = db.raw().peek(&mut peeker, rows, &encoded(n))?;
                let seen = seen.map(<[u8]>::to_vec);
                let holds = tx.raw_mut().confirm(rows, &encoded(n), &place, seen.as_deref(), false)?;
                Ok(if holds { seen.into_iter().map(|row| (key(n), row)).collect() } else { vec![(vec![], vec![])] })
            }),
        ));
    }
    let pairs = (0..=KEYS).map(|n| (n, KEYS - n));
    for (a, b) in pairs {
        all.push((
            format!("get many {a}, {b}"),
            Box::new(move |tx| {
                let found = tx.get_many(rows, &[key(a), key(b)])?;
                Ok(found.into_iter().zip([a, b]).filter_map(|(row, n)| Some((key(n), row?))).collect())
            }),
        ));
    }
    for from in 0..=KEYS {
        for to in from..=KEYS {
            for most in [1, 2, usize::MAX] {
                let what = |how: &str| format!("{how} from {from} to {to}, {most} rows");
                let stop = move |found: &Rows| {
                    if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                all.push((
                    what("scan"),
                    Box::new(move |tx| {
                        let mut found = Rows::new();
                        tx.raw().scan(rows, &encoded(from), &encoded(to), |key, row| {
                            found.push((key.to_vec(), row.to_vec()));
                            stop(&found)
                        })?;
                        Ok(found)
                    }),
                ));
                all.push((
                    what("scan downwards"),
                    Box::new(move |tx| {
                        let mut found = Rows::new();
                        tx.raw().scan_backward(rows, &encoded(from), &encoded(to), |key, row| {
                            found.push((key.to_vec(), row.to_vec()));
                            stop(&found)
                        })?;
                        Ok(found)
                    }),
                ));
                all.push((
                    what("lock range"),
                    Box::new(move |tx| {
                        let mut found = Rows::new();
                        tx.raw_mut().lock_range(rows, (&encoded(from), &encoded(to)), most, false, |key, row| {
                            found.push((key.to_vec(), row.to_vec()));
                            ControlFlow::Continue(())
                        })?;
                        Ok(found)
                    }),
                ));
                for descending in [false, true] {
                    all.push((
                        what(if descending { "cursor downwards" } else { "cursor" }),
                        Box::new(move |tx| {
                            let cursor = tx.range(rows, key(from)..=key(to))?;
                            if descending { cursor.rev().take(most).collect() } else { cursor.take(most).collect() }
                        }),
                    ));
                    all.push((
                        what(if descending { "index downwards" } else { "index" }),
                        Box::new(move |tx| {
                            let cursor = tx.range_by::<ByHead>(rows, vec![from]..=vec![to, 0])?;
                            if descending { cursor.rev().take(most).collect() } else { cursor.take(most).collect() }
                        }),
                    ));
                    all.push((
                        what(if descending { "entries downwards" } else { "entries" }),
                        Box::new(move |tx| {
                            let mut found = Rows::new();
                            let (from, to) = ([from], [to, 0xFF]);
                            tx.raw().scan_index(rows, 0, &from, &to, descending, |entry, key| {
                                found.push((entry.to_vec(), key.to_vec()));
                                stop(&found)
                            })?;
                            Ok(found)
                        }),
                    ));
                }
            }
            all.push((
                format!("count {from} to {to}"),
                Box::new(move |tx| {
                    let range = (Bound::Excluded(key(from)), Bound::Included(key(to)));
                    Ok(vec![(tx.count(rows, range)?.to_be_bytes().to_vec(), Vec::new())])
                }),
            ));
        }
    }
    all
}

/// Returns every kind of write, at every position.
fn writes(rows: &OpenTable<Vec<u8>, Vec<u8>>, long: bool) -> Vec<(String, Write<'_>)> {
    let mut all: Vec<(String, Write<'_>)> = Vec::new();
    let unless_there = |result: Result<(), TxnError>| match result {
        Err(TxnError::DuplicateKey { .. }) => Ok(()),
        other => other,
    };
    for n in 0..=KEYS {
        all.push((format!("insert {n}"), Box::new(move |tx| unless_there(tx.insert(rows, &key(n), &row(n, long))))));
        all.push((
            format!("insert run {n}"),
            Box::new(move |tx| unless_there(tx.raw_mut().insert_run(rows, &[(&encoded(n), &row(n, long))]))),
        ));
        all.push((format!("put {n}"), Box::new(move |tx| tx.put(rows, &key(n), &row(KEYS - n, long)))));
        all.push((format!("put many {n}"), Box::new(move |tx| tx.put_many(rows, &[(key(n), row(KEYS - n, long))]))));
        all.push((format!("delete {n}"), Box::new(move |tx| tx.delete(rows, &key(n)).map(drop))));
        all.push((format!("delete range {n}"), Box::new(move |tx| tx.delete_range(rows, key(n)..=key(n)).map(drop))));
        all.push((
            format!("take first {n}"),
            Box::new(move |tx| tx.raw_mut().take_first(rows, &encoded(n), &encoded(n)).map(drop)),
        ));
    }
    all
}

fn open(isolation: Isolation, latches: LatchKind) -> Database {
    small().isolation(isolation).latches(latches).open_on(Arc::new(MemDisk::new())).unwrap()
}

/// One transaction reads, another one writes and commits if it can, and the first one reads again. Returns the numbers
/// of successful and of refused writes.
fn read_beside_writes(isolation: Isolation, long: bool, holds: impl Fn(&Rows, &Rows) -> bool) -> (usize, usize) {
    let db = open(isolation, LatchKind::Optimistic);
    let rows = db.table(&ROWS).unwrap();
    let (mut through, mut refused) = (0, 0);
    fill(&db, long);
    for (read, reads) in reads(&db, &rows) {
        for (write, writes) in writes(&rows, long) {
            let mut reader = db.begin().unwrap();
            let before = reads(&mut reader).unwrap();
            let mut writer = db.begin().unwrap();
            match writes(&mut writer) {
                Ok(()) => {
                    writer.commit().unwrap();
                    through += 1;
                    let after = reads(&mut reader).unwrap();
                    assert!(holds(&before, &after), "{isolation:?}: {read}: {before:?}, after {write}: {after:?}");
                    reader.commit().unwrap();
                    fill(&db, long);
                }
                Err(TxnError::OwnTask { .. }) => refused += 1,
                Err(error) => panic!("{read}, {write}: {error}"),
            }
        }
    }
    db.verify_pages().unwrap();
    (through, refused)
}

#[test]
fn what_a_serializable_transaction_has_read_stays() {
    for long in [false, true] {
        let (through, refused) = read_beside_writes(Isolation::Serializable, long, |before, after| before == after);
        assert!(through > 1_000 && refused > 1_000, "{through} writes, {refused} refused");
    }
}

#[test]
fn rows_that_a_repeatable_read_has_seen_stay() {
    let (through, refused) = read_beside_writes(Isolation::RepeatableRead, false, |before, after| {
        // A new row may displace others from a read of the first few rows of a range, and changes the count of rows.
        let is_new = |row: &(Vec<u8>, Vec<u8>)| before.iter().all(|old| old.0 != row.0);
        let is_count = before.iter().any(|(key, _)| key.len() == size_of::<u64>());
        is_count || before.iter().all(|row| after.contains(row) || after.iter().any(is_new))
    });
    assert!(through > 1_000 && refused > 1_000, "{through} writes, {refused} refused");
}

/// An uncommitted row is never read, at any level: the reader waits, or reads the previous row.
#[test]
fn no_level_reads_what_is_not_committed() {
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let db = open(isolation, LatchKind::Optimistic);
        let rows = db.table(&ROWS).unwrap();
        fill(&db, false);
        let mut waited = 0;
        for (read, reads) in reads(&db, &rows).into_iter().filter(|(read, _)| !read.starts_with("confirm")) {
            let before = reads(&mut db.begin().unwrap()).unwrap();
            for (write, writes) in writes(&rows, false) {
                let mut writer = db.begin().unwrap();
                writes(&mut writer).unwrap();
                match reads(&mut db.begin().unwrap()) {
                    Ok(after) => assert_eq!(before, after, "{isolation:?}: {read} beside {write}"),
                    Err(TxnError::OwnTask { .. }) => waited += 1,
                    Err(error) => panic!("{read}, {write}: {error}"),
                }
                writer.rollback().unwrap();
            }
        }
        assert!(waited > 1_000, "{isolation:?}: {waited}");
    }
}

/// A range that ends at any key, or between two keys, next to rows that the transaction itself has deleted.
#[test]
fn a_range_may_end_at_every_key_beside_the_transactions_own_ghosts() {
    for long in [false, true] {
        let db = open(Isolation::Serializable, LatchKind::Optimistic);
        let rows = db.table(&ROWS).unwrap();
        fill(&db, long);
        for first in 0..=KEYS {
            for last in first..=KEYS {
                for (from, to) in (0..=KEYS).flat_map(|from| (from..=KEYS).map(move |to| (from, to))) {
                    let what = format!("{from} to {to} beside ghosts from {first} to {last}, long: {long}");
                    let mut tx = db.begin().unwrap();
                    for n in (first..=last).filter(|n| n % 2 == 1) {
                        assert!(tx.delete(&rows, &key(n)).unwrap());
                    }
                    let left: Vec<u8> = (1..KEYS).step_by(2).filter(|n| !(first..=last).contains(n)).collect();
                    let within: Vec<u8> = left.iter().copied().filter(|n| (from..=to).contains(n)).collect();
                    let before: Vec<u8> = within.iter().copied().filter(|n| *n < to).collect();
                    let mut seen = [Vec::new(), Vec::new()];
                    let (low, high) = (encoded(from), encoded(to));
                    let [up, down] = &mut seen;
                    tx.raw()
                        .scan(&rows, &low, &high, |key, _| {
                            up.push(key[0]);
                            ControlFlow::Continue(())
                        })
                        .unwrap();
                    tx.raw()
                        .scan_backward(&rows, &low, &high, |key, _| {
                            down.push(key[0]);
                            ControlFlow::Continue(())
                        })
                        .unwrap();
                    seen[1].reverse();
                    assert_eq!(seen, [within.clone(), within.clone()], "{what}");
                    let keys = |found: Vec<Result<Pair, TxnError>>| -> Vec<u8> {
                        found.into_iter().map(|row| row.unwrap().0[0]).collect()
                    };
                    assert_eq!(keys(tx.range(&rows, key(from)..key(to)).unwrap().collect()), before, "{what}");
                    assert_eq!(keys(tx.range(&rows, key(from)..=key(to)).unwrap().collect()), within, "{what}");
                    let mut back = keys(tx.range(&rows, key(from)..=key(to)).unwrap().rev().collect());
                    back.reverse();
                    assert_eq!(back, within, "{what}");
                    let entries = |reverse: bool| {
                        let cursor = tx.range_by::<ByHead>(&rows, vec![from]..=vec![to, 0]).unwrap();
                        keys(if reverse { cursor.rev().collect() } else { cursor.collect() })
                    };
                    assert_eq!(entries(false), within, "{what}");
                    assert_eq!(entries(true).into_iter().rev().collect::<Vec<_>>(), within, "{what}");
                    assert_eq!(tx.raw().count(&rows, &low, &high).unwrap(), within.len() as u64, "{what}");
                    assert_eq!(tx.count(&rows, key(from)..key(to)).unwrap(), before.len() as u64, "{what}");
                    let taken = tx.raw_mut().take_first(&rows, &low, &high).unwrap();
                    assert_eq!(taken, within.first().map(|n| encoded(*n)), "{what}");
                    let more = within.len().saturating_sub(1) as u64;
                    assert_eq!(tx.raw_mut().delete_range(&rows, &low, &high).unwrap(), more, "{what}");
                    tx.rollback().unwrap();
                }
            }
        }
        assert_eq!(db.begin().unwrap().count(&rows, ..).unwrap(), 3);
    }
}
