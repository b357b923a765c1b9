//! Address ranges of shared cache lines with their purposes, for tools that trace memory accesses.

use std::ops::Range;

/// Size of a cache line in bytes, on all supported processors.
pub(crate) const LINE: usize = 64;

/// Cache lines with the same purpose. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLines {
    /// Purpose: `page latch` (includes the versions), `page`, `page table`, `shortcuts`, `lock heads`, `log tail`, `log
    /// positions`, `log ring`, `slots`, `reader words`.
    pub kind: &'static str,
    /// Address range of the lines.
    pub range: Range<usize>,
    /// Distance between two elements of the range, if only the first line of each element is meant; 0 if the whole range is
    /// meant.
    pub every: usize,
    /// Distance between the areas that two neighbouring workers write; 0 if all workers write the same lines.
    pub per_worker: usize,
}

impl SharedLines {
    /// Returns true if an address lies in one of these lines.
    pub fn contains(&self, address: usize) -> bool {
        self.range.contains(&address) && (self.every == 0 || (address - self.range.start) % self.every < LINE)
    }
}
