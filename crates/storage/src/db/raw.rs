//! Statements on encoded keys and rows, with the secondary indexes kept: what the typed statements stand on, and
//! what programs with codecs of their own use.

use std::ops::ControlFlow;

use crate::base::error::TxnError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::lock::TableMode;
use crate::table::catalog::{Secondary, TableInfo};
use crate::table::index::Want;
use crate::table::scan::{End, Wanted};
use crate::txn::core::Txn;

/// Appends an index entry's key: the row's value in the index and, unless the index is unique, the primary key. False if
/// the row is not in the index.
pub(crate) fn entry_key(secondary: &Secondary, key: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let indexed = (secondary.extract)(key, row, out);
    if indexed && !secondary.unique {
        out.extend_from_slice(key);
    }
    indexed
}

/// Whether an update may have changed what some index extracts.
#[inline]
fn concerns_indexes(table: &TableInfo, before: &[u8], after: &[u8]) -> bool {
    let concerns =
        |s: &Secondary| before.len() != after.len() || before.get(s.columns_from..) != after.get(s.columns_from..);
    table.secondaries.iter().any(concerns)
}

impl Txn<'_> {
    /// Inserts a row and its index entries. On an error nothing of it stays.
    pub(crate) fn insert_row(&mut self, table: &TableInfo, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        if table.secondaries.is_empty() {
            return self.insert(&table.primary, key, row);
        }
        let savepoint = self.savepoint();
        let result = self.insert(&table.primary, key, row).and_then(|()| self.insert_entries(table, key, row));
        self.undo_unless_ok(savepoint, result)
    }

    fn insert_entries(&mut self, table: &TableInfo, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let mut entry = Vec::with_capacity(64);
        for secondary in &table.secondaries {
            if entry_key(secondary, key, row, &mut entry) {
                self.insert(&secondary.index, &entry, key)?;
            }
        }
        Ok(())
    }

    /// Undoes a statement that failed half-way.
    fn undo_unless_ok<T>(
        &mut self,
        savepoint: crate::base::ids::Lsn,
        result: Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        if result.is_err() && self.savepoint() != savepoint && !is_mutant(Mutant::SkipStatementUndo) {
            self.rollback_to(savepoint)?;
        }
        result
    }

    /// Inserts rows whose keys ascend. On an error none of them stays.
    pub(crate) fn insert_rows(&mut self, table: &TableInfo, rows: &[(&[u8], &[u8])]) -> Result<(), TxnError> {
        let savepoint = self.savepoint();
        let mut result = self.insert_run(&table.primary, rows);
        if !table.secondaries.is_empty() {
            for (key, row) in rows {
                result = result.and_then(|()| self.insert_entries(table, key, row));
            }
        }
        self.undo_unless_ok(savepoint, result)
    }

    /// Lets `change` edit the row of `key`; `None` if there is none.
    #[inline]
    pub(crate) fn update_row<R>(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>, TxnError> {
        if !self.fetch_for_write(&table.primary, key)? {
            return Ok(None);
        }
        let cx = self.claim.context();
        cx.after.clear();
        cx.after.extend_from_slice(&cx.before);
        let answer = change(&mut cx.after);
        if !concerns_indexes(table, &cx.before, &cx.after) {
            self.store(&table.primary, key)?;
            return Ok(Some(answer));
        }
        self.store_indexed(table, key)?;
        Ok(Some(answer))
    }

    /// Lets `change` edit the first `len` bytes of the row of `key`, seeing the rest; `None` if there is no row, or it is
    /// shorter. No index may look at those bytes.
    #[inline]
    pub(crate) fn update_head<R>(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        len: usize,
        change: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        debug_assert!(table.secondaries.iter().all(|s| s.columns_from >= len));
        if !self.fetch_for_write(&table.primary, key)? {
            return Ok(None);
        }
        let cx = self.claim.context();
        let Some((head, rest)) = cx.before.split_at_checked(len) else { return Ok(None) };
        cx.after.clear();
        cx.after.extend_from_slice(head);
        let answer = change(&mut cx.after, rest);
        self.store_head(&table.primary, key)?;
        Ok(Some(answer))
    }

    /// Stores `after` over `before` and moves the index entries that this changes.
    fn store_indexed(&mut self, table: &TableInfo, key: &[u8]) -> Result<(), TxnError> {
        let savepoint = self.savepoint();
        let mut moves = Vec::new();
        for (i, secondary) in table.secondaries.iter().enumerate() {
            let cx = self.claim.context();
            let (mut old, mut new) = (std::mem::take(&mut cx.key), Vec::new());
            let was = entry_key(secondary, key, &cx.before, &mut old);
            let is = entry_key(secondary, key, &cx.after, &mut new);
            if was != is || (is && old != new) {
                moves.push((i, was.then(|| old.clone()), is.then_some(new)));
            }
            cx.key = old;
        }
        let mut result = self.store(&table.primary, key);
        for (i, old, new) in &moves {
            let index = &table.secondaries[*i].index;
            if let Some(old) = old
                && !is_mutant(Mutant::KeepOldIndexEntries)
            {
                result = result.and_then(|()| self.delete(index, old).map(drop));
            }
            if let Some(new) = new {
                result = result.and_then(|()| self.insert(index, new, key));
            }
        }
        self.undo_unless_ok(savepoint, result)
    }

    /// Inserts a row or replaces the one that is there.
    pub(crate) fn put_row(&mut self, table: &TableInfo, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        loop {
            let replaced = self.update_row(table, key, |old| {
                old.clear();
                old.extend_from_slice(row);
            })?;
            if replaced.is_some() {
                return Ok(());
            }
            match self.insert_row(table, key, row) {
                // Below serializable nothing kept others from inserting the key meanwhile.
                Err(TxnError::DuplicateKey { index, .. }) if std::sync::Arc::ptr_eq(&index, &table.primary.name) => {}
                result => return result,
            }
        }
    }

    /// Deletes a row and its index entries; false if there is none.
    pub(crate) fn delete_row(&mut self, table: &TableInfo, key: &[u8]) -> Result<bool, TxnError> {
        if table.secondaries.is_empty() {
            return self.delete(&table.primary, key);
        }
        if !self.fetch_for_write(&table.primary, key)? {
            return Ok(false);
        }
        let savepoint = self.savepoint();
        let row = self.claim.context().before.clone();
        let mut result = self.mark_deleted(&table.primary, key);
        let mut entry = Vec::with_capacity(64);
        for secondary in &table.secondaries {
            if entry_key(secondary, key, &row, &mut entry) {
                result = result.and_then(|()| self.delete(&secondary.index, &entry).map(drop));
            }
        }
        self.undo_unless_ok(savepoint, result)?;
        Ok(true)
    }

    /// Deletes the first row of `[from, to]` and returns its key; locked for writing from the start, so that two who do
    /// this at once wait for each other instead of deadlocking.
    pub(crate) fn take_first_row(
        &mut self,
        table: &TableInfo,
        from: &[u8],
        to: End<'_>,
    ) -> Result<Option<Vec<u8>>, TxnError> {
        let mut first = None;
        let wanted = Wanted { from, to, want: Want::Write, likely: 1 };
        self.scan(&table.primary, wanted, |key, _| {
            first = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        if let Some(key) = &first {
            self.delete_row(table, key)?;
        }
        Ok(first)
    }

    /// Deletes the rows from `from` up to `to`; returns how many. On an error none of it stays.
    pub(crate) fn delete_rows(&mut self, table: &TableInfo, from: &[u8], to: End<'_>) -> Result<u64, TxnError> {
        let savepoint = self.savepoint();
        let result = self.delete_each(table, from.to_vec(), to);
        self.undo_unless_ok(savepoint, result)
    }

    fn delete_each(&mut self, table: &TableInfo, mut from: Vec<u8>, to: End<'_>) -> Result<u64, TxnError> {
        /// Keys that are remembered at a time.
        const KEYS: usize = 128;
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(KEYS);
        let mut deleted = 0;
        loop {
            keys.clear();
            let wanted = Wanted { from: &from, to, want: Want::Write, likely: KEYS };
            self.scan(&table.primary, wanted, |key, _| {
                keys.push(key.to_vec());
                if keys.len() < KEYS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
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

    /// Counts the rows from `from` up to `to`, locked as by reading them.
    pub(crate) fn count_rows(&mut self, table: &TableInfo, from: &[u8], to: End<'_>) -> Result<u64, TxnError> {
        let mut rows = 0;
        let wanted = Wanted { from, to, want: Want::Read, likely: usize::MAX };
        self.scan(&table.primary, wanted, |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    /// Lets `change` edit every row of `[from, to]` in place; returns how many there were. On an error none of it stays.
    pub(crate) fn update_rows(
        &mut self,
        table: &TableInfo,
        from: &[u8],
        to: End<'_>,
        change: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<usize, TxnError> {
        let savepoint = self.savepoint();
        let result = self.modify_run(&table.primary, from, to, change);
        self.undo_unless_ok(savepoint, result)
    }

    /// Locks the whole table.
    pub(crate) fn lock_whole(&mut self, table: &TableInfo, mode: TableMode) -> Result<(), TxnError> {
        self.lock_number(&table.primary, mode)
    }
}
