//! Buffers of a transaction for keys and rows. The buffers stay with the slot, so only the first transactions of a slot
//! allocate them.

use std::ops::ControlFlow;

use crate::btree::Tree;
use crate::btree::group::{KeyQuery, RowPart};

/// Buffers for encoded keys and rows. The buffers stay with the slot, so only the first transactions of a slot allocate
/// them.
#[derive(Debug, Default)]
pub(crate) struct EncodedBuffers {
    pub(crate) key: Vec<u8>,
    pub(crate) row: Vec<u8>,
    pub(crate) keys: EncodedKeys,
}

/// Encoded keys, concatenated.
#[derive(Debug, Default)]
pub(crate) struct EncodedKeys {
    bytes: Vec<u8>,
    /// End of each key in `bytes`.
    ends: Vec<usize>,
}

impl EncodedKeys {
    /// Removes all keys.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the key that `encode` appends.
    #[inline]
    pub(crate) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Iterates over the keys, in the order in which they were added.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

/// Maximum number of additional rows that are searched with a group of keys.
const MAX_EXTRA_ROWS: usize = 4;

/// Additional rows to search together with the next group of keys, independent of the keys in the group.
#[derive(Debug, Default)]
pub(crate) struct ExtraRows {
    keys: EncodedKeys,
    /// For each row, its tree and the part of the row to prefetch.
    rows: Vec<(Tree, RowPart)>,
}

impl ExtraRows {
    /// Adds a row to search. The row is a hint: rows beyond the maximum are ignored.
    #[inline]
    pub(crate) fn push(&mut self, (tree, key, part): KeyQuery<'_>) {
        if self.rows.len() < MAX_EXTRA_ROWS {
            self.keys.push(|out| out.extend_from_slice(key));
            self.rows.push((tree, part));
        }
    }

    /// Returns true if there are no rows.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes all rows.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
    }

    /// Iterates over the rows.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = KeyQuery<'_>> {
        self.keys.iter().zip(&self.rows).map(|(key, (tree, part))| (*tree, key, *part))
    }
}

/// Rows copied out of a leaf, concatenated.
#[derive(Debug, Default)]
pub(crate) struct RowBatch {
    bytes: Vec<u8>,
    rows: Vec<BatchRow>,
    /// True if some values are references to large values in place of the values themselves.
    has_references: bool,
    /// Number of ghosts that the scan has visited so far.
    pub(crate) ghosts: usize,
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRow {
    key: (u32, u32),
    value: (u32, u32),
    /// Slot position in the leaf.
    pub(crate) position: u16,
    /// True if the value is a reference to a large value.
    pub(crate) is_reference: bool,
}

impl RowBatch {
    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.has_references = false;
    }

    /// Marks the value of the last row as a reference.
    #[cold]
    pub(crate) fn refers(&mut self) {
        if let Some(last) = self.rows.last_mut() {
            last.is_reference = true;
            self.has_references = true;
        }
    }

    /// Returns true if some values are references to large values.
    /// [`Txn::read_referred`](crate::txn::transaction::Txn::read_referred) reads these values.
    #[inline]
    pub(crate) fn has_references(&self) -> bool {
        self.has_references
    }

    /// Removes the rows after the first `n`.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.rows.truncate(n);
    }

    /// Adds a row. `fill` appends the key and the value of the row and returns the length of the key. Returns false if
    /// `fill` returns `None`.
    #[inline]
    pub(crate) fn add(&mut self, position: usize, fill: impl FnOnce(&mut Vec<u8>) -> Option<usize>) -> bool {
        let start = self.bytes.len() as u32;
        let Some(key_len) = fill(&mut self.bytes) else { return false };
        let (middle, end) = (start + key_len as u32, self.bytes.len() as u32);
        let (key, value) = ((start, middle), (middle, end));
        self.rows.push(BatchRow { key, value, position: position as u16, is_reference: false });
        true
    }

    /// Calls `visit` with each row until it breaks.
    #[inline]
    pub(crate) fn visit(&self, visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        (0..self.len()).try_for_each(|i| visit(self.key(i), self.value(i)))
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns row `i`.
    #[inline]
    pub(crate) fn row(&self, i: usize) -> BatchRow {
        self.rows[i]
    }

    /// Returns the key of row `i`.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let (from, to) = self.rows[i].key;
        &self.bytes[from as usize..to as usize]
    }

    /// Returns the value of row `i`.
    #[inline]
    pub(crate) fn value(&self, i: usize) -> &[u8] {
        let (from, to) = self.rows[i].value;
        &self.bytes[from as usize..to as usize]
    }
}
