//! Transactions of several threads and fibers: guarantees of isolation, locks, waits and eviction.
//!
//! One program for these files: each further program is compiled and linked with the whole crate again.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod anomalies;
mod collisions;
mod contention;
mod eviction;
mod isolation;
mod promises;
mod reads;
mod states;
mod table_locks;
mod waits;

#[path = "../common/mod.rs"]
mod common;
