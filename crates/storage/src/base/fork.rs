//! Detection of forks. An open database belongs to the parent process: the child has none of its threads, latches may be
//! held there for ever, and writes of the child would conflict with those of the parent. In the child every call except a
//! drop is refused.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks since the count began, along the line of ancestors of this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Identity of a process among its ancestors and descendants: its value of `FORKS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the current process. Forks are counted from the first call on.
    pub(crate) fn this() -> Process {
        count_forks();
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true if this is the current process; otherwise it is an ancestor.
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
