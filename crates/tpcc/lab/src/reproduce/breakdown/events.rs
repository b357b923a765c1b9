//! Counted events of a transaction, from which its time is modelled.

use crate::reproduce::cachegrind::Counts;

/// Counted events of a transaction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Events {
    pub instructions: f64,
    /// Data reads.
    pub reads: f64,
    /// Instruction fetches that miss the first level, and the second.
    pub fetches: [f64; 2],
    /// Data reads that miss the first level, the second, and the third.
    pub misses: [f64; 3],
    /// Pages that are not in the first translation buffer, and in neither.
    pub pages: [f64; 2],
    pub mispredicts: f64,
}

impl Events {
    /// Events from counts of the same code with [`SECOND_LEVEL`](super::SECOND_LEVEL), with
    /// [`THIRD_LEVEL`](super::THIRD_LEVEL), and with pages.
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
