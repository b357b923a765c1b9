//! What is counted of a transaction, from which its time is modelled.

/// Events of a transaction, counted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Events {
    pub(super) instructions: f64,
    /// Reads of data.
    pub(super) reads: f64,
    /// Fetches of instructions that miss the first level, and the second.
    pub(super) fetches: [f64; 2],
    /// Reads of data that miss the first level, the second, the third.
    pub(super) misses: [f64; 3],
    /// Pages that the first translation buffer has not, and neither.
    pub(super) pages: [f64; 2],
    pub(super) mispredicts: f64,
}
