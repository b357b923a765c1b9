//! Threads for the loops of transactions.

use parking_lot::Mutex;
use speculate::{InPlaceStats, InPlaceThreads};

use super::loop_measurement::{LoopMeasurement, MeasuredLoops};
use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::base::sync::plain::{AtomicU64, Ordering};
use crate::txn::transaction::Txn;

/// Threads for the loops of a database's transactions. A loop borrows a group of threads, which are started at first use and
/// end with the database.
pub(super) struct LoopThreads {
    /// Number of threads of a loop, with the calling thread.
    each: usize,
    idle: Mutex<Vec<InPlaceThreads>>,
    epochs: AtomicU64,
    repeats: AtomicU64,
    pub(super) measured: MeasuredLoops,
}

impl LoopThreads {
    pub(super) fn new(each: usize, measurement: LoopMeasurement) -> LoopThreads {
        LoopThreads {
            each,
            idle: Mutex::new(Vec::new()),
            epochs: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            measured: MeasuredLoops::new(measurement),
        }
    }

    /// Returns the number of threads of a loop, with the calling thread.
    pub(super) fn threads(&self) -> usize {
        self.each
    }

    /// Returns true if loops run in epochs, and false if they run as any other statements.
    pub(super) fn run_epochs(&self) -> bool {
        self.each > 1 || self.measured.how.epochs_on_one_thread
    }

    /// Returns a group of threads for a loop.
    ///
    /// # Errors
    /// An error if the system refuses a thread.
    pub(super) fn borrow(&self) -> Result<InPlaceThreads, speculate::BuildError> {
        if let Some(idle) = self.idle.lock().pop() {
            return Ok(idle);
        }
        let mut threads = InPlaceThreads::new(self.each)?;
        threads.trace(self.measured.how.trace);
        Ok(threads)
    }

    /// Takes a group of threads back after a loop.
    pub(super) fn give_back(&self, mut threads: InPlaceThreads) {
        let InPlaceStats { epochs, repeats, .. } = threads.take_stats();
        self.epochs.fetch_add(epochs, Ordering::Relaxed);
        self.repeats.fetch_add(repeats, Ordering::Relaxed);
        self.measured.add_traces(threads.take_traces());
        self.idle.lock().push(threads);
    }

    /// Commits a transaction whose loops have run on these threads. Each thread that is awake releases the locks of its own
    /// epochs.
    ///
    /// # Errors
    /// As [`Txn::commit`].
    #[cold]
    pub(super) fn commit(&self, txn: Txn<'_>) -> Result<Lsn, StorageError> {
        // Threads are only taken from those that are idle: none is started for this.
        let Some(mut threads) = self.idle.lock().pop() else { return txn.commit() };
        let committed = txn.commit_family(|release| threads.run_together(release));
        self.idle.lock().push(threads);
        committed
    }

    /// Returns the number of epochs of ended loops, and the number of times that an epoch was rolled back to run again.
    pub(super) fn epochs_and_repeats(&self) -> (u64, u64) {
        (self.epochs.load(Ordering::Relaxed), self.repeats.load(Ordering::Relaxed))
    }
}
