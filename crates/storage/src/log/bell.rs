//! How a service thread sleeps: a wake costs one load while the thread is awake.

use std::time::Duration;

use crate::base::hook::{BlockReason, Hook, ThreadHook, WaitToken};
use crate::base::sync::atomic::{AtomicBool, Ordering, fence};

#[derive(Debug)]
pub(super) struct Bell {
    asleep: AtomicBool,
    token: WaitToken,
    hook: ThreadHook,
}

impl Bell {
    pub(super) fn new() -> Bell {
        Bell { asleep: AtomicBool::new(false), token: WaitToken::new(), hook: ThreadHook::parking() }
    }

    /// Wakes the sleeper, if there is one. The work for it must have been stored before.
    #[inline]
    pub(super) fn ring(&self) {
        // With the fence in `sleep`: either the sleeper sees the stored work, or this thread sees it asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.hook.wake(&self.token);
        }
    }

    /// Sleeps until the bell rings or `limit` has passed, unless there is work already.
    pub(super) fn sleep(&self, limit: Duration, has_work: impl Fn() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            self.hook.block_for(&self.token, BlockReason::LogFlush, limit);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}
