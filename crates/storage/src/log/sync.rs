//! The atomics of the reservation protocol, which both model checkers replace.

#[cfg(not(loom))]
pub(super) use crate::base::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(super) use crate::base::sync::word::{AtomicU64, Ordering, fence};
