//! Synchronisation primitives of the lock manager.

pub(super) use crate::base::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(super) use crate::base::sync::{Backoff, Mutex, MutexGuard};
pub(super) use std::sync::{Arc, OnceLock};
