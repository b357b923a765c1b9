//! What was committed, in commit order, replayed on maps: the states that a database may be found in.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tables::{Rows, TABLES, UNIQUE, hash_of, name_of};

/// What a statement was asked and what it answered.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A row read.
    Get { table: usize, key: Vec<u8>, found: Option<Vec<u8>> },
    /// A row put, unless another one has its unique value.
    Put { table: usize, key: Vec<u8>, row: Vec<u8>, done: bool },
    /// A row inserted, unless there was one.
    Insert { table: usize, key: Vec<u8>, row: Vec<u8>, done: bool },
    /// A row replaced, if there was one: `None` if another one has its unique value.
    Update { table: usize, key: Vec<u8>, row: Vec<u8>, done: Option<bool> },
    /// The head of a row counted up, if there was one so long.
    Count { table: usize, key: Vec<u8>, done: bool },
    /// The same in one statement on several keys, in any order, some of them more than once: how many rows there were.
    Counts { table: usize, keys: Vec<Vec<u8>>, done: usize },
    /// A row deleted, if there was one.
    Delete { table: usize, key: Vec<u8>, done: bool },
    /// The first row of a range deleted.
    TakeFirst { table: usize, from: Vec<u8>, to: Vec<u8>, taken: Option<Vec<u8>> },
    /// All rows of a range read: how many, and the sum of their hashes.
    Scan { table: usize, from: Vec<u8>, to: Vec<u8>, found: (usize, u64) },
    /// Ascending rows inserted, all or none.
    Run { table: usize, rows: Rows, done: bool },
}

/// The rows of all tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    maps: [BTreeMap<Vec<u8>, Vec<u8>>; TABLES],
    names: BTreeMap<[u8; 2], Vec<u8>>,
    hash: u64,
}

impl State {
    /// The state that a database was found in.
    pub(crate) fn of(all: &[Rows; TABLES]) -> State {
        let mut state = State::default();
        for (table, rows) in all.iter().enumerate() {
            for (key, row) in rows {
                state.put(table, key, row.clone());
            }
        }
        state
    }

    /// A number that tells states apart.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    fn put(&mut self, table: usize, key: &[u8], row: Vec<u8>) {
        self.remove(table, key);
        self.hash = self.hash.wrapping_add(hash_of(table, key, &row));
        if table == UNIQUE
            && let Some(name) = name_of(&row)
        {
            self.names.insert(name, key.to_vec());
        }
        self.maps[table].insert(key.to_vec(), row);
    }

    fn remove(&mut self, table: usize, key: &[u8]) -> bool {
        let Some(row) = self.maps[table].remove(key) else { return false };
        self.hash = self.hash.wrapping_sub(hash_of(table, key, &row));
        if table == UNIQUE
            && let Some(name) = name_of(&row)
        {
            self.names.remove(&name);
        }
        true
    }

    /// Whether another row than `key`'s has the unique value of `row`.
    fn clashes(&self, table: usize, key: &[u8], row: &[u8]) -> bool {
        table == UNIQUE && name_of(row).and_then(|name| self.names.get(&name)).is_some_and(|other| other != key)
    }

    /// Does what a statement did.
    ///
    /// # Errors
    /// It would have answered something else here.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        let here = match op {
            Op::Get { table, key, found } => self.maps[*table].get(key) == found.as_ref(),
            Op::Put { table, key, row, done } => {
                let can = !self.clashes(*table, key, row);
                if can {
                    self.put(*table, key, row.clone());
                }
                can == *done
            }
            Op::Insert { table, key, row, done } => {
                let can = !self.maps[*table].contains_key(key) && !self.clashes(*table, key, row);
                if can {
                    self.put(*table, key, row.clone());
                }
                can == *done
            }
            Op::Update { table, key, row, done } => {
                let there = self.maps[*table].contains_key(key);
                let can = if there && self.clashes(*table, key, row) { None } else { Some(there) };
                if can == Some(true) {
                    self.put(*table, key, row.clone());
                }
                can == *done
            }
            Op::Count { table, key, done } => {
                let row = self.maps[*table].get(key).cloned();
                let counted = row.and_then(counted);
                let can = counted.is_some();
                if let Some(row) = counted {
                    self.put(*table, key, row);
                }
                can == *done
            }
            Op::Counts { table, keys, done } => {
                let mut rows = 0;
                for key in keys {
                    if let Some(row) = self.maps[*table].get(key).cloned().and_then(counted) {
                        self.put(*table, key, row);
                        rows += 1;
                    }
                }
                rows == *done
            }
            Op::Delete { table, key, done } => self.remove(*table, key) == *done,
            Op::TakeFirst { table, from, to, taken } => {
                let first = self.range(*table, from, to).next().map(|(key, _)| key.clone());
                if let Some(key) = &first {
                    self.remove(*table, key);
                }
                first == *taken
            }
            Op::Scan { table, from, to, found } => {
                let sum = self
                    .range(*table, from, to)
                    .fold((0, 0u64), |(n, sum), (key, row)| (n + 1, sum.wrapping_add(hash_of(*table, key, row))));
                sum == *found
            }
            Op::Run { table, rows, done } => {
                let mut names: Vec<_> = rows.iter().filter_map(|(_, row)| name_of(row)).collect();
                names.sort_unstable();
                let among_themselves = *table == UNIQUE && names.windows(2).any(|pair| pair[0] == pair[1]);
                let can = !among_themselves
                    && rows
                        .iter()
                        .all(|(key, row)| !self.maps[*table].contains_key(key) && !self.clashes(*table, key, row));
                if can {
                    rows.iter().for_each(|(key, row)| self.put(*table, key, row.clone()));
                }
                can == *done
            }
        };
        if here { Ok(()) } else { Err(format!("{op:?} is not what a serial run gives")) }
    }

    fn range(&self, table: usize, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        // A map panics at a range that ends before it begins.
        let to = to.max(from);
        self.maps[table].range::<[u8], _>((Bound::Included(from), Bound::Included(to)))
    }

    /// The first difference to rows that were found.
    pub(crate) fn difference(&self, found: &[Rows; TABLES]) -> Option<String> {
        let short = |row: Option<&Vec<u8>>| row.map(|row| (row.len(), row[..row.len().min(16)].to_vec()));
        for (table, rows) in found.iter().enumerate() {
            let found: BTreeMap<_, _> = rows.iter().cloned().collect();
            let keys = self.maps[table].keys().chain(found.keys());
            let first = keys.filter(|key| self.maps[table].get(*key) != found.get(*key)).min();
            if let Some(key) = first {
                let (want, got) = (short(self.maps[table].get(key)), short(found.get(key)));
                let shown = &key[..key.len().min(12)];
                return Some(format!("table {table} key {shown:?}: expected {want:?}, found {got:?}"));
            }
        }
        None
    }
}

/// A row with its head counted up; `None` if it has none.
pub(crate) fn counted(mut row: Vec<u8>) -> Option<Vec<u8>> {
    count(row.first_chunk_mut()?);
    Some(row)
}

/// Counts a head up.
pub(crate) fn count(head: &mut [u8; 8]) {
    *head = u64::from_le_bytes(*head).wrapping_add(1).to_le_bytes();
}

/// A commit's place in the log while it is not known.
const UNDER_WAY: u64 = u64::MAX;

#[derive(Debug)]
struct Commit {
    /// Where it ends in the log; [`UNDER_WAY`] at first.
    lsn: u64,
    ops: Vec<Op>,
}

/// Transactions as they commit.
#[derive(Debug, Default)]
pub(crate) struct History {
    commits: Mutex<Vec<Option<Commit>>>,
}

/// The history up to a moment: what a database that stops there may be found as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Commits begun.
    pub(crate) begun: usize,
    /// Everything before this position in the log was acknowledged.
    pub(crate) acknowledged: u64,
}

impl History {
    fn commits(&self) -> MutexGuard<'_, Vec<Option<Commit>>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction is about to commit: from now on it may be found. Its number.
    pub(crate) fn begin(&self, ops: Vec<Op>) -> usize {
        let mut commits = self.commits();
        commits.push(Some(Commit { lsn: UNDER_WAY, ops }));
        commits.len() - 1
    }

    /// It has committed, up to this position in the log.
    pub(crate) fn committed(&self, number: usize, lsn: u64) {
        if let Some(Some(commit)) = self.commits().get_mut(number) {
            commit.lsn = lsn;
        }
    }

    /// It has not committed, and never will.
    pub(crate) fn withdraw(&self, number: usize) {
        if let Some(commit) = self.commits().get_mut(number) {
            *commit = None;
        }
    }

    /// Commits begun so far.
    pub(crate) fn begun(&self) -> usize {
        self.commits().len()
    }

    /// Replays everything on `base`, in commit order.
    ///
    /// # Errors
    /// A statement answered otherwise than a serial run would have.
    pub(crate) fn replay(&self, base: &State) -> Result<Replayed, String> {
        let commits = self.commits();
        let mut order: Vec<(u64, usize)> =
            commits.iter().enumerate().filter_map(|(number, c)| Some((c.as_ref()?.lsn, number))).collect();
        order.sort_unstable();
        let mut state = base.clone();
        let mut hashes = vec![state.hash()];
        for (at, (_, number)) in order.iter().enumerate() {
            for op in commits[*number].iter().flat_map(|c| &c.ops) {
                state.apply(op).map_err(|e| format!("commit {at} of {}: {e}", order.len()))?;
            }
            hashes.push(state.hash());
        }
        Ok(Replayed { order, hashes, last: state })
    }

    /// The state after the first `n` commits in order, for messages.
    pub(crate) fn state_after(&self, base: &State, replayed: &Replayed, n: usize) -> State {
        let commits = self.commits();
        let mut state = base.clone();
        for (_, number) in &replayed.order[..n.min(replayed.order.len())] {
            for op in commits[*number].iter().flat_map(|c| &c.ops) {
                // It could be applied before.
                let _ = state.apply(op);
            }
        }
        state
    }
}

/// A history in order.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Place in the log and number of each commit.
    order: Vec<(u64, usize)>,
    /// Hash of the state before all, after the first, after the second ...
    hashes: Vec<u64>,
    /// The state after all.
    pub(crate) last: State,
}

impl Replayed {
    /// How many commits a database may hold that stopped at `moment`.
    pub(crate) fn possible(&self, moment: Moment) -> RangeInclusive<usize> {
        let least = self.order.iter().take_while(|(lsn, _)| *lsn <= moment.acknowledged).count();
        let most = self.order.iter().take_while(|(_, number)| *number < moment.begun).count();
        // One that only reads takes the log's end, which may have been durable long before.
        least.min(most)..=most
    }

    /// Which of the possible states has this hash: the one with most commits.
    pub(crate) fn find(&self, moment: Moment, hash: u64) -> Option<usize> {
        self.possible(moment).rev().find(|n| self.hashes[*n] == hash)
    }

    /// How many commits make a state of this hash, whatever is possible: for messages.
    pub(crate) fn find_any(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().rposition(|h| *h == hash)
    }
}
