//! On which core a group's work begins.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::group::GroupId;

/// Where the fibers of a group are placed. It is part of a policy: what aggregation is worth depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Evenly over all cores, as the load balance of an operating system does it; the paper's.
    #[default]
    Spread,
    /// All on one core, the group's home, while that core has work for itself only: its private caches hold one copy of
    /// the working set, and no line travels between siblings.
    Packed,
}

impl Placement {
    /// The core for fiber number `seat` of `group`.
    #[must_use]
    pub fn core(self, group: GroupId, seat: usize, cores: usize) -> usize {
        match self {
            Placement::Spread => (group.index() + seat) % cores,
            Placement::Packed => group.index() % cores,
        }
    }
}

/// The placement of a runtime, which may change while it runs, and how often it has.
#[derive(Debug)]
pub(crate) struct PlacementWord(AtomicU32);

impl PlacementWord {
    pub(crate) fn new(placement: Placement) -> PlacementWord {
        PlacementWord(AtomicU32::new(placement as u32))
    }

    /// The placement, and a number that is another after each change.
    #[inline]
    pub(crate) fn get(&self) -> (Placement, u32) {
        let word = self.0.load(Ordering::Relaxed);
        (if word & 1 == Placement::Packed as u32 { Placement::Packed } else { Placement::Spread }, word >> 1)
    }

    /// Changes it: work that is elsewhere moves after its next operation.
    pub(crate) fn set(&self, placement: Placement) {
        let (now, version) = self.get();
        if now != placement {
            self.0.store((version + 1) << 1 | placement as u32, Ordering::Relaxed);
        }
    }
}
