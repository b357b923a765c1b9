//! Trace of the slices that ran on a worker.

use crate::group::GroupId;

/// A time slice in which a fiber ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Group of the fiber.
    pub group: GroupId,
    /// Slot of the fiber on its worker.
    pub fiber: usize,
    /// Start time, in nanoseconds since the process first used a runtime.
    pub began_ns: u64,
    /// End time, in nanoseconds since the process first used a runtime.
    pub ended_ns: u64,
}

/// Maximum number of slices for which memory is allocated in advance.
const MAX_PREALLOCATED: usize = 1 << 16;

/// Recorder of the first slices of a worker, up to a maximum number.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    slices: Vec<Slice>,
    capacity: usize,
}

impl Recorder {
    pub(super) fn new(capacity: usize) -> Recorder {
        // Further memory is allocated as slices are recorded: `capacity` may be as large as `usize::MAX`.
        Recorder { slices: Vec::with_capacity(capacity.min(MAX_PREALLOCATED)), capacity }
    }

    #[inline]
    pub(super) fn record(&mut self, slice: Slice) {
        if self.slices.len() < self.capacity {
            self.slices.push(slice);
        }
    }

    pub(super) fn into_slices(self) -> Vec<Slice> {
        self.slices
    }
}
