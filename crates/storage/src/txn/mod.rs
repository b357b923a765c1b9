//! Transactions: begin, commit, rollback, and the table of those that are active.

pub(crate) mod active;
pub(crate) mod context;
pub(crate) mod core;
pub(crate) mod undo;
