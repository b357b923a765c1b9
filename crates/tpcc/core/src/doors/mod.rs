//! How outsiders look in: checkers that drive the engine, or judge what it did, from outside of the workload.

pub mod acid;
pub mod ack;
pub mod history;
#[cfg(any(test, feature = "peers"))]
pub mod peers;
pub mod shell;
pub mod structure;
