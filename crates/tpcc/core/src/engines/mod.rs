//! Engines: implementations of the engine traits that the workload defines.

pub mod floor;
#[cfg(any(test, feature = "peers"))]
pub mod peer;
pub mod space;
pub mod storage;
