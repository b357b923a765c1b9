//! The transactions of the public interface.

use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

use super::cursor::{Cursor, bounds_of};
use super::database::Database;
use super::savepoint::Savepoints;
use super::table::{AsTable, OpenTable, SecondaryIndex};
use crate::base::config::{Durability, Isolation};
use crate::base::error::TxnError;
use crate::base::hook::{Operation, OperationKind};
use crate::base::ids::{Age, Lsn};
use crate::lock::TableMode;
use crate::table::catalog::{Declared, TableInfo};
use crate::table::codec::{BorrowedKey, Key, Row, key_from};
use crate::table::index::{Index, Want};
use crate::table::scan::{ScanEnd, ScanSpec};
use crate::txn::core::Txn;

/// A transaction. Rolled back when dropped; ended by [`Transaction::commit`] or [`Transaction::rollback`].
///
/// A table that does not exist is an empty one to statements that read, update or delete: they do not create it. At
/// serializable and repeatable read the transaction can rely on that like on anything it has read: a transaction that
/// creates the table waits for it. Statements that insert or put, and locks on the whole table for writing, create it,
/// at once and for good: it stays when the transaction is rolled back.
///
/// ```
/// # use storage::{Database, Options, Table};
/// # let directory = std::env::temp_dir().join(format!("lockstep-txn-{}", std::process::id()));
/// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
/// let db = Database::open(&directory, Options::new())?;
/// let mut tx = db.begin()?;
/// tx.put(&ACCOUNTS, &1, &100)?;
/// tx.put(&ACCOUNTS, &2, &50)?;
/// tx.commit()?;
/// # drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transaction<'db> {
    db: &'db Database,
    pub(crate) txn: Txn<'db>,
    /// It was chosen as a deadlock's victim, in this table: it can only be rolled back.
    victim: Option<Arc<str>>,
    pub(super) savepoints: Savepoints,
}

/// A lock on a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLock {
    /// Rows will be read and locked one by one.
    IntentShared,
    /// Rows will be written and locked one by one.
    IntentExclusive,
    /// The table will be read as a whole.
    Shared,
    /// The table will be read as a whole and rows of it written.
    SharedIntentExclusive,
    /// No other transaction may use the table.
    Exclusive,
}

impl<'db> Transaction<'db> {
    #[inline]
    pub(crate) fn new(db: &'db Database, txn: Txn<'db>) -> Transaction<'db> {
        Transaction { db, txn, victim: None, savepoints: Savepoints::default() }
    }

    /// Whether the transaction was chosen as a deadlock's victim: roll back, then run it again.
    pub fn is_victim(&self) -> bool {
        self.victim.is_some()
    }

    /// Its age, for [`Database::begin_again`].
    #[inline]
    pub fn age(&self) -> Age {
        self.txn.age
    }

    /// Says that another thread or fiber than the one that began the transaction goes on with it. Without this call a
    /// conflict with it in the thread that began it counts as one that never ends: see [`TxnError::OwnTask`].
    pub fn hand_over(&mut self) {
        self.txn.claim.context().owner.run_by(0);
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.txn.isolation
    }

    /// The table of a statement that reads it; `None` if it does not exist, which the transaction can rely on then.
    #[inline]
    pub(super) fn seen<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        want: Want,
    ) -> Result<Option<&'db TableInfo>, TxnError> {
        self.is_open()?;
        match table.find(self.db)? {
            Some(info) => Ok(Some(info)),
            None => self.absent(table.declaration(), want),
        }
    }

    /// The table of a statement that writes it, created if it does not exist.
    #[inline]
    fn made<K, V>(&mut self, table: &impl AsTable<K, V>) -> Result<&'db TableInfo, TxnError> {
        self.is_open()?;
        match table.find(self.db)? {
            Some(info) => Ok(info),
            None => self.create(table.declaration()),
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> Result<(), TxnError> {
        if self.victim.is_some() || self.txn.is_broken() { Err(TxnError::Ended) } else { Ok(()) }
    }

    #[cold]
    fn absent(&mut self, declared: Option<Declared<'_>>, want: Want) -> Result<Option<&'db TableInfo>, TxnError> {
        let Some(declared) = declared else { return Ok(None) };
        let locked = self.txn.lock_absence(declared.name, want);
        self.noted(locked)?;
        self.db.find(&declared)
    }

    #[cold]
    fn create(&mut self, declared: Option<Declared<'_>>) -> Result<&'db TableInfo, TxnError> {
        let Some(declared) = declared else { return Err(TxnError::Ended) };
        loop {
            let locked = self.txn.lock_absence(declared.name, Want::Write);
            let acquired = self.noted(locked)?;
            let created = self.db.catalog.create(&self.db.core, &declared, true);
            self.txn.release_absence(declared.name, acquired);
            created?;
            if let Some(info) = self.db.find(&declared)? {
                return Ok(info);
            }
        }
    }

    /// Tells the scheduler which statement begins.
    #[inline(always)]
    pub(super) fn enter(&self, kind: OperationKind, index: &Index) {
        self.txn.core.pool.points().enter(Operation { kind, index: index.tree.index.0 });
    }

    /// Records the consequences of an error for the transaction.
    #[inline]
    pub(super) fn noted<T>(&mut self, result: Result<T, TxnError>) -> Result<T, TxnError> {
        if let Err(TxnError::Deadlock { table }) = &result {
            self.victim = Some(Arc::clone(table));
        }
        result
    }

    #[inline]
    fn with_key<T>(
        &mut self,
        key: &(impl BorrowedKey + ?Sized),
        f: impl FnOnce(&mut Self, &[u8]) -> Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        let mut bytes = std::mem::take(&mut self.txn.claim.context().encoded.key);
        bytes.clear();
        key.encode_key(&mut bytes);
        let result = f(self, &bytes);
        self.txn.claim.context().encoded.key = bytes;
        self.noted(result)
    }

    #[inline]
    fn with_row<V: Row, T>(
        &mut self,
        row: &V,
        f: impl FnOnce(&mut Self, &[u8]) -> Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        let mut bytes = std::mem::take(&mut self.txn.claim.context().encoded.row);
        bytes.clear();
        row.encode(&mut bytes);
        let result = f(self, &bytes);
        self.txn.claim.context().encoded.row = bytes;
        result
    }

    /// Reads a row. The key is of the table's type or its borrowed form: a `&str` for a `String` ([`Key::Borrowed`]).
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
    ) -> Result<Option<V>, TxnError> {
        self.get_for(table, key, Want::Read)
    }

    /// Reads a row that will probably be written: other transactions may still read it, but no other one gets it for
    /// update, so that two that do this wait for each other instead of deadlocking.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_for_update<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
    ) -> Result<Option<V>, TxnError> {
        self.get_for(table, key, Want::Update)
    }

    fn get_for<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        want: Want,
    ) -> Result<Option<V>, TxnError> {
        let Some(info) = self.seen(table, want)? else { return Ok(None) };
        self.enter(OperationKind::Fetch, &info.primary);
        self.with_key(key, |tx, key| match tx.txn.read(&info.primary, key, want, V::decode)? {
            Some(None) => Err(undecodable::<V>(&info.primary)),
            found => Ok(found.flatten()),
        })
    }

    /// Inserts a row under a key that must be new.
    ///
    /// # Errors
    /// [`TxnError::DuplicateKey`] if it is not, or a unique index has its value; the transaction stays open.
    pub fn insert<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        row: &V,
    ) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        self.with_key(key, |tx, key| tx.with_row(row, |tx, row| tx.txn.insert_row(info, key, row)))
    }

    /// Inserts a row or replaces the existing one.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        row: &V,
    ) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        self.with_key(key, |tx, key| tx.with_row(row, |tx, row| tx.txn.put_row(info, key, row)))
    }

    /// Replaces a row; false if there is none.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn update<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        row: &V,
    ) -> Result<bool, TxnError> {
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(false) };
        self.enter(OperationKind::Update, &info.primary);
        self.with_key(key, |tx, key| {
            tx.with_row(row, |tx, row| {
                let replaced = tx.txn.update_row(info, key, |old| {
                    old.clear();
                    old.extend_from_slice(row);
                })?;
                Ok(replaced.is_some())
            })
        })
    }

    /// Deletes a row; false if there is none.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete<K: Key, V: Row>(&mut self, table: &impl AsTable<K, V>, key: &K::Borrowed) -> Result<bool, TxnError> {
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(false) };
        self.enter(OperationKind::Delete, &info.primary);
        self.with_key(key, |tx, key| tx.txn.delete_row(info, key))
    }

    /// The rows of a range of keys, from both ends as the caller chooses.
    ///
    /// # Errors
    /// The items of the cursor are results: see [`TxnError`].
    pub fn range<'tx, K: Key, V: Row>(
        &'tx mut self,
        table: &impl AsTable<K, V>,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor<'tx, 'db, K, V>, TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(Cursor::empty(self)) };
        self.enter(OperationKind::Scan, &info.primary);
        let (from, to) = bounds_of(&range);
        Ok(Cursor::primary(self, info, from, to))
    }

    /// The rows whose value in a secondary index lies in a range, in the index's order.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table has no such index, or another type declares the index of this name.
    pub fn range_by<'tx, I: SecondaryIndex>(
        &'tx mut self,
        table: &impl AsTable<I::Key, I::Row>,
        range: impl RangeBounds<I::By>,
    ) -> Result<Cursor<'tx, 'db, I::Key, I::Row>, TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(Cursor::empty(self)) };
        let secondary = info.secondary::<I>()?;
        self.enter(OperationKind::Scan, &secondary.index);
        let (from, to) = bounds_of(&range);
        Ok(Cursor::secondary(self, info, secondary, from, to))
    }

    /// Locks a whole table until the end of the transaction.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn lock_table<K, V>(&mut self, table: &impl AsTable<K, V>, mode: TableLock) -> Result<(), TxnError> {
        let mode = match mode {
            TableLock::IntentShared => TableMode::IS,
            TableLock::IntentExclusive => TableMode::IX,
            TableLock::Shared => TableMode::S,
            TableLock::SharedIntentExclusive => TableMode::SIX,
            TableLock::Exclusive => TableMode::X,
        };
        let info = match mode {
            TableMode::IS | TableMode::S => match self.seen(table, Want::Read)? {
                Some(info) => info,
                // The lock on its absence keeps all rows out.
                None => return Ok(()),
            },
            _ => self.made(table)?,
        };
        let result = self.txn.lock_whole(info, mode);
        self.noted(result)
    }

    /// Brings rows that will be needed into the processor's caches, many at a time, and pages of theirs that are not in
    /// memory into the buffer pool, all at the same time (unless [`Background::Inline`](crate::Background::Inline)).
    /// Changes and locks nothing.
    ///
    /// # Errors
    /// Only if the table cannot be found.
    pub fn prefetch<K: Key, V: Row>(&mut self, table: &impl AsTable<K, V>, keys: &[K]) -> Result<(), TxnError> {
        self.is_open()?;
        let Some(info) = table.find(self.db)? else { return Ok(()) };
        self.enter(OperationKind::Prefetch, &info.primary);
        let encoded: Vec<Vec<u8>> = keys
            .iter()
            .map(|key| {
                let mut bytes = Vec::new();
                key.encode(&mut bytes);
                bytes
            })
            .collect();
        let tree = info.primary.tree;
        self.txn.prefetch(encoded.iter().map(|key| (tree, key.as_slice(), ROW_BYTES)));
        Ok(())
    }

    /// Commits. With [`Durability::Sync`] it returns when the commit, and every commit that this transaction
    /// read from, is on disk.
    ///
    /// # Errors
    /// When the instance is closed to commits. The commit may then be on disk or not: the next open tells.
    pub fn commit(self) -> Result<(), TxnError> {
        let core = &self.db.core;
        let end = self.commit_async()?;
        if core.durability == Durability::Sync {
            core.wait_to_answer(end)?;
        }
        Ok(())
    }

    /// Commits and returns at once. The answer may leave the program when [`Database::durable`] has reached the
    /// position returned; until then a crash may undo the commit, and with it all transactions that have read from it.
    /// Locks are released at once (early lock release: Johnson et al., "Aether", VLDB 2010).
    ///
    /// # Errors
    /// When the instance is closed to commits; [`TxnError::Ended`] when an earlier error has left nothing to commit.
    /// The transaction is rolled back then.
    #[inline]
    pub fn commit_async(self) -> Result<Lsn, TxnError> {
        if self.victim.is_some() || self.txn.is_broken() {
            return Err(TxnError::Ended);
        }
        self.txn.core.pool.points().enter(Operation::of_transaction(OperationKind::Commit));
        Ok(self.txn.commit()?)
    }

    /// Commits for [`Database::transact`]; returns an error if the transaction is a deadlock's victim.
    pub(super) fn commit_all(self) -> Result<(), TxnError> {
        match &self.victim {
            Some(table) => Err(TxnError::Deadlock { table: Arc::clone(table) }),
            None => self.commit(),
        }
    }

    /// Rolls back and returns when what was read is on disk: the caller's answer may reveal it.
    pub(super) fn give_up(self) -> Result<(), TxnError> {
        let core = &self.db.core;
        let end = self.rollback()?;
        if core.durability == Durability::Sync {
            core.wait_to_answer(end)?;
        }
        Ok(())
    }

    /// Rolls back. Returns the position that must be durable before an answer may leave that reveals what was read.
    ///
    /// # Errors
    /// When a page or the log cannot be read: the instance is then closed, to readers too, and the next open rolls
    /// back.
    pub fn rollback(self) -> Result<Lsn, TxnError> {
        self.txn.core.pool.points().enter(Operation::of_transaction(OperationKind::Rollback));
        Ok(self.txn.rollback()?)
    }
}

/// Statements on encoded keys and rows: for programs with codecs of their own, and for scans that need no copies.
impl Transaction<'_> {
    /// Shows the bytes of a row to `f`.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub fn read_raw<K, V, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_raw_for(table, key, Want::Read, f)
    }

    #[inline]
    fn read_raw_for<K, V, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        want: Want,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let Some(info) = self.seen(table, want)? else { return Ok(None) };
        self.enter(OperationKind::Fetch, &info.primary);
        let result = self.txn.read(&info.primary, key, want, f);
        self.noted(result)
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
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(None) };
        self.enter(OperationKind::Update, &info.primary);
        let result = self.txn.update_row(info, key, change);
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
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(None) };
        self.enter(OperationKind::Update, &info.primary);
        if info.secondaries.iter().any(|s| s.columns_from < len) {
            return Err(depends_on_head(info, len));
        }
        let result = self.txn.update_head(info, key, len, change);
        self.noted(result)
    }

    /// As [`Transaction::update_head_raw`] for several rows at once: all are locked, in the order given, before any is
    /// written, and up to sixteen that differ are written under one log record. `change` gets the number of the key
    /// that it is called for; for a key that occurs again it sees its own result for the row. A key without a row is
    /// skipped; returns how many keys had one. On an error, or when `change` panics, no row is changed.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn update_heads_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        keys: &[&[u8]],
        len: usize,
        change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(0) };
        self.enter(OperationKind::Update, &info.primary);
        if info.secondaries.iter().any(|s| s.columns_from < len) {
            return Err(depends_on_head(info, len));
        }
        let result = self.txn.update_row_heads(info, keys, len, change);
        self.noted(result)
    }

    /// Inserts a row under a key that must be new.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn insert_raw<K, V>(&mut self, table: &impl AsTable<K, V>, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        let result = self.txn.insert_row(info, key, row);
        self.noted(result)
    }

    /// Inserts a row or replaces the existing one.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put_raw<K, V>(&mut self, table: &impl AsTable<K, V>, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        let info = self.made(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        let result = self.txn.put_row(info, key, row);
        self.noted(result)
    }

    /// Shows the bytes of a row that will probably be written to `f`, locked as [`Transaction::get_for_update`] does.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn read_for_update_raw<K, V, R>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.read_raw_for(table, key, Want::Update, f)
    }

    /// Shows the rows of `[from, to]` to `visit` in descending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn scan_backward_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        self.enter(OperationKind::Scan, &info.primary);
        let result = self.txn.scan_backward(&info.primary, ScanEnd::With(to), ScanEnd::With(from), Want::Read, visit);
        self.noted(result)
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
        let result = self.txn.insert_rows(info, rows);
        self.noted(result)
    }

    /// Deletes a row; false if there is none.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete_raw<K, V>(&mut self, table: &impl AsTable<K, V>, key: &[u8]) -> Result<bool, TxnError> {
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(false) };
        self.enter(OperationKind::Delete, &info.primary);
        let result = self.txn.delete_row(info, key);
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
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(None) };
        self.enter(OperationKind::Delete, &info.primary);
        let result = self.txn.take_first_row(info, from, ScanEnd::With(to));
        self.noted(result)
    }

    /// Shows the rows of `[from, to]` to `visit` in ascending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn scan_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        self.enter(OperationKind::Scan, &info.primary);
        let wanted = ScanSpec { from, to: ScanEnd::With(to), want: Want::Read, likely: usize::MAX };
        let result = self.txn.scan(&info.primary, wanted, visit);
        self.noted(result)
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
        let Some(info) = self.seen(table, Want::Update)? else { return Ok(0) };
        self.enter(OperationKind::Update, &info.primary);
        if !info.secondaries.is_empty() {
            let what = "has secondary indexes: update its rows one by one".into();
            return Err(TxnError::Schema { table: info.primary.table.clone(), what });
        }
        let result = self.txn.update_rows(info, from, ScanEnd::With(to), change);
        self.noted(result)
    }

    /// Shows the entries of a secondary index, as (value in the index, primary key), from `from` up to `to`, until
    /// `visit` breaks. `index` counts the table's indexes in the order of their declaration. Under read committed the
    /// row may have another value, or be gone, by the time it is read.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if there is no such index.
    pub fn scan_index_raw<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
        index: usize,
        from: &[u8],
        to: &[u8],
        descending: bool,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        let Some(info) = self.seen(table, Want::Read)? else { return Ok(()) };
        let Some(secondary) = info.secondaries.get(index) else {
            return Err(TxnError::Schema { table: info.primary.table.clone(), what: format!("has no index {index}") });
        };
        self.enter(OperationKind::Scan, &secondary.index);
        let result = if descending {
            self.txn.scan_backward(&secondary.index, ScanEnd::With(to), ScanEnd::With(from), Want::Read, visit)
        } else {
            let wanted = ScanSpec { from, to: ScanEnd::With(to), want: Want::Read, likely: 8 };
            self.txn.scan(&secondary.index, wanted, visit)
        };
        self.noted(result)
    }

    /// Brings rows, perhaps of several tables, into the processor's caches, many at a time: the first so many bytes of
    /// each. Changes and locks nothing; skips a table that cannot be found.
    pub fn prefetch_raw<'k, K, V>(&mut self, rows: impl Iterator<Item = (OpenTable<K, V>, &'k [u8], usize)>) {
        let db = self.db;
        self.txn.core.pool.points().enter(Operation::of_transaction(OperationKind::Prefetch));
        self.txn.prefetch(rows.filter_map(|(table, key, bytes)| Some((table.info(db).ok()?.primary.tree, key, bytes))));
    }

    /// Says that a row will soon be inserted under a key like this one, equal to it but for the last four bytes: if
    /// this thread has inserted such rows before, the lines that the insert will need are prefetched. Changes and locks
    /// nothing.
    pub fn prefetch_insert_raw<K, V>(&mut self, table: &OpenTable<K, V>, key: &[u8]) {
        if let Ok(info) = table.info(self.db) {
            self.txn.prefetch_insert(&info.primary, key);
        }
    }
}

/// Bytes of each row that [`Transaction::prefetch`] brings into the caches.
const ROW_BYTES: usize = 256;

/// The error for an update in place of bytes that an index depends on.
#[cold]
fn depends_on_head(info: &TableInfo, len: usize) -> TxnError {
    let what = format!("has an index that depends on its first {len} bytes");
    TxnError::Schema { table: info.primary.table.clone(), what }
}

/// The error for bytes that are no row of this type.
#[cold]
pub(crate) fn undecodable<V>(index: &Index) -> TxnError {
    TxnError::Decode { table: index.table.clone(), expected: std::any::type_name::<V>() }
}

/// Decodes a key that an index holds.
pub(crate) fn decoded_key<K: Key>(bytes: &[u8], index: &Index) -> Result<K, TxnError> {
    key_from(bytes).ok_or_else(|| undecodable::<K>(index))
}
