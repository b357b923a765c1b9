//! Keys and rows of the schema as the bytes that the engine stores.

use zerocopy::{FromBytes, IntoBytes};

use crate::workload::schema::{IndexDef, Key, MAX_KEY, RowOf, TableDef};

/// A key's bytes, on the stack.
#[derive(Clone, Copy)]
pub(in crate::engines) struct KeyBytes([u8; MAX_KEY]);

impl KeyBytes {
    /// Encodes a key.
    #[inline(always)]
    pub(in crate::engines) fn of<K: Key>(key: &K) -> KeyBytes {
        let mut bytes = [0; MAX_KEY];
        key.write(&mut bytes[..K::LEN]);
        KeyBytes(bytes)
    }

    /// The bytes.
    #[inline(always)]
    pub(in crate::engines) fn get<K: Key>(&self) -> &[u8] {
        &self.0[..K::LEN]
    }
}

impl KeyBytes {
    /// A key that is encoded already. Of one that is longer than the schema's keys are, the begin.
    #[inline]
    pub(in crate::engines) fn from_bytes(key: &[u8]) -> KeyBytes {
        let mut bytes = [0; MAX_KEY];
        let len = key.len().min(MAX_KEY);
        bytes[..len].copy_from_slice(&key[..len]);
        KeyBytes(bytes)
    }

    /// The first `len` bytes, which are a key's.
    #[inline(always)]
    pub(in crate::engines) fn first(&self, len: usize) -> &[u8] {
        &self.0[..len]
    }
}

/// A key the engine holds. `None` if its length is not a key's.
#[inline(always)]
pub(in crate::engines) fn key_of<K: Key>(bytes: &[u8]) -> Option<K> {
    (bytes.len() == K::LEN).then(|| K::read(bytes))
}

/// A row the engine holds, in place. `None` if its length is not a row's.
#[inline(always)]
pub(in crate::engines) fn row_of<T: TableDef>(bytes: &[u8]) -> Option<&RowOf<T>> {
    RowOf::<T>::ref_from_bytes(bytes).ok()
}

/// A row the engine holds, to change.
#[inline(always)]
pub(in crate::engines) fn row_mut<T: TableDef>(bytes: &mut [u8]) -> Option<&mut RowOf<T>> {
    RowOf::<T>::mut_from_bytes(bytes).ok()
}

/// How the engine finds the key of an index: index keys are unique, for they end in the primary key's columns.
pub(in crate::engines) fn extract<I: IndexDef>(key: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    let (Some(key), Some(row)) = (key_of::<<I::Table as TableDef>::Key>(key), row_of::<I::Table>(row)) else {
        return false;
    };
    let entry = KeyBytes::of(&I::key_of(&key, &row.cold));
    out.extend_from_slice(entry.get::<I::Key>());
    true
}

/// A row's bytes.
#[inline(always)]
pub(in crate::engines) fn bytes_of<T: TableDef>(row: &RowOf<T>) -> &[u8] {
    row.as_bytes()
}
