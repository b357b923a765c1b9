//! Mutexes, atomics, threads and pauses in one module, so that a model checker can substitute its own types.
//!
//! Under shuttle (`--cfg shuttle`, `cargo xtask shuttle`) a scheduler chooses the next task before each operation on these
//! types, and no decision depends on the clock. Otherwise these are the types of the standard library and of parking_lot.
//! Traces and statistics read the clock in both builds, but influence no decision.

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

/// Spin wait for another thread that is about to finish. The wait yields the core after a while, because there may be more
/// threads than cores.
#[derive(Default)]
pub(crate) struct Spin {
    rounds: u32,
}

impl Spin {
    /// Number of pauses before the wait yields the core. Under shuttle it is 1, because no state changes until another task
    /// runs.
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

/// Time limit of a wait. Under shuttle, a limit of the number of checks.
pub(crate) struct TimeLimit {
    #[cfg(not(shuttle))]
    begun: Instant,
    #[cfg(not(shuttle))]
    limit: Duration,
    #[cfg(shuttle)]
    checks: std::cell::Cell<u32>,
}

impl TimeLimit {
    /// Starts the time limit `limit`. Under shuttle, `_checks` is the limit instead.
    #[cfg_attr(shuttle, allow(unused_variables, reason = "there is no time under shuttle"))]
    pub(crate) fn begin(limit: Duration, _checks: u32) -> TimeLimit {
        TimeLimit {
            #[cfg(not(shuttle))]
            begun: Instant::now(),
            #[cfg(not(shuttle))]
            limit,
            #[cfg(shuttle)]
            checks: _checks.into(),
        }
    }

    /// Returns true if the limit is exceeded.
    pub(crate) fn is_over(&self) -> bool {
        #[cfg(not(shuttle))]
        return self.begun.elapsed() > self.limit;
        #[cfg(shuttle)]
        return self.checks.replace(self.checks.get().saturating_sub(1)) == 0;
    }
}

/// Mutex of shuttle with the interface of parking_lot's mutex.
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
