//! Checkers that drive the engine, or judge its results, from outside the workload.

pub mod acid;
pub mod ack;
pub mod history;
pub mod shell;
pub mod structure;
