//! Counters of superlatches. They are written only at promotions and demotions, never by plain or optimistic holders.

use std::sync::atomic::{AtomicU64, Ordering};

/// Live counters of the superlatches of a database.
#[derive(Debug, Default)]
pub(crate) struct LatchCounters {
    pub(super) promotions: AtomicU64,
    pub(super) demotions: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// Counts of superlatch events since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatchStats {
    /// Number of latches that got a reader word for each core.
    pub(crate) promotions: u64,
    /// Number of latches that lost their reader words to a writer or to an eviction.
    pub(crate) demotions: u64,
    /// Number of promotions that failed because all sets of reader words were in use.
    pub(crate) refused: u64,
}

impl LatchCounters {
    pub(crate) fn read(&self) -> LatchStats {
        LatchStats {
            promotions: self.promotions.load(Ordering::Relaxed),
            demotions: self.demotions.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
