//! How outsiders look in: checkers that drive the engine, or judge what it did, from outside of the workload.

pub mod acid;
pub(crate) mod ack;
pub mod history;
pub(crate) mod shell;
pub(crate) mod structure;
