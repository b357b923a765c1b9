//! Loops of a transaction on several threads: the same as on one.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

#[path = "../common/mod.rs"]
mod common;

mod crashes;
mod ends;
mod oracle;
mod strangers;
