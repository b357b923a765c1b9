//! Transactions of the public interface, and their typed statements.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use super::database::Database;
use super::table::AsTable;
use crate::base::config::{Durability, Isolation};
use crate::base::error::TxnError;
use crate::base::hook::{Operation, OperationKind};
use crate::base::ids::{Age, Lsn};
use crate::btree::MAX_KEY;
use crate::lock::TableMode;
use crate::table::codec::{BorrowedKey, Key, Row, key_from};
use crate::table::columns::WHOLE;
use crate::table::declared::Declared;
use crate::table::index::{AccessMode, Index};
use crate::table::info::TableInfo;
use crate::txn::transaction::Txn;

/// A transaction. [`Transaction::commit`] or [`Transaction::rollback`] ends it; dropping it rolls it back.
///
/// Statements that read, update or delete treat a missing table as an empty one and do not create it. At serializable
/// and repeatable read the transaction can rely on the table's absence as on any read: another transaction that creates
/// the table waits for this transaction. Statements that insert or put, and locks on the whole table for writing,
/// create the table at once. The table stays even if the transaction is rolled back.
///
/// Reads and [`Cursor`](crate::Cursor)s take the transaction by shared reference: rows can be read during an iteration,
/// and several cursors can be open. Writes take the transaction by exclusive reference, so no cursor can be open during
/// a write.
///
/// ```
/// # use storage::{Database, Options, Table, TxnError};
/// # let directory = std::env::temp_dir().join(format!("lockstep-txn-{}", std::process::id()));
/// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
/// let db = Database::open(&directory, Options::new())?;
/// let mut tx = db.begin()?;
/// tx.put(&ACCOUNTS, &1, &100)?;
/// tx.put(&ACCOUNTS, &2, &50)?;
///
/// // Another row is read during the iteration.
/// for row in tx.range(&ACCOUNTS, ..)? {
///     let (number, balance) = row?;
///     let next = tx.get(&ACCOUNTS, &(number + 1))?;
///     assert_eq!((balance, next), if number == 1 { (100, Some(50)) } else { (50, None) });
/// }
///
/// // Two cursors: each account, and the accounts above it.
/// let mut pairs = 0;
/// for lower in tx.range(&ACCOUNTS, ..)? {
///     for upper in tx.range(&ACCOUNTS, lower?.0 + 1..)? {
///         assert_eq!(upper?, (2, 50));
///         pairs += 1;
///     }
/// }
/// assert_eq!(pairs, 1);
/// tx.commit()?;
/// # drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transaction<'db> {
    pub(super) db: &'db Database,
    /// Borrowed for each step of a statement that reads. Of the program's code, only the hook may run during a borrow.
    pub(crate) txn: RefCell<Txn<'db>>,
    age: Age,
    isolation: Isolation,
    /// Name of the table in which the transaction became a deadlock victim. A victim can only be rolled back.
    victim: OnceCell<Arc<str>>,
    pub(super) savepoints: Savepoints,
}

/// The active savepoints of a transaction, oldest first.
#[derive(Debug, Default)]
pub(super) struct Savepoints {
    pub(super) next_number: u64,
    pub(super) numbers: Vec<u64>,
}

/// Mode of a lock on a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLock {
    /// For reading rows, each under its own lock.
    IntentShared,
    /// For writing rows, each under its own lock.
    IntentExclusive,
    /// For reading the whole table.
    Shared,
    /// For reading the whole table, and writing some rows, each under its own lock.
    SharedIntentExclusive,
    /// For writing the whole table. Excludes all other transactions from the table.
    Exclusive,
}

impl<'db> Transaction<'db> {
    #[inline]
    pub(crate) fn new(db: &'db Database, txn: Txn<'db>) -> Transaction<'db> {
        let (age, isolation, savepoints) = (txn.age, txn.isolation, Savepoints::default());
        Transaction { db, txn: RefCell::new(txn), age, isolation, victim: OnceCell::new(), savepoints }
    }

    /// Returns the engine's part of the transaction.
    pub(super) fn into_txn(self) -> Txn<'db> {
        self.txn.into_inner()
    }

    /// Returns the table in which the transaction became a deadlock victim.
    pub(super) fn victim(&self) -> Option<Arc<str>> {
        self.victim.get().cloned()
    }

    /// Returns true if the transaction is a deadlock victim: roll it back, then run it again.
    pub fn is_victim(&self) -> bool {
        self.victim.get().is_some()
    }

    /// Returns the age of the transaction, for [`Database::begin_again`].
    #[inline]
    pub fn age(&self) -> Age {
        self.age
    }

    /// Declares that another thread or fiber continues the transaction. Without this call, a conflict with this
    /// transaction in the thread that began it fails with [`TxnError::OwnTask`].
    pub fn hand_over(&mut self) {
        self.txn.get_mut().slot.state().owner.run_by(0);
    }

    /// Returns the isolation level of the transaction.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Returns the table of a statement that reads rows by [`Transaction::step`]. Returns `None` if the table does not
    /// exist; the transaction has then locked the table's absence.
    #[inline]
    pub(super) fn table_to_read<K, V>(
        &self,
        table: &impl AsTable<K, V>,
        access: AccessMode,
    ) -> Result<Option<&'db TableInfo>, TxnError> {
        if self.is_victim() {
            return Err(TxnError::Ended);
        }
        match table.find(self.db) {
            Ok(Some(info)) => Ok(Some(info)),
            Ok(None) => self.absent(table.declaration(), access),
            Err(error) => Err(self.not_found(error)),
        }
    }

    /// Returns the table of a statement that updates or deletes rows; `None` as for [`Transaction::table_to_read`].
    #[inline]
    pub(super) fn table_to_write<K, V>(
        &mut self,
        table: &impl AsTable<K, V>,
    ) -> Result<Option<&'db TableInfo>, TxnError> {
        self.check_writable()?;
        self.table_to_read(table, AccessMode::Update)
    }

    /// Checks that the transaction may write: fails if it can only be rolled back.
    #[inline]
    fn check_writable(&mut self) -> Result<(), TxnError> {
        if self.is_victim() || self.txn.get_mut().is_broken() { Err(TxnError::Ended) } else { Ok(()) }
    }

    /// Returns the table of a statement that inserts rows. Creates the table if it does not exist.
    #[inline]
    pub(super) fn table_to_insert<K, V>(&mut self, table: &impl AsTable<K, V>) -> Result<&'db TableInfo, TxnError> {
        self.check_writable()?;
        match table.find(self.db) {
            Ok(Some(info)) => Ok(info),
            Ok(None) => self.create(table.declaration()),
            Err(error) => Err(self.not_found(error)),
        }
    }

    /// Converts a failed lookup of a table: marks the transaction as rollback-only if the table was dropped. Returns
    /// the error.
    #[cold]
    fn not_found(&self, error: TxnError) -> TxnError {
        if !matches!(error, TxnError::Dropped { .. }) {
            return error;
        }
        match self.step(|txn| {
            txn.give_up();
            Ok(())
        }) {
            Ok(()) => error,
            Err(ended) => ended,
        }
    }

    #[inline]
    pub(super) fn check_open(&self) -> Result<(), TxnError> {
        let broken = self.txn.try_borrow().map_err(|_| TxnError::InUse)?.is_broken();
        if self.is_victim() || broken { Err(TxnError::Ended) } else { Ok(()) }
    }

    /// Runs a step of a statement that reads. Of the program's code, only the hook may run during a step. Other fibers
    /// may run during the step; their statements of this transaction fail.
    #[inline]
    pub(super) fn step<T>(&self, step: impl FnOnce(&mut Txn<'db>) -> Result<T, TxnError>) -> Result<T, TxnError> {
        let Ok(mut txn) = self.txn.try_borrow_mut() else { return Err(TxnError::InUse) };
        if txn.is_broken() {
            return Err(TxnError::Ended);
        }
        let result = step(&mut txn);
        drop(txn);
        self.record_victim(result)
    }

    /// Returns a buffer to the transaction, unless another fiber is executing a statement of this transaction.
    #[inline]
    pub(super) fn give_back(&self, give: impl FnOnce(&mut Txn<'db>)) {
        if let Ok(mut txn) = self.txn.try_borrow_mut() {
            give(&mut txn);
        }
    }

    /// Locks the row of `key` and calls `f` with the parts `columns` of the row. `f` may use the transaction, because
    /// the bytes lie in a buffer that no other statement uses.
    #[inline]
    pub(super) fn read<R>(
        &self,
        index: &Index,
        key: &[u8],
        access: AccessMode,
        columns: &[Range<usize>],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let row = self.step(|txn| {
            let found = txn.fetch(index, key, access, columns)?;
            Ok(found.map(|_| std::mem::take(&mut txn.slot.state().before)))
        })?;
        let Some(row) = row else { return Ok(None) };
        let answer = f(&row);
        self.give_back(|txn| txn.slot.state().before = row);
        Ok(Some(answer))
    }

    #[cold]
    fn absent(&self, declared: Option<Declared<'_>>, access: AccessMode) -> Result<Option<&'db TableInfo>, TxnError> {
        let Some(declared) = declared else { return Ok(None) };
        self.step(|txn| txn.lock_absence(declared.name, access))?;
        self.db.find(&declared)
    }

    #[cold]
    fn create(&mut self, declared: Option<Declared<'_>>) -> Result<&'db TableInfo, TxnError> {
        let Some(declared) = declared else { return Err(TxnError::Ended) };
        loop {
            let acquired = self.step(|txn| txn.lock_absence(declared.name, AccessMode::Write))?;
            let created = self.db.catalog.create(&self.db.engine, &declared, true);
            self.txn.get_mut().release_absence(declared.name, acquired);
            created?;
            if let Some(info) = self.db.find(&declared)? {
                return Ok(info);
            }
        }
    }

    /// Reports the beginning of a statement to the scheduler.
    #[inline(always)]
    pub(super) fn enter(&self, kind: OperationKind, index: &Index) {
        self.db.engine.pool.points().enter(Operation { kind, index: index.id().0 });
    }

    /// Records that the transaction is a deadlock victim, if the result is a deadlock error. Returns the result.
    #[inline]
    pub(super) fn record_victim<T>(&self, result: Result<T, TxnError>) -> Result<T, TxnError> {
        if let Err(TxnError::Deadlock { table }) = &result {
            self.victim.get_or_init(|| Arc::clone(table));
        }
        result
    }

    #[inline]
    pub(super) fn with_key<T>(
        &mut self,
        key: &(impl BorrowedKey + ?Sized),
        f: impl FnOnce(&mut Self, &[u8]) -> Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        let mut bytes = std::mem::take(&mut self.txn.get_mut().slot.state().encoded.key);
        bytes.clear();
        key.encode_key(&mut bytes);
        let result = f(self, &bytes);
        let state = self.txn.get_mut().slot.state();
        // A key that is refused later may have any length.
        state.handled_large |= bytes.len() > MAX_KEY;
        state.encoded.key = bytes;
        self.record_victim(result)
    }

    #[inline]
    fn with_row<V: Row, T>(
        &mut self,
        row: &V,
        f: impl FnOnce(&mut Self, &[u8]) -> Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        let mut bytes = std::mem::take(&mut self.txn.get_mut().slot.state().encoded.row);
        bytes.clear();
        row.encode(&mut bytes);
        let result = f(self, &bytes);
        self.txn.get_mut().slot.state().encoded.row = bytes;
        result
    }

    /// Reads a row. The key is of the table's type or its borrowed form: a `&str` for a `String` ([`Key::Borrowed`]).
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get<K: Key, V: Row>(&self, table: &impl AsTable<K, V>, key: &K::Borrowed) -> Result<Option<V>, TxnError> {
        self.get_for(table, key, AccessMode::Read)
    }

    /// Reads a row that will probably be written. Other transactions may still read the row, but cannot get it for
    /// update. So the second of two such transactions waits for the first one instead of causing a deadlock.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_for_update<K: Key, V: Row>(
        &self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
    ) -> Result<Option<V>, TxnError> {
        self.get_for(table, key, AccessMode::Update)
    }

    fn get_for<K: Key, V: Row>(
        &self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        access: AccessMode,
    ) -> Result<Option<V>, TxnError> {
        let Some(info) = self.table_to_read(table, access)? else { return Ok(None) };
        self.enter(OperationKind::Fetch, &info.primary);
        match self.read_key(&info.primary, key, access, WHOLE, V::decode)? {
            Some(None) => Err(undecodable::<V>(&info.primary)),
            found => Ok(found.flatten()),
        }
    }

    /// As [`Transaction::read`], but encodes the key.
    #[inline]
    pub(super) fn read_key<R>(
        &self,
        index: &Index,
        key: &(impl BorrowedKey + ?Sized),
        access: AccessMode,
        columns: &[Range<usize>],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let mut bytes = self.step(|txn| Ok(std::mem::take(&mut txn.slot.state().encoded.key)))?;
        bytes.clear();
        key.encode_key(&mut bytes);
        let found = self.read(index, &bytes, access, columns, f);
        self.give_back(|txn| {
            let state = txn.slot.state();
            state.handled_large |= bytes.len() > MAX_KEY;
            state.encoded.key = bytes;
        });
        found
    }

    /// Inserts a row with a new key.
    ///
    /// # Errors
    /// [`TxnError::DuplicateKey`] if a row with this key exists, or if a unique index already has the row's index key.
    /// The transaction stays open.
    pub fn insert<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        row: &V,
    ) -> Result<(), TxnError> {
        let info = self.table_to_insert(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        self.with_key(key, |tx, key| tx.with_row(row, |tx, row| tx.txn.get_mut().insert_row(info, key, row)))
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
        let info = self.table_to_insert(table)?;
        self.enter(OperationKind::Insert, &info.primary);
        self.with_key(key, |tx, key| tx.with_row(row, |tx, row| tx.txn.get_mut().put_row(info, key, row)))
    }

    /// Replaces a row; returns false if there is no row with this key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn update<K: Key, V: Row>(
        &mut self,
        table: &impl AsTable<K, V>,
        key: &K::Borrowed,
        row: &V,
    ) -> Result<bool, TxnError> {
        let Some(info) = self.table_to_write(table)? else { return Ok(false) };
        self.enter(OperationKind::Update, &info.primary);
        self.with_key(key, |tx, key| {
            tx.with_row(row, |tx, row| {
                let replaced = tx.txn.get_mut().update_row(info, key, |old| {
                    old.clear();
                    old.extend_from_slice(row);
                })?;
                Ok(replaced.is_some())
            })
        })
    }

    /// Deletes a row; returns false if there is no row with this key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn delete<K: Key, V: Row>(&mut self, table: &impl AsTable<K, V>, key: &K::Borrowed) -> Result<bool, TxnError> {
        let Some(info) = self.table_to_write(table)? else { return Ok(false) };
        self.enter(OperationKind::Delete, &info.primary);
        self.with_key(key, |tx, key| tx.txn.get_mut().delete_row(info, key))
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
        self.check_writable()?;
        let info = match mode {
            TableMode::IS | TableMode::S => match self.table_to_read(table, AccessMode::Read)? {
                Some(info) => info,
                // The lock on the table's absence already prevents inserts into the table.
                None => return Ok(()),
            },
            _ => self.table_to_insert(table)?,
        };
        let result = self.txn.get_mut().lock_whole(info, mode);
        self.record_victim(result)
    }

    /// Commits the transaction. With [`Durability::Sync`] the call waits until the commit, and every commit that this
    /// transaction has read from, is on disk.
    ///
    /// # Errors
    /// An error if the instance is closed to commits. The next open then determines if the commit is on disk.
    pub fn commit(self) -> Result<(), TxnError> {
        let engine = &self.db.engine;
        let end = self.commit_async()?;
        if engine.durability == Durability::Sync {
            engine.wait_to_answer(end)?;
        }
        Ok(())
    }

    /// Commits the transaction and returns a log position without waiting for the disk. The program may publish the
    /// transaction's results when [`Database::durable`] has reached this position. Until then a crash may undo the
    /// commit, and with it every transaction that read from this one. Locks are released at once (early lock release:
    /// Johnson et al., "Aether", VLDB 2010).
    ///
    /// # Errors
    /// An error if the instance is closed to commits; [`TxnError::Ended`] if an earlier error made the transaction
    /// rollback-only; the transaction is then rolled back.
    #[inline]
    pub fn commit_async(self) -> Result<Lsn, TxnError> {
        self.check_open()?;
        self.db.engine.pool.points().enter(Operation::of_transaction(OperationKind::Commit));
        let txn = self.txn.into_inner();
        if txn.has_members() && txn.has_locks_elsewhere() {
            return Ok(self.db.loops.commit(txn)?);
        }
        Ok(txn.commit()?)
    }

    /// Commits the transaction for [`Database::transact`]; returns an error if the transaction is a deadlock victim.
    pub(super) fn commit_all(self) -> Result<(), TxnError> {
        match self.victim.get() {
            Some(table) => Err(TxnError::Deadlock { table: Arc::clone(table) }),
            None => self.commit(),
        }
    }

    /// Rolls back, then waits until all commits that the transaction read from are on disk, because the caller's
    /// results may depend on them.
    pub(super) fn give_up(self) -> Result<(), TxnError> {
        let engine = &self.db.engine;
        let end = self.rollback()?;
        if engine.durability == Durability::Sync {
            engine.wait_to_answer(end)?;
        }
        Ok(())
    }

    /// Rolls the transaction back. Returns the log position that must be durable before the program publishes results
    /// of the transaction's reads.
    ///
    /// # Errors
    /// An error if a page or the log cannot be read. The database instance is then closed, also to readers, and the
    /// next open rolls the transaction back.
    pub fn rollback(self) -> Result<Lsn, TxnError> {
        self.db.engine.pool.points().enter(Operation::of_transaction(OperationKind::Rollback));
        Ok(self.txn.into_inner().rollback()?)
    }
}

/// Returns the error for bytes that do not decode as a row of type `V`.
#[cold]
pub(crate) fn undecodable<V>(index: &Index) -> TxnError {
    TxnError::Decode { table: index.table(), expected: std::any::type_name::<V>() }
}

/// Decodes a key of an index.
pub(crate) fn decoded_key<K: Key>(bytes: &[u8], index: &Index) -> Result<K, TxnError> {
    key_from(bytes).ok_or_else(|| undecodable::<K>(index))
}
