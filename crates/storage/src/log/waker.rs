//! How a service thread sleeps: a wake costs one load while the thread is awake.

use std::sync::OnceLock;
use std::time::Duration;

use crate::base::hook::{BlockReason, Hook, ThreadHook, WaitToken};
use crate::base::lane::LanePlace;
use crate::base::sync::atomic::{AtomicBool, Ordering, fence};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ServiceWaker {
    asleep: AtomicBool,
    token: WaitToken,
    hook: ThreadHook,
    /// Called instead of waking a thread, if threads of several databases do the work.
    place: OnceLock<LanePlace>,
}

impl ServiceWaker {
    pub(super) fn new() -> ServiceWaker {
        ServiceWaker {
            asleep: AtomicBool::new(false),
            token: WaitToken::new(),
            hook: ThreadHook::parking(),
            place: OnceLock::new(),
        }
    }

    /// Wakes the sleeper, if there is one. The work for it must have been stored before.
    #[inline]
    pub(super) fn wake_if_asleep(&self) {
        // With the fence in `sleep`: either the sleeper sees the stored work, or this thread sees it asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::AcqRel) {
            match self.place.get() {
                Some(place) => place.call(),
                None => self.hook.wake(&self.token),
            }
        }
    }

    /// From now on a wake calls the work that has this place in a lane.
    pub(super) fn call_instead(&self, place: LanePlace) {
        let _ = self.place.set(place);
    }

    /// A turn of the work ends: the next wake calls the next one. False if there is work already.
    pub(super) fn end_turn(&self, has_work: impl Fn() -> bool) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ended = !has_work();
        if !ended {
            self.begin_turn();
        }
        ended
    }

    /// A turn of the work begins.
    pub(super) fn begin_turn(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sleeps until a wake or until `limit` has passed, unless there is work already.
    pub(super) fn sleep(&self, limit: Duration, has_work: impl Fn() -> bool) {
        if self.end_turn(has_work) {
            self.hook.block_for(&self.token, BlockReason::LogFlush, limit);
            self.begin_turn();
        }
    }
}
