//! A fair lock: callers use the guarded state one at a time, in order of arrival.
//!
//! The lock is for callers that wait for the disk while they hold the state. They wait through the hook, so no mutex may be
//! held meanwhile. Without the order of arrival, a caller that returns at once could take the state again before the woken
//! waiter runs; under an unfair scheduler the waiter would wait for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::sync::{Mutex, MutexGuard};

/// Guarded state, and the queue of callers that wait for it.
#[derive(Debug)]
pub(crate) struct FairLock<T> {
    queue: Mutex<Queue<T>>,
    /// Reason that the lock reports to the hook for each wait.
    reason: BlockReason,
}

/// Data guarded by the mutex.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// The guarded state; `None` while a caller has it.
    state: Option<T>,
    /// Waiting callers, in order of arrival.
    waiting: VecDeque<Arc<WaitToken>>,
}

impl<T> FairLock<T> {
    pub(crate) fn new(state: T, reason: BlockReason) -> FairLock<T> {
        FairLock { queue: Mutex::new(Queue { state: Some(state), waiting: VecDeque::new() }), reason }
    }

    /// Takes the state. Waits until all callers that arrived earlier have returned it.
    pub(crate) fn take<'t>(&'t self, hook: &'t dyn Hook) -> FairLockGuard<'t, T> {
        let guard = |state| FairLockGuard { of: self, hook, state: Some(state) };
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty()
            && let Some(state) = queue.state.take()
        {
            return guard(state);
        }
        let place = QueuedWaiter { of: self, hook, token: Arc::new(WaitToken::new()) };
        queue.waiting.push_back(Arc::clone(&place.token));
        drop(queue);
        loop {
            hook.block(&place.token, self.reason);
            let mut queue = self.queue.lock();
            if queue.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &place.token))
                && let Some(state) = queue.state.take()
            {
                drop(queue);
                return guard(state);
            }
        }
    }

    /// Locks the mutex of the queue. Only a mutant calls this: otherwise no caller holds the mutex while it has the state.
    pub(crate) fn lock_queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock()
    }
}

impl<T> Queue<T> {
    /// Returns the caller to wake: the first in the queue, if the state is free.
    fn next(&self) -> Option<Arc<WaitToken>> {
        self.state.as_ref().and_then(|_| self.waiting.front().cloned())
    }
}

/// Place of a waiting caller in the queue. A drop removes it, also when the caller unwinds.
struct QueuedWaiter<'t, T> {
    of: &'t FairLock<T>,
    hook: &'t dyn Hook,
    token: Arc<WaitToken>,
}

impl<T> Drop for QueuedWaiter<'_, T> {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.of.queue.lock();
            queue.waiting.retain(|waiting| !Arc::ptr_eq(waiting, &self.token));
            queue.next()
        };
        if let Some(next) = next {
            self.hook.wake(&next);
        }
    }
}

/// Guard of the state, with exclusive use of it until the guard is dropped.
#[derive(Debug)]
pub(crate) struct FairLockGuard<'t, T> {
    of: &'t FairLock<T>,
    hook: &'t dyn Hook,
    /// The guarded state; `Some` until the guard is dropped.
    state: Option<T>,
}

impl<T> FairLockGuard<'_, T> {
    /// Returns the guarded state; always `Some`.
    pub(crate) fn state(&mut self) -> Option<&mut T> {
        self.state.as_mut()
    }
}

impl<T> Drop for FairLockGuard<'_, T> {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.of.queue.lock();
            queue.state = self.state.take();
            queue.next()
        };
        if let Some(next) = next {
            self.hook.wake(&next);
        }
    }
}

#[cfg(all(test, not(shuttle), not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::scope;
    use std::time::Duration;

    use super::*;
    use crate::base::hook::ThreadHook;

    /// Hook that reports each wait to the test, and can make the caller unwind.
    #[derive(Debug)]
    struct WaitObserver {
        threads: ThreadHook,
        waits: Mutex<Sender<()>>,
        unwinds: bool,
    }

    impl WaitObserver {
        fn new(unwinds: bool) -> (WaitObserver, Receiver<()>) {
            let (sender, receiver) = channel();
            (WaitObserver { threads: ThreadHook::parking(), waits: Mutex::new(sender), unwinds }, receiver)
        }
    }

    impl Hook for WaitObserver {
        fn block(&self, token: &WaitToken, reason: BlockReason) {
            // Sending fails if the test has received all messages that it needs and has dropped the receiver.
            let _ = self.waits.lock().send(());
            self.threads.block(token, reason);
            assert!(!self.unwinds, "unwinds on purpose");
        }

        fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
            self.threads.block_for(token, reason, limit)
        }

        fn wake(&self, token: &WaitToken) {
            self.threads.wake(token);
        }
    }

    fn note(lock: &FairLock<Vec<u32>>, hook: &dyn Hook, caller: u32) {
        lock.take(hook).state().into_iter().for_each(|callers| callers.push(caller));
    }

    /// Regression test: a checkpointer that took checkpoints without a pause kept a copy waiting for ever (seed 1795541343
    /// of `torture oracle --scheduler itas`).
    #[test]
    fn a_caller_that_comes_back_at_once_waits_for_those_that_were_there() {
        let lock = FairLock::new(Vec::new(), BlockReason::LogFlush);
        let (hook, waits) = WaitObserver::new(false);
        scope(|s| {
            for round in 0..100 {
                let mut guard = lock.take(&hook);
                s.spawn(|| note(&lock, &hook, 2));
                waits.recv().unwrap();
                guard.state().unwrap().push(1);
                drop(guard);
                let seen = lock.take(&hook).state().unwrap().clone();
                assert_eq!(seen, [1, 2].repeat(round + 1));
                // If the call of `take` above waited, the hook has sent a message, which is discarded here.
                while waits.try_recv().is_ok() {}
            }
        });
    }

    #[test]
    fn a_caller_that_unwinds_passes_its_turn_on() {
        let lock = FairLock::new(Vec::new(), BlockReason::LogFlush);
        let (unwinding, unwinding_waits) = WaitObserver::new(true);
        let (hook, waits) = WaitObserver::new(false);
        scope(|s| {
            let guard = lock.take(&hook);
            s.spawn(|| {
                catch_unwind(AssertUnwindSafe(|| note(&lock, &unwinding, 1))).unwrap_err();
            });
            unwinding_waits.recv().unwrap();
            s.spawn(|| note(&lock, &hook, 2));
            waits.recv().unwrap();
            drop(guard);
        });
        assert_eq!(*lock.take(&hook).state().unwrap(), [2]);
    }
}
