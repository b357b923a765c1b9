//! Experiments on the engine and on its scheduler: what operations need of an instruction cache, and the figures of papers.

mod coherence;
pub(crate) mod compare;
mod filler;
pub(crate) mod footprint;
pub(crate) mod index_fetch;
mod interval;
pub(crate) mod latency;
pub(crate) mod reproduce;
pub(crate) mod tenants;
