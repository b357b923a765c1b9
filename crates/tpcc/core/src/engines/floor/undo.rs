//! Rollback in the floor engine: a buffer with the old value of each changed row. Transactions reuse the buffer.

use zerocopy::{FromBytes, IntoBytes};

use super::Maps;
use crate::workload::schema::{Key, MAX_KEY, RowOf, TableDef};

/// Undo records of the current transaction, oldest first.
#[derive(Default)]
pub(super) struct Undo {
    changes: Vec<Change>,
    bytes: Vec<u8>,
}

/// Undo record of one change: the function that reverts it, and the buffer offset of its key and old columns.
struct Change {
    revert: fn(&mut Maps, &[u8]),
    at: usize,
}

impl Undo {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    #[inline]
    pub(super) fn forget(&mut self) {
        self.changes.clear();
        self.bytes.clear();
    }

    /// Reverts all changes, newest first.
    pub(super) fn roll_back(&mut self, maps: &mut Maps) {
        while let Some(Change { revert, at }) = self.changes.pop() {
            revert(maps, &self.bytes[at..]);
            self.bytes.truncate(at);
        }
    }

    #[inline]
    pub(super) fn update<T: TableDef>(&mut self, key: &T::Key, old: &T::Hot) {
        self.record::<T>(key, old.as_bytes(), |maps, bytes| {
            let (key, old) = bytes.split_at(T::Key::LEN);
            if let (Some(row), Ok(old)) = (maps.table::<T>().get_mut(&T::Key::read(key)), T::Hot::read_from_bytes(old))
            {
                row.hot = old;
            }
        });
    }

    #[inline]
    pub(super) fn rewrite<T: TableDef>(&mut self, key: &T::Key, old: &RowOf<T>) {
        self.record::<T>(key, old.as_bytes(), |maps, bytes| {
            let (key, old) = bytes.split_at(T::Key::LEN);
            if let (Some(row), Ok(old)) =
                (maps.table::<T>().get_mut(&T::Key::read(key)), RowOf::<T>::read_from_bytes(old))
            {
                *row = old;
            }
        });
    }

    #[inline]
    pub(super) fn insert<T: TableDef>(&mut self, key: &T::Key) {
        self.record::<T>(key, &[], |maps, bytes| maps.remove::<T>(&T::Key::read(bytes)));
    }

    #[inline]
    pub(super) fn remove<T: TableDef>(&mut self, key: &T::Key, old: &RowOf<T>) {
        self.record::<T>(key, old.as_bytes(), |maps, bytes| {
            let (key, old) = bytes.split_at(T::Key::LEN);
            if let Ok(old) = RowOf::<T>::read_from_bytes(old) {
                maps.put::<T>(&T::Key::read(key), &old);
            }
        });
    }

    #[inline]
    fn record<T: TableDef>(&mut self, key: &T::Key, old: &[u8], revert: fn(&mut Maps, &[u8])) {
        let at = self.bytes.len();
        let mut encoded = [0; MAX_KEY];
        key.write(&mut encoded[..T::Key::LEN]);
        self.bytes.extend_from_slice(&encoded[..T::Key::LEN]);
        self.bytes.extend_from_slice(old);
        self.changes.push(Change { revert, at });
    }
}
