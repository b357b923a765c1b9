//! Checkers that run the engine or check its results, independent of the TPC-C workload.

pub mod acid;
pub mod ack;
pub mod history;
pub mod shell;
pub mod structure;
