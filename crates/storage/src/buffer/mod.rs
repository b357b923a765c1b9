//! The buffer pool.

pub(crate) mod arena;
pub(crate) mod frame;
