//! Counts of superlatches. Each is written at a promotion or a demotion only, never by a plain or optimistic holder.

use std::sync::atomic::{AtomicU64, Ordering};

/// Live counters of a database.
#[derive(Debug, Default)]
pub(crate) struct LatchCounters {
    pub(super) promotions: AtomicU64,
    pub(super) demotions: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// Counts since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatchStats {
    /// Latches that got a reader word for each core.
    pub(crate) promotions: u64,
    /// Latches that lost their reader words to a writer or to an eviction.
    pub(crate) demotions: u64,
    /// Promotions that did not take place because all sets of words were in use.
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
