//! The workload derived from TPC-C and what every command on it needs. Not a TPC-C result.
//!
//! | module | holds |
//! | --- | --- |
//! | [`workload`] | schema, inputs, the five transactions, population, consistency conditions; traits that an engine implements |
//! | [`engines`] | the engines `storage`, `floor`, and `peer` for those of other crates |
//! | [`driver`] | terminals, runners, pacing, measurement |
//! | [`report`] | the report of a command as data, text and files |
//! | [`doors`] | checkers that drive the engine, or judge what it did, from outside of the workload |
//!
//! The command is the package `tpcc`; servers are `tpcc-pg`, experiments and pages `tpcc-lab`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod doors;
pub mod driver;
pub mod engines;
pub mod report;
pub mod workload;
