//! Statements on rows, compared with models and at their limits.
//!
//! One program for these files: each further program is compiled and linked with the whole crate again.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod basics;
mod columns;
mod ends;
mod ends_of_statements;
mod entries;
mod large;
mod many;
mod model;
mod optimistic;
mod owned;
mod points;
mod prefetch;
mod runs;
mod savepoints;
mod settings;
mod shared_reads;
mod statements;
mod types;

#[path = "../common/mod.rs"]
mod common;
