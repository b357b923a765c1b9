//! Counters of the pool. Hits are not counted here: all threads would write one shared cache line.

use crate::base::sync::plain::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters of a pool.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        /// Values of the counters since the pool was opened.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct PoolStats { $($(#[$doc])* pub(crate) $name: u64,)* }

        impl Counters {
            pub(super) fn read(&self) -> PoolStats {
                PoolStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Pages read from the file.
    reads,
    /// Pages created without a read.
    creates,
    /// Pages read again soon after their eviction (ghost hits).
    ghost_hits,
    /// Pages evicted from their frames.
    evictions,
    /// Pages written to the file.
    writes,
    /// Write calls to the file. Pages with consecutive numbers share one call.
    write_calls,
    /// Doublewrite copies of pages, made before the pages are written in place.
    images,
    /// Syncs of the file.
    syncs,
    /// Batches that a worker wrote itself because no clean frame was free.
    writes_by_workers,
    /// Waits for a page that another thread was reading.
    load_waits,
    /// Pages whose read was handed over to a reader thread.
    handed_over,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}
