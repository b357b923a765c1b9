//! Whole tables: their creation, drop, indexes, bulk load, numbers and space.
//!
//! One program for these files: each further program is compiled and linked with the whole crate again.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod bulk;
mod indexes;
mod maintenance;
mod numbers;
mod space;
mod tables;

#[path = "../common/mod.rs"]
mod common;
