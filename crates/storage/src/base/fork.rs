//! Detection of forks. An open database belongs to the parent process. In a child process the database has no threads, some
//! of its latches may never be released, and writes would conflict with writes of the parent. So in a child every call
//! except a drop is refused.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks by which this process descends from the process that began the count.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Identity of a process among its ancestors and descendants: the value of `FORKS` in that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the current process. Forks are counted from the first call on.
    pub(crate) fn this() -> Process {
        count_forks();
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true if `self` is the current process; otherwise `self` is an ancestor of it.
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
            // SAFETY: the handler only adds to an atomic, which is allowed in the child of any process.
            let registered = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
            debug_assert_eq!(registered, 0, "memory for a handler of forks");
        });
    }
}
