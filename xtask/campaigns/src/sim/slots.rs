//! Baton that threads pass: only the thread with the baton runs.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Work of a participant of a run.
pub(crate) type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Slots of the threads: each has a condition variable on which its thread sleeps while it does not have the baton.
#[derive(Debug)]
pub(super) struct BatonSlots {
    slots: Vec<(Mutex<bool>, Condvar)>,
}

impl BatonSlots {
    /// Creates slots for `n` workers.
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

    /// Runs each element of `work` as a worker on a thread of its own. Worker `first` has the baton first. Each other worker
    /// waits until [`BatonSlots::pass`] gives it the baton. Returns when all workers have ended.
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
