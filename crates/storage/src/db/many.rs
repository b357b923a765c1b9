//! Typed statements on several rows whose keys are known in advance.

use super::table::AsTable;
use super::transaction::{Transaction, undecodable};
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::btree::group::{GROUP, RowPart};
use crate::table::codec::{Key, Row};
use crate::table::columns::WHOLE;
use crate::table::index::{AccessMode, Index};
use crate::table::info::TableInfo;
use crate::txn::buffers::EncodedKeys;
use crate::txn::transaction::Txn;

/// Number of leading bytes of each row to prefetch into the processor's caches.
const ROW_BYTES: usize = 256;

/// Statements on many keys search for all keys of a group together: while the page of one key is loaded from memory,
/// the search continues with other keys. The search for sixteen rows that are not in the processor's caches takes about
/// as long as three single searches, so one statement on many keys is faster than many statements on one key.
impl Transaction<'_> {
    /// Prefetches rows into the processor's caches, a group of rows at a time. Pages of the rows that are not in memory
    /// are read into the buffer pool concurrently (except under [`Background::Inline`](crate::Background::Inline)).
    /// Changes and locks nothing.
    ///
    /// # Errors
    /// An error only if the table cannot be found.
    pub fn prefetch<K: Key, V: Row>(&self, table: &impl AsTable<K, V>, keys: &[K]) -> Result<(), TxnError> {
        self.check_open()?;
        let Some(info) = table.find(self.db)? else { return Ok(()) };
        self.enter(OperationKind::Prefetch, &info.primary);
        let mut encoded = self.take_keys()?;
        let result = keys.chunks(GROUP).try_for_each(|group| {
            encoded.set(group);
            self.step(|txn| {
                announce(txn, &info.primary, &encoded);
                Ok(())
            })
        });
        self.give_back(|txn| txn.slot.state().encoded.keys = encoded);
        result
    }

    /// Reads the rows of some keys, in the order of the keys; `None` for each key that has no row. Locks the rows as
    /// [`Transaction::get`] does.
    ///
    /// ```
    /// # use storage::{Database, Options, Table, TxnError};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-many-{}", std::process::id()));
    /// const STOCK: Table<u32, u64> = Table::new("stock");
    /// let db = Database::open(&directory, Options::new())?;
    /// let mut tx = db.begin()?;
    /// tx.put_many(&STOCK, &[(1, 10), (2, 20), (3, 30)])?;
    /// assert_eq!(tx.get_many(&STOCK, &[3, 7, 1])?, [Some(30), None, Some(10)]);
    /// tx.commit()?;
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_many<K: Key, V: Row>(&self, table: &impl AsTable<K, V>, keys: &[K]) -> Result<Vec<Option<V>>, TxnError> {
        let Some(info) = self.table_to_read(table, AccessMode::Read)? else {
            return Ok(keys.iter().map(|_| None).collect());
        };
        let index = &info.primary;
        self.enter(OperationKind::Fetch, index);
        let mut rows = Vec::with_capacity(keys.len());
        let mut encoded = self.take_keys()?;
        let result = keys.chunks(GROUP).try_for_each(|group| {
            encoded.set(group);
            self.step(|txn| {
                announce(txn, index, &encoded);
                Ok(())
            })?;
            for key in encoded.iter() {
                match self.read(index, key, AccessMode::Read, WHOLE, V::decode)? {
                    Some(None) => return Err(undecodable::<V>(index)),
                    found => rows.push(found.flatten()),
                }
            }
            Ok(())
        });
        self.give_back(|txn| txn.slot.state().encoded.keys = encoded);
        result.map(|()| rows)
    }

    /// Inserts rows or replaces existing ones, in the given order. On an error no row is changed.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put_many<K: Key, V: Row>(&mut self, table: &impl AsTable<K, V>, rows: &[(K, V)]) -> Result<(), TxnError> {
        let info = self.table_to_insert(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        self.put_all(info, rows)
    }

    pub(super) fn put_all<K: Key, V: Row>(&mut self, info: &TableInfo, rows: &[(K, V)]) -> Result<(), TxnError> {
        let mut keys = self.take_keys()?;
        let mut row = std::mem::take(&mut self.txn.get_mut().slot.state().encoded.row);
        let result = self.txn.get_mut().atomically(|txn| {
            for group in rows.chunks(GROUP) {
                keys.set(group.iter().map(|(key, _)| key));
                announce(txn, &info.primary, &keys);
                for (key, (_, value)) in keys.iter().zip(group) {
                    row.clear();
                    value.encode(&mut row);
                    txn.put_row(info, key, &row)?;
                }
            }
            Ok(())
        });
        let encoded = &mut self.txn.get_mut().slot.state().encoded;
        (encoded.keys, encoded.row) = (keys, row);
        self.record_victim(result)
    }

    fn take_keys(&self) -> Result<EncodedKeys, TxnError> {
        self.step(|txn| Ok(std::mem::take(&mut txn.slot.state().encoded.keys)))
    }
}

impl EncodedKeys {
    /// Replaces the encoded keys by the encodings of `keys`.
    fn set<'k, K: Key + 'k>(&mut self, keys: impl IntoIterator<Item = &'k K>) {
        self.clear();
        for key in keys {
            self.push(|out| key.encode(out));
        }
    }
}

/// Prefetches the rows of a group of keys into the processor's caches.
fn announce(txn: &mut Txn<'_>, index: &Index, keys: &EncodedKeys) {
    txn.prefetch(keys.iter().map(|key| (index.tree(), key, RowPart::to_read(ROW_BYTES))));
}
