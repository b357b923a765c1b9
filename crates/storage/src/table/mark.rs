//! Marks in the catalog: what is to be done with trees that no table has any more.

use std::collections::BTreeSet;

use super::entry::TableEntry;

/// The first byte of a mark's key. Names are UTF-8, in which it does not occur.
const MARK: u8 = 0xFF;

/// Numbers that are not to be used again.
#[derive(Debug, Default)]
pub(super) struct Retired {
    /// Of tables.
    pub(super) tables: BTreeSet<u32>,
    /// The highest of an index.
    pub(super) index: u32,
}

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
    pub(super) fn mark(self, entry: &TableEntry) -> Vec<u8> {
        let mut key = vec![MARK, self as u8];
        key.extend_from_slice(&entry.number.to_le_bytes());
        key
    }

    /// The action and the table that a catalog row's key marks, if it is a mark.
    pub(super) fn of_mark(key: &[u8]) -> Option<Fate> {
        let (&MARK, rest) = key.split_first()? else { return None };
        match rest {
            [b'D', _, _, _, _] => Some(Fate::Dropped),
            [b'E', _, _, _, _] => Some(Fate::Emptied),
            _ => None,
        }
    }
}
