//! Forks of the process. An open database is the parent's: its threads are not in the child, latches may be held for ever
//! there, and what the child wrote would meet what the parent writes. The child is refused everything but a drop.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// Forks since forks are counted, in the line of processes down to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process of those that were forked from the first that had one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one. From now on forks are counted.
    pub(crate) fn this() -> Process {
        count_forks();
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is this one; if not, it is an ancestor.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

fn count_forks() {
    #[cfg(not(any(miri, loom, shuttle)))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        extern "C" fn in_the_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        ONCE.call_once(|| {
            // SAFETY: the handler does nothing but add to an atomic, which is allowed in the child of any process.
            let registered = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
            debug_assert_eq!(registered, 0, "memory for a handler of forks");
        });
    }
}
