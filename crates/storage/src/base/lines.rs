//! What lines of memory are for: told to tools that follow accesses to them.

use std::ops::Range;

/// Bytes of a cache line, on every processor that this crate pays attention to.
pub(crate) const LINE: usize = 64;

/// Lines of one purpose. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLines {
    /// `page latch` (versions lie in it), `page`, `page table`, `shortcuts`, `lock heads`, `log tail`, `log positions`,
    /// `log ring`, `slots`, `reader words`.
    pub kind: &'static str,
    /// Addresses.
    pub range: Range<usize>,
    /// How far apart elements are of which only the first line is meant; 0: the whole range is meant.
    pub every: usize,
    /// How far what one worker writes is from what the next worker writes; 0 where all workers write the same lines.
    pub per_worker: usize,
}

impl SharedLines {
    /// Whether an address lies in one of these lines.
    pub fn contains(&self, address: usize) -> bool {
        self.range.contains(&address) && (self.every == 0 || (address - self.range.start) % self.every < LINE)
    }
}
