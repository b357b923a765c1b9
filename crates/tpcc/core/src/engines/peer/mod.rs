//! Adapter for engines of other crates: any ordered store of byte strings with transactions.
//!
//! Such an engine implements [`Peer`], an interface without row types, indexes or tickets. [`transaction`] stores each
//! secondary index as a table. When a commit returns, the transaction has the durability with which the engine was opened.

mod loading;
#[cfg(test)]
mod tests;
mod transaction;

use std::error::Error;
use std::ops::ControlFlow;

use crate::workload::abort::{Abort, AbortCause, EngineError};
use crate::workload::engine::{Engine, EngineFigures, Session, Ticket};
use crate::workload::schema::{IndexDef, TableDef, TableId};
pub use loading::PeerLoader;
pub use transaction::PeerOps;

/// Names of the workload's tables, indexed by the table number that a [`Peer`] receives: first the tables, then the indexes.
pub const TABLES: [&str; 13] = [
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "order",
    "order_line",
    "item",
    "stock",
    "meta",
    "acknowledged",
    "customer_by_name",
    "order_by_customer",
];

/// Returns the number of a table in [`TABLES`].
#[inline(always)]
fn number<T: TableDef>() -> usize {
    T::TABLE as usize
}

/// Returns the number of an index in [`TABLES`].
#[inline(always)]
fn index_number<I: IndexDef>() -> usize {
    TableId::ALL.len() + I::INDEX as usize
}

/// Access mode of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// Error of an engine of another crate.
pub trait PeerError: Error + Send + 'static {
    /// Returns true if the error is a conflict with another transaction. The transaction is then rolled back and retried.
    fn is_conflict(&self) -> bool;
}

/// An open engine. Tables are identified by their numbers in [`TABLES`] and exist from the start.
pub trait Peer: Sync {
    /// Error of the engine.
    type Error: PeerError;
    /// Session type: a thread's connection to the engine.
    type Session<'a>: PeerSession<Error = Self::Error>
    where
        Self: 'a;

    /// Creates the session of the calling thread.
    ///
    /// # Errors
    /// Errors of the engine.
    fn session(&self) -> Result<Self::Session<'_>, Self::Error>;

    /// Fills an empty table with rows in ascending key order, by the fastest method of the engine. The rows are durable when
    /// the call returns.
    ///
    /// # Errors
    /// Errors of the engine.
    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Self::Error>;
}

/// A thread's connection to an engine.
pub trait PeerSession {
    /// Error of the engine.
    type Error: PeerError;
    /// A transaction. It is rolled back if it is dropped without a commit or rollback.
    type Transaction<'t>: PeerTransaction<Error = Self::Error>
    where
        Self: 't;

    /// Begins a serializable transaction.
    ///
    /// # Errors
    /// Errors of the engine.
    fn begin(&self, access: Access) -> Result<Self::Transaction<'_>, Self::Error>;
}

/// An open transaction.
pub trait PeerTransaction: Sized {
    /// Error of the engine.
    type Error: PeerError;

    /// Calls `f` with the row of `key`; returns `None` if there is no row. An engine may call `f` again for the same row;
    /// the last result counts.
    ///
    /// # Errors
    /// Errors of the engine.
    fn read<R>(&mut self, table: usize, key: &[u8], f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Self::Error>;

    /// Calls `f` with the rows of `from..=to` until `f` breaks, in ascending key order, or in descending key order if
    /// `down`.
    ///
    /// # Errors
    /// Errors of the engine.
    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Changes a row; its length stays the same. Returns `None` if there is no row.
    ///
    /// # Errors
    /// Errors of the engine.
    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R)
    -> Result<Option<R>, Self::Error>;

    /// Inserts a row. Returns false and changes nothing if a row has the key already.
    ///
    /// # Errors
    /// Errors of the engine.
    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Self::Error>;

    /// Removes the row with the smallest key of `from..=to`; returns its key, or `None` if there is no row.
    ///
    /// # Errors
    /// Errors of the engine.
    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Changes every row of `from..=to` in ascending key order, as [`Self::update`] does. Returns the number of changed
    /// rows.
    ///
    /// # Errors
    /// Errors of the engine.
    fn update_run(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        mut f: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<usize, Self::Error> {
        let mut keys = Vec::new();
        self.scan(table, from, to, false, |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        for key in &keys {
            self.update(table, key, |row| f(key, row))?;
        }
        Ok(keys.len())
    }

    /// Commits the transaction with the durability with which the engine was opened.
    ///
    /// # Errors
    /// Errors of the engine. The transaction is then rolled back.
    fn commit(self) -> Result<(), Self::Error>;

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// Errors of the engine.
    fn rollback(self) -> Result<(), Self::Error>;
}

/// Error of an operation on an engine of another crate.
#[derive(Debug, thiserror::Error)]
pub enum PeerFailure<E: PeerError> {
    /// Error of the engine.
    #[error(transparent)]
    Peer(#[from] E),
    /// The engine contains bytes that are not a row or key of this schema.
    #[error(
        "{table}: holds a row of another layout; use the build that wrote it, or load another directory with this one"
    )]
    Layout {
        /// Name of the table.
        table: &'static str,
    },
    /// A row with this key exists already.
    #[error("{table}: a row is there already; this is a fault of the workload")]
    Duplicate {
        /// Name of the table.
        table: &'static str,
    },
}

impl<E: PeerError> EngineError for PeerFailure<E> {
    fn abort(&self) -> Option<Abort> {
        match self {
            PeerFailure::Peer(error) if error.is_conflict() => {
                Some(Abort { cause: AbortCause::Validation, table: None })
            }
            _ => None,
        }
    }
}

/// Adapter of an engine of another crate to the engine traits of the driver and the checker.
pub struct PeerEngine<'p, P>(pub &'p P);

impl<P: Peer> Engine for PeerEngine<'_, P> {
    type Error = PeerFailure<P::Error>;
    type Session<'a>
        = PeerEngineSession<P::Session<'a>>
    where
        Self: 'a;
    type Reader<'a>
        = transaction::Reader<P::Session<'a>>
    where
        Self: 'a;

    fn session(&self, _worker: usize) -> Result<Self::Session<'_>, Self::Error> {
        Ok(PeerEngineSession(self.0.session()?))
    }

    fn reader(&self) -> Result<Self::Reader<'_>, Self::Error> {
        Ok(transaction::Reader(self.0.session()?))
    }

    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}

/// Session of a worker on an engine of another crate.
pub struct PeerEngineSession<S>(S);

impl<S: PeerSession> Session for PeerEngineSession<S> {
    type Error = PeerFailure<S::Error>;
    type Transaction<'t>
        = PeerOps<'t, S>
    where
        Self: 't;

    #[inline]
    fn begin(&mut self) -> Result<PeerOps<'_, S>, Self::Error> {
        Ok(PeerOps::new(&self.0))
    }

    fn begin_again(&mut self) -> Result<PeerOps<'_, S>, Self::Error> {
        self.begin()
    }

    fn durable(&mut self) -> Ticket {
        Ticket::ALL
    }

    fn request(&mut self, _ticket: Ticket) {}

    fn wait_for(&mut self, _ticket: Ticket) -> Result<Ticket, Self::Error> {
        Ok(Ticket::ALL)
    }
}
