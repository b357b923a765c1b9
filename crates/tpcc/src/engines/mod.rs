//! The engines behind the traits of the workload.

pub(crate) mod floor;
pub(crate) mod postgres;
pub(crate) mod space;
pub(crate) mod storage;
