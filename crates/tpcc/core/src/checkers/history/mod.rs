//! Histories: recorded operations of concurrent sessions with their results, for any independent checker.
//!
//! A [`run()`] executes sessions of random transactions on few rows, and records every operation with its result. [`check`]
//! infers the order of transactions from such a record and searches it for the cycles of Adya, "Weak Consistency" (1999), by
//! the method of Kingsbury and Alvaro, "Elle" (VLDB 2020). The record does not depend on the implementation of the engine,
//! so any checker can process it.
//!
//! Two forms:
//!
//! - **list-append**: an append adds a number, unique in the history, to a row's list. A read returns the list, or `[]` if
//!   there is no row. The longest list gives the order of all its versions.
//! - **register**: a write gives a row a new version, and a read returns it. Version numbers are unique in the history. The
//!   writer draws the number while it has exclusive access to the row, so the numbers give the order of a row's versions. A
//!   delete is a write, too: a later read of the absent row returns the version that the delete drew. Deletes have odd
//!   versions, other writes even ones. `null` means that the row was never written.

pub mod check;
mod format;
mod generate;
mod list_step;
mod run;
mod session;
mod shared_state;
mod team;
mod trial;

pub use format::{FormatError, read, write};
pub use generate::{Program, Programs, Step};
pub use run::{RunError, RunRecord, SessionKind, run};
pub use session::RecordedSession;
pub use shared_state::SharedState;
pub use team::Teams;
pub use trial::{Trial, TrialResult};

use storage::Isolation;

/// Form of a history: the operations of its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Append numbers to lists.
    ListAppend,
    /// Write and delete versioned rows.
    Register,
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction committed.
    Ok,
    /// The transaction rolled back, on request or as a deadlock victim.
    Fail,
    /// The commit returned an error: the transaction may have committed or not.
    Info,
}

/// An operation on one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Append of a number to the row's list.
    Append(u64, u64),
    /// Read of the row's list.
    List(u64, Vec<u64>),
    /// Write of a version; an odd version is a delete.
    Write(u64, u64),
    /// Read of a version, odd if the row was absent; `None` if the row never existed.
    Read(u64, Option<u64>),
}

/// Record of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Identifier of the transaction, unique in the history.
    pub id: u64,
    /// Number of the session that ran the transaction. A session runs its transactions one after the other.
    pub session: u32,
    /// Outcome of the transaction.
    pub outcome: Outcome,
    /// Operations in order of execution. If the transaction did not commit, only the operations executed before its end.
    pub ops: Vec<Op>,
    /// Time just before the transaction began, in nanoseconds since the creation of the run's shared state.
    pub start: u64,
    /// Time just after the transaction ended, on the clock of `start`.
    pub end: u64,
}

/// Parameters of a history run.
#[derive(Clone, Debug)]
pub struct Params {
    /// Form of the history.
    pub form: Form,
    /// Number of concurrent sessions.
    pub sessions: u32,
    /// Number of transactions of each session, including deadlock victims and other rolled-back transactions.
    pub transactions: u32,
    /// Number of rows in use at a time.
    pub keys: u64,
    /// Isolation level of all transactions.
    pub isolation: Isolation,
    /// Percentage of transactions that roll back on request.
    pub abort_percent: u32,
    /// Maximum number of rows of a range read. The last range read of a run reads all rows.
    pub range: u32,
    /// Number of appends after which a list is full. Another row then takes its place, so that lists stay short.
    pub list_full: u32,
    /// Seed of the random number generators. It determines everything but the interleaving of the sessions.
    pub seed: u64,
}

impl Params {
    /// Default number of appends after which a list is full.
    pub const LIST_FULL: u32 = 128;
    /// Default of the maximum number of rows of a range read.
    pub const RANGE: u32 = 6;
    /// Maximum number of sessions. Each session may append to a full list a few times, and the length of a row is bounded.
    pub const MOST_SESSIONS: u32 = 100;
    /// Maximum of [`Params::list_full`].
    pub const MOST_LIST_FULL: u32 = 1000 - Params::MOST_SESSIONS * generate::MOST_STEPS;
    /// Maximum number of transactions over all sessions. The numbers of transactions and of operations must fit in 32 bits.
    pub const MOST_TRANSACTIONS: u64 = 1 << 28;
    /// Maximum number of rows in use at a time.
    pub const MOST_KEYS: u64 = 1 << 20;
}

/// Returns true if a version number of the register form belongs to a delete.
pub fn is_delete(version: u64) -> bool {
    version % 2 == 1
}
