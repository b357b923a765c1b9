//! A state that one caller at a time works with, in the order in which they came.
//!
//! For callers that wait for the disk while they hold it: they wait through the hook, so no mutex may be held meanwhile. The
//! order matters. A caller that comes back at once would otherwise take the state again before one that was woken for it runs;
//! under a scheduler that is not fair the other one then waits for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::sync::{Mutex, MutexGuard};

/// The state, and the callers that wait for it.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    queue: Mutex<Queue<T>>,
    /// As what a wait is reported.
    reason: BlockReason,
}

/// What the mutex guards.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// None during a turn.
    state: Option<T>,
    /// First come, first served.
    waiting: VecDeque<Arc<WaitToken>>,
}

impl<T> Turns<T> {
    pub(crate) fn new(state: T, reason: BlockReason) -> Turns<T> {
        Turns { queue: Mutex::new(Queue { state: Some(state), waiting: VecDeque::new() }), reason }
    }

    /// Waits until all that came before have had their turns.
    pub(crate) fn take<'t>(&'t self, hook: &'t dyn Hook) -> Turn<'t, T> {
        let turn = |state| Turn { of: self, hook, state: Some(state) };
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty()
            && let Some(state) = queue.state.take()
        {
            return turn(state);
        }
        let place = QueuedTurn { of: self, hook, token: Arc::new(WaitToken::new()) };
        queue.waiting.push_back(Arc::clone(&place.token));
        drop(queue);
        loop {
            hook.block(&place.token, self.reason);
            let mut queue = self.queue.lock();
            if queue.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &place.token))
                && let Some(state) = queue.state.take()
            {
                drop(queue);
                return turn(state);
            }
        }
    }

    /// Holds the mutex, which no turn does: for a mutant.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock()
    }
}

impl<T> Queue<T> {
    /// The caller to wake: the first, if it need not wait.
    fn next(&self) -> Option<Arc<WaitToken>> {
        self.state.as_ref().and_then(|_| self.waiting.front().cloned())
    }
}

/// A place in the queue. It is left also by a caller that unwinds while it waits.
struct QueuedTurn<'t, T> {
    of: &'t Turns<T>,
    hook: &'t dyn Hook,
    token: Arc<WaitToken>,
}

impl<T> Drop for QueuedTurn<'_, T> {
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

/// A caller's turn, until dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t, T> {
    of: &'t Turns<T>,
    hook: &'t dyn Hook,
    /// There until dropped.
    state: Option<T>,
}

impl<T> Turn<'_, T> {
    /// The state; always there.
    pub(crate) fn state(&mut self) -> Option<&mut T> {
        self.state.as_mut()
    }
}

impl<T> Drop for Turn<'_, T> {
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

    /// Tells when a caller waits, and can have it unwind.
    #[derive(Debug)]
    struct Told {
        threads: ThreadHook,
        waits: Mutex<Sender<()>>,
        unwinds: bool,
    }

    impl Told {
        fn new(unwinds: bool) -> (Told, Receiver<()>) {
            let (sender, receiver) = channel();
            (Told { threads: ThreadHook::parking(), waits: Mutex::new(sender), unwinds }, receiver)
        }
    }

    impl Hook for Told {
        fn block(&self, token: &WaitToken, reason: BlockReason) {
            // A test that no longer listens has seen what it wanted.
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

    fn note(turns: &Turns<Vec<u32>>, hook: &dyn Hook, caller: u32) {
        turns.take(hook).state().into_iter().for_each(|callers| callers.push(caller));
    }

    /// A checkpointer that took one checkpoint after the other kept a copy waiting for ever: seed 1795541343 of
    /// `torture oracle --scheduler itas`.
    #[test]
    fn a_caller_that_comes_back_at_once_waits_for_those_that_were_there() {
        let turns = Turns::new(Vec::new(), BlockReason::LogFlush);
        let (hook, waits) = Told::new(false);
        scope(|s| {
            for round in 0..100 {
                let mut turn = turns.take(&hook);
                s.spawn(|| note(&turns, &hook, 2));
                waits.recv().unwrap();
                turn.state().unwrap().push(1);
                drop(turn);
                let seen = turns.take(&hook).state().unwrap().clone();
                assert_eq!(seen, [1, 2].repeat(round + 1));
                // The wait above may have been told, or not have been one.
                while waits.try_recv().is_ok() {}
            }
        });
    }

    #[test]
    fn a_caller_that_unwinds_passes_its_turn_on() {
        let turns = Turns::new(Vec::new(), BlockReason::LogFlush);
        let (unwinding, unwinding_waits) = Told::new(true);
        let (hook, waits) = Told::new(false);
        scope(|s| {
            let turn = turns.take(&hook);
            s.spawn(|| {
                catch_unwind(AssertUnwindSafe(|| note(&turns, &unwinding, 1))).unwrap_err();
            });
            unwinding_waits.recv().unwrap();
            s.spawn(|| note(&turns, &hook, 2));
            waits.recv().unwrap();
            drop(turn);
        });
        assert_eq!(*turns.take(&hook).state().unwrap(), [2]);
    }
}
