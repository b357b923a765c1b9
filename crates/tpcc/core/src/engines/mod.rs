//! The engines behind the traits of the workload.

pub(crate) mod floor;
#[cfg(any(test, feature = "peers"))]
pub(crate) mod peer;
pub(crate) mod postgres;
pub(crate) mod space;
pub(crate) mod storage;
