//! Mutexes, atomics, threads and pauses, in one place so that a model checker can substitute its own.
//!
//! Under shuttle (`--cfg shuttle`, `cargo xtask shuttle`) a scheduler decides before each of these operations which task
//! runs next, and nothing depends on the clock. Otherwise these are the standard library's and parking_lot's own. Traces
//! and statistics read the clock in both builds, and decide nothing.

use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::Instant;

#[cfg(not(shuttle))]
pub(crate) use parking_lot::Mutex;
#[cfg(shuttle)]
pub(crate) use scheduled::Mutex;
#[cfg(shuttle)]
pub(crate) use shuttle::{sync::atomic, thread, thread_local};
#[cfg(not(shuttle))]
pub(crate) use std::{sync::atomic, thread, thread_local};

/// Waiting for another thread that is about to be done. Gives the core away after a while: there may be more threads
/// than cores.
#[derive(Default)]
pub(crate) struct Spin {
    rounds: u32,
}

impl Spin {
    /// Under shuttle nothing changes until another task runs.
    const SHORT: u32 = if cfg!(shuttle) { 1 } else { 256 };

    #[inline]
    pub(crate) fn pause(&mut self) {
        if self.is_long() {
            thread::yield_now();
        } else {
            self.rounds += 1;
            #[cfg(not(shuttle))]
            std::hint::spin_loop();
            #[cfg(shuttle)]
            thread::yield_now();
        }
    }

    pub(crate) fn is_long(&self) -> bool {
        self.rounds >= Spin::SHORT
    }
}

/// How long a thread does something before it does something else. Under shuttle, a number of looks.
pub(crate) struct Patience {
    #[cfg(not(shuttle))]
    begun: Instant,
    #[cfg(not(shuttle))]
    most: Duration,
    #[cfg(shuttle)]
    looks: std::cell::Cell<u32>,
}

impl Patience {
    /// Begins now. `_looks` is for shuttle.
    #[cfg_attr(shuttle, allow(unused_variables, reason = "there is no time under shuttle"))]
    pub(crate) fn begin(most: Duration, _looks: u32) -> Patience {
        Patience {
            #[cfg(not(shuttle))]
            begun: Instant::now(),
            #[cfg(not(shuttle))]
            most,
            #[cfg(shuttle)]
            looks: _looks.into(),
        }
    }

    /// Whether it has lasted long enough.
    pub(crate) fn is_over(&self) -> bool {
        #[cfg(not(shuttle))]
        return self.begun.elapsed() > self.most;
        #[cfg(shuttle)]
        return self.looks.replace(self.looks.get().saturating_sub(1)) == 0;
    }
}

/// shuttle's mutex, called as parking_lot's is.
#[cfg(shuttle)]
mod scheduled {
    use std::sync::PoisonError;

    use shuttle::sync::MutexGuard;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
