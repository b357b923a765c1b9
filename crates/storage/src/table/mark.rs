//! Marks in the catalog: pending operations on trees that no longer belong to a table, or that must be emptied.

use super::entry::TableEntry;

/// First byte of a mark's key. Table names are UTF-8, in which this byte does not occur.
const MARK: u8 = 0xFF;

/// Key of the row with the upper bound of the index numbers in use.
pub(super) const INDEX_BOUND_KEY: &[u8] = &[MARK, b'N'];

/// Pending operation on the trees that a mark names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PendingOperation {
    /// The trees must be removed.
    Dropped = b'D',
    /// The trees must be emptied.
    Emptied = b'E',
}

impl PendingOperation {
    /// Returns the catalog key of the mark for the trees of `entry`. The key contains the number of the first tree,
    /// which is unique.
    pub(super) fn mark(self, entry: &TableEntry) -> Vec<u8> {
        let mut key = vec![MARK, self as u8];
        key.extend_from_slice(&entry.primary.index.0.to_le_bytes());
        key
    }

    /// Returns the pending operation in the key of a catalog row; `None` if the row is no mark.
    pub(super) fn of_mark(key: &[u8]) -> Option<PendingOperation> {
        let (&MARK, rest) = key.split_first()? else { return None };
        match rest {
            [b'D', _, _, _, _] => Some(PendingOperation::Dropped),
            [b'E', _, _, _, _] => Some(PendingOperation::Emptied),
            _ => None,
        }
    }
}
