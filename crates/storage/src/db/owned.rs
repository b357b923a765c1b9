//! Transactions that own a share of their database, for structs that store an open transaction.

use std::sync::Arc;

use self_cell::self_cell;

use super::database::Database;
use super::transaction::Transaction;
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::ids::Lsn;

/// The transaction, until it ends.
type Open<'db> = Option<Transaction<'db>>;

self_cell!(
    struct SharedAndOpen {
        owner: Arc<Database>,
        #[not_covariant]
        dependent: Open,
    }
);

/// A transaction with a share of its database: it borrows nothing, so a struct can store it between calls. For adapters to
/// other systems' interfaces, whose statements arrive one by one. Dropping it rolls it back.
///
/// ```
/// # use std::sync::Arc;
/// # use storage::{Database, Options, OwnedTransaction, Table, TxnError};
/// # let directory = std::env::temp_dir().join(format!("lockstep-owned-{}", std::process::id()));
/// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
///
/// /// A session of a server: its transaction stays open from one request to the next.
/// struct Session {
///     open: OwnedTransaction,
/// }
///
/// let db = Arc::new(Database::open(&directory, Options::new())?);
/// let mut session = Session { open: db.begin_owned()? };
/// session.open.with(|tx| tx.put(&ACCOUNTS, &1, &100))?;
/// let balance = session.open.read(|tx| tx.get(&ACCOUNTS, &1))?;
/// assert_eq!(balance, Some(100));
/// session.open.commit()?;
/// # drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedTransaction(SharedAndOpen);

impl std::fmt::Debug for OwnedTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.with_dependent(|_, open| f.debug_tuple("OwnedTransaction").field(open).finish())
    }
}

impl Database {
    /// Begins a transaction that owns a share of the database, at the database's isolation level.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub fn begin_owned(self: &Arc<Self>) -> Result<OwnedTransaction, TxnError> {
        self.begin_owned_at(self.engine.isolation)
    }

    /// As [`Database::begin_owned`], at a given isolation level.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub fn begin_owned_at(self: &Arc<Self>, isolation: Isolation) -> Result<OwnedTransaction, TxnError> {
        SharedAndOpen::try_new(Arc::clone(self), |db| db.begin_at(isolation).map(Some)).map(OwnedTransaction)
    }
}

/// Message of the panic if the transaction is gone. Only the functions that consume it end it.
const OPEN: &str = "an owned transaction is open until it is consumed";

impl OwnedTransaction {
    /// Calls `work` with the transaction.
    pub fn with<T>(&mut self, work: impl for<'db> FnOnce(&mut Transaction<'db>) -> T) -> T {
        self.0.with_dependent_mut(|_, open| work(open.as_mut().expect(OPEN)))
    }

    /// Calls `work` with the transaction, for reads.
    pub fn read<T>(&self, work: impl for<'db> FnOnce(&Transaction<'db>) -> T) -> T {
        self.0.with_dependent(|_, open| work(open.as_ref().expect(OPEN)))
    }

    /// Returns the database.
    pub fn database(&self) -> &Arc<Database> {
        self.0.borrow_owner()
    }

    /// As [`Transaction::commit`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit(mut self) -> Result<(), TxnError> {
        self.0.with_dependent_mut(|_, open| open.take().expect(OPEN).commit())
    }

    /// As [`Transaction::commit_async`].
    ///
    /// # Errors
    /// As [`Transaction::commit_async`].
    pub fn commit_async(mut self) -> Result<Lsn, TxnError> {
        self.0.with_dependent_mut(|_, open| open.take().expect(OPEN).commit_async())
    }

    /// As [`Transaction::rollback`].
    ///
    /// # Errors
    /// As [`Transaction::rollback`].
    pub fn rollback(mut self) -> Result<Lsn, TxnError> {
        self.0.with_dependent_mut(|_, open| open.take().expect(OPEN).rollback())
    }
}
