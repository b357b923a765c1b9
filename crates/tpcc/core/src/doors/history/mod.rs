//! Histories: what concurrent sessions did and saw, written down so that somebody else can judge it.
//!
//! A [`run()`] drives sessions of random transactions over few rows and records every operation with its answer.
//! [`check`] infers from such a record which transaction came before which, and looks for rings: Adya, "Weak
//! Consistency" (1999), by the method of Kingsbury and Alvaro, "Elle" (VLDB 2020). The record says nothing of how the
//! engine works, so any checker will do.
//!
//! Two forms:
//!
//! - **list-append**: an append adds a number, unique in the history, to a row's list; a read returns the list, `[]`
//!   if there is no row. A longest list tells the order of all versions before it.
//! - **register**: a write gives a row a new version; a read returns it. Version numbers are unique in the history and
//!   are drawn by the writer while it has the row to itself, so they tell a row's order of versions. A delete is a
//!   write, too: a later read of the absent row returns the version that the delete drew. Deletes have odd
//!   versions, other writes even ones. Never written is `null`.

mod ahead;
pub mod check;
mod format;
mod generate;
mod run;
mod session;
mod team;
mod trial;
mod world;

pub use format::{FormatError, read, write};
pub use generate::{Program, Programs, Step};
pub use run::{Recorded, RunError, SessionKind, run};
pub use session::RecordedSession;
pub use team::Teams;
pub use trial::{Trial, Tried};
pub use world::World;

use storage::Isolation;

/// What transactions do to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Append numbers to lists.
    ListAppend,
    /// Write and delete versioned rows.
    Register,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It committed.
    Ok,
    /// It rolled back: by its own wish, or as a deadlock's victim.
    Fail,
    /// Its commit was answered with an error: it may have happened or not.
    Info,
}

/// One operation on one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A number was added to the row's list.
    Append(u64, u64),
    /// The row's list was read.
    List(u64, Vec<u64>),
    /// The row was given this version; if it is odd, by deleting the row.
    Write(u64, u64),
    /// This version was read, odd if the row was absent; none if it was never there.
    Read(u64, Option<u64>),
}

/// What one transaction did, saw, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Unique in the history.
    pub id: u64,
    /// Who ran it; a session runs its transactions one after the other.
    pub session: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Its operations, in order. Of one that did not commit, those that were carried out.
    pub ops: Vec<Op>,
    /// Before it began, in nanoseconds since some moment that all sessions share.
    pub start: u64,
    /// After it was answered.
    pub end: u64,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Params {
    /// What transactions do to rows.
    pub form: Form,
    /// Sessions at once.
    pub sessions: u32,
    /// Transactions of each session, victims and aborted ones included.
    pub transactions: u32,
    /// Rows in use at a time.
    pub keys: u64,
    /// Isolation of all transactions.
    pub isolation: Isolation,
    /// How many of a hundred transactions roll back by their own wish.
    pub abort_percent: u32,
    /// Most rows of a range read, but for the last one, which reads all.
    pub range: u32,
    /// Numbers that fill a list: another row then takes its place, so that lists stay short enough to be read often.
    pub list_full: u32,
    /// Everything random follows from it, but for the order in which sessions come to run.
    pub seed: u64,
}

impl Params {
    /// Numbers that fill a list, unless asked otherwise.
    pub const LIST_FULL: u32 = 128;
    /// Most rows of a range read, unless asked otherwise.
    pub const RANGE: u32 = 6;
    /// Most sessions: each may append to a list some times after it is full, and a row's length is bounded.
    pub const MOST_SESSIONS: u32 = 100;
    /// Most numbers that fill a list.
    pub const MOST_LIST_FULL: u32 = 1000 - Params::MOST_SESSIONS * generate::MOST_STEPS;
    /// Most transactions of all sessions: their numbers must fit in 32 bits with those of their operations.
    pub const MOST_TRANSACTIONS: u64 = 1 << 28;
    /// Most rows in use at a time.
    pub const MOST_KEYS: u64 = 1 << 20;
}

/// Whether a version of the register form was drawn by a delete.
pub fn is_delete(version: u64) -> bool {
    version % 2 == 1
}
