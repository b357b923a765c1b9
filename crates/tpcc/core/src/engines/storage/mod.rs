//! The workload on the storage engine: written to be copied by a program that embeds it.

pub(crate) mod advice;
pub(crate) mod ahead;
pub(crate) mod codec;
pub(crate) mod compacting;
pub(crate) mod copying;
pub(crate) mod database;
mod delayed;
pub(crate) mod fiber_hook;
pub(crate) mod fibers;
mod fingerprint;
pub(crate) mod loading;
pub(crate) mod store;
pub(crate) mod waits_only;
