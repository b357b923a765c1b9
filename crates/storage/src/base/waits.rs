//! Counters of waits: their number and their duration. Only callers that wait write them.

use crate::base::clock::Clock;
use crate::base::sync::plain::{AtomicU64, Ordering};

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// Number of waits that have begun.
    pub count: u64,
    /// Duration of the waits that have ended, in nanoseconds.
    pub ns: u64,
}

impl std::ops::AddAssign for Wait {
    fn add_assign(&mut self, other: Wait) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

/// Live counters of waits of one kind.
#[derive(Debug, Default)]
pub(crate) struct WaitCounter {
    count: AtomicU64,
    ns: AtomicU64,
}

impl WaitCounter {
    /// Runs a wait and counts it.
    pub(crate) fn during<T>(&self, clock: &Clock, wait: impl FnOnce() -> T) -> T {
        self.begin();
        let (result, ns) = clock.timed(wait);
        self.end(ns);
        result
    }

    /// Counts a wait that begins.
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the duration of a wait that ends.
    pub(crate) fn end(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Wait {
        Wait { count: self.count.load(Ordering::Relaxed), ns: self.ns.load(Ordering::Relaxed) }
    }

    /// Resets the counters, for another user of the same memory.
    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.ns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn waits_are_counted_and_timed() {
        let now = Arc::new(AtomicU64::new(100));
        let (clock, counter) = (Clock::simulated(now.clone()), WaitCounter::default());
        for _ in 0..2 {
            counter.during(&clock, || now.fetch_add(30, Ordering::Relaxed));
        }
        assert_eq!(counter.read(), Wait { count: 2, ns: 60 });
        counter.reset();
        assert_eq!(counter.read(), Wait::default());
    }
}
