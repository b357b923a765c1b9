//! Threads for the loops of transactions.

use parking_lot::Mutex;
use speculate::{InPlaceStats, InPlaceThreads};

use crate::base::sync::plain::{AtomicU64, Ordering};

/// Threads for the loops of a database's transactions. A loop borrows a group of threads, which are started at first use and
/// end with the database.
pub(super) struct LoopThreads {
    /// Number of threads of a loop, with the calling thread.
    pub(super) each: usize,
    idle: Mutex<Vec<InPlaceThreads>>,
    epochs: AtomicU64,
    repeats: AtomicU64,
}

impl LoopThreads {
    pub(super) fn new(each: usize) -> LoopThreads {
        LoopThreads { each, idle: Mutex::new(Vec::new()), epochs: AtomicU64::new(0), repeats: AtomicU64::new(0) }
    }

    /// Returns a group of threads for a loop.
    ///
    /// # Errors
    /// An error if the system refuses a thread.
    pub(super) fn borrow(&self) -> Result<InPlaceThreads, speculate::BuildError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| InPlaceThreads::new(self.each), Ok)
    }

    /// Takes a group of threads back after a loop.
    pub(super) fn give_back(&self, mut threads: InPlaceThreads) {
        let InPlaceStats { epochs, repeats, .. } = threads.take_stats();
        self.epochs.fetch_add(epochs, Ordering::Relaxed);
        self.repeats.fetch_add(repeats, Ordering::Relaxed);
        self.idle.lock().push(threads);
    }

    /// Returns the number of epochs of ended loops, and the number of times that an epoch was rolled back to run again.
    pub(super) fn epochs_and_repeats(&self) -> (u64, u64) {
        (self.epochs.load(Ordering::Relaxed), self.repeats.load(Ordering::Relaxed))
    }
}
