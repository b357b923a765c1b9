//! The workload on the storage engine: written to be copied by whoever embeds it.

pub(crate) mod advice;
pub(crate) mod codec;
pub(crate) mod copying;
pub(crate) mod database;
mod delayed;
pub(crate) mod fibers;
mod fingerprint;
pub(crate) mod loading;
pub(crate) mod steps;
#[cfg(test)]
mod steps_tests;
pub(crate) mod store;
