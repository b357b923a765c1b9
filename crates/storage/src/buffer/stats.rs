//! Counts of the pool's work. Hits are not counted here: they would all write one shared cache line.

use crate::base::sync::plain::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        /// Counts since the pool was opened.
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
    /// Pages made without reading.
    creates,
    /// Pages that came back soon after they had been evicted.
    ghost_hits,
    /// Pages that left their frame.
    evictions,
    /// Pages written to the file.
    writes,
    /// Writes to the file; neighbouring pages share one.
    write_calls,
    /// Copies of pages put aside ahead of those writes.
    images,
    /// Syncs of the file.
    syncs,
    /// Batches that a worker had to write because no clean frame was free.
    writes_by_workers,
    /// Times that a caller waited for a page which another thread was reading.
    load_waits,
    /// Pages whose read was handed to a reader.
    handed_over,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}
