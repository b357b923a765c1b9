//! Detection of process forks: a child process does not have the threads of its parent.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process that counts forks and the current process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process: the first process that counts forks, or one of its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the current process, and registers the handler that counts forks.
    pub(crate) fn this() -> Process {
        #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
        {
            static HANDLER: std::sync::Once = std::sync::Once::new();
            extern "C" fn in_the_child() {
                FORKS.fetch_add(1, Ordering::Relaxed);
            }
            HANDLER.call_once(|| {
                // SAFETY: the handler only adds to an atomic, which is permitted in the child of a fork.
                let registered = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
                debug_assert_eq!(registered, 0, "memory for a handler of forks");
            });
        }
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Returns true if `self` is the calling process; otherwise `self` is an ancestor of the calling process.
    pub(crate) fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}
