//! Model of the database: answers and effects of statements on maps.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use super::tables::{self, Rows, TABLES, UNIQUE, hash_of, name_of};

/// Statement with its answer.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reads a row.
    Get { table: usize, key: Vec<u8>, found: Option<Vec<u8>> },
    /// Puts a row. No effect if another row has its unique value; `done` is then false.
    Put { table: usize, key: Vec<u8>, row: Vec<u8>, done: bool },
    /// Reads rows with one statement, in the order of `keys`.
    GetMany { table: usize, keys: Vec<Vec<u8>>, found: Vec<Option<Vec<u8>>> },
    /// Puts rows with one statement, one after the other. No effect if another row has the unique value of one of them when
    /// its turn comes; `done` is then false.
    PutMany { table: usize, rows: Rows, done: bool },
    /// Replaces rows with one statement, one after the other, and skips keys without a row. The answer is the number of
    /// replaced rows. It is `None`, without any effect, if another row has the unique value of one of them when its turn
    /// comes.
    ReplaceMany { table: usize, rows: Rows, done: Option<usize> },
    /// Inserts a row. No effect if the key exists or another row has its unique value; `done` is then false.
    Insert { table: usize, key: Vec<u8>, row: Vec<u8>, done: bool },
    /// Replaces a row if it exists. The answer is `None`, without any effect, if another row has its unique value.
    Update { table: usize, key: Vec<u8>, row: Vec<u8>, done: Option<bool> },
    /// Increments the head (the first 8 bytes) of a row if the row exists and is long enough.
    Count { table: usize, key: Vec<u8>, done: bool },
    /// Deletes a row if it exists.
    Delete { table: usize, key: Vec<u8>, done: bool },
    /// Deletes all rows of a range. The answer is the number of deleted rows.
    DeleteRange { table: usize, from: Vec<u8>, to: Vec<u8>, done: u64 },
    /// Removes all rows of a table. The call is a transaction of its own.
    Empty { table: usize },
    /// Deletes the first row of a range. The answer is its key.
    TakeFirst { table: usize, from: Vec<u8>, to: Vec<u8>, taken: Option<Vec<u8>> },
    /// Reads all rows of a range. The answer is the number of rows and the sum of their hashes.
    Scan { table: usize, from: Vec<u8>, to: Vec<u8>, found: (usize, u64) },
    /// Counts the rows of a range.
    Number { table: usize, from: Vec<u8>, to: Vec<u8>, found: u64 },
    /// Inserts rows in ascending order: either all of them, or none.
    Run { table: usize, rows: Rows, done: bool },
    /// Increments the heads of several rows with one statement, one after the other in the order of `keys`. Skips short rows
    /// and keys without a row. The answer is a digest of the rows before the change.
    Heads { table: usize, keys: Vec<Vec<u8>>, found: RowDigest },
    /// Reads parts of a row. The answer is `None` if the row does not exist.
    GetParts { table: usize, key: Vec<u8>, parts: Parts, found: Option<Vec<u8>> },
    /// Increments each byte of the first of these parts, in several rows, one after the other, with one statement. Skips
    /// keys without a row, and rows that end before the part does. The answer is a digest of the parts before the change.
    CountParts { table: usize, keys: Vec<Vec<u8>>, parts: Parts, found: RowDigest },
    /// Increments the heads of all rows of a range with one statement. The answer is a digest of the rows before the change.
    Sweep { table: usize, from: Vec<u8>, to: Vec<u8>, found: RowDigest },
    /// Reads rows of a range that excludes `to`, one row for each element of `back`: the next one from the front (false) or
    /// from the back (true). Ends early if no rows are left.
    Ends { table: usize, from: Vec<u8>, to: Vec<u8>, back: Vec<bool>, found: RowDigest },
    /// Reads at most `most` entries of an index.
    Entries { table: usize, index: usize, from: Vec<u8>, to: Vec<u8>, descending: bool, most: usize, found: RowDigest },
    /// Reads rows by an index on their class, within a range of classes, in index order.
    ByClass { table: usize, from: Vec<u8>, to: Vec<u8>, found: RowDigest },
}

/// Byte ranges of a row. A range that ends at `usize::MAX` extends to the end of the row.
pub(crate) type Parts = Vec<Range<usize>>;

/// Returns the concatenated parts of a row. Stops at the first part that extends beyond the end of the row.
fn parts_of(row: &[u8], parts: &[Range<usize>]) -> Vec<u8> {
    let whole = |part: &Range<usize>| row.get(part.start..if part.end == usize::MAX { row.len() } else { part.end });
    parts.iter().map_while(whole).flatten().copied().collect()
}

/// Number and hash of a sequence of rows with their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowDigest {
    rows: usize,
    hash: u64,
}

impl RowDigest {
    pub(crate) fn add(&mut self, table: usize, key: &[u8], row: &[u8]) {
        self.rows += 1;
        self.hash = self.hash.rotate_left(7) ^ hash_of(table, key, row);
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
}

/// State of the model: the rows of all tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct TablesState {
    maps: [BTreeMap<Vec<u8>, Vec<u8>>; TABLES],
    names: BTreeMap<[u8; 2], Vec<u8>>,
    hash: u64,
}

impl TablesState {
    /// Creates the state from the rows of all tables of a database.
    pub(crate) fn of(all: &[Rows; TABLES]) -> TablesState {
        let mut state = TablesState::default();
        for (table, rows) in all.iter().enumerate() {
            for (key, row) in rows {
                state.put(table, key, row.clone());
            }
        }
        state
    }

    /// Returns a hash of the rows of all tables.
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

    /// Removes rows. Returns the number of rows that existed.
    fn remove_all(&mut self, table: usize, keys: &[Vec<u8>]) -> u64 {
        keys.iter().filter(|key| self.remove(table, key)).count() as u64
    }

    /// Returns true if a row with a key other than `key` has the unique value of `row`.
    fn clashes(&self, table: usize, key: &[u8], row: &[u8]) -> bool {
        table == UNIQUE && name_of(row).and_then(|name| self.names.get(&name)).is_some_and(|other| other != key)
    }

    /// Puts rows one after the other, and returns their number. Returns `None`, without any effect, if another row has the
    /// unique value of one of them when its turn comes.
    fn put_all<'r>(
        &mut self,
        table: usize,
        mut rows: impl ExactSizeIterator<Item = &'r (Vec<u8>, Vec<u8>)>,
    ) -> Option<usize> {
        let (number, mut before) = (rows.len(), Vec::new());
        let can = rows.all(|(key, row)| {
            let can = !self.clashes(table, key, row);
            if can {
                before.push((key, self.maps[table].get(key).cloned()));
                self.put(table, key, row.clone());
            }
            can
        });
        if can {
            return Some(number);
        }
        for (key, row) in before.into_iter().rev() {
            match row {
                Some(row) => self.put(table, key, row),
                None => drop(self.remove(table, key)),
            }
        }
        None
    }

    /// Applies the effect of a statement, and compares its answer with the model's answer.
    ///
    /// # Errors
    /// Returns an error if the answers differ.
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
            Op::GetMany { table, keys, found } => {
                keys.iter().map(|key| self.maps[*table].get(key)).eq(found.iter().map(Option::as_ref))
            }
            Op::PutMany { table, rows, done } => self.put_all(*table, rows.iter()).is_some() == *done,
            Op::ReplaceMany { table, rows, done } => {
                // The statement changes no keys, so the keys that exist now also existed before it.
                let there = |(key, _): &&(Vec<u8>, Vec<u8>)| self.maps[*table].contains_key(key);
                let rows: Vec<_> = rows.iter().filter(there).collect();
                self.put_all(*table, rows.into_iter()) == *done
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
            Op::Delete { table, key, done } => self.remove(*table, key) == *done,
            Op::DeleteRange { table, from, to, done } => {
                let keys: Vec<Vec<u8>> = self.range(*table, from, to).map(|(key, _)| key.clone()).collect();
                self.remove_all(*table, &keys) == *done
            }
            Op::Empty { table } => {
                let keys: Vec<Vec<u8>> = self.maps[*table].keys().cloned().collect();
                self.remove_all(*table, &keys);
                true
            }
            Op::Number { table, from, to, found } => self.range(*table, from, to).count() as u64 == *found,
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
            Op::Heads { table, keys, found } => {
                let mut digest = RowDigest::default();
                for key in keys {
                    self.count_up(*table, key, &mut digest);
                }
                digest == *found
            }
            Op::GetParts { table, key, parts, found } => {
                self.maps[*table].get(key).map(|row| parts_of(row, parts)) == *found
            }
            Op::CountParts { table, keys, parts, found } => {
                let mut digest = RowDigest::default();
                for key in keys {
                    let Some(mut row) = self.maps[*table].get(key).cloned() else { continue };
                    let before = parts_of(&row, parts);
                    if let Some(part) = row.get_mut(parts[0].clone()) {
                        part.iter_mut().for_each(count_byte);
                        digest.add(*table, key, &before);
                        self.put(*table, key, row);
                    }
                }
                digest == *found
            }
            Op::Sweep { table, from, to, found } => {
                let mut digest = RowDigest::default();
                let keys: Vec<Vec<u8>> = self.range(*table, from, to).map(|(key, _)| key.clone()).collect();
                for key in &keys {
                    if !self.count_up(*table, key, &mut digest) {
                        digest.add(*table, key, &self.maps[*table][key]);
                    }
                }
                digest == *found
            }
            Op::Ends { table, from, to, back, found } => {
                let mut digest = RowDigest::default();
                let mut rows = self.range(*table, from, to).filter(|(key, _)| *key < to);
                for back in back {
                    let Some((key, row)) = (if *back { rows.next_back() } else { rows.next() }) else { break };
                    digest.add(*table, key, row);
                }
                digest == *found
            }
            Op::Entries { table, index, from, to, descending, most, found } => {
                let entries = tables::entries(*table, *index, self.maps[*table].iter());
                let mut entries: Vec<_> = entries.iter().filter(|(entry, _)| entry >= from && entry <= to).collect();
                if *descending {
                    entries.reverse();
                }
                let mut digest = RowDigest::default();
                entries.into_iter().take(*most).for_each(|(entry, key)| digest.add(*table, entry, key));
                digest == *found
            }
            Op::ByClass { table, from, to, found } => {
                let mut digest = RowDigest::default();
                for (entry, key) in tables::entries(*table, tables::CLASS, self.maps[*table].iter()) {
                    if entry >= *from && (entry < *to || entry.starts_with(to)) {
                        digest.add(*table, &key, &self.maps[*table][&key]);
                    }
                }
                digest == *found
            }
        };
        if here { Ok(()) } else { Err(format!("{op:?} is not what a serial run gives")) }
    }

    /// Increments the head of a row that exists and is long enough. Adds the row before the change to `digest`. Returns
    /// false if the row was skipped.
    fn count_up(&mut self, table: usize, key: &[u8], digest: &mut RowDigest) -> bool {
        let Some(row) = self.maps[table].get(key).cloned() else { return false };
        let Some(counted) = counted(row.clone()) else { return false };
        digest.add(table, key, &row);
        self.put(table, key, counted);
        true
    }

    fn range(&self, table: usize, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
        // A range whose end is before its start would make the map panic.
        let to = to.max(from);
        self.maps[table].range::<[u8], _>((Bound::Included(from), Bound::Included(to)))
    }

    /// Describes the first difference between the model and the rows of a database.
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

/// Returns a row with its head incremented; `None` if the row is too short for a head.
pub(crate) fn counted(mut row: Vec<u8>) -> Option<Vec<u8>> {
    count(row.first_chunk_mut()?);
    Some(row)
}

/// Increments a byte of a part, as the statements on parts do.
pub(crate) fn count_byte(byte: &mut u8) {
    *byte = byte.wrapping_add(1);
}

/// Increments a head, as the statements on heads do.
pub(crate) fn count(head: &mut [u8; 8]) {
    *head = u64::from_le_bytes(*head).wrapping_add(1).to_le_bytes();
}
