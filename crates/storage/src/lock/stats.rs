//! Counters of rare events: waits, deadlocks, escalations. The common path has no counters.

use super::sync::{AtomicU64, Ordering};
use crate::base::waits::WaitCounter;

/// Values of the counters since the lock table was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockStats {
    /// Requests that had to wait.
    pub(crate) waits: u64,
    /// Duration of these waits, in nanoseconds.
    pub(crate) wait_ns: u64,
    /// Requests that ended as the victim of a deadlock.
    pub(crate) deadlocks: u64,
    /// Table locks that replaced record locks.
    pub(crate) escalations: u64,
}

impl std::ops::AddAssign for LockStats {
    fn add_assign(&mut self, other: LockStats) {
        self.waits += other.waits;
        self.wait_ns += other.wait_ns;
        self.deadlocks += other.deadlocks;
        self.escalations += other.escalations;
    }
}

/// Counters of one owner. Only the owner writes them, so an increment is a plain load and a plain store. Other threads may
/// read them.
#[derive(Default)]
pub(super) struct OwnerCounters {
    pub(super) waits: Count,
    pub(super) wait_ns: Count,
    pub(super) deadlocks: Count,
    pub(super) escalations: Count,
}

impl OwnerCounters {
    pub(super) fn read(&self) -> LockStats {
        LockStats {
            waits: self.waits.get(),
            wait_ns: self.wait_ns.get(),
            deadlocks: self.deadlocks.get(),
            escalations: self.escalations.get(),
        }
    }
}

/// A counter with one writer.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn increment(&self) {
        self.add(1);
    }

    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one table, written by the owners that waited there.
#[derive(Default)]
pub(super) struct TableCounters {
    pub(super) waits: WaitCounter,
    pub(super) deadlocks: AtomicU64,
    pub(super) escalations: AtomicU64,
}

impl TableCounters {
    /// Sets the counters to zero, because another table will use the same number.
    pub(super) fn reset(&self) {
        self.waits.reset();
        [&self.deadlocks, &self.escalations].into_iter().for_each(|n| n.store(0, Ordering::Relaxed));
    }

    #[cfg(test)]
    pub(super) fn read(&self) -> LockStats {
        LockStats {
            waits: self.waits.read().count,
            wait_ns: self.waits.read().ns,
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
            escalations: self.escalations.load(Ordering::Relaxed),
        }
    }
}
