//! Counters of rare events: waits, deadlocks, escalations. The common path has no counters.

use super::sync::{AtomicU64, Ordering};

/// Values of the counters since the lock table was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockStats {
    /// Requests that had to wait.
    pub(crate) waits: u64,
    /// Requests that ended as the victim of a deadlock.
    pub(crate) deadlocks: u64,
    /// Table locks that replaced record locks.
    pub(crate) escalations: u64,
}

impl std::ops::AddAssign for LockStats {
    fn add_assign(&mut self, other: LockStats) {
        self.waits += other.waits;
        self.deadlocks += other.deadlocks;
        self.escalations += other.escalations;
    }
}

/// Counters of one owner. Only the owner writes them, so an increment is a plain load and a plain store. Other threads may
/// read them.
#[derive(Default)]
pub(super) struct OwnerCounters {
    pub(super) waits: Count,
    pub(super) deadlocks: Count,
    pub(super) escalations: Count,
}

impl OwnerCounters {
    pub(super) fn read(&self) -> LockStats {
        LockStats { waits: self.waits.get(), deadlocks: self.deadlocks.get(), escalations: self.escalations.get() }
    }
}

/// A counter with one writer.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn increment(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one table, written by the owners that waited there.
#[derive(Default)]
pub(super) struct TableCounters {
    pub(super) waits: AtomicU64,
    pub(super) deadlocks: AtomicU64,
    pub(super) escalations: AtomicU64,
}

impl TableCounters {
    /// Sets the counters to zero, because another table will use the same number.
    pub(super) fn reset(&self) {
        [&self.waits, &self.deadlocks, &self.escalations].into_iter().for_each(|n| n.store(0, Ordering::Relaxed));
    }

    #[cfg(test)]
    pub(super) fn read(&self) -> LockStats {
        LockStats {
            waits: self.waits.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
            escalations: self.escalations.load(Ordering::Relaxed),
        }
    }
}
