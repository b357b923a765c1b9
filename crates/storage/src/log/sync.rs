//! The atomics of the reservation protocol, in one place so that loom can put its own in theirs.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
