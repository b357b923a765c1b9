//! Who ran where, and when.

use crate::group::GroupId;

/// A slice that a fiber ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its group.
    pub group: GroupId,
    /// Its slot on its worker.
    pub fiber: usize,
    /// When it began, in nanoseconds since the process first used a runtime.
    pub began_ns: u64,
    /// When it ended, likewise.
    pub ended_ns: u64,
}

/// Slices for which there is memory from the start, at most.
const MOST_AT_ONCE: usize = 1 << 16;

/// The first slices of a worker, up to a number.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    slices: Vec<Slice>,
    room: usize,
}

impl Recorder {
    pub(super) fn new(room: usize) -> Recorder {
        // More memory comes with the slices: the number may be as large as can be.
        Recorder { slices: Vec::with_capacity(room.min(MOST_AT_ONCE)), room }
    }

    #[inline]
    pub(super) fn record(&mut self, slice: Slice) {
        if self.slices.len() < self.room {
            self.slices.push(slice);
        }
    }

    pub(super) fn into_slices(self) -> Vec<Slice> {
        self.slices
    }
}
