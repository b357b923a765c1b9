//! Basic items for all other modules: identifiers, errors, options, the clock and the scheduler hook.

pub(crate) mod arena;
pub(crate) mod asserting_hook;
pub(crate) mod bytes;
pub(crate) mod checksum;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod fair_lock;
pub(crate) mod fault;
pub(crate) mod fork;
#[cfg(feature = "measure")]
pub(crate) mod holds;
pub(crate) mod hook;
pub(crate) mod ids;
pub(crate) mod lane;
pub(crate) mod latches;
#[cfg(feature = "measure")]
pub(crate) mod lines;
pub(crate) mod mutant;
pub(crate) mod point;
pub(crate) mod poison;
pub(crate) mod prefetch;
pub(crate) mod segmented_array;
pub(crate) mod sites;
#[cfg(test)]
#[cfg_attr(any(loom, shuttle), allow(dead_code))]
pub(crate) mod stop;
pub(crate) mod sync;
pub(crate) mod waits;
