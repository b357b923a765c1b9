//! State that the workers of a loop share.

use crossbeam_utils::CachePadded;

use crate::forward::{Directory, Site};
use crate::sites::WaitSites;
use crate::store::Store;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// State that the epochs of a loop share.
pub(crate) struct Shared<S: Store> {
    pub(crate) directory: Directory<S::Key, S::Value, S::Stamp>,
    /// Number of the homefree epoch, which holds the token: all epochs before it have committed.
    pub(crate) token: CachePadded<AtomicU64>,
    /// Largest number of operations of a committed epoch.
    pub(crate) most_operations: CachePadded<AtomicUsize>,
    /// Size of the largest log of a committed epoch, in bytes of keys and values.
    pub(crate) most_bytes: CachePadded<AtomicUsize>,
    /// True if the loop has ended early, so that no further epoch commits.
    pub(crate) stopped: AtomicBool,
    /// True if epochs read the uncommitted writes of earlier epochs in flight.
    pub(crate) forwards: bool,
    /// Maximum number of consecutive epochs that are in flight at a time.
    pub(crate) window: u64,
    /// Number of writes that each worker has forwarded or withdrawn, indexed by worker. Each worker changes only its own
    /// counter.
    pub(crate) changes: Box<[CachePadded<AtomicU64>]>,
    /// Sites at which reads wait for earlier epochs.
    pub(crate) wait_sites: WaitSites,
    /// Epoch whose body each worker runs, or [`NONE`], indexed by worker. Maintained only if reads wait for forwarded
    /// writes.
    pub(crate) running: Box<[CachePadded<AtomicU64>]>,
}

/// Value in `running` of a worker that runs no body.
const NONE: u64 = u64::MAX;

/// Number of operations that an epoch may always execute speculatively.
const BUDGET: usize = 8192;
/// Number of bytes of keys and values that an epoch may always keep speculatively.
pub(crate) const BYTES: usize = 16 << 20;
/// Factor between the size of the largest committed epoch and the size limit of a speculative epoch, in operations and in
/// bytes.
const BUDGET_TIMES: usize = 16;

impl<S: Store> Shared<S> {
    /// Returns the sum of `changes`, which changes whenever a write is forwarded or withdrawn.
    pub(crate) fn generation(&self) -> u64 {
        self.changes.iter().map(|changes| changes.load(Ordering::Acquire)).sum()
    }

    /// Returns true if reads may wait for the end of the bodies of earlier epochs.
    #[inline]
    fn tracks_running(&self) -> bool {
        !self.wait_sites.is_empty() && self.forwards
    }

    /// Records that a worker is about to run the body of an epoch. The caller must call this function before any later epoch
    /// is taken, and before the epoch withdraws a write.
    #[inline]
    pub(crate) fn body_begins(&self, worker: usize, epoch: u64) {
        if self.tracks_running() {
            self.running[worker].store(epoch, Ordering::Release);
        }
    }

    /// Records that a worker has ended the body of its epoch. The writes of the body have been forwarded.
    #[inline]
    pub(crate) fn body_has_ended(&self, worker: usize) {
        if self.tracks_running() {
            self.running[worker].store(NONE, Ordering::Release);
        }
    }

    /// Returns true if the body of any epoch in `first..end` is running.
    pub(crate) fn is_any_running(&self, first: u64, end: u64) -> bool {
        self.running.iter().any(|epoch| (first..end).contains(&epoch.load(Ordering::Acquire)))
    }

    /// Returns the maximum number of operations of an epoch before it is homefree. An epoch that exceeds this number has
    /// probably read inconsistent values, and may never end.
    pub(crate) fn budget(&self) -> usize {
        self.most_operations.load(Ordering::Relaxed).saturating_mul(BUDGET_TIMES).max(BUDGET)
    }

    /// Returns the maximum number of bytes that an epoch may keep before it is homefree. An epoch that exceeds it may never
    /// end.
    pub(crate) fn bytes_budget(&self) -> usize {
        self.most_bytes.load(Ordering::Relaxed).saturating_mul(BUDGET_TIMES).max(BYTES)
    }

    /// Records the size of an epoch that commits. The caller holds the token.
    pub(crate) fn record_size(&self, operations: usize, bytes: usize) {
        for (most, new) in [(&self.most_operations, operations), (&self.most_bytes, bytes)] {
            if new > most.load(Ordering::Relaxed) {
                most.store(new, Ordering::Relaxed);
            }
        }
    }

    /// Resets the state for a new loop.
    pub(crate) fn reset(&mut self) {
        *self.token.get_mut() = 0;
        *self.most_operations.get_mut() = 0;
        *self.most_bytes.get_mut() = 0;
        *self.stopped.get_mut() = false;
        self.running.iter_mut().for_each(|epoch| *epoch.get_mut() = NONE);
    }

    /// Returns the last epoch before `epoch`; `None` if there is none, or if writes are not forwarded.
    #[inline]
    pub(crate) fn last_before(&self, epoch: u64) -> Option<u64> {
        epoch.checked_sub(1).filter(|_| self.forwards)
    }

    /// Returns the first epoch that can be in flight at the same time as `epoch`, which is in flight.
    pub(crate) fn first_concurrent(&self, epoch: u64) -> u64 {
        (epoch + 1).saturating_sub(self.window)
    }
}

/// Guard that ends the loop when it is dropped, also during a panic, so that the other workers do not wait for this worker.
/// A worker that ends normally forgets the guard.
pub(crate) struct StopGuard<'a, S: Store>(pub(crate) &'a Shared<S>);

impl<S: Store> Drop for StopGuard<'_, S> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Release);
    }
}

/// Violation of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaleRead {
    /// Index of the wrong read in the log.
    pub(crate) at: usize,
    /// Site of the write that the read missed, if an earlier epoch made the write.
    pub(crate) writer: Option<Site>,
    /// True if waiting for earlier epochs could have prevented the violation.
    pub(crate) may_wait: bool,
    /// True if the violation is injected: the read was correct.
    pub(crate) injected: bool,
}

/// Records that a worker has forwarded or withdrawn a write.
pub(crate) fn count_change<S: Store>(shared: &Shared<S>, worker: usize) {
    let changes = &shared.changes[worker];
    changes.store(changes.load(Ordering::Relaxed) + 1, Ordering::Release);
}
