//! Sleep and wake-up of a service thread. A wake costs one load while the thread is awake.

use std::sync::OnceLock;
use std::time::Duration;

use crate::base::hook::{BlockReason, Hook, ThreadHook, WaitToken};
use crate::base::lane::LanePlace;
use crate::base::sync::atomic::{AtomicBool, Ordering, fence};

/// Waker of a service thread: see the module's documentation.
#[derive(Debug)]
pub(super) struct ServiceWaker {
    asleep: AtomicBool,
    token: WaitToken,
    hook: ThreadHook,
    /// Place in a lane, which a wake calls instead of waking a thread; set if the threads of a lane do the work.
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

    /// Wakes the service thread if it sleeps. The caller must have stored the new work before.
    #[inline]
    pub(super) fn wake_if_asleep(&self) {
        // Pairs with the fence in `end_turn`: either the sleeper sees the stored work, or this thread sees it asleep.
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

    /// Sets a place in a lane. From now on a wake calls this place.
    pub(super) fn set_lane_place(&self, place: LanePlace) {
        let _ = self.place.set(place);
    }

    /// Ends a turn of the work, so that the next wake requests a turn. Returns false if there is new work already.
    pub(super) fn end_turn(&self, has_work: impl Fn() -> bool) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ended = !has_work();
        if !ended {
            self.begin_turn();
        }
        ended
    }

    /// Begins a turn of the work.
    pub(super) fn begin_turn(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sleeps until a wake, or until `limit` has passed. Does not sleep if there is work already.
    pub(super) fn sleep(&self, limit: Duration, has_work: impl Fn() -> bool) {
        if self.end_turn(has_work) {
            self.hook.block_for(&self.token, BlockReason::LogFlush, limit);
            self.begin_turn();
        }
    }
}
