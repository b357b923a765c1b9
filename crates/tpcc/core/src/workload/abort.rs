//! Errors of engines, and which of them ask for the transaction to be run again.

use super::schema::TableId;

/// Why a transaction was told to roll back and try again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum AbortCause {
    /// It was chosen as the victim of a deadlock.
    Deadlock,
    /// What it had read optimistically has changed.
    Validation,
    /// It waited too long for a lock.
    Timeout,
    /// No order of it and those that ran beside it would have given what it saw (SQLSTATE 40001).
    Serialization,
    /// The connection to the server was lost; whether it had committed is not known.
    Connection,
}

impl AbortCause {
    /// Every cause.
    pub const ALL: [AbortCause; 5] = [
        AbortCause::Deadlock,
        AbortCause::Validation,
        AbortCause::Timeout,
        AbortCause::Serialization,
        AbortCause::Connection,
    ];

    /// As printed.
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

/// A victim: rolled back, to be run again with the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Why.
    pub cause: AbortCause,
    /// On which table, where the engine knows.
    pub table: Option<TableId>,
}

/// An engine's error. Its text must say what happened and what to do.
pub trait EngineError: std::error::Error + Send + 'static {
    /// Whether the transaction should be rolled back and run again, and why; none means that the run has failed.
    fn abort(&self) -> Option<Abort>;
}
