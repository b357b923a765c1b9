//! Statements on encoded keys and rows: for programs with codecs of their own, and for scans that need no copies.

use std::ops::{ControlFlow, Range};

use super::table::{AsTable, OpenTable};
use super::transaction::Transaction;
use crate::base::error::TxnError;
use crate::base::hook::{Operation, OperationKind};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::group::GROUP;
use crate::table::columns::{WHOLE, changed};
use crate::table::index::{Index, Want};
use crate::table::info::TableInfo;
use crate::table::scan::{ScanEnd, ScanSpec};
use crate::txn::buffers::RowBatch;

/// Statements on encoded keys and rows: for programs with codecs of their own, and for scans that need no copies.
impl Transaction<'_> {
    /// Shows the bytes of a row to `f`.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn read_raw<K, V, R>(
        &self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_raw_for(table, key, Want::Read, WHOLE, f)
    }

    /// Shows parts of a row to `f`: the bytes in these ranges, one behind the other. Nothing else of the row is read,
    /// so of a long row only the lines of memory that the parts fill. A range that ends at `usize::MAX` reaches to the
    /// row's end. Of a row that ends before a range does, `f` sees neither this range nor those behind it.
    ///
    /// The row is locked as a whole, as [`Transaction::read_raw`] does.
    ///
    /// ```
    /// # use storage::{Database, Options, Raw, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-columns-raw-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// let stock = db.raw_table(&Table::<Raw, Raw>::new("stock"))?;
    /// let mut tx = db.begin()?;
    /// tx.insert_raw(&stock, b"nails", b"0100 box of steel nails, long")?;
    /// assert_eq!(tx.read_columns_raw(&stock, b"nails", &[0..4], <[u8]>::to_vec)?.as_deref(), Some(&b"0100"[..]));
    /// // The first range is changed, and may be looked at; the others are only shown.
    /// tx.update_columns_raw(&stock, b"nails", &[0..4, 5..8], |count, unit| {
    ///     assert_eq!((&*count, unit), (&b"0100"[..], &b"box"[..]));
    ///     count.copy_from_slice(b"0099");
    /// })?;
    /// assert_eq!(tx.read_raw(&stock, b"nails", |row| row[..8].to_vec())?.as_deref(), Some(&b"0099 box"[..]));
    /// tx.commit()?;
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn read_columns_raw<K, V, R>(
        &self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        columns: &[Range<usize>],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_raw_for(table, key, Want::Read, columns, f)
    }

    /// As [`Transaction::read_columns_raw`] for several rows: they are looked for together, which is cheaper than to
    /// announce them ([`Transaction::prefetch_raw`]) and to read one after the other. They are locked in the order given.
    /// `f` is told which key a row is of; keys that have no row are left out. On an error it may have seen some of the rows.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_columns_of_raw<K, V>(
        &self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        mut f: impl FnMut(usize, &[u8]),
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        self.enter(OperationKind::Fetch, &info.primary);
        for (n, group) in keys.chunks(GROUP).enumerate() {
            let mut ends = [None; GROUP];
            let rows = self.step(|txn| {
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
            self.give_back(|txn| txn.slot.state().heads = rows);
        }
        Ok(())
    }

    #[inline]
    fn read_raw_for<K, V, R>(
        &self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        want: Want,
        columns: &[Range<usize>],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.seen(table, want)? else { return Ok(None) };
        self.enter(OperationKind::Fetch, &info.primary);
        self.read(&info.primary, key, want, columns, f)
    }

    /// Lets `change` edit the bytes of a row, locked for writing; `None` if there is no row.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn update_raw<K, V, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(None) };
        self.enter(OperationKind::Update, &info.primary);
        let result = self.txn.get_mut().update_row(info, key, change);
        self.noted(result)
    }

    /// Lets `change` edit the first `len` bytes of a row, locked for writing, and see the rest; `None` if there is no
    /// row, or a shorter one. Cheaper than [`Transaction::update_raw`] where the columns that change lie first. No
    /// index of the table may depend on those bytes: see [`Table::with_raw_index`](crate::Table::with_raw_index).
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn update_head_raw<K, V, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        len: usize,
        change: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.update_columns_raw(table, key, &[0..len, len..usize::MAX], change)
    }

    /// Lets `change` edit the bytes in the first of these ranges of a row, locked for writing, and see those in the
    /// others, one behind the other; `None` if there is no row, or the first range is not all in it (one without bytes
    /// is in every row). Nothing else of the row is read, and of the first range only what has changed is logged. Ranges are as for
    /// [`Transaction::read_columns_raw`]; the first should not be open. No index of the table may depend on it: see
    /// [`Table::with_raw_index`](crate::Table::with_raw_index).
    ///
    /// # Errors
    /// [`TxnError::Schema`] if an index depends on the first range, or it is open; see [`TxnError`].
    #[inline]
    pub fn update_columns_raw<K, V, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        columns: &[Range<usize>],
        change: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(None) };
        self.enter(OperationKind::Update, &info.primary);
        check_changeable(info, columns)?;
        let len = changed(columns).len();
        let change = |part: &mut Vec<u8>, rest: &[u8]| (part.len() == len).then(|| change(part, rest));
        let result = self.txn.get_mut().update_columns(info, key, columns, change);
        self.noted(result).map(Option::flatten)
    }

    /// As [`Transaction::update_head_raw`] for several rows at once: they are looked for together, so there is no need to
    /// announce them; all are locked, in the order given, before any is written, and up to sixteen that differ are written
    /// under one log record. `change` gets the number of the key that it is called for; for a key that occurs again it sees
    /// its own result for the row. A key without a row is skipped; returns how many keys had one. On an error, or when
    /// `change` panics, no row is changed.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn update_heads_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        len: usize,
        change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        self.update_columns_of_raw(table, keys, &[0..len, len..usize::MAX], change)
    }

    /// As [`Transaction::update_columns_raw`] for several rows at once, in the manner of
    /// [`Transaction::update_heads_raw`].
    ///
    /// # Errors
    /// As for [`Transaction::update_columns_raw`].
    pub fn update_columns_of_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(0) };
        self.enter(OperationKind::Update, &info.primary);
        check_changeable(info, columns)?;
        let result = self.txn.get_mut().update_columns_of(info, keys, columns, change);
        self.noted(result)
    }

    /// Inserts a row under a key that must be new.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn insert_raw<K, V>(&mut self, table: &impl AsTable<K, V>, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        let result = self.txn.get_mut().insert_row(info, key, row);
        self.noted(result)
    }

    /// Inserts a row or replaces the existing one.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put_raw<K, V>(&mut self, table: &impl AsTable<K, V>, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        let result = self.txn.get_mut().put_row(info, key, row);
        self.noted(result)
    }

    /// Shows the bytes of a row that will probably be written to `f`, locked as [`Transaction::get_for_update`] does.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_for_update_raw<K, V, R>(
        &self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_raw_for(table, key, Want::Update, WHOLE, f)
    }

    /// Shows the rows of `[from, to]` to `visit` in descending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn scan_backward_raw<K, V>(
        &self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        self.enter(OperationKind::Scan, &info.primary);
        self.visit_backward(&info.primary, from, to, visit)
    }

    /// Inserts rows whose keys ascend; neighbours are placed in one descent. On an error none of them stays.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn insert_run_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        rows: &[(&[u8], &[u8])],
    ) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        let result = self.txn.get_mut().insert_rows(info, rows);
        self.noted(result)
    }

    /// Deletes a row; false if there is none.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete_raw<K, V>(&mut self, table: &impl AsTable<K, V>, key: &[u8]) -> Result<bool, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(false) };
        self.enter(OperationKind::Delete, &info.primary);
        let result = self.txn.get_mut().delete_row(info, key);
        self.noted(result)
    }

    /// Deletes the first row of `[from, to]` and returns its key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn take_first_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<Vec<u8>>, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(None) };
        self.enter(OperationKind::Delete, &info.primary);
        let result = self.txn.get_mut().take_first_row(info, from, ScanEnd::With(to));
        self.noted(result)
    }

    /// Shows the rows of `[from, to]` to `visit` in ascending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn scan_raw<K, V>(
        &self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        self.enter(OperationKind::Scan, &info.primary);
        let wanted = ScanSpec { from, to: ScanEnd::With(to), want: Want::Read, likely: usize::MAX };
        self.visit_forward(&info.primary, wanted, visit)
    }

    /// Lets `change` edit every row of `[from, to]` in place, locked for writing; returns how many there were.
    /// For tables without secondary indexes; rows keep their length.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn update_run_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        change: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<usize, TxnError> {
        let Some(info) = self.seen_to_write(table)? else { return Ok(0) };
        self.enter(OperationKind::Update, &info.primary);
        if !info.secondaries.is_empty() {
            let what = "has secondary indexes: update its rows one by one".into();
            return Err(TxnError::Schema { table: info.primary.table(), what });
        }
        let result = self.txn.get_mut().update_rows(info, from, ScanEnd::With(to), change);
        self.noted(result)
    }

    /// Shows the entries of a secondary index, as (value in the index, primary key), from `from` up to `to`, until
    /// `visit` breaks. `index` counts the table's indexes in the order of their declaration. Under read committed the
    /// row may have another value, or be gone, by the time it is read.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if there is no such index.
    pub fn scan_index_raw<K, V>(
        &self,
        table: &impl AsTable<K, V>,
        index: usize,
        from: &[u8],
        to: &[u8],
        descending: bool,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        let Some(secondary) = info.secondaries.get(index) else {
            return Err(TxnError::Schema { table: info.primary.table(), what: format!("has no index {index}") });
        };
        self.enter(OperationKind::Scan, &secondary.index);
        if descending {
            return self.visit_backward(&secondary.index, from, to, visit);
        }
        let wanted = ScanSpec { from, to: ScanEnd::With(to), want: Want::Read, likely: 8 };
        self.visit_forward(&secondary.index, wanted, visit)
    }

    /// Shows rows to `visit`, which may use the transaction.
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

    /// Shows the rows of a batch to `visit`, which may use the transaction.
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

    /// Shows rows to `visit` in descending order; it may use the transaction.
    fn visit_backward(
        &self,
        index: &Index,
        from: &[u8],
        to: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        // A backward scan is nearly always for the newest row.
        let wanted = ScanSpec { from, to: ScanEnd::With(to), want: Want::Read, likely: 1 };
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

    /// Brings rows, perhaps of several tables, into the processor's caches, many at a time: the first so many bytes of
    /// each. Changes and locks nothing; skips a table that cannot be found.
    pub fn prefetch_raw<'k, K, V>(&self, rows: impl Iterator<Item = (OpenTable<K, V>, &'k [u8], usize)>) {
        let db = self.db;
        db.engine.pool.points().enter(Operation::of_transaction(OperationKind::Prefetch));
        let rows = rows.filter_map(|(table, key, bytes)| Some((table.info(db).ok()?.primary.tree(), key, bytes)));
        // Inside another statement this does nothing: it is a hint.
        if let Ok(mut txn) = self.txn.try_borrow_mut() {
            txn.prefetch(rows);
        }
    }

    /// Whether statements on several rows look for all of them together, as they do at first, or for one after the other:
    /// for measurements of what the former is worth.
    pub fn find_together(&mut self, together: bool) {
        self.txn.get_mut().finds_together = together;
    }

    /// Announces a row that will be needed, of which so many bytes are wanted: it is looked for together with those of
    /// the transaction's next statement on several keys, or of its next [`Transaction::prefetch_raw`]. Changes and locks
    /// nothing.
    pub fn prefetch_along_raw<K, V>(&mut self, table: &OpenTable<K, V>, key: &[u8], bytes: usize) {
        if let Ok(info) = table.info(self.db) {
            self.txn.get_mut().prefetch_along((info.primary.tree(), key, bytes));
        }
    }

    /// Says that a row will soon be inserted under a key like this one, equal to it but for the last four bytes: if
    /// this thread has inserted such rows before, the lines that the insert will need are prefetched. Changes and locks
    /// nothing.
    pub fn prefetch_insert_raw<K, V>(&mut self, table: &OpenTable<K, V>, key: &[u8]) {
        if let Ok(info) = table.info(self.db) {
            self.txn.get_mut().prefetch_insert(&info.primary, key);
        }
    }
}

/// Refuses an update in place of bytes that an index depends on, or of no certain number.
#[inline]
fn check_changeable(info: &TableInfo, columns: &[Range<usize>]) -> Result<(), TxnError> {
    let part = changed(columns);
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
