//! The baton that threads pass.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// The work of a participant.
pub(crate) type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A condition variable for each thread, on which the thread sleeps while it does not have the baton.
#[derive(Debug)]
pub(super) struct BatonSlots {
    slots: Vec<(Mutex<bool>, Condvar)>,
}

impl BatonSlots {
    /// Slots for `n` workers.
    pub(super) fn new(n: usize) -> BatonSlots {
        BatonSlots { slots: (0..n).map(|_| Default::default()).collect() }
    }

    fn give(&self, to: usize) {
        let (has_baton, condition) = &self.slots[to];
        *has_baton.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condition.notify_one();
    }

    fn wait(&self, me: usize) {
        let (has_baton, condition) = &self.slots[me];
        let mut has_baton = has_baton.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_baton {
            has_baton = condition.wait(has_baton).unwrap_or_else(PoisonError::into_inner);
        }
        *has_baton = false;
    }

    /// Runs all of `work`, beginning with worker `first`, and returns when all have ended. A started worker takes no step
    /// before [`BatonSlots::pass`] names it.
    pub(super) fn run(&self, work: Vec<Work<'_>>, first: usize) {
        thread::scope(|scope| {
            for (me, work) in work.into_iter().enumerate() {
                scope.spawn(move || {
                    self.wait(me);
                    work();
                });
            }
            self.give(first);
        });
    }

    /// Passes the baton from the calling worker to another one. Returns when the caller has the baton again, or at once if
    /// the caller has `ended`.
    pub(super) fn pass(&self, from: usize, to: usize, ended: bool) {
        self.give(to);
        if !ended {
            self.wait(from);
        }
    }
}
