//! Encoding of the schema's keys and rows as the bytes that the engine stores.

use zerocopy::{FromBytes, IntoBytes};

use crate::workload::schema::{IndexDef, Key, MAX_KEY, RowOf, TableDef};

/// Encoded key in a buffer on the stack.
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

    /// Returns the encoded key.
    #[inline(always)]
    pub(in crate::engines) fn get<K: Key>(&self) -> &[u8] {
        &self.0[..K::LEN]
    }
}

/// Decodes a key of the engine. Returns `None` if the length is wrong.
#[inline(always)]
pub(in crate::engines) fn key_of<K: Key>(bytes: &[u8]) -> Option<K> {
    (bytes.len() == K::LEN).then(|| K::read(bytes))
}

/// Returns a reference to the row in the engine's bytes. `None` if the length is wrong.
#[inline(always)]
pub(in crate::engines) fn row_of<T: TableDef>(bytes: &[u8]) -> Option<&RowOf<T>> {
    RowOf::<T>::ref_from_bytes(bytes).ok()
}

/// Returns a mutable reference to the row in the engine's bytes. `None` if the length is wrong.
#[inline(always)]
pub(in crate::engines) fn row_mut<T: TableDef>(bytes: &mut [u8]) -> Option<&mut RowOf<T>> {
    RowOf::<T>::mut_from_bytes(bytes).ok()
}

/// Appends the index key of a row to `out`; returns false if the key or row has a wrong length. Index keys are unique,
/// because they end with the columns of the primary key.
pub(in crate::engines) fn extract<I: IndexDef>(key: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    let (Some(key), Some(row)) = (key_of::<<I::Table as TableDef>::Key>(key), row_of::<I::Table>(row)) else {
        return false;
    };
    let entry = KeyBytes::of(&I::key_of(&key, &row.cold));
    out.extend_from_slice(entry.get::<I::Key>());
    true
}

/// Returns the bytes of a row.
#[inline(always)]
pub(in crate::engines) fn bytes_of<T: TableDef>(row: &RowOf<T>) -> &[u8] {
    row.as_bytes()
}
