//! Errors of engines, and the aborts after which a transaction is retried.

use super::schema::TableId;

/// Cause of an abort after which the transaction is retried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum AbortCause {
    /// The transaction was the victim of a deadlock.
    Deadlock,
    /// Data that the transaction had read optimistically has changed.
    Validation,
    /// A wait for a lock has timed out.
    Timeout,
    /// The transaction is not serializable with concurrent transactions (SQLSTATE 40001).
    Serialization,
    /// The connection to the server was lost. It is unknown if the transaction has committed.
    Connection,
}

impl AbortCause {
    /// All causes of aborts.
    pub const ALL: [AbortCause; 5] = [
        AbortCause::Deadlock,
        AbortCause::Validation,
        AbortCause::Timeout,
        AbortCause::Serialization,
        AbortCause::Connection,
    ];

    /// Returns the name of the cause, for reports.
    pub fn name(self) -> &'static str {
        match self {
            AbortCause::Deadlock => "deadlock",
            AbortCause::Validation => "validation",
            AbortCause::Timeout => "timeout",
            AbortCause::Serialization => "serialization",
            AbortCause::Connection => "connection",
        }
    }
}

/// An abort. The transaction was rolled back and is retried with the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Cause of the abort.
    pub cause: AbortCause,
    /// Table of the conflict, if the engine reports it.
    pub table: Option<TableId>,
}

/// Error of an engine. Its text must name the problem and a remedy.
pub trait EngineError: std::error::Error + Send + 'static {
    /// Returns the abort if the transaction should be rolled back and retried; `None` if the run has failed.
    fn abort(&self) -> Option<Abort>;
}
