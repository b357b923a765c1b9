//! Random statements of a transaction, with their answers. The statements are of every kind: typed and raw, on one row and
//! on several rows.

use std::ops::{ControlFlow, Range};

use storage::optimistic::Peeker;
use storage::{Columns, Database, TableLock, Transaction, TxnError};

use super::model::{Op, Parts, RowDigest, count, count_byte};
use super::panics;
use super::rng::Rng;
use super::tables::{self, ByClass, Bytes, HEAD, Tables, hash_of};
use super::workload::{Profile, key, row};

/// Maximum number of keys of a statement on several rows. It exceeds the number of keys that the engine processes in one
/// batch.
const MAX_KEYS: u64 = 40;

/// Head of a row, as the type of its columns.
struct Head([u8; HEAD]);

impl Columns<Vec<u8>> for Head {
    const RANGE: Range<usize> = 0..HEAD;
    fn decode(bytes: &[u8]) -> Option<Head> {
        bytes.try_into().ok().map(Head)
    }
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.copy_from_slice(&self.0);
    }
}

/// Generator of random statements within a transaction.
pub(crate) struct StatementMaker<'a, 'db> {
    pub(crate) db: &'a Database,
    pub(crate) tx: &'a mut Transaction<'db>,
    pub(crate) tables: &'a Tables,
    pub(crate) rng: &'a mut Rng,
    pub(crate) profile: &'a Profile,
    /// True in an iteration of a loop, which cannot lock whole tables.
    pub(crate) in_loop: bool,
}

impl StatementMaker<'_, '_> {
    /// Announces random keys to the engine, like a program that knows the keys of a transaction in advance. Returns the
    /// keys.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn announce(&mut self) -> Result<Vec<u64>, TxnError> {
        let StatementMaker { tx, tables, rng, profile, .. } = self;
        let announced: Vec<u64> = (0..1 + rng.below(20)).map(|_| rng.below(profile.keys)).collect();
        let keys: Vec<Vec<u8>> = announced.iter().map(|n| key(*n)).collect();
        match rng.below(4) {
            0 | 1 => {
                // Each key has a random table, and all keys are in one group.
                let any = |rng: &mut Rng| tables[rng.index(tables.len())];
                tx.raw().prefetch(keys.iter().map(|key| (any(rng), key.as_slice(), 64)));
                tx.raw_mut().prefetch_insert(&tables[0], &keys[0]);
                tx.find_together(rng.once_in(2));
                keys.iter().for_each(|key| tx.raw_mut().prefetch_along(&tables[rng.index(tables.len())], key, 64));
            }
            2 => {
                for table in *tables {
                    tx.raw().prefetch(keys.iter().map(|key| (*table, key.as_slice(), 64)));
                }
            }
            _ => {
                let keys: Vec<Bytes> = keys.into_iter().map(Bytes).collect();
                tx.prefetch(&tables[rng.index(tables.len())], &keys)?;
            }
        }
        Ok(announced)
    }

    /// Makes one random statement. If there are announced keys, usually uses one of them. Returns the statement with its
    /// answer.
    ///
    /// # Errors
    /// Returns errors of the engine, except duplicates, which are answers.
    pub(crate) fn statement(&mut self, announced: &[u64]) -> Result<Op, TxnError> {
        if self.rng.once_in(40) && !self.in_loop {
            self.lock_table()?;
        }
        let table = self.rng.index(self.tables.len());
        let n = if announced.is_empty() || self.rng.once_in(3) {
            self.rng.below(self.profile.keys)
        } else {
            self.rng.pick(announced)
        };
        match self.rng.below(10) {
            kind if kind < self.profile.reads => self.read(table, n),
            kind if kind < self.profile.reads + self.profile.deletes => self.delete(table, n),
            _ => self.write(table, n),
        }
    }

    /// Puts a row without reading it. A transaction may do so at any isolation level and remain equivalent to a serial run.
    /// Tables with a unique index are excluded, because the check for duplicates is a read.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn put_blindly(&mut self) -> Result<Op, TxnError> {
        let table = self.rng.index(tables::UNIQUE);
        let (key, row) = (key(self.rng.below(self.profile.keys)), row(self.rng, self.profile));
        self.tx.put(&self.tables[table], &Bytes(key.clone()), &row)?;
        Ok(Op::Put { table, key, row, done: true })
    }

    fn lock_table(&mut self) -> Result<(), TxnError> {
        let mode = self.rng.pick(&[
            TableLock::IntentShared,
            TableLock::IntentExclusive,
            TableLock::Shared,
            TableLock::SharedIntentExclusive,
            TableLock::Exclusive,
        ]);
        self.tx.lock_table(&self.tables[self.rng.index(self.tables.len())], mode)
    }

    fn read(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let indexed = tables::indexes(table) > 0;
        match self.rng.below(10) {
            0 => self.scan(table, n),
            1 => self.number(table, n),
            2 => self.ends(table, n),
            3 if indexed => self.entries(table),
            4 if indexed => self.by_class(table),
            5 => self.get_many(table, n),
            _ => self.get(table, key(n)),
        }
    }

    fn get(&mut self, table: usize, key: Vec<u8>) -> Result<Op, TxnError> {
        let handle = &self.tables[table];
        let found = match self.rng.below(8) {
            6 => self.read_in_pieces(table, &key)?,
            7 => {
                // If the row ends before these columns, decoding it fails.
                let found = match self.tx.get_columns::<_, _, Head>(handle, &Bytes(key.clone())) {
                    Ok(found) => found.map(|head| head.0.to_vec()),
                    Err(TxnError::Decode { .. }) => Some(Vec::new()),
                    Err(error) => return Err(error),
                };
                return Ok(Op::GetParts { table, key, parts: vec![Head::RANGE], found });
            }
            5 => {
                let parts = self.parts(usize::MAX);
                let found = self.tx.raw().read_columns(handle, &key, &parts, <[u8]>::to_vec)?;
                return Ok(Op::GetParts { table, key, parts, found });
            }
            4 => return self.confirm(table, key),
            0 => self.tx.get(handle, &Bytes(key.clone()))?,
            1 => self.tx.get_for_update(handle, &Bytes(key.clone()))?,
            _ => self.tx.raw().read(handle, &key, <[u8]>::to_vec)?,
        };
        Ok(Op::Get { table, key, found })
    }

    /// Reads a row of any length in pieces, with only a few bytes in memory at a time.
    fn read_in_pieces(&self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>, TxnError> {
        let handle = &self.tables[table];
        // The raw key and the typed key have the same bytes, so either may be used.
        let opened = if key.len().is_multiple_of(2) {
            self.tx.raw().read_value(handle, key)?
        } else {
            self.tx.read_value(handle, &Bytes(key.to_vec()))?
        };
        let Some(mut value) = opened else { return Ok(None) };
        let mut row = Vec::new();
        loop {
            let piece = value.piece()?;
            if piece.is_empty() {
                break;
            }
            row.extend_from_slice(piece);
        }
        if row.len() as u64 != value.len() {
            panics::raise_finding(format!("a row of {} bytes says that it has {}", row.len(), value.len()));
        }
        Ok(Some(row))
    }

    /// Reads a row without a lock. Then locks the row if it is unchanged since the read; otherwise reads it again.
    fn confirm(&mut self, table: usize, key: Vec<u8>) -> Result<Op, TxnError> {
        let mut peeker = Peeker::default();
        if self.rng.once_in(2) {
            let parts = self.parts(usize::MAX);
            let handle = &self.tables[table];
            let (row, place) = self.db.raw().peek_columns(&mut peeker, handle, &key, &parts)?;
            let row = row.map(<[u8]>::to_vec);
            let seen = (&parts[..], row.as_deref());
            let same = self.tx.raw_mut().confirm_columns(handle, &key, &place, seen, self.rng.once_in(2))?;
            let found = if same { row } else { self.tx.raw().read_columns(handle, &key, &parts, <[u8]>::to_vec)? };
            return Ok(Op::GetParts { table, key, parts, found });
        }
        let handle = &self.tables[table];
        let (row, place) = self.db.raw().peek(&mut peeker, handle, &key)?;
        let row = row.map(<[u8]>::to_vec);
        let same = self.tx.raw_mut().confirm(handle, &key, &place, row.as_deref(), self.rng.once_in(2))?;
        let found = if same { row } else { self.tx.raw().read(handle, &key, <[u8]>::to_vec)? };
        Ok(Op::Get { table, key, found })
    }

    /// Reads several keys in random order, in one or more groups. The keys are adjacent or distant, and some are repeated.
    fn get_many(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let keys = self.keys(n);
        if self.rng.once_in(2) {
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut found = vec![None; keys.len()];
            let whole = std::slice::from_ref(&(0..usize::MAX));
            self.tx.raw().read_columns_of(&self.tables[table], &borrowed, whole, |at, row| {
                found[at] = Some(row.to_vec());
            })?;
            return Ok(Op::GetMany { table, keys, found });
        }
        let asked: Vec<Bytes> = keys.iter().cloned().map(Bytes).collect();
        let found = self.tx.get_many(&self.tables[table], &asked)?;
        Ok(Op::GetMany { table, keys, found })
    }

    fn scan(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let (from, to) = (key(n), key(n + self.rng.below(20)));
        let mut found = (0, 0u64);
        let visit = |key: &[u8], row: &[u8]| {
            found = (found.0 + 1, found.1.wrapping_add(hash_of(table, key, row)));
            ControlFlow::Continue(())
        };
        if self.rng.once_in(2) {
            self.tx.raw().scan(&self.tables[table], &from, &to, visit)?;
        } else {
            self.tx.raw().scan_backward(&self.tables[table], &from, &to, visit)?;
        }
        Ok(Op::Scan { table, from, to, found })
    }

    fn number(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let (handle, from, to) = (&self.tables[table], key(n), key(n + self.rng.below(200)));
        let found = if self.rng.once_in(2) {
            self.tx.raw().count(handle, &from, &to)?
        } else {
            self.tx.count(handle, Bytes(from.clone())..=Bytes(to.clone()))?
        };
        Ok(Op::Number { table, from, to, found })
    }

    /// Reads rows from both ends of a range, sometimes more rows than a cursor fetches at once.
    fn ends(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let most = self.rng.pick(&[3, 20, 100]);
        let (from, to) = (key(n), key(n + self.rng.below(2 * most)));
        let mixed = self.rng.below(3);
        let back: Vec<bool> = (0..most).map(|_| if mixed == 2 { self.rng.once_in(2) } else { mixed == 1 }).collect();
        let mut found = RowDigest::default();
        let mut rows = self.tx.range(&self.tables[table], Bytes(from.clone())..Bytes(to.clone()))?;
        for back in &back {
            let Some(row) = (if *back { rows.next_back() } else { rows.next() }) else { break };
            let (key, row) = row?;
            found.add(table, &key.0, &row);
        }
        Ok(Op::Ends { table, from, to, back, found })
    }

    fn entries(&mut self, table: usize) -> Result<Op, TxnError> {
        let index = self.rng.index(tables::indexes(table));
        let (from, to) = (vec![self.rng.below(3) as u8], vec![self.rng.below(4) as u8, 0xff]);
        let (descending, most) = (self.rng.once_in(2), self.rng.pick(&[1, 5, 1000]));
        let mut found = RowDigest::default();
        self.tx.raw().scan_index(&self.tables[table], index, &from, &to, descending, |entry, key| {
            found.add(table, entry, key);
            if found.rows() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Op::Entries { table, index, from, to, descending, most, found })
    }

    fn by_class(&mut self, table: usize) -> Result<Op, TxnError> {
        let mut class = || vec![self.rng.below(2) as u8, self.rng.below(4) as u8];
        let (one, two) = (class(), class());
        let (from, to) = if one < two { (one, two) } else { (two, one) };
        let mut found = RowDigest::default();
        for row in self.tx.range_by::<ByClass>(&self.tables[table], Bytes(from.clone())..=Bytes(to.clone()))? {
            let (key, row) = row?;
            found.add(table, &key.0, &row);
        }
        Ok(Op::ByClass { table, from, to, found })
    }

    fn delete(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let (handle, key) = (&self.tables[table], key(n));
        match self.rng.below(6) {
            0 => {
                let to = super::workload::key(n + self.rng.below(16));
                let done = if self.rng.once_in(2) {
                    self.tx.raw_mut().delete_range(handle, &key, &to)?
                } else {
                    self.tx.delete_range(handle, Bytes(key.clone())..=Bytes(to.clone()))?
                };
                Ok(Op::DeleteRange { table, from: key, to, done })
            }
            1 => {
                let to = super::workload::key(n + 1 + self.rng.below(50));
                let taken = self.tx.raw_mut().take_first(handle, &key, &to)?;
                Ok(Op::TakeFirst { table, from: key, to, taken })
            }
            2 => {
                let done = self.tx.delete(handle, &Bytes(key.clone()))?;
                Ok(Op::Delete { table, key, done })
            }
            _ => {
                let done = self.tx.raw_mut().delete(handle, &key)?;
                Ok(Op::Delete { table, key, done })
            }
        }
    }

    fn write(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        match self.rng.below(10) {
            0 | 1 => self.insert(table, key(n)),
            2 if self.rng.once_in(2) => self.count(table, key(n)),
            2 => self.count_parts(table, n),
            3 => self.update(table, key(n)),
            4 => self.insert_run(table, n),
            5 | 6 => self.heads(table, n),
            // The other tables have indexes, and this statement does not support tables with indexes.
            7 if table == 0 => self.sweep(n),
            8 if self.rng.once_in(2) => self.replace_many(table, n),
            8 => self.put_many(table, n),
            _ => self.put(table, key(n)),
        }
    }

    fn insert(&mut self, table: usize, key: Vec<u8>) -> Result<Op, TxnError> {
        let (handle, row) = (&self.tables[table], row(self.rng, self.profile));
        let inserted = if self.rng.once_in(2) {
            self.tx.raw_mut().insert(handle, &key, &row)
        } else {
            self.tx.insert(handle, &Bytes(key.clone()), &row)
        };
        let done = unless_duplicate(inserted)?.is_some();
        Ok(Op::Insert { table, key, row, done })
    }

    fn count(&mut self, table: usize, key: Vec<u8>) -> Result<Op, TxnError> {
        let handle = &self.tables[table];
        let done = if self.rng.once_in(2) {
            self.tx.raw_mut().update_head(handle, &key, HEAD, |head, _| count_head(head))?
        } else {
            match self.tx.update_columns(handle, &Bytes(key.clone()), |head: &mut Head| count_head(&mut head.0)) {
                Err(TxnError::Decode { .. }) => None,
                done => done?,
            }
        };
        Ok(Op::Count { table, key, done: done.is_some() })
    }

    fn update(&mut self, table: usize, key: Vec<u8>) -> Result<Op, TxnError> {
        let (handle, row) = (&self.tables[table], row(self.rng, self.profile));
        let done = if self.rng.once_in(2) {
            unless_duplicate(self.tx.update(handle, &Bytes(key.clone()), &row))?
        } else {
            let changed = self.tx.raw_mut().update(handle, &key, |bytes| {
                bytes.clear();
                bytes.extend_from_slice(&row);
            });
            unless_duplicate(changed)?.map(|found| found.is_some())
        };
        Ok(Op::Update { table, key, row, done })
    }

    fn put(&mut self, table: usize, key: Vec<u8>) -> Result<Op, TxnError> {
        let row = row(self.rng, self.profile);
        // The other tables have indexes, and index entries are computed from whole rows.
        if table == 0 && self.rng.once_in(3) {
            if self.rng.once_in(2) {
                self.tx.write_value(&self.tables[table], &Bytes(key.clone()), &row[..])?;
            } else {
                self.tx.raw_mut().write_value(&self.tables[table], &key, &row[..])?;
            }
            return Ok(Op::Put { table, key, row, done: true });
        }
        let done = unless_duplicate(self.tx.put(&self.tables[table], &Bytes(key.clone()), &row))?.is_some();
        Ok(Op::Put { table, key, row, done })
    }

    fn insert_run(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let (mut at, mut rows) = (n, Vec::new());
        for _ in 0..1 + self.rng.below(6) {
            rows.push((key(at), row(self.rng, self.profile)));
            at += 1 + self.rng.below(3);
        }
        let borrowed: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, row)| (&key[..], &row[..])).collect();
        let done = unless_duplicate(self.tx.raw_mut().insert_run(&self.tables[table], &borrowed))?.is_some();
        Ok(Op::Run { table, rows, done })
    }

    fn put_many(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let rows: Vec<_> = self.keys(n).into_iter().map(|key| (key, row(self.rng, self.profile))).collect();
        let asked: Vec<_> = rows.iter().map(|(key, row)| (Bytes(key.clone()), row.clone())).collect();
        let done = unless_duplicate(self.tx.put_many(&self.tables[table], &asked))?.is_some();
        Ok(Op::PutMany { table, rows, done })
    }

    /// Replaces rows that were read without locks. Some of the new rows differ from the old ones only in the head.
    fn replace_many(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let (handle, mut peeker) = (&self.tables[table], Peeker::default());
        let (mut rows, mut places) = (Vec::new(), Vec::new());
        let keys = self.keys(n);
        if self.rng.once_in(2) {
            self.db.raw().announce(&mut peeker, keys.iter().map(|key| (*handle, key.as_slice(), 64)));
        }
        for key in keys {
            let (seen, place) = self.db.raw().peek(&mut peeker, handle, &key)?;
            let mut new = row(self.rng, self.profile);
            if let Some(seen) = seen.filter(|_| !self.rng.once_in(3)) {
                new = seen.to_vec();
                if let Some(head) = new.get_mut(..HEAD) {
                    count_head(head);
                }
            }
            rows.push((key, new));
            places.push(place);
        }
        let asked = rows.iter().zip(&places).map(|((key, row), place)| (&key[..], *place, &row[..]));
        let done = unless_duplicate(self.tx.raw_mut().replace_many(handle, asked))?;
        Ok(Op::ReplaceMany { table, rows, done })
    }

    /// Returns keys in random order. The keys are adjacent or distant, and some are repeated.
    fn keys(&mut self, n: u64) -> Vec<Vec<u8>> {
        let reach = self.rng.pick(&[6, 60, self.profile.keys]);
        let mut numbers: Vec<u64> = Vec::new();
        for _ in 0..1 + self.rng.below(MAX_KEYS) {
            let again = !numbers.is_empty() && self.rng.once_in(6);
            let number = (n + self.rng.below(reach)) % self.profile.keys;
            numbers.push(if again { self.rng.pick(&numbers) } else { number });
        }
        numbers.into_iter().map(key).collect()
    }

    fn heads(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        let keys = self.keys(n);
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found = RowDigest::default();
        let rows = self.tx.raw_mut().update_heads(&self.tables[table], &borrowed, HEAD, |at, head, rest| {
            found.add(table, &keys[at], &[head, rest].concat());
            count_head(head);
        })?;
        if rows != found.rows() {
            panics::raise_finding(format!(
                "a statement on several rows answers {rows}, and has shown {}",
                found.rows()
            ));
        }
        Ok(Op::Heads { table, keys, found })
    }

    /// Updates parts of one row or of several.
    fn count_parts(&mut self, table: usize, n: u64) -> Result<Op, TxnError> {
        if tables::indexes(table) > 0 && self.rng.once_in(4) {
            self.straddle(table, n)?;
        }
        // Indexes depend on the bytes after the head, so only the head may be updated in a table with indexes.
        let parts = self.parts(if tables::indexes(table) > 0 { HEAD } else { usize::MAX });
        let keys = if self.rng.once_in(2) { self.keys(n) } else { vec![key(n)] };
        let (handle, mut found) = (&self.tables[table], RowDigest::default());
        let mut change = |at: usize, part: &mut [u8], rest: &[u8]| {
            found.add(table, &keys[at], &[part, rest].concat());
            part.iter_mut().for_each(count_byte);
        };
        if let [key] = &keys[..] {
            self.tx.raw_mut().update_columns(handle, key, &parts, |part, rest| change(0, part, rest))?;
        } else {
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            self.tx.raw_mut().update_columns_of(handle, &borrowed, &parts, change)?;
        }
        Ok(Op::CountParts { table, keys, parts, found })
    }

    /// Checks that the engine refuses an in-place update of indexed bytes, even if the updated columns begin before these
    /// bytes.
    fn straddle(&mut self, table: usize, n: u64) -> Result<(), TxnError> {
        let part = self.rng.index(HEAD + 4)..HEAD + 1 + self.rng.index(8);
        let parts = std::slice::from_ref(&part);
        match self.tx.raw_mut().update_columns(&self.tables[table], &key(n), parts, |bytes, _| bytes.fill(0xEE)) {
            Err(TxnError::Schema { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) if part.is_empty() => Ok(()),
            Ok(_) => {
                panics::raise_finding(format!("{part:?} of a row were changed in place, on which an index depends"))
            }
        }
    }

    /// Returns random parts of rows, in any order, possibly overlapping. The first part is not empty and ends at or before
    /// `limit`; other parts may be empty.
    fn parts(&mut self, limit: usize) -> Parts {
        let mut parts: Parts = (0..1 + self.rng.below(3))
            .map(|_| {
                let from = self.rng.index(24);
                from..if self.rng.once_in(5) { usize::MAX } else { from + self.rng.index(24) }
            })
            .collect();
        let from = parts[0].start.min(limit - 1);
        parts[0] = from..(from + 1 + self.rng.index(16)).min(limit);
        parts
    }

    /// Updates every row of a range, sometimes of the whole table.
    fn sweep(&mut self, n: u64) -> Result<Op, TxnError> {
        let reach = self.rng.pick(&[5, 100, self.profile.keys]);
        let (from, to) = (key(n), key(n + self.rng.below(reach)));
        let mut found = RowDigest::default();
        self.tx.raw_mut().update_run(&self.tables[0], &from, &to, |key, row| {
            found.add(0, key, row);
            if let Some(head) = row.get_mut(..HEAD) {
                count_head(head);
            }
        })?;
        Ok(Op::Sweep { table: 0, from, to, found })
    }
}

fn count_head(head: &mut [u8]) {
    if let Some(head) = head.first_chunk_mut() {
        count(head);
    }
}

/// Converts a duplicate error to `None`.
fn unless_duplicate<T>(result: Result<T, TxnError>) -> Result<Option<T>, TxnError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(TxnError::DuplicateKey { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
