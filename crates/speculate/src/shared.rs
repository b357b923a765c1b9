//! What the workers of a loop share.

use crossbeam_utils::CachePadded;

use crate::forward::{Directory, Site};
use crate::sites::WaitSites;
use crate::store::Store;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What the epochs of a loop share.
pub(crate) struct Shared<S: Store> {
    pub(crate) directory: Directory<S::Key, S::Value, S::Stamp>,
    /// The epoch that is homefree: all before it have committed.
    pub(crate) token: CachePadded<AtomicU64>,
    /// The most operations of an epoch that has committed.
    pub(crate) most_operations: CachePadded<AtomicUsize>,
    /// Size of the largest log of a committed epoch, in bytes of keys and values.
    pub(crate) most_bytes: CachePadded<AtomicUsize>,
    /// The loop has ended early: nothing commits any more.
    pub(crate) stopped: AtomicBool,
    /// Epochs read what earlier ones in flight have written.
    pub(crate) forwards: bool,
    /// At most so many epochs in a row are in flight.
    pub(crate) window: u64,
    /// How many writes each worker has forwarded or withdrawn. Only the worker itself changes its number.
    pub(crate) changes: Box<[CachePadded<AtomicU64>]>,
    /// Where reads wait for earlier epochs.
    pub(crate) wait_sites: WaitSites,
    /// Which epoch's body each worker runs, or [`NONE`]; kept only where reads wait for writes that are forwarded.
    pub(crate) running: Box<[CachePadded<AtomicU64>]>,
}

/// The number of no epoch.
const NONE: u64 = u64::MAX;

/// Operations that each epoch may do ahead, and how many times as many as the longest that has committed.
const BUDGET: usize = 8192;
/// Bytes that each epoch may keep ahead.
pub(crate) const BYTES: usize = 16 << 20;
const BUDGET_TIMES: usize = 16;

impl<S: Store> Shared<S> {
    /// Moves whenever a write is forwarded or withdrawn.
    pub(crate) fn generation(&self) -> u64 {
        self.changes.iter().map(|changes| changes.load(Ordering::Acquire)).sum()
    }

    /// Whether reads may wait until bodies of earlier epochs have ended.
    #[inline]
    fn tells_ends(&self) -> bool {
        !self.wait_sites.is_empty() && self.forwards
    }

    /// A worker is about to run the body of an epoch: to be called before any later epoch is taken, and before the epoch
    /// withdraws something.
    #[inline]
    pub(crate) fn body_begins(&self, worker: usize, epoch: u64) {
        if self.tells_ends() {
            self.running[worker].store(epoch, Ordering::Release);
        }
    }

    /// A worker has run a body, and forwarded what that wrote.
    #[inline]
    pub(crate) fn body_has_ended(&self, worker: usize) {
        if self.tells_ends() {
            self.running[worker].store(NONE, Ordering::Release);
        }
    }

    /// Whether the body of any epoch from `first` to the one before `end` still runs.
    pub(crate) fn runs_any(&self, first: u64, end: u64) -> bool {
        self.running.iter().any(|epoch| (first..end).contains(&epoch.load(Ordering::Acquire)))
    }

    /// Operations that an epoch may do before it is homefree: one that does more has probably read what is not so, and may
    /// never end.
    pub(crate) fn budget(&self) -> usize {
        self.most_operations.load(Ordering::Relaxed).saturating_mul(BUDGET_TIMES).max(BUDGET)
    }

    /// The same of the bytes that it keeps.
    pub(crate) fn bytes_budget(&self) -> usize {
        self.most_bytes.load(Ordering::Relaxed).saturating_mul(BUDGET_TIMES).max(BYTES)
    }

    /// An epoch with so many operations, which keep so many bytes, commits. The caller holds the token.
    pub(crate) fn note_size(&self, operations: usize, bytes: usize) {
        for (most, new) in [(&self.most_operations, operations), (&self.most_bytes, bytes)] {
            if new > most.load(Ordering::Relaxed) {
                most.store(new, Ordering::Relaxed);
            }
        }
    }

    /// Begins a loop.
    pub(crate) fn begin(&mut self) {
        *self.token.get_mut() = 0;
        *self.most_operations.get_mut() = 0;
        *self.most_bytes.get_mut() = 0;
        *self.stopped.get_mut() = false;
        self.running.iter_mut().for_each(|epoch| *epoch.get_mut() = NONE);
    }

    /// The epochs before this one, if it may read what they have forwarded.
    #[inline]
    pub(crate) fn last_before(&self, epoch: u64) -> Option<u64> {
        epoch.checked_sub(1).filter(|_| self.forwards)
    }

    /// The first epoch that can be in flight together with `epoch`, which is.
    pub(crate) fn first_beside(&self, epoch: u64) -> u64 {
        (epoch + 1).saturating_sub(self.window)
    }
}

/// Ends the loop unless it is forgotten, also if a panic passes: the others must not wait for this worker.
pub(crate) struct StopUnlessDone<'a, S: Store>(pub(crate) &'a Shared<S>);

impl<S: Store> Drop for StopUnlessDone<'_, S> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Release);
    }
}

/// A read that is no longer right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale {
    /// The operation.
    pub(crate) at: usize,
    /// Where the write was that the read has missed, if an earlier epoch made it.
    pub(crate) writer: Option<Site>,
    /// A wait for earlier epochs could have helped.
    pub(crate) may_wait: bool,
    /// It was right: it is violated on request.
    pub(crate) injected: bool,
}

/// Notes that a worker has forwarded or withdrawn a write.
pub(crate) fn changed<S: Store>(shared: &Shared<S>, worker: usize) {
    let changes = &shared.changes[worker];
    changes.store(changes.load(Ordering::Relaxed) + 1, Ordering::Release);
}
