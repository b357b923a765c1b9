//! The engines behind the traits of the workload.

pub mod floor;
#[cfg(any(test, feature = "peers"))]
pub mod peer;
pub mod space;
pub mod storage;
