//! Threads for the loops of transactions.

use parking_lot::Mutex;
use speculate::InPlaceThreads;

/// Threads for the loops of a database's transactions. A loop borrows a group of threads, which are started at first use and
/// end with the database.
pub(super) struct LoopThreads {
    /// Number of threads of a loop, with the calling thread.
    pub(super) each: usize,
    pub(super) idle: Mutex<Vec<InPlaceThreads>>,
}

impl LoopThreads {
    pub(super) fn new(each: usize) -> LoopThreads {
        LoopThreads { each, idle: Mutex::new(Vec::new()) }
    }
}
