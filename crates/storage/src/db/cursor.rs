//! Cursors: iterators over the rows of a range, from both ends.

use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use super::table::{AsTable, SecondaryIndex};
use super::transaction::{Transaction, decoded_key, undecodable};
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::btree::MAX_KEY;
use crate::table::codec::{Key, Row};
use crate::table::columns::WHOLE;
use crate::table::index::{AccessMode, Index};
use crate::table::indexed::entry_key;
use crate::table::info::{Secondary, TableInfo};
use crate::table::scan::{BackwardScan, ForwardScan, ScanEnd, ScanSpec};
use crate::txn::buffers::RowBatch;

/// Maximum number of rows in the first fetch. Each later fetch may be eight times as large as the previous one. A fetch
/// reads at most one leaf.
const FETCH: usize = 64;

/// An iterator over the rows of a range, in order. `next` takes rows from the front, `next_back` from the back.
///
/// Rows are locked when they are fetched: up to 64 rows in the first fetch, later up to a page of rows. After an error
/// the cursor is at its end. While a cursor is open, the transaction can read, also through other cursors, but not
/// write: see [`Transaction`].
#[derive(Debug)]
pub struct Cursor<'tx, 'db, K, V> {
    tx: &'tx Transaction<'db>,
    /// `None` if the table does not exist.
    table: Option<&'db TableInfo>,
    /// The secondary index whose order the cursor follows; `None` for the order of the primary keys.
    by: Option<&'db Secondary>,
    /// Start of the range that is not fetched yet (inclusive).
    from: Vec<u8>,
    /// End of the range that is not fetched yet (exclusive); `None` if the range is unbounded.
    to: Option<Vec<u8>>,
    /// The scan from the front, and the unread rows of its batch.
    front: Option<ForwardScan>,
    front_rows: Range<usize>,
    /// The scan from the back, and the unread rows of its batch, in descending order.
    back: Option<BackwardScan>,
    back_rows: Range<usize>,
    /// True if all rows are fetched.
    done: bool,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'db> Transaction<'db> {
    /// Returns a cursor over the rows of a range of keys.
    ///
    /// # Errors
    /// The items of the cursor are results: see [`TxnError`].
    pub fn range<'tx, K: Key, V: Row>(
        &'tx self,
        table: &impl AsTable<K, V>,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor<'tx, 'db, K, V>, TxnError> {
        let Some(info) = self.table_to_read(table, AccessMode::Read)? else { return Ok(Cursor::empty(self)) };
        self.enter(OperationKind::Scan, &info.primary);
        let (from, to) = bounds_of(&range);
        Ok(Cursor::primary(self, info, from, to))
    }

    /// Returns a cursor over the rows whose index key lies in a range, in the order of the index.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has no such index, or if another type declares the index of this name.
    pub fn range_by<'tx, I: SecondaryIndex>(
        &'tx self,
        table: &impl AsTable<I::Key, I::Row>,
        range: impl RangeBounds<I::By>,
    ) -> Result<Cursor<'tx, 'db, I::Key, I::Row>, TxnError> {
        let Some(info) = self.table_to_read(table, AccessMode::Read)? else { return Ok(Cursor::empty(self)) };
        let secondary = info.secondary::<I>()?;
        self.enter(OperationKind::Scan, &secondary.index);
        let (from, to) = bounds_of(&range);
        Ok(Cursor::secondary(self, info, secondary, from, to))
    }
}

/// Reads the large value of a row in a batch. Returns `None` if the row was deleted after the batch was fetched.
#[cold]
fn referred(tx: &Transaction<'_>, index: &Index, batch: &RowBatch, at: usize) -> Result<Option<Vec<u8>>, TxnError> {
    let mut value = Vec::new();
    let found = tx.step(|txn| txn.read_referred(index, batch.key(at), batch.value(at), &mut value))?;
    Ok(found.then_some(value))
}

/// Returns the encoded bounds of a range of keys: the first key of the range, and the first key after the range (`None`
/// if the range is unbounded).
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

/// Replaces a key by the smallest byte string above all strings that begin with the key. No key of a type is a prefix
/// of another key of the same type, so a range up to this string contains no further key. Entries of an index begin
/// with their index key, so the range contains all entries of the index key.
pub(super) fn behind(key: &mut Vec<u8>) {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return;
        }
    }
    // All bytes of the key were 255, so only longer strings of such bytes lie above the key.
    key.resize(MAX_KEY + 1, u8::MAX);
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

    /// Returns a cursor over no rows, for a missing table.
    pub(crate) fn empty(tx: &'tx Transaction<'db>) -> Self {
        Cursor {
            tx,
            table: None,
            by: None,
            from: Vec::new(),
            to: None,
            front: None,
            front_rows: 0..0,
            back: None,
            back_rows: 0..0,
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

    /// Fetches the next rows at one end of the remaining range.
    fn fetch(&mut self, index: &Index, from_back: bool) -> Result<(), TxnError> {
        if self.to.as_ref().is_some_and(|to| *to <= self.from) {
            self.done = true;
            return Ok(());
        }
        let end = self.to.as_deref().map_or(ScanEnd::Never, ScanEnd::Before);
        let wanted = ScanSpec { from: &self.from, to: end, access: AccessMode::Read, likely: FETCH };
        if from_back {
            let scan = match &mut self.back {
                Some(scan) => scan,
                none => none.insert(self.tx.step(|txn| txn.begin_scan_below(index, &wanted))?),
            };
            self.done = !self.tx.step(|txn| txn.next_batch_below(index, scan, &wanted))?;
            if !self.done {
                self.back_rows = 0..scan.batch.len();
                let to = self.to.get_or_insert_default();
                to.clear();
                to.extend_from_slice(scan.batch.key(scan.batch.len() - 1));
            }
        } else {
            let scan = match &mut self.front {
                Some(scan) => scan,
                none => none.insert(self.tx.step(|txn| txn.begin_scan(index, &wanted))?),
            };
            self.done = self.tx.step(|txn| txn.next_batch(index, scan, &wanted))?.is_none();
            if !self.done {
                self.front_rows = 0..scan.batch.len();
                self.from.clear();
                self.from.extend_from_slice(scan.batch.key(scan.batch.len() - 1));
                self.from.push(0);
            }
        }
        Ok(())
    }

    /// Returns the next row at one end of the range, as a batch and the row's index in the batch.
    fn advance(&mut self, index: &Index, from_back: bool) -> Result<Option<(&RowBatch, usize)>, TxnError> {
        if (if from_back { &self.back_rows } else { &self.front_rows }).is_empty() && !self.done {
            self.fetch(index, from_back)?;
        }
        // If all rows of the range are fetched, the batch of the other end contains the remaining rows, in reverse
        // order.
        let (front, at) = if from_back {
            match self.back_rows.next() {
                Some(at) => (false, Some(at)),
                None => (true, self.front_rows.next_back()),
            }
        } else {
            match self.front_rows.next() {
                Some(at) => (true, Some(at)),
                None => (false, self.back_rows.next_back()),
            }
        };
        let batch = if front {
            self.front.as_ref().map(|scan| &scan.batch)
        } else {
            self.back.as_ref().map(|scan| &scan.batch)
        };
        Ok(batch.zip(at))
    }

    fn step(&mut self, from_back: bool) -> Result<Option<(K, V)>, TxnError> {
        let (tx, Some(table)) = (self.tx, self.table) else { return Ok(None) };
        let Some(by) = self.by else {
            let index = &table.primary;
            loop {
                let Some((batch, at)) = self.advance(index, from_back)? else { return Ok(None) };
                let row = if batch.row(at).is_reference {
                    let Some(row) = referred(tx, index, batch, at)? else { continue };
                    V::decode(&row)
                } else {
                    V::decode(batch.value(at))
                };
                let row = row.ok_or_else(|| undecodable::<V>(index))?;
                return Ok(Some((decoded_key(batch.key(at), index)?, row)));
            }
        };
        // The entry's value is the primary key. While the entry is locked, its row exists and matches the entry. Under
        // read committed the entry is not locked, so the row may have been deleted, or its index key may have changed.
        let primary = &table.primary;
        let committed_only = tx.isolation() == Isolation::ReadCommitted;
        loop {
            let Some((batch, at)) = self.advance(&by.index, from_back)? else { return Ok(None) };
            let (key, mut row) = (batch.key(at), batch.value(at));
            let large;
            if batch.row(at).is_reference {
                let Some(value) = referred(tx, &by.index, batch, at)? else { continue };
                large = value;
                row = &large;
            }
            let found = tx.read(primary, row, AccessMode::Read, WHOLE, |bytes| {
                let belongs = !committed_only || {
                    let mut entry = Vec::new();
                    entry_key(by, row, bytes, &mut entry) && entry == key
                };
                belongs.then(|| V::decode(bytes))
            })?;
            match found {
                Some(Some(Some(decoded))) => return Ok(Some((decoded_key(row, primary)?, decoded))),
                None | Some(None) if committed_only => {}
                _ => return Err(undecodable::<V>(primary)),
            }
        }
    }

    fn stop_at_error(&mut self, step: Result<Option<(K, V)>, TxnError>) -> Option<Result<(K, V), TxnError>> {
        if !matches!(step, Ok(Some(_))) {
            self.end(step.is_err());
        }
        step.transpose()
    }

    /// Ends the cursor at the end of the range or after an error: returns its buffers to the transaction.
    #[cold]
    fn end(&mut self, failed: bool) {
        self.done = true;
        if failed {
            (self.front_rows, self.back_rows) = (0..0, 0..0);
        }
        let (front, back) = (self.front.take(), self.back.take());
        self.tx.give_back(|txn| {
            back.into_iter().for_each(|scan| txn.end_scan_below(scan));
            front.into_iter().for_each(|scan| txn.end_scan(scan));
        });
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
