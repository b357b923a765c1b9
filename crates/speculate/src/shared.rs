//! What the workers of a loop share.

use crossbeam_utils::CachePadded;

use crate::forward::{Directory, Site};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the epochs of a loop share.
pub(crate) struct Shared<K, V> {
    pub(crate) directory: Directory<K, V>,
    /// The epoch that is homefree: all before it have committed.
    pub(crate) token: CachePadded<AtomicU64>,
    /// The loop has ended early: nothing commits any more.
    pub(crate) stopped: AtomicBool,
    /// Epochs read what earlier ones in flight have written.
    pub(crate) forwards: bool,
    /// At most so many epochs in a row are in flight.
    pub(crate) window: u64,
    /// How many writes each worker has forwarded or withdrawn. Only the worker itself changes its number.
    pub(crate) changes: Box<[CachePadded<AtomicU64>]>,
}

impl<K, V> Shared<K, V> {
    /// Moves whenever a write is forwarded or withdrawn.
    pub(crate) fn generation(&self) -> u64 {
        self.changes.iter().map(|changes| changes.load(Ordering::Acquire)).sum()
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

/// A read that is no longer right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale {
    /// The operation.
    pub(crate) at: usize,
    /// Where the write was that the read has missed, if an earlier epoch made it.
    pub(crate) writer: Option<Site>,
}

/// Notes that a worker has forwarded or withdrawn a write.
pub(crate) fn changed<K, V>(shared: &Shared<K, V>, worker: usize) {
    let changes = &shared.changes[worker];
    changes.store(changes.load(Ordering::Relaxed) + 1, Ordering::Release);
}
