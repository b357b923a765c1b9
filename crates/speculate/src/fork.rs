//! Forks of the process. A thread that a parent has started is not in its child.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process that counts them and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process: the one that counts forks first, or a descendant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one. Forks are counted from now on.
    pub(crate) fn this() -> Process {
        #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
        {
            static HANDLER: std::sync::Once = std::sync::Once::new();
            extern "C" fn in_the_child() {
                FORKS.fetch_add(1, Ordering::Relaxed);
            }
            HANDLER.call_once(|| {
                // SAFETY: the handler does nothing but add to an atomic, which is allowed in the child of any process.
                let registered = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
                debug_assert_eq!(registered, 0, "memory for a handler of forks");
            });
        }
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is this one; if not, it is an ancestor.
    pub(crate) fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}
