//! Statements on encoded keys and rows, which maintain the secondary indexes. The typed and the raw statements call
//! them.

use std::ops::{ControlFlow, Range};

use super::columns::{WHOLE, changed_range};
use super::index::AccessMode;
use super::info::{Secondary, TableInfo};
use super::scan::{ScanEnd, ScanSpec};
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::Lsn;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sites::site;
use crate::lock::TableMode;
use crate::txn::positions::LeafSpot;
use crate::txn::transaction::Txn;

/// Writes the key of an index entry to `out`: the index key of the row and, unless the index is unique, the primary
/// key. Returns false if the row is not in the index.
pub(crate) fn entry_key(secondary: &Secondary, key: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let indexed = (secondary.extract)(key, row, out);
    if indexed && !secondary.unique {
        out.extend_from_slice(key);
    }
    indexed
}

/// Returns true if an update may have changed the index key in any secondary index.
#[inline]
fn concerns_indexes(table: &TableInfo, before: &[u8], after: &[u8]) -> bool {
    let concerns =
        |s: &Secondary| before.len() != after.len() || before.get(s.columns_from..) != after.get(s.columns_from..);
    table.secondaries.iter().any(concerns)
}

impl Txn<'_> {
    /// Runs a statement of several steps. If the statement fails or the caller's code panics, all steps of the
    /// statement are undone.
    pub(crate) fn atomically<T>(
        &mut self,
        steps: impl FnOnce(&mut Self) -> Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        let savepoint = self.savepoint();
        let mut statement = Statement { txn: self, savepoint, ended: false };
        let result = steps(statement.txn);
        statement.ended = true;
        if result.is_err() {
            statement.undo()?;
        }
        result
    }

    /// Inserts a row and its index entries. On an error the whole statement is undone.
    pub(crate) fn insert_row(&mut self, table: &TableInfo, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        if table.secondaries.is_empty() {
            return self.insert(&table.primary, key, row);
        }
        self.atomically(|txn| {
            txn.insert(&table.primary, key, row)?;
            txn.insert_entries(table, key, row)
        })
    }

    fn insert_entries(&mut self, table: &TableInfo, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        // The buffer is moved out, because an insert builds other keys in the slot's buffers.
        let mut entry = std::mem::take(&mut self.slot.state().entry);
        let result = table.secondaries.iter().try_for_each(|secondary| {
            if entry_key(secondary, key, row, &mut entry) { self.insert_entry(secondary, &entry, key) } else { Ok(()) }
        });
        self.slot.state().entry = entry;
        result
    }

    /// Inserts the index entry of a row that had none.
    fn insert_entry(&mut self, secondary: &Secondary, entry: &[u8], key: &[u8]) -> Result<(), TxnError> {
        match self.insert(&secondary.index, entry, key) {
            // The entry's key ends with the row's key, and the row is locked, so the entry cannot exist.
            Err(TxnError::DuplicateKey { .. }) if !secondary.unique => {
                let tree = secondary.index.tree();
                Err(tree
                    .damaged(&self.engine.pool, tree.root, "leads to an entry of a row that should have none")
                    .into())
            }
            result => result,
        }
    }

    /// Inserts rows with ascending keys. On an error all of them are undone.
    pub(crate) fn insert_rows(&mut self, table: &TableInfo, rows: &[(&[u8], &[u8])]) -> Result<(), TxnError> {
        self.atomically(|txn| {
            txn.insert_run(&table.primary, rows)?;
            if !table.secondaries.is_empty() {
                rows.iter().try_for_each(|(key, row)| txn.insert_entries(table, key, row))?;
            }
            Ok(())
        })
    }

    /// Calls `change` to edit the row of `key`; returns the result of `change`, or `None` if there is no row.
    #[inline]
    pub(crate) fn update_row<R>(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(spot) = self.fetch_for_write(&table.primary, key, WHOLE)? else { return Ok(None) };
        let state = self.slot.state();
        state.after.clear();
        state.after.extend_from_slice(&state.before);
        let answer = change(&mut state.after);
        self.store_row(table, key, spot)?;
        Ok(Some(answer))
    }

    /// Stores `after` over `before`, the row of `key` that was read at `spot`.
    #[inline]
    fn store_row(&mut self, table: &TableInfo, key: &[u8], spot: LeafSpot) -> Result<(), TxnError> {
        let state = self.slot.peek();
        if concerns_indexes(table, &state.before, &state.after) {
            self.store_indexed(table, key, spot)
        } else {
            self.store(&table.primary, key, spot)
        }
    }

    /// Calls `change` to edit the first part in `columns` of the row of `key` and to read the other parts; returns the
    /// result of `change`, or `None` if there is no row. If the row ends within the first part, `change` gets no bytes.
    /// If `change` alters the length of the first part, the part is not stored; `change` must detect this itself. No
    /// index may depend on the first part.
    #[inline]
    pub(crate) fn update_columns<R>(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        columns: &[Range<usize>],
        change: impl FnOnce(&mut Vec<u8>, &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let changed = changed_range(columns);
        debug_assert!(table.secondaries.iter().all(|s| s.columns_from >= changed.end));
        let Some(spot) = self.fetch_for_write(&table.primary, key, columns)? else { return Ok(None) };
        let state = self.slot.state();
        let (part, rest) = state.before.split_at_checked(changed.len()).unwrap_or_default();
        let len = part.len();
        state.after.clear();
        state.after.extend_from_slice(part);
        let answer = change(&mut state.after, rest);
        if state.after.len() != len {
            return Ok(Some(answer));
        }
        self.store_columns(&table.primary, key, changed.start, spot)?;
        Ok(Some(answer))
    }

    /// Stores `after` over `before`, which was read at `spot`, and updates the index entries that change.
    fn store_indexed(&mut self, table: &TableInfo, key: &[u8], spot: LeafSpot) -> Result<(), TxnError> {
        let mut moves = Vec::new();
        for (i, secondary) in table.secondaries.iter().enumerate() {
            let state = self.slot.state();
            let (mut old, mut new) = (std::mem::take(&mut state.key), Vec::new());
            let was = entry_key(secondary, key, &state.before, &mut old);
            let is = entry_key(secondary, key, &state.after, &mut new);
            if was != is || (is && old != new) {
                moves.push((i, was.then(|| old.clone()), is.then_some(new)));
            }
            state.key = old;
        }
        self.atomically(|txn| {
            txn.store(&table.primary, key, spot)?;
            for (i, old, new) in &moves {
                let secondary = &table.secondaries[*i];
                if let Some(old) = old
                    && !is_mutant(Mutant::KeepOldIndexEntries)
                {
                    txn.delete(&secondary.index, old)?;
                }
                if let Some(new) = new {
                    txn.insert_entry(secondary, new, key)?;
                }
            }
            Ok(())
        })
    }

    /// Inserts a row or replaces the existing one. The lookup alone guarantees nothing: a key that was absent at the
    /// lookup is not protected until the insert locks the key.
    pub(crate) fn put_row(&mut self, table: &TableInfo, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        loop {
            if let Some(spot) = self.fetch_for_put(&table.primary, key)? {
                let state = self.slot.state();
                state.after.clear();
                state.after.extend_from_slice(row);
                return self.store_row(table, key, spot);
            }
            match self.insert_row(table, key, row) {
                // Another transaction may have inserted the key since the lookup.
                Err(TxnError::DuplicateKey { index, .. }) if std::sync::Arc::ptr_eq(&index, &table.primary.name()) => {}
                result => return result,
            }
        }
    }

    /// Deletes a row and its index entries; returns false if there is no row.
    pub(crate) fn delete_row(&mut self, table: &TableInfo, key: &[u8]) -> Result<bool, TxnError> {
        if table.secondaries.is_empty() {
            return self.delete(&table.primary, key);
        }
        let Some(spot) = self.fetch_for_write(&table.primary, key, WHOLE)? else { return Ok(false) };
        let row = self.slot.state().before.clone();
        self.atomically(|txn| {
            txn.mark_deleted(&table.primary, key, spot)?;
            let mut entry = Vec::with_capacity(64);
            for secondary in &table.secondaries {
                if entry_key(secondary, key, &row, &mut entry) {
                    txn.delete(&secondary.index, &entry)?;
                }
            }
            Ok(true)
        })
    }

    /// Deletes the first row of `[from, to]` and returns its key. The row is locked for writing from the start. So of
    /// two concurrent calls the second one waits; they cannot cause a deadlock.
    pub(crate) fn take_first_row(
        &mut self,
        table: &TableInfo,
        from: &[u8],
        to: ScanEnd<'_>,
    ) -> Result<Option<Vec<u8>>, TxnError> {
        let mut first = None;
        let wanted = ScanSpec { from, to, access: AccessMode::Write, likely: 1 };
        self.scan_batches(&table.primary, wanted, |_, batch, (frame, version)| {
            let row = batch.row(0);
            let spot = LeafSpot { frame, version, position: row.position };
            let spot = if row.is_reference { LeafSpot::NONE } else { spot };
            first = Some((batch.key(0).to_vec(), spot));
            Ok(ControlFlow::Break(()))
        })?;
        let Some((key, spot)) = first else { return Ok(None) };
        if table.secondaries.is_empty() {
            // The scan has locked the row for writing and returned its position.
            self.engine.pool.points().at(&site::BEFORE_WRITE);
            self.mark_deleted(&table.primary, &key, spot)?;
        } else {
            self.delete_row(table, &key)?;
        }
        Ok(Some(key))
    }

    /// Deletes the rows from `from` to `to`; returns the number of deleted rows. On an error the whole statement is
    /// undone.
    pub(crate) fn delete_rows(&mut self, table: &TableInfo, from: &[u8], to: ScanEnd<'_>) -> Result<u64, TxnError> {
        self.atomically(|txn| txn.delete_each(table, from.to_vec(), to))
    }

    fn delete_each(&mut self, table: &TableInfo, mut from: Vec<u8>, to: ScanEnd<'_>) -> Result<u64, TxnError> {
        /// Maximum number of keys that are collected before their rows are deleted.
        const KEYS: usize = 128;
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(KEYS);
        let mut deleted = 0;
        loop {
            keys.clear();
            let wanted = ScanSpec { from: &from, to, access: AccessMode::Write, likely: KEYS };
            self.scan_batches(&table.primary, wanted, |_, batch, _| {
                keys.extend((0..batch.len()).take(KEYS - keys.len()).map(|i| batch.key(i).to_vec()));
                Ok(if keys.len() < KEYS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            for key in &keys {
                deleted += u64::from(self.delete_row(table, key)?);
            }
            match keys.last() {
                Some(last) if keys.len() == KEYS => {
                    from.clone_from(last);
                    from.push(0);
                }
                _ => return Ok(deleted),
            }
        }
    }

    /// Counts the rows from `from` to `to`. Takes the same locks as a read of these rows.
    pub(crate) fn count_rows(&mut self, table: &TableInfo, from: &[u8], to: ScanEnd<'_>) -> Result<u64, TxnError> {
        let mut rows = 0;
        let wanted = ScanSpec { from, to, access: AccessMode::Read, likely: usize::MAX };
        self.scan_batches(&table.primary, wanted, |_, batch, _| {
            rows += batch.len() as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Calls `change` to edit every row of `[from, to]` in place; returns the number of rows. On an error the whole
    /// statement is undone.
    pub(crate) fn update_rows(
        &mut self,
        table: &TableInfo,
        from: &[u8],
        to: ScanEnd<'_>,
        change: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<usize, TxnError> {
        self.atomically(|txn| txn.modify_run(&table.primary, from, to, change))
    }

    /// Calls `change` to edit the first part in `columns` of several rows. All rows are locked before any row is
    /// written. Returns the number of rows. On an error the whole statement is undone. No index may depend on the first
    /// part.
    pub(crate) fn update_columns_of(
        &mut self,
        table: &TableInfo,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        debug_assert!(table.secondaries.iter().all(|s| s.columns_from >= changed_range(columns).end));
        self.atomically(|txn| txn.update_several(&table.primary, keys, columns, change))
    }

    /// Locks the whole table in this mode.
    pub(crate) fn lock_whole(&mut self, table: &TableInfo, mode: TableMode) -> Result<(), TxnError> {
        self.lock_number(&table.primary, mode)
    }
}

/// A running statement. Dropping it before it has succeeded, for example in a panic, undoes the statement.
struct Statement<'t, 'db> {
    txn: &'t mut Txn<'db>,
    savepoint: Lsn,
    ended: bool,
}

impl Statement<'_, '_> {
    #[cold]
    fn undo(&mut self) -> Result<(), StorageError> {
        if self.txn.savepoint() == self.savepoint || is_mutant(Mutant::SkipStatementUndo) {
            return Ok(());
        }
        self.txn.rollback_to(self.savepoint)
    }
}

impl Drop for Statement<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            // A failed undo is not reported here: it marks the transaction as broken, so that it cannot commit.
            let _ = self.undo();
        }
    }
}
