//! Views for statements on encoded keys and rows: for programs with codecs of their own, and for scans without copies.

use std::ops::{ControlFlow, Range};

use super::database::Database;
use super::table::{AsTable, OpenTable};
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::hook::{Operation, OperationKind};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::group::{GROUP, RowPart};
use crate::table::columns::{WHOLE, changed_range};
use crate::table::index::{AccessMode, Index};
use crate::table::info::TableInfo;
use crate::table::scan::{ScanEnd, ScanSpec};
use crate::txn::buffers::RowBatch;

/// Reads of encoded keys and rows in a transaction: [`Transaction::raw`].
#[derive(Clone, Copy, Debug)]
pub struct RawReader<'t, 'db> {
    pub(super) tx: &'t Transaction<'db>,
}

/// Writes of encoded keys and rows in a transaction: [`Transaction::raw_mut`].
#[derive(Debug)]
pub struct RawWriter<'t, 'db> {
    pub(super) tx: &'t mut Transaction<'db>,
}

/// Calls of a database on encoded keys and rows: [`Database::raw`].
#[derive(Clone, Copy, Debug)]
pub struct RawDatabase<'d> {
    pub(super) db: &'d Database,
}

impl Database {
    /// Returns the view for calls on encoded keys and rows.
    #[inline]
    pub fn raw(&self) -> RawDatabase<'_> {
        RawDatabase { db: self }
    }
}

impl<'db> Transaction<'db> {
    /// Returns the view for reads of encoded keys and rows.
    #[inline]
    pub fn raw(&self) -> RawReader<'_, 'db> {
        RawReader { tx: self }
    }

    /// Returns the view for writes of encoded keys and rows.
    #[inline]
    pub fn raw_mut(&mut self) -> RawWriter<'_, 'db> {
        RawWriter { tx: self }
    }
}

/// Scans that call a closure, which may use the transaction, and settings and hints of searches.
impl Transaction<'_> {
    /// Calls `visit`, which may use the transaction, for the rows of a forward scan.
    pub(super) fn visit_forward(
        &self,
        index: &Index,
        wanted: ScanSpec<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let mut scan = self.step(|txn| txn.begin_scan(index, &wanted))?;
        let result = loop {
            match self.step(|txn| txn.next_batch(index, &mut scan, &wanted)) {
                Ok(Some(_)) => match self.show(index, &scan.batch, &mut visit) {
                    Ok(ControlFlow::Continue(())) if !scan.is_over() => {}
                    Ok(_) => break Ok(()),
                    Err(error) => break Err(error),
                },
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.give_back(|txn| txn.end_scan(scan));
        result
    }

    /// Calls `visit`, which may use the transaction, for the rows of a batch.
    #[inline]
    fn show(
        &self,
        index: &Index,
        batch: &RowBatch,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TxnError> {
        if batch.has_references() { self.show_large(index, batch, visit) } else { Ok(batch.visit(visit)) }
    }

    #[cold]
    fn show_large(
        &self,
        index: &Index,
        batch: &RowBatch,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TxnError> {
        let mut large = Vec::new();
        for i in 0..batch.len() {
            let (key, mut value) = (batch.key(i), batch.value(i));
            if batch.row(i).is_reference {
                if !self.step(|txn| txn.read_referred(index, key, value, &mut large))? {
                    continue;
                }
                value = &large;
            }
            if visit(key, value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `visit`, which may use the transaction, for the rows of a backward scan.
    fn visit_backward(
        &self,
        index: &Index,
        from: &[u8],
        to: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        // A backward scan nearly always reads only the newest row.
        let wanted = ScanSpec { from, to: ScanEnd::With(to), access: AccessMode::Read, likely: 1 };
        let mut scan = self.step(|txn| txn.begin_scan_below(index, &wanted))?;
        let result = loop {
            match self.step(|txn| txn.next_batch_below(index, &mut scan, &wanted)) {
                Ok(true) => match self.show(index, &scan.batch, &mut visit) {
                    Ok(ControlFlow::Continue(())) if !scan.is_over() => {}
                    Ok(_) => break Ok(()),
                    Err(error) => break Err(error),
                },
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.give_back(|txn| txn.end_scan_below(scan));
        result
    }

    /// Sets the search mode of statements on several rows: one search for all rows (the default), or one search for
    /// each row. For measurements of the benefit of group lookups.
    pub fn find_together(&mut self, together: bool) {
        self.txn.get_mut().finds_together = together;
    }
}

/// Checks that the first range of `columns` can be updated in place: the range has an end, and no index depends on its
/// bytes.
#[inline]
fn check_changeable(info: &TableInfo, columns: &[Range<usize>]) -> Result<(), TxnError> {
    let part = changed_range(columns);
    let reaches = if is_mutant(Mutant::StraddleIndex) { part.start } else { part.end };
    if part.end == usize::MAX || info.secondaries.iter().any(|s| s.columns_from < reaches) {
        return Err(unchangeable(info, &part));
    }
    Ok(())
}

#[cold]
fn unchangeable(info: &TableInfo, part: &Range<usize>) -> TxnError {
    let what = if part.end == usize::MAX {
        format!("cannot change the bytes from {} to the row's end in place: name where they end", part.start)
    } else {
        format!("has an index that depends on its bytes before {}", part.end)
    };
    TxnError::Schema { table: info.primary.table(), what }
}

impl<'t, 'db> RawReader<'t, 'db> {
    /// Calls `f` with columns of a row, which is locked for `access`.
    #[inline]
    fn read_for<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        access: AccessMode,
        columns: &[Range<usize>],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.tx.table_to_read(table, access)? else { return Ok(None) };
        self.tx.enter(OperationKind::Fetch, &info.primary);
        self.tx.read(&info.primary, key, access, columns, f)
    }

    /// Calls `f` with the bytes of a row.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn read<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_for(table, key, AccessMode::Read, WHOLE, f)
    }

    /// Calls `f` with some columns of a row: the bytes in these ranges, concatenated. Only these bytes are read, so a
    /// long row costs only the cache lines of the columns. A range that ends at `usize::MAX` extends to the row's end.
    /// If the row ends before a range does, `f` gets neither this range nor later ranges.
    ///
    /// The whole row is locked, as by [`RawReader::read`].
    ///
    /// ```
    /// # use storage::{Database, Options, Raw, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-columns-raw-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// let stock = db.raw_table(&Table::<Raw, Raw>::new("stock"))?;
    /// let mut tx = db.begin()?;
    /// tx.raw_mut().insert(&stock, b"nails", b"0100 box of steel nails, long")?;
    /// assert_eq!(tx.raw().read_columns(&stock, b"nails", &[0..4], <[u8]>::to_vec)?.as_deref(), Some(&b"0100"[..]));
    /// // The first range may be changed; the other ranges are only read.
    /// tx.raw_mut().update_columns(&stock, b"nails", &[0..4, 5..8], |count, unit| {
    ///     assert_eq!((&*count, unit), (&b"0100"[..], &b"box"[..]));
    ///     count.copy_from_slice(b"0099");
    /// })?;
    /// assert_eq!(tx.raw().read(&stock, b"nails", |row| row[..8].to_vec())?.as_deref(), Some(&b"0099 box"[..]));
    /// tx.commit()?;
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn read_columns<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        columns: &[Range<usize>],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_for(table, key, AccessMode::Read, columns, f)
    }

    /// As [`RawReader::read_columns`] for several rows. One search finds all rows, which is cheaper than announcing the
    /// rows ([`RawReader::prefetch`]) and reading them one by one. The rows are locked in the given order. `f` gets the
    /// index of the key of each row; keys that have no row are skipped. After an error `f` may have been called for
    /// some rows.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_columns_of<K, V>(
        self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        mut f: impl FnMut(usize, &[u8]),
    ) -> Result<(), TxnError> {
        let Some(info) = self.tx.table_to_read(table, AccessMode::Read)? else { return Ok(()) };
        self.tx.enter(OperationKind::Fetch, &info.primary);
        for (n, group) in keys.chunks(GROUP).enumerate() {
            let mut ends = [None; GROUP];
            let rows = self.tx.step(|txn| {
                let mut rows = std::mem::take(&mut txn.slot.state().heads);
                rows.clear();
                let fetched = txn.fetch_several(&info.primary, group, columns, &mut rows, &mut ends);
                if fetched.is_err() {
                    txn.slot.state().heads = std::mem::take(&mut rows);
                }
                fetched.map(|()| rows)
            })?;
            let mut start = 0;
            for (i, end) in ends.iter().enumerate() {
                if let Some(end) = *end {
                    f(n * GROUP + i, &rows[start..end]);
                    start = end;
                }
            }
            self.tx.give_back(|txn| txn.slot.state().heads = rows);
        }
        Ok(())
    }

    /// Calls `f` with the bytes of a row that will probably be written, locked as by [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_for_update<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_for(table, key, AccessMode::Update, WHOLE, f)
    }

    /// Calls `visit` for the rows of `[from, to]` in descending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn scan_backward<K, V>(
        self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.tx.table_to_read(table, AccessMode::Read)? else { return Ok(()) };
        self.tx.enter(OperationKind::Scan, &info.primary);
        self.tx.visit_backward(&info.primary, from, to, visit)
    }

    /// Calls `visit` for the rows of `[from, to]` in ascending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn scan<K, V>(
        self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.tx.table_to_read(table, AccessMode::Read)? else { return Ok(()) };
        self.tx.enter(OperationKind::Scan, &info.primary);
        let wanted = ScanSpec { from, to: ScanEnd::With(to), access: AccessMode::Read, likely: usize::MAX };
        self.tx.visit_forward(&info.primary, wanted, visit)
    }

    /// Calls `visit` for the entries of a secondary index in `[from, to]`, as (index key, primary key), until it
    /// breaks. `index` counts the table's indexes in the order of declaration. Under read committed, the row may be
    /// deleted or get another index key before the caller reads the row.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if there is no such index.
    pub fn scan_index<K, V>(
        self,
        table: &impl AsTable<K, V>,
        index: usize,
        from: &[u8],
        to: &[u8],
        descending: bool,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.tx.table_to_read(table, AccessMode::Read)? else { return Ok(()) };
        let Some(secondary) = info.secondaries.get(index) else {
            return Err(TxnError::Schema { table: info.primary.table(), what: format!("has no index {index}") });
        };
        self.tx.enter(OperationKind::Scan, &secondary.index);
        if descending {
            return self.tx.visit_backward(&secondary.index, from, to, visit);
        }
        let wanted = ScanSpec { from, to: ScanEnd::With(to), access: AccessMode::Read, likely: 8 };
        self.tx.visit_forward(&secondary.index, wanted, visit)
    }

    /// Prefetches rows of one or more tables into the processor's caches, a group of rows at a time. Each item has the
    /// table, the key, and the number of bytes of the row. Changes and locks nothing; skips a table that cannot be
    /// found.
    pub fn prefetch<'k, K, V>(self, rows: impl Iterator<Item = (OpenTable<K, V>, &'k [u8], usize)>) {
        let db = self.tx.db;
        db.engine.pool.points().enter(Operation::of_transaction(OperationKind::Prefetch));
        let rows = rows.filter_map(|(table, key, bytes)| {
            Some((table.info(db).ok()?.primary.tree(), key, RowPart::to_read(bytes)))
        });
        // Inside another statement the call does nothing, because it is only a hint.
        if let Ok(mut txn) = self.tx.txn.try_borrow_mut() {
            txn.prefetch(rows);
        }
    }
}

impl RawWriter<'_, '_> {
    /// Locks a row for writing and calls `change` to edit the bytes of the row. Returns the result of `change`, or
    /// `None` if there is no row.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn update<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(None) };
        self.tx.enter(OperationKind::Update, &info.primary);
        let result = self.tx.txn.get_mut().update_row(info, key, change);
        self.tx.record_victim(result)
    }

    /// Locks a row for writing and calls `change` to edit the first `len` bytes of the row and to read the rest.
    /// Returns the result of `change`, or `None` if there is no row, or if the row is shorter than `len` bytes. Cheaper
    /// than [`RawWriter::update`] if the changed columns come first. No index of the table may depend on these bytes:
    /// see [`Table::with_raw_index`](crate::Table::with_raw_index).
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn update_head<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        len: usize,
        change: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.update_columns(table, key, &[0..len, len..usize::MAX], change)
    }

    /// Locks a row for writing and calls `change` to edit the bytes in the first range of the row and to read the bytes
    /// in the other ranges, concatenated. Returns the result of `change`, or `None` if there is no row, or if the row
    /// ends within the first range (every row contains an empty range). No other bytes of the row are read, and only
    /// changed bytes of the first range are logged. Ranges are as for [`RawReader::read_columns`], but the first must
    /// not be open. No index of the table may depend on the first range: see
    /// [`Table::with_raw_index`](crate::Table::with_raw_index).
    ///
    /// # Errors
    /// [`TxnError::Schema`] if an index depends on the first range, or the range is open; see [`TxnError`].
    #[inline]
    pub fn update_columns<K, V, R>(
        self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        columns: &[Range<usize>],
        change: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(None) };
        self.tx.enter(OperationKind::Update, &info.primary);
        check_changeable(info, columns)?;
        let len = changed_range(columns).len();
        let change = |part: &mut Vec<u8>, rest: &[u8]| (part.len() == len).then(|| change(part, rest));
        let result = self.tx.txn.get_mut().update_columns(info, key, columns, change);
        self.tx.record_victim(result).map(Option::flatten)
    }

    /// As [`RawWriter::update_head`], for several rows. One search finds all rows, so they need not be announced. All
    /// rows are locked, in the given order, before any row is written, and up to sixteen distinct rows share a log
    /// record. `change` gets the index of the key. For a repeated key, `change` gets the row as changed by its earlier
    /// call. Keys without a row are skipped; returns the number of keys that have a row. On an error, or if `change`
    /// panics, no row is changed.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn update_heads<K, V>(
        self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        len: usize,
        change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        self.update_columns_of(table, keys, &[0..len, len..usize::MAX], change)
    }

    /// As [`RawWriter::update_columns`], for several rows, with the semantics of [`RawWriter::update_heads`].
    ///
    /// # Errors
    /// As for [`RawWriter::update_columns`].
    pub fn update_columns_of<K, V>(
        self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(0) };
        self.tx.enter(OperationKind::Update, &info.primary);
        check_changeable(info, columns)?;
        let result = self.tx.txn.get_mut().update_columns_of(info, keys, columns, change);
        self.tx.record_victim(result)
    }

    /// Inserts a row with a new key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn insert<K, V>(self, table: &impl AsTable<K, V>, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let info = self.tx.table_to_insert(table)?;
        self.tx.enter(OperationKind::Insert, &info.primary);
        let result = self.tx.txn.get_mut().insert_row(info, key, row);
        self.tx.record_victim(result)
    }

    /// Inserts a row or replaces the existing one.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put<K, V>(self, table: &impl AsTable<K, V>, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let info = self.tx.table_to_insert(table)?;
        self.tx.enter(OperationKind::Insert, &info.primary);
        let result = self.tx.txn.get_mut().put_row(info, key, row);
        self.tx.record_victim(result)
    }

    /// Inserts rows with ascending keys. Neighbouring rows share one descent. On an error no row is inserted.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn insert_run<K, V>(self, table: &impl AsTable<K, V>, rows: &[(&[u8], &[u8])]) -> Result<(), TxnError> {
        let info = self.tx.table_to_insert(table)?;
        self.tx.enter(OperationKind::Insert, &info.primary);
        let result = self.tx.txn.get_mut().insert_rows(info, rows);
        self.tx.record_victim(result)
    }

    /// Deletes a row; returns false if there is none.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete<K, V>(self, table: &impl AsTable<K, V>, key: &[u8]) -> Result<bool, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(false) };
        self.tx.enter(OperationKind::Delete, &info.primary);
        let result = self.tx.txn.get_mut().delete_row(info, key);
        self.tx.record_victim(result)
    }

    /// Deletes the first row of `[from, to]` and returns its key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn take_first<K, V>(
        self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<Vec<u8>>, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(None) };
        self.tx.enter(OperationKind::Delete, &info.primary);
        let result = self.tx.txn.get_mut().take_first_row(info, from, ScanEnd::With(to));
        self.tx.record_victim(result)
    }

    /// Locks every row of `[from, to]` for writing and calls `change` to edit the row in place. Returns the number of
    /// rows. The table must have no secondary indexes, and `change` must keep the rows' lengths.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn update_run<K, V>(
        self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        change: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<usize, TxnError> {
        let Some(info) = self.tx.table_to_write(table)? else { return Ok(0) };
        self.tx.enter(OperationKind::Update, &info.primary);
        if !info.secondaries.is_empty() {
            let what = "has secondary indexes: update its rows one by one".into();
            return Err(TxnError::Schema { table: info.primary.table(), what });
        }
        let result = self.tx.txn.get_mut().update_rows(info, from, ScanEnd::With(to), change);
        self.tx.record_victim(result)
    }

    /// Announces a row of `bytes` bytes that will be needed. The transaction's next statement on several keys, or its
    /// next [`RawReader::prefetch`], searches for this row together with its own rows. Changes and locks nothing.
    pub fn prefetch_along<K, V>(self, table: &OpenTable<K, V>, key: &[u8], bytes: usize) {
        if let Ok(info) = table.info(self.tx.db) {
            self.tx.txn.get_mut().prefetch_along((info.primary.tree(), key, RowPart::to_read(bytes)));
        }
    }

    /// Announces the insert of a row whose key differs from `key` at most in the last four bytes. If this thread has
    /// inserted such rows before, the cache lines that the insert will need are prefetched. Changes and locks nothing.
    pub fn prefetch_insert<K, V>(self, table: &OpenTable<K, V>, key: &[u8]) {
        if let Ok(info) = table.info(self.tx.db) {
            self.tx.txn.get_mut().prefetch_insert(&info.primary, key);
        }
    }
}
