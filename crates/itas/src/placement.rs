//! Placement: the assignment of a group's work to cores.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::group::GroupId;

/// Placement of the fibers of a group on cores. It is part of a policy, because the benefit of aggregation depends on
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The fibers are spread evenly over all cores, as by the load balancing of an operating system; the paper's
    /// placement.
    #[default]
    Spread,
    /// All fibers of a group are on one core, the home core of the group: its private caches hold one copy of the
    /// working set, and no cache line moves between siblings. Another core takes over work only if it has none.
    Packed,
}

impl Placement {
    /// Returns the core for fiber number `seat` of `group`.
    #[must_use]
    pub fn core(self, group: GroupId, seat: usize, cores: usize) -> usize {
        match self {
            Placement::Spread => (group.index() + seat) % cores,
            Placement::Packed => group.index() % cores,
        }
    }
}

/// Current placement of a runtime, and the number of changes so far, in one word.
#[derive(Debug)]
pub(crate) struct PlacementWord(AtomicU32);

impl PlacementWord {
    pub(crate) fn new(placement: Placement) -> PlacementWord {
        PlacementWord(AtomicU32::new(placement as u32))
    }

    /// Returns the placement and its version; the version differs after each change.
    #[inline]
    pub(crate) fn get(&self) -> (Placement, u32) {
        let word = self.0.load(Ordering::Relaxed);
        (if word & 1 == Placement::Packed as u32 { Placement::Packed } else { Placement::Spread }, word >> 1)
    }

    /// Changes the placement. Running work moves to its new core after its current operation.
    pub(crate) fn set(&self, placement: Placement) {
        let (now, version) = self.get();
        if now != placement {
            self.0.store((version + 1) << 1 | placement as u32, Ordering::Relaxed);
        }
    }
}
