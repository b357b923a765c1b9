//! The engine on fibers: its hook, implemented by `sched_steps`, for any user of fibers. Which fiber runs next is the
//! business of a [`FiberPolicy`].
//!
//! Storage calls [`Hook::point`] where it has just asked for memory or where a stretch of code ends; where the policy says
//! so, that becomes a hop to the next fiber. It calls [`Hook::enter`] where a statement begins. In the middle of a panic a
//! fiber goes on alone: destructors must not let others run. Where storage must wait ([`Hook::block`]) the fiber leaves its
//! team and the thread goes on with the others. Threads without fibers (loading, checking, the engine's services) wait as
//! threads do.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use sched_steps::fiber::{self, Waker};
use sched_steps::team::TooManyOperations;
use storage::{BlockReason, Hook, Operation, PointSite, ThreadHook, WaitToken};

/// Which fibers run together, and where they switch.
pub trait FiberPolicy: Debug + Send + Sync {
    /// Whether a fiber may ever let others run at this point. Asked once for each point, when a database is opened.
    fn may_stop_at(&self, site: &'static PointSite) -> bool;

    /// Whether the fiber that runs lets the next one run at the point of this number.
    fn stops_at(&self, site: u32) -> bool;

    /// A statement begins, on a fiber or on a thread without fibers.
    fn enter(&self, operation: Operation);

    /// Learns which indexes there are: number, table, name.
    ///
    /// # Errors
    /// When they are too many for the operations of an executor.
    fn know(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations>;
}

/// A hook of the engine that learns which tables the workload has.
pub trait StoreHook: Hook {
    /// See [`FiberPolicy::know`].
    ///
    /// # Errors
    /// Likewise.
    fn know(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations>;
}

/// Runs storage on the fibers of whichever thread calls.
#[derive(Debug)]
pub struct FiberHook<P> {
    threads: ThreadHook,
    policy: P,
}

impl<P> FiberHook<P> {
    /// The hook of this policy.
    pub fn new(policy: P) -> FiberHook<P> {
        FiberHook { threads: ThreadHook::default(), policy }
    }

    /// What it was made of.
    #[inline]
    pub fn policy(&self) -> &P {
        &self.policy
    }
}

impl<P: FiberPolicy + 'static> StoreHook for FiberHook<P> {
    fn know(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
        self.policy.know(indexes)
    }
}

impl<P: FiberPolicy + 'static> Hook for FiberHook<P> {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn may_stop_at(&self, site: &'static PointSite) -> bool {
        self.policy.may_stop_at(site)
    }

    #[inline]
    fn point(&self, site: u32) {
        if self.policy.stops_at(site) && !std::thread::panicking() {
            fiber::hop();
        }
    }

    #[inline]
    fn enter(&self, operation: Operation) {
        self.policy.enter(operation);
    }

    fn task(&self) -> u64 {
        // A fiber's waker is odd, so the numbers of fibers and of threads stay apart.
        fiber::waker().map_or_else(|| storage::thread_number() << 1, |waker| waker.to_bits() as u64)
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        let Some(waker) = fiber::waker() else { return self.threads.block(token, reason) };
        token.scheduler_word.store(waker.to_bits(), Ordering::Release);
        fence(Ordering::SeqCst);
        // A waker leaves the wake and then looks at the word, so that one of the two sees the other.
        while !token.try_consume() {
            fiber::park();
        }
        token.scheduler_word.store(0, Ordering::Relaxed);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        if !fiber::is_fiber() {
            return self.threads.block_for(token, reason, limit);
        }
        // None: a time that does not come.
        let until = Instant::now().checked_add(limit);
        let woken = Cell::new(false);
        fiber::block_until(|| {
            woken.set(woken.get() || token.try_consume());
            woken.get() || until.is_some_and(|until| Instant::now() >= until)
        });
        woken.get()
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
        fence(Ordering::SeqCst);
        if let Some(waker) = Waker::from_bits(token.scheduler_word.load(Ordering::Acquire)) {
            waker.wake();
        }
    }
}
