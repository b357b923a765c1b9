//! Engines of other crates behind the traits of the workload: whatever keeps bytes under bytes, in order, with
//! transactions.
//!
//! Such an engine implements [`Peer`], which knows neither rows nor indexes nor tickets. Secondary indexes are tables that
//! [`transaction`] keeps, and a commit has the durability that the engine was opened with when it returns.

mod loading;
#[cfg(test)]
mod tests;
mod transaction;

use std::error::Error;
use std::ops::ControlFlow;

use crate::workload::abort::{Abort, AbortCause, EngineError};
use crate::workload::engine::{Engine, EngineFigures, Session, Ticket};
use crate::workload::schema::{IndexDef, TableDef, TableId};
pub use loading::Loading;
pub use transaction::PeerOps;

/// Names of the workload's tables, by the numbers under which a [`Peer`] is asked for them: the tables, then the indexes.
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

/// The number of a table.
#[inline(always)]
fn number<T: TableDef>() -> usize {
    T::TABLE as usize
}

/// The number of an index.
#[inline(always)]
fn index_number<I: IndexDef>() -> usize {
    TableId::ALL.len() + I::INDEX as usize
}

/// What a transaction will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// Why an engine could not do something.
pub trait PeerError: Error + Send + 'static {
    /// Whether others' transactions are the reason, so that it should be rolled back and run again.
    fn is_conflict(&self) -> bool;
}

/// An engine that is open. Tables are known by numbers, and are there from the start.
pub trait Peer: Sync {
    /// What can go wrong.
    type Error: PeerError;
    /// A thread's own part.
    type Session<'a>: PeerSession<Error = Self::Error>
    where
        Self: 'a;

    /// Makes the session of a thread, in that thread.
    ///
    /// # Errors
    /// Those of the engine.
    fn session(&self) -> Result<Self::Session<'_>, Self::Error>;

    /// Fills an empty table with rows whose keys ascend, in the engine's quickest way; durable when it returns.
    ///
    /// # Errors
    /// Those of the engine.
    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Self::Error>;
}

/// A thread's connection to an engine.
pub trait PeerSession {
    /// What can go wrong.
    type Error: PeerError;
    /// A transaction; dropped without an end it is rolled back.
    type Transaction<'t>: PeerTransaction<Error = Self::Error>
    where
        Self: 't;

    /// Begins a transaction, serializable with all others.
    ///
    /// # Errors
    /// Those of the engine.
    fn begin(&self, access: Access) -> Result<Self::Transaction<'_>, Self::Error>;
}

/// A transaction that is open.
pub trait PeerTransaction: Sized {
    /// What can go wrong.
    type Error: PeerError;

    /// Shows the row of `key`; none when there is none. An engine may show it again: the last answer counts.
    ///
    /// # Errors
    /// Those of the engine.
    fn read<R>(&mut self, table: usize, key: &[u8], f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Self::Error>;

    /// Shows the rows of `from..=to`, from the smallest key or, if `down`, from the largest, until `f` breaks.
    ///
    /// # Errors
    /// Those of the engine.
    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Changes a row, which keeps its length; none when there is no such row.
    ///
    /// # Errors
    /// Those of the engine.
    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R)
    -> Result<Option<R>, Self::Error>;

    /// Inserts a row; false, and nothing is changed, when there is one under that key.
    ///
    /// # Errors
    /// Those of the engine.
    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Self::Error>;

    /// Removes the row with the smallest key of `from..=to`; returns its key.
    ///
    /// # Errors
    /// Those of the engine.
    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Changes every row of `from..=to`, in ascending order, as [`Self::update`] would; returns how many there were.
    ///
    /// # Errors
    /// Those of the engine.
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

    /// Commits with the durability that the engine was opened with.
    ///
    /// # Errors
    /// Those of the engine; then it is rolled back.
    fn commit(self) -> Result<(), Self::Error>;

    /// Rolls back.
    ///
    /// # Errors
    /// Those of the engine.
    fn rollback(self) -> Result<(), Self::Error>;
}

/// What an engine of another crate could not do.
#[derive(Debug, thiserror::Error)]
pub enum PeerFailure<E: PeerError> {
    /// It said so.
    #[error(transparent)]
    Peer(#[from] E),
    /// It holds bytes that are no row or key of this schema.
    #[error(
        "{table}: holds a row of another layout; use the build that wrote it, or load another directory with this one"
    )]
    Layout {
        /// Where.
        table: &'static str,
    },
    /// A second row under one key.
    #[error("{table}: a row is there already; this is a fault of the workload")]
    Duplicate {
        /// Where.
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

/// An engine of another crate, as the driver and the checker see it.
pub struct Foreign<'p, P>(pub &'p P);

impl<P: Peer> Engine for Foreign<'_, P> {
    type Error = PeerFailure<P::Error>;
    type Session<'a>
        = ForeignSession<P::Session<'a>>
    where
        Self: 'a;
    type Reader<'a>
        = transaction::Reader<P::Session<'a>>
    where
        Self: 'a;

    fn session(&self, _worker: usize) -> Result<Self::Session<'_>, Self::Error> {
        Ok(ForeignSession(self.0.session()?))
    }

    fn reader(&self) -> Result<Self::Reader<'_>, Self::Error> {
        Ok(transaction::Reader(self.0.session()?))
    }

    fn figures(&self) -> EngineFigures {
        EngineFigures::default()
    }
}

/// A worker's part.
pub struct ForeignSession<S>(S);

impl<S: PeerSession> Session for ForeignSession<S> {
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
