//! Files, the log and restart: crashes, damage, full disks and copies.
//!
//! One program for these files: each further program is compiled and linked with the whole crate again.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

mod checkpoints;
mod copy;
mod crash;
mod ends_of_disks;
mod late_segments;
mod log_full;
mod misdirected;
mod opening;
mod restart;
mod rollback;
mod stepped;
mod structure;
mod sustained;

#[path = "../common/mod.rs"]
mod common;
