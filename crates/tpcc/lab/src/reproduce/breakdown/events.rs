//! Numbers of counted events per transaction, from which the time of a transaction is modelled.

use crate::reproduce::cachegrind::Counts;

/// Numbers of counted events per transaction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Events {
    pub instructions: f64,
    /// Number of data reads.
    pub reads: f64,
    /// Number of instruction fetches that miss the first level, and number that also miss the second.
    pub fetches: [f64; 2],
    /// Number of data reads that miss the first level, the second, and the third.
    pub misses: [f64; 3],
    /// Number of translations that are not in the first translation buffer, and number that are in neither buffer.
    pub pages: [f64; 2],
    pub mispredicts: f64,
}

impl Events {
    /// Converts counts of the same code: with the caches [`SECOND_LEVEL`](super::SECOND_LEVEL), with the caches
    /// [`THIRD_LEVEL`](super::THIRD_LEVEL), and with pages in place of lines.
    pub(crate) fn of_counts(second: &Counts, third: &Counts, pages: &Counts) -> Events {
        Events {
            instructions: second.instructions,
            reads: second.reads,
            fetches: [second.i1, second.ll_fetches],
            misses: [second.d1_reads, second.ll_reads, third.ll_reads],
            pages: [pages.d1_reads, pages.ll_reads],
            mispredicts: second.mispredicts,
        }
    }
}
