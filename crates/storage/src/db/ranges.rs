//! Statements on all rows of a range of keys.

use std::ops::RangeBounds;

use super::cursor::bounds_of;
use super::raw::{RawReader, RawWriter};
use super::table::AsTable;
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::hook::OperationKind;
use crate::table::codec::{Key, Row};
use crate::table::index::AccessMode;
use crate::table::scan::ScanEnd;

impl Transaction<'_> {
    /// Counts the rows of a range of keys.
    ///
    /// Reads and locks the rows as [`Transaction::range`] does: at serializable the count stays correct until the end
    /// of the transaction. Tables have no row counter, so a count costs as much as reading the rows of the range
    /// without decoding them.
    ///
    /// ```
    /// # use storage::{Database, Options, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-ranges-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
    /// let mut tx = db.begin()?;
    /// for n in 0..10 {
    ///     tx.put(&ACCOUNTS, &n, &0)?;
    /// }
    /// assert_eq!(tx.delete_range(&ACCOUNTS, 3..=5)?, 3);
    /// assert_eq!(tx.count(&ACCOUNTS, ..)?, 7);
    /// tx.commit()?;
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn count<K: Key, V: Row>(
        &self,
        table: &impl AsTable<K, V>,
        range: impl RangeBounds<K>,
    ) -> Result<u64, TxnError> {
        let Some(info) = self.table_to_read(table, AccessMode::Read)? else { return Ok(0) };
        self.enter(OperationKind::Scan, &info.primary);
        let (from, to) = bounds_of(&range);
        match Bounds::of(&from, to.as_deref()) {
            Some(end) => self.step(|txn| txn.count_rows(info, &from, end)),
            None => Ok(0),
        }
    }

    /// Deletes the rows of a range of keys, with their index entries; returns the number of deleted rows. On an error
    /// no row is deleted, and the transaction stays open.
    ///
    /// Each row is locked for writing and logged, so that a rollback restores it; above
    /// [`Options::escalate_at`](crate::Options::escalate_at) rows the table is locked instead. For all rows of a table
    /// [`Database::truncate`](crate::Database::truncate) is faster.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete_range<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        range: impl RangeBounds<K>,
    ) -> Result<u64, TxnError> {
        let Some(info) = self.table_to_write(table)? else { return Ok(0) };
        self.enter(OperationKind::Delete, &info.primary);
        let (from, to) = bounds_of(&range);
        let result = match Bounds::of(&from, to.as_deref()) {
            Some(end) => self.txn.get_mut().delete_rows(info, &from, end),
            None => Ok(0),
        };
        self.record_victim(result)
    }
}

/// Conversion of the encoded bounds of a range to the end of a scan.
struct Bounds;

impl Bounds {
    /// Returns the end of a scan from `from` to `to` (exclusive); `None` if the range contains no keys.
    fn of<'k>(from: &[u8], to: Option<&'k [u8]>) -> Option<ScanEnd<'k>> {
        match to {
            Some(to) if to <= from => None,
            Some(to) => Some(ScanEnd::Before(to)),
            None => Some(ScanEnd::Never),
        }
    }
}

impl<'t, 'db> RawReader<'t, 'db> {
    /// As [`Transaction::count`], for encoded keys in `[from, to]`.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn count<K, V>(self, table: &impl AsTable<K, V>, from: &[u8], to: &[u8]) -> Result<u64, TxnError> {
        let Some(info) = self.tx.table_to_read(table, AccessMode::Read)? else { return Ok(0) };
        self.tx.enter(OperationKind::Scan, &info.primary);
        if from > to { Ok(0) } else { self.tx.step(|txn| txn.count_rows(info, from, ScanEnd::With(to))) }
    }
}

impl RawWriter<'_, '_> {
    /// As [`Transaction::delete_range`], for encoded keys in `[from, to]`.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete_range<K, V>(self, table: &impl AsTable<K, V>, from: &[u8], to: &[u8]) -> Result<u64, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(0) };
        self.tx.enter(OperationKind::Delete, &info.primary);
        let result = if from > to { Ok(0) } else { self.tx.txn.get_mut().delete_rows(info, from, ScanEnd::With(to)) };
        self.tx.record_victim(result)
    }
}
