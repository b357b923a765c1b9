//! The place of an owner in a family: see `family`.

use super::mode::GapMode;
use super::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Place of an owner in a family.
#[derive(Default)]
pub(super) struct Membership {
    /// Number of the family; 0 for an owner without one. Changes only while the owner has no locks, or runs alone in its
    /// family.
    pub(super) family: AtomicU32,
    /// Epoch of the owner that is not settled, see [`OpenEpoch`]. 0 between epochs, and for the transaction itself.
    pub(super) open: AtomicU64,
    /// Thread of the loop that runs the owner's epochs.
    pub(super) thread: AtomicU32,
    /// True if the owner's epoch must be rolled back.
    pub(super) wounded: AtomicBool,
    /// True if an owner of the family may wait until the epoch is settled.
    pub(super) awaited: AtomicBool,
}

impl Membership {
    /// Ends the last epoch, with the marks that concern it.
    pub(super) fn close(&self) {
        self.open.store(0, Ordering::SeqCst);
        self.wounded.store(false, Ordering::SeqCst);
        self.awaited.store(false, Ordering::SeqCst);
    }
}

/// An epoch that is not settled: its place in the order of the loop, and its number among the epochs of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenEpoch {
    pub(super) order: u64,
    pub(super) number: u16,
}

impl OpenEpoch {
    pub(super) fn encoded(self) -> u64 {
        self.order << 16 | u64::from(self.number)
    }

    pub(super) fn decode(word: u64) -> Option<OpenEpoch> {
        (word != 0).then_some(OpenEpoch { order: word >> 16, number: word as u16 })
    }
}

/// A request of a settled epoch that the owner's epoch has taken over.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormerLock {
    pub(super) position: u32,
    pub(super) held: GapMode,
    pub(super) epoch: u16,
}
