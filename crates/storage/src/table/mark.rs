//! Marks in the catalog: what is to be done with trees that no table has any more.

use super::entry::TableEntry;

/// The first byte of a mark's key. Names are UTF-8, in which it does not occur.
const MARK: u8 = 0xFF;

/// The key of the row that says how far the numbers of indexes are used.
pub(super) const USED: &[u8] = &[MARK, b'N'];

/// What a mark says to do with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fate {
    /// Its trees are removed.
    Dropped = b'D',
    /// Its trees are emptied.
    Emptied = b'E',
}

impl Fate {
    /// The key of the mark. The first tree's number is in it, which no other tree has or had.
    pub(super) fn mark(self, entry: &TableEntry) -> Vec<u8> {
        let mut key = vec![MARK, self as u8];
        key.extend_from_slice(&entry.primary.index.0.to_le_bytes());
        key
    }

    /// What is to be done according to a catalog row's key, if it is a mark.
    pub(super) fn of_mark(key: &[u8]) -> Option<Fate> {
        let (&MARK, rest) = key.split_first()? else { return None };
        match rest {
            [b'D', _, _, _, _] => Some(Fate::Dropped),
            [b'E', _, _, _, _] => Some(Fate::Emptied),
            _ => None,
        }
    }
}
