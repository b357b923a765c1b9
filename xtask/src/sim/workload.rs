//! Random transactions: what is done, how large, how often.

use std::ops::ControlFlow;

use storage::{Transaction, TxnError};

use super::history::{Op, count};
use super::rng::Rng;
use super::tables::{HEAD, Tables, hash_of};

/// The character of a run.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Workers.
    pub(crate) workers: usize,
    /// Transactions of each.
    pub(crate) transactions: u64,
    /// Statements of each, at most.
    pub(crate) statements: u64,
    /// Keys of each table.
    pub(crate) keys: u64,
    /// Rows have one of these sizes.
    pub(crate) sizes: &'static [usize],
    /// Of ten statements so many delete.
    pub(crate) deletes: u64,
    /// Of ten statements so many only read.
    pub(crate) reads: u64,
    /// Of ten transactions so many announce some of their keys.
    pub(crate) ahead: u64,
    /// Of ten transactions so many are rolled back.
    pub(crate) aborts: u64,
    /// Of ten commits so many wait until they are durable.
    pub(crate) sync: u64,
    /// Rows that are loaded in bulk first.
    pub(crate) loaded: u64,
}

const SMALL: &[usize] = &[0, 8, 9, 14, 30, 60];
const MIXED: &[usize] = &[0, 9, 14, 40, 200, 900, 3900];
const LARGE: &[usize] = &[12, 2000, 3000, 3990];

impl Profile {
    /// A character from a seed.
    pub(crate) fn draw(rng: &mut Rng) -> Profile {
        let workers = rng.pick(&[1, 1, 2, 3, 4]);
        let sizes = rng.pick(&[SMALL, MIXED, MIXED, LARGE]);
        let large = sizes == LARGE;
        Profile {
            workers,
            transactions: (2 + rng.below(if large { 8 } else { 14 })).div_ceil(workers as u64).max(2),
            statements: rng.pick(&[3, 8, 25]),
            keys: rng.pick(&[8, 60, 300, 2000]),
            sizes,
            deletes: rng.pick(&[1, 2, 6]),
            reads: rng.pick(&[0, 2, 4]),
            ahead: rng.pick(&[0, 3, 10]),
            aborts: rng.pick(&[0, 2, 4]),
            sync: rng.pick(&[0, 3, 10]),
            loaded: if rng.once_in(3) { 1 + rng.below(if large { 300 } else { 400 }) } else { 0 },
        }
    }

    /// The same with rows of which two fill a page.
    pub(crate) fn large(self) -> Profile {
        Profile { sizes: LARGE, ..self }
    }
}

/// Key number `n` of a table: short, or long, but always the same and in order of `n`.
pub(crate) fn key(n: u64) -> Vec<u8> {
    let mut key = (n as u32).to_be_bytes().to_vec();
    if n.is_multiple_of(7) {
        key.resize(4 + (n % 400) as usize, 1);
    }
    key
}

/// A row of a size: a head, a class, a name, then anything.
fn row(rng: &mut Rng, profile: &Profile) -> Vec<u8> {
    let size = rng.pick(profile.sizes);
    let mut row = vec![rng.next() as u8; size];
    for byte in row.iter_mut().take(HEAD + 4) {
        *byte = rng.next() as u8;
    }
    // Few classes; names that clash now and then.
    for (at, limit) in [(HEAD, 2), (HEAD + 1, 4), (HEAD + 2, 1 + profile.keys / 20), (HEAD + 3, 256)] {
        if let Some(byte) = row.get_mut(at) {
            *byte = rng.below(limit.min(256)) as u8;
        }
    }
    row
}

/// The rows of a bulk load.
pub(crate) fn bulk(rng: &mut Rng, profile: &Profile, rows: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..rows).map(|n| (key(n * 2), row(rng, profile))).collect()
}

/// Announces some keys, as who knows what a transaction will touch would; says which.
pub(crate) fn announce(tx: &mut Transaction<'_>, tables: &Tables, rng: &mut Rng, profile: &Profile) -> Vec<u64> {
    let ahead: Vec<u64> = (0..1 + rng.below(20)).map(|_| rng.below(profile.keys)).collect();
    let keys: Vec<Vec<u8>> = ahead.iter().map(|n| key(*n)).collect();
    if rng.once_in(2) {
        // Of one table each, all in one group.
        tx.prefetch_raw(keys.iter().map(|key| (tables[rng.below(tables.len() as u64) as usize], key.as_slice(), 64)));
        tx.prefetch_insert_raw(&tables[0], &keys[0]);
    } else {
        for table in tables {
            tx.prefetch_raw(keys.iter().map(|key| (*table, key.as_slice(), 64)));
        }
    }
    ahead
}

/// One random statement, mostly on a key that was announced, if any was; what it answered.
///
/// # Errors
/// Those of the engine, but for duplicates, which are answers.
pub(crate) fn statement(
    tx: &mut Transaction<'_>,
    tables: &Tables,
    rng: &mut Rng,
    profile: &Profile,
    ahead: &[u64],
) -> Result<Op, TxnError> {
    let table = rng.below(tables.len() as u64) as usize;
    let handle = &tables[table];
    let n = if ahead.is_empty() || rng.once_in(3) { rng.below(profile.keys) } else { rng.pick(ahead) };
    let key_of = key;
    let key = key(n);
    let kind = rng.below(10);
    if kind < profile.reads {
        if rng.once_in(3) {
            let to = key_of(n + rng.below(20));
            let mut found = (0, 0u64);
            tx.scan_raw(handle, &key, &to, |key, row| {
                found = (found.0 + 1, found.1.wrapping_add(hash_of(table, key, row)));
                ControlFlow::Continue(())
            })?;
            return Ok(Op::Scan { table, from: key, to, found });
        }
        let found = tx.read_raw(handle, &key, <[u8]>::to_vec)?;
        return Ok(Op::Get { table, key, found });
    }
    if kind < profile.reads + profile.deletes {
        if rng.once_in(4) {
            let to = key_of(n + 1 + rng.below(50));
            let taken = tx.take_first_raw(handle, &key, &to)?;
            return Ok(Op::TakeFirst { table, from: key, to, taken });
        }
        let done = tx.delete_raw(handle, &key)?;
        return Ok(Op::Delete { table, key, done });
    }
    let row = row(rng, profile);
    match rng.below(9) {
        0 | 1 => {
            let done = unless_duplicate(tx.insert_raw(handle, &key, &row))?.is_some();
            Ok(Op::Insert { table, key, row, done })
        }
        2 => {
            let done = tx.update_head_raw(handle, &key, HEAD, |head, _| {
                if let Some(head) = head.first_chunk_mut() {
                    count(head);
                }
            })?;
            Ok(Op::Count { table, key, done: done.is_some() })
        }
        3 => {
            let changed = tx.update_raw(handle, &key, |bytes| {
                bytes.clear();
                bytes.extend_from_slice(&row);
            });
            let done = unless_duplicate(changed)?.map(|found| found.is_some());
            Ok(Op::Update { table, key, row, done })
        }
        4 => {
            let mut at = n;
            let mut rows = Vec::new();
            for _ in 0..1 + rng.below(6) {
                rows.push((key_of(at), self::row(rng, profile)));
                at += 1 + rng.below(3);
            }
            let borrowed: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
            let done = unless_duplicate(tx.insert_run_raw(handle, &borrowed))?.is_some();
            Ok(Op::Run { table, rows, done })
        }
        5 => {
            let more = (0..1 + rng.below(11)).map(|_| rng.below(profile.keys));
            let keys: Vec<Vec<u8>> = std::iter::once(n).chain(more).map(key_of).collect();
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let done = tx.update_heads_raw(handle, &borrowed, HEAD, |_, head, _| {
                if let Some(head) = head.first_chunk_mut() {
                    count(head);
                }
            })?;
            Ok(Op::Counts { table, keys, done })
        }
        _ => {
            let done = unless_duplicate(tx.put(handle, &super::tables::Bytes(key.clone()), &row))?.is_some();
            Ok(Op::Put { table, key, row, done })
        }
    }
}

/// A duplicate is an answer, not an error.
fn unless_duplicate<T>(result: Result<T, TxnError>) -> Result<Option<T>, TxnError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(TxnError::DuplicateKey { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
