//! What is counted of a transaction, from which its time is modelled.

use crate::reproduce::cachegrind::Counts;

/// Events of a transaction, counted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Events {
    pub instructions: f64,
    /// Reads of data.
    pub reads: f64,
    /// Fetches of instructions that miss the first level, and the second.
    pub fetches: [f64; 2],
    /// Reads of data that miss the first level, the second, the third.
    pub misses: [f64; 3],
    /// Pages that the first translation buffer has not, and neither.
    pub pages: [f64; 2],
    pub mispredicts: f64,
}

impl Events {
    /// Of the counts of the same code with [`SECOND`](super::SECOND), with [`THIRD`](super::THIRD), and with pages.
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
