//! How the baton is passed: one way for each kind of worker.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// A worker's work.
pub(crate) type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs workers of which one runs at a time.
pub(crate) trait Seats: Send + Sync + std::fmt::Debug {
    /// Runs all of `work`, worker `first` first, and returns when all have ended. A worker that has been started takes
    /// no step before [`Seats::pass`] has named it.
    fn run(&self, work: Vec<Work<'_>>, first: usize);

    /// Hands the baton from one worker, who calls this, to another one. Returns when it is back; at once if the caller
    /// has `ended`.
    fn pass(&self, from: usize, to: usize, ended: bool);
}

/// Workers are threads; those without the baton sleep.
#[derive(Debug)]
pub(crate) struct ThreadSeats {
    seats: Vec<(Mutex<bool>, Condvar)>,
}

impl ThreadSeats {
    /// Seats for `n` workers.
    pub(crate) fn new(n: usize) -> ThreadSeats {
        ThreadSeats { seats: (0..n).map(|_| Default::default()).collect() }
    }

    fn give(&self, to: usize) {
        let (turn, bell) = &self.seats[to];
        *turn.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_one();
    }

    fn wait(&self, me: usize) {
        let (turn, bell) = &self.seats[me];
        let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        while !*turn {
            turn = bell.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        *turn = false;
    }
}

impl Seats for ThreadSeats {
    fn run(&self, work: Vec<Work<'_>>, first: usize) {
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

    fn pass(&self, from: usize, to: usize, ended: bool) {
        self.give(to);
        if !ended {
            self.wait(from);
        }
    }
}
