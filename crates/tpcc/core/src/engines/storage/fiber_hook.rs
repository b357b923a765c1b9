//! The engine's hook on fibers, implemented with `sched_steps` for any scheduler of fibers. A [`FiberPolicy`] selects the
//! fiber that runs next.
//!
//! Storage calls [`Hook::point`] after a prefetch, and at the end of a code segment. If the policy selects this point, the
//! fiber hops to the next fiber. Storage calls [`Hook::enter`] at the start of a statement. During a panic a fiber does not
//! hop, because destructors must not let others run. If storage has to wait ([`Hook::block`]), the fiber leaves its team,
//! and the thread continues with other fibers. Threads without fibers (loading, checking, the engine's services) block as
//! threads.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use sched_steps::fiber::{self, Waker};
use sched_steps::team::TooManyOperations;
use storage::{BlockReason, Hook, Operation, PointSite, ThreadHook, WaitToken};

/// Selects the fibers that run together, and the points at which they switch.
pub trait FiberPolicy: Debug + Send + Sync {
    /// Returns true if fibers may ever switch at this point. Called once for each point, when a database is opened.
    fn may_switch_at(&self, site: &'static PointSite) -> bool;

    /// Returns true if the running fiber lets the next fiber run at the point with this number.
    fn switches_at(&self, site: u32) -> bool;

    /// Called at the start of a statement, on a fiber or on a thread without fibers.
    fn enter(&self, operation: Operation);

    /// Receives the number, the table name and the index name of each index of the database.
    ///
    /// # Errors
    /// Fails if there are too many indexes for the operations of an executor.
    fn set_indexes(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations>;
}

/// Hook of the engine that also receives the indexes of the workload's tables.
pub trait StoreHook: Hook {
    /// See [`FiberPolicy::set_indexes`].
    ///
    /// # Errors
    /// See [`FiberPolicy::set_indexes`].
    fn set_indexes(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations>;
}

/// Hook that runs storage on the fibers of the calling thread, with the switches that a policy selects.
#[derive(Debug)]
pub struct FiberHook<P> {
    threads: ThreadHook,
    policy: P,
}

impl<P> FiberHook<P> {
    /// Creates the hook of a policy.
    pub fn new(policy: P) -> FiberHook<P> {
        FiberHook { threads: ThreadHook::default(), policy }
    }

    /// Returns the policy.
    #[inline]
    pub fn policy(&self) -> &P {
        &self.policy
    }
}

impl<P: FiberPolicy + 'static> StoreHook for FiberHook<P> {
    fn set_indexes(&self, indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
        self.policy.set_indexes(indexes)
    }
}

impl<P: FiberPolicy + 'static> Hook for FiberHook<P> {
    fn is_cooperative(&self) -> bool {
        true
    }

    fn may_stop_at(&self, site: &'static PointSite) -> bool {
        self.policy.may_switch_at(site)
    }

    #[inline]
    fn point(&self, site: u32) {
        if self.policy.switches_at(site) && !std::thread::panicking() {
            fiber::hop();
        }
    }

    #[inline]
    fn enter(&self, operation: Operation) {
        self.policy.enter(operation);
    }

    fn task(&self) -> u64 {
        // The bits of a fiber's waker are an odd number and a thread gets an even number, so the task numbers of fibers and
        // threads are distinct.
        fiber::waker().map_or_else(|| storage::thread_number() << 1, |waker| waker.to_bits() as u64)
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        let Some(waker) = fiber::waker() else { return self.threads.block(token, reason) };
        token.scheduler_word.store(waker.to_bits(), Ordering::Release);
        fence(Ordering::SeqCst);
        // The waking thread sets the token's wake-up, then reads the token's word. This fiber has stored its waker in the
        // word, and then checks for the wake-up. Because of the fences, at least one of them sees the store of the other.
        while !token.try_consume() {
            fiber::park();
        }
        token.scheduler_word.store(0, Ordering::Relaxed);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        if !fiber::is_fiber() {
            return self.threads.block_for(token, reason, limit);
        }
        // `None`: a time that is never reached.
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
