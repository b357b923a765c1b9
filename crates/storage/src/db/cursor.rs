//! Cursors: the rows of a range, one by one, from both ends.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};

use super::table::{AsTable, SecondaryIndex};
use super::transaction::{Transaction, decoded_key, undecodable};
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::table::codec::{Key, Row};
use crate::table::index::{Index, Want};
use crate::table::indexed::entry_key;
use crate::table::info::{Secondary, TableInfo};
use crate::table::scan::{BackwardScan, ScanEnd, ScanSpec};

/// Rows fetched at a time.
const FETCH: usize = 64;

/// The rows of a range, in order. `next` takes them from the front, `next_back` from the back.
///
/// Rows are locked as they are fetched, up to 64 at a time. After an error the cursor is at its end. While a cursor is
/// open the transaction can read, also through other cursors, but not write: see [`Transaction`].
#[derive(Debug)]
pub struct Cursor<'tx, 'db, K, V> {
    tx: &'tx Transaction<'db>,
    /// `None` if there is no such table.
    table: Option<&'db TableInfo>,
    /// The secondary index whose order is followed.
    by: Option<&'db Secondary>,
    /// The rest to fetch: from here,
    from: Vec<u8>,
    /// up to here.
    to: Option<Vec<u8>>,
    front: VecDeque<(Vec<u8>, Vec<u8>)>,
    back: VecDeque<(Vec<u8>, Vec<u8>)>,
    done: bool,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'db> Transaction<'db> {
    /// The rows of a range of keys, from both ends as the caller chooses.
    ///
    /// # Errors
    /// The items of the cursor are results: see [`TxnError`].
    pub fn range<'tx, K: Key, V: Row>(
        &'tx self,
        table: &impl AsTable<K, V>,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor<'tx, 'db, K, V>, TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(Cursor::empty(self)) };
        self.enter(OperationKind::Scan, &info.primary);
        let (from, to) = bounds_of(&range);
        Ok(Cursor::primary(self, info, from, to))
    }

    /// The rows whose value in a secondary index lies in a range, in the index's order.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has no such index, or another type declares the index of this name.
    pub fn range_by<'tx, I: SecondaryIndex>(
        &'tx self,
        table: &impl AsTable<I::Key, I::Row>,
        range: impl RangeBounds<I::By>,
    ) -> Result<Cursor<'tx, 'db, I::Key, I::Row>, TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(Cursor::empty(self)) };
        let secondary = info.secondary::<I>()?;
        self.enter(OperationKind::Scan, &secondary.index);
        let (from, to) = bounds_of(&range);
        Ok(Cursor::secondary(self, info, secondary, from, to))
    }
}

/// A range of keys as bytes: first key, and the first key behind it (`None`: to the end).
pub(crate) fn bounds_of<K: Key>(range: &impl RangeBounds<K>) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut from = Vec::new();
    match range.start_bound() {
        Bound::Included(key) => key.encode(&mut from),
        Bound::Excluded(key) => {
            key.encode(&mut from);
            behind(&mut from);
        }
        Bound::Unbounded => {}
    }
    let mut to = Vec::new();
    match range.end_bound() {
        Bound::Included(key) => {
            key.encode(&mut to);
            behind(&mut to);
        }
        Bound::Excluded(key) => key.encode(&mut to),
        Bound::Unbounded => return (from, None),
    }
    (from, Some(to))
}

/// Turns a key into the least byte string above everything that begins with it. No key of a type is the beginning of
/// another key of that type, so nothing else lies in between; an exception are index entries with the primary key
/// behind the value, which belong to the value.
fn behind(key: &mut Vec<u8>) {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return;
        }
    }
    // All bytes were 255: only longer strings of that kind lie above.
    key.extend_from_slice(&[u8::MAX; 513]);
}

impl<'tx, 'db, K: Key, V: Row> Cursor<'tx, 'db, K, V> {
    pub(crate) fn primary(
        tx: &'tx Transaction<'db>,
        table: &'db TableInfo,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    ) -> Self {
        Cursor { table: Some(table), from, to, done: false, ..Cursor::empty(tx) }
    }

    /// The rows of a table that does not exist.
    pub(crate) fn empty(tx: &'tx Transaction<'db>) -> Self {
        Cursor {
            tx,
            table: None,
            by: None,
            from: Vec::new(),
            to: None,
            front: VecDeque::new(),
            back: VecDeque::new(),
            done: true,
            types: PhantomData,
        }
    }

    pub(crate) fn secondary(
        tx: &'tx Transaction<'db>,
        table: &'db TableInfo,
        by: &'db Secondary,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    ) -> Self {
        Cursor { by: Some(by), ..Cursor::primary(tx, table, from, to) }
    }

    fn fetch(&mut self, index: &Index, from_back: bool) -> Result<(), TxnError> {
        let mut rows = Vec::with_capacity(FETCH);
        let mut visit = |key: &[u8], row: &[u8]| {
            rows.push((key.to_vec(), row.to_vec()));
            if rows.len() < FETCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let end = self.to.as_deref().map_or(ScanEnd::Never, ScanEnd::Before);
        if self.to.as_ref().is_some_and(|to| *to <= self.from) {
            self.done = true;
            return Ok(());
        }
        if from_back {
            let scan = BackwardScan::new(end, ScanEnd::With(&self.from), Want::Read);
            self.tx.step(|txn| txn.scan_backward(index, scan, &mut visit))?;
        } else {
            let wanted = ScanSpec { from: &self.from, to: end, want: Want::Read, likely: FETCH };
            self.tx.step(|txn| txn.scan(index, wanted, &mut visit))?;
        }
        self.done = rows.len() < FETCH;
        if let Some((key, _)) = rows.last() {
            if from_back {
                self.to = Some(key.clone());
            } else {
                self.from.clone_from(key);
                self.from.push(0);
            }
        }
        let side = if from_back { &mut self.back } else { &mut self.front };
        side.extend(rows);
        Ok(())
    }

    fn step(&mut self, from_back: bool) -> Result<Option<(K, V)>, TxnError> {
        let Some(table) = self.table else { return Ok(None) };
        let index = self.by.map_or(&table.primary, |by| &by.index);
        loop {
            if (if from_back { &self.back } else { &self.front }).is_empty() && !self.done {
                self.fetch(index, from_back)?;
            }
            let row = if from_back {
                self.back.pop_front().or_else(|| self.front.pop_back())
            } else {
                self.front.pop_front().or_else(|| self.back.pop_back())
            };
            let Some((key, row)) = row else { return Ok(None) };
            let Some(by) = self.by else {
                let decoded = V::decode(&row).ok_or_else(|| undecodable::<V>(index))?;
                return Ok(Some((decoded_key(&key, index)?, decoded)));
            };
            // The entry's value is the primary key. While the entry is locked its row exists and matches it; under read
            // committed the row may have been deleted since, or have another value in the index.
            let primary = &table.primary;
            let committed_only = self.tx.isolation() == Isolation::ReadCommitted;
            let mut entry = Vec::new();
            let found = self.tx.read(primary, &row, Want::Read, |bytes| {
                let belongs = !committed_only || entry_key(by, &row, bytes, &mut entry) && entry == key;
                belongs.then(|| V::decode(bytes))
            })?;
            match found {
                Some(Some(Some(decoded))) => return Ok(Some((decoded_key(&row, primary)?, decoded))),
                None | Some(None) if committed_only => {}
                _ => return Err(undecodable::<V>(primary)),
            }
        }
    }

    fn stop_at_error(&mut self, step: Result<Option<(K, V)>, TxnError>) -> Option<Result<(K, V), TxnError>> {
        if step.is_err() {
            self.done = true;
            self.front.clear();
            self.back.clear();
        }
        step.transpose()
    }
}

impl<K: Key, V: Row> Iterator for Cursor<'_, '_, K, V> {
    type Item = Result<(K, V), TxnError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step(false);
        self.stop_at_error(step)
    }
}

impl<K: Key, V: Row> DoubleEndedIterator for Cursor<'_, '_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let step = self.step(true);
        self.stop_at_error(step)
    }
}
