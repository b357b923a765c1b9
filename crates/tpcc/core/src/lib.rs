//! The workload derived from TPC-C, and the parts that all its commands share. Not a TPC-C result.
//!
//! | module | holds |
//! | --- | --- |
//! | [`workload`] | schema, inputs, the five transactions, population, consistency conditions; traits of an engine |
//! | [`engines`] | the engines `storage` and `floor`, and `peer` for engines of other crates |
//! | [`driver`] | terminals, runners, pacing, measurement |
//! | [`report`] | the report of a command as data, text and files |
//! | `peers` | runs of the workload on engines of other crates (feature `peers`) |
//! | [`checkers`] | checkers that run the engine or check its results, independent of the workload |
//!
//! The command is the package `tpcc`; servers are `tpcc-pg`, experiments and pages `tpcc-lab`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod checkers;
pub mod driver;
pub mod engines;
#[cfg(any(test, feature = "peers"))]
pub mod peers;
pub mod report;
pub mod workload;
