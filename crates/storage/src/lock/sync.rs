//! The primitives this module synchronises with, in one place, so that a model checker can take theirs.

pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
pub(super) use std::sync::{Arc, OnceLock};

/// One step of waiting for a latch that is held for some tens of nanoseconds: spins, and lets another thread run
/// when that has gone on for so long that the holder was probably preempted.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Waits a little, longer from call to call.
    pub(super) fn snooze(&mut self) {
        if self.rounds < 7 {
            for _ in 0..1u32 << self.rounds {
                std::hint::spin_loop();
            }
            self.rounds += 1;
        } else {
            std::thread::yield_now();
        }
    }
}
