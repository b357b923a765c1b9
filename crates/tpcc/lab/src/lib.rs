//! Experiments on the engine and on its scheduler: what operations need of an instruction cache, and the figures of papers.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod coherence;
pub mod compare;
mod filler;
pub mod footprint;
pub mod index_fetch;
mod interval;
pub mod latency;
pub mod page;
pub mod reproduce;
pub mod tenants;
