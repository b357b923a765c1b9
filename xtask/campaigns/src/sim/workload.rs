//! Workload of a run: number of workers, kinds and frequencies of statements, and the form of keys and rows.

use super::rng::Rng;
use super::tables::{HEAD, UNIQUE};

/// Parameters of the workload of a run.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Number of workers.
    pub(crate) workers: usize,
    /// Number of transactions of each worker.
    pub(crate) transactions: u64,
    /// Maximum number of statements of a transaction.
    pub(crate) statements: u64,
    /// Number of keys of each table.
    pub(crate) keys: u64,
    /// Possible sizes of rows, in bytes.
    pub(crate) sizes: &'static [usize],
    /// Average number of deletes per ten statements.
    pub(crate) deletes: u64,
    /// Average number of reads per ten statements.
    pub(crate) reads: u64,
    /// Average number of transactions per ten that announce some of their keys.
    pub(crate) announces: u64,
    /// Average number of transactions per ten that only put rows, at an isolation level below serializable.
    pub(crate) blind: u64,
    /// Average number of transactions per ten that are rolled back.
    pub(crate) aborts: u64,
    /// Average number of commits per ten that wait until they are durable.
    pub(crate) sync: u64,
    /// Number of rows that are loaded in bulk at the start.
    pub(crate) loaded: u64,
    /// True if the rows take more pages than the smallest buffer pool has frames. A check of all rows is then slow.
    pub(crate) wide: bool,
}

const SMALL: &[usize] = &[0, 8, 9, 14, 30, 60];
const MIXED: &[usize] = &[0, 9, 14, 40, 200, 900, 3900];
const LARGE: &[usize] = &[12, 2000, 3000, 3990];
/// Sizes of rows that are larger than a page allows, at the limit and far beyond it, in bytes.
const OVERSIZED: &[usize] = &[0, 9, 60, 900, 3950, 3969, 4100, 7936, 12_000, 60_000];

impl Profile {
    /// Returns a random workload.
    pub(crate) fn draw(rng: &mut Rng) -> Profile {
        let workers = rng.pick(&[1, 1, 2, 3, 4]);
        let sizes = rng.pick(&[SMALL, MIXED, MIXED, LARGE, OVERSIZED]);
        let large = sizes == LARGE || sizes == OVERSIZED;
        let profile = Profile {
            workers,
            transactions: (2 + rng.below(if large { 8 } else { 14 })).div_ceil(workers as u64).max(2),
            statements: rng.pick(&[3, 8, 25]),
            keys: rng.pick(&[8, 60, 300, 2000]),
            sizes,
            deletes: rng.pick(&[1, 2, 6]),
            reads: rng.pick(&[0, 2, 4]),
            announces: rng.pick(&[0, 3, 10]),
            blind: rng.pick(&[0, 0, 2]),
            aborts: rng.pick(&[0, 2, 4]),
            sync: rng.pick(&[0, 3, 10]),
            loaded: if rng.once_in(3) {
                1 + rng.below(if sizes == OVERSIZED {
                    60
                } else if large {
                    300
                } else {
                    400
                })
            } else {
                0
            },
            wide: false,
        };
        if rng.once_in(8) { profile.wide(rng) } else { profile }
    }

    /// Returns the same workload with more pages than the smallest buffer pool has frames, and with few statements, which
    /// reach most of the pages. A restart then evicts pages that it has just redone.
    fn wide(self, rng: &mut Rng) -> Profile {
        let loaded = 300 + rng.below(200);
        Profile {
            workers: 1 + rng.index(2),
            transactions: 2,
            statements: 8,
            keys: 2 * loaded,
            loaded,
            wide: true,
            ..self.large()
        }
    }

    /// Returns the same workload with rows of half a page.
    pub(crate) fn large(self) -> Profile {
        Profile { sizes: LARGE, ..self }
    }
}

/// Returns key number `n` of a table, short or long. The key depends only on `n`. Keys are in the order of their numbers.
pub(crate) fn key(n: u64) -> Vec<u8> {
    let mut key = (n as u32).to_be_bytes().to_vec();
    if n.is_multiple_of(7) {
        key.resize(4 + (n * 37 % 1900) as usize, 1);
    }
    key
}

/// Returns a random row: a head, a class, a name (the unique value), then random bytes.
pub(crate) fn row(rng: &mut Rng, profile: &Profile) -> Vec<u8> {
    let size = rng.pick(profile.sizes);
    let mut row = vec![rng.next() as u8; size];
    for byte in row.iter_mut().take(HEAD + 4) {
        *byte = rng.next() as u8;
    }
    // There are few classes, and occasional duplicates among the names.
    for (at, limit) in [(HEAD, 2), (HEAD + 1, 4), (HEAD + 2, 1 + profile.keys / 20), (HEAD + 3, 256)] {
        if let Some(byte) = row.get_mut(at) {
            *byte = rng.below(limit.min(256)) as u8;
        }
    }
    row
}

/// Returns the rows of a bulk load. In the table with the unique index, the unique values of the rows are distinct.
pub(crate) fn bulk(rng: &mut Rng, profile: &Profile, table: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let numbered = |n: u64| {
        let mut row = row(rng, profile);
        if let (UNIQUE, Some(name)) = (table, row.get_mut(HEAD + 2..HEAD + 4)) {
            name.copy_from_slice(&(n as u16).to_be_bytes());
        }
        (key(n * 2), row)
    };
    (0..profile.loaded).map(numbered).collect()
}
