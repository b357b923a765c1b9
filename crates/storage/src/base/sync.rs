//! Locks, atomics and pauses, in one place so that model checkers can put theirs in.
//!
//! Two of them do, each where it is strong:
//!
//! * **loom** (`--cfg loom`) tries every order of steps and every outcome that the memory model allows. That is possible
//!   for small structures only: those that take their atomics from [`word`], namely the latch, the translation table and
//!   the log's reservations.
//! * **shuttle** (`--cfg shuttle`) runs many random schedules, sequentially consistent, of protocols of any length. It has
//!   whatever takes [`atomic`], [`Mutex`] and [`RwLock`] from here: lock table, log, checkpoints, active transactions.
//!
//! Without either, these are the standard library's and parking_lot's own. Under shuttle all tasks are one thread: a
//! mutex that is not from here must not be held across anything that is.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(shuttle)]
pub(crate) use scheduled::{Mutex, MutexGuard, RwLock};

/// Atomics of protocols.
pub(crate) mod atomic {
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::atomic::*;
    #[cfg(not(shuttle))]
    pub(crate) use std::sync::atomic::*;
}

/// Atomics of small structures.
pub(crate) mod word {
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::*;
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::*;
}

/// Lets another thread run.
#[inline]
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::thread::yield_now();
}

/// Waiting for something that takes tens of nanoseconds: spins, and lets another thread run when that has gone on for
/// so long that whoever is waited for was probably preempted.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Waits a little, longer from call to call.
    pub(crate) fn pause(&mut self) {
        // Under a checker nothing happens until others run.
        if self.rounds < 7 && !cfg!(any(loom, shuttle)) {
            for _ in 0..1u32 << self.rounds {
                std::hint::spin_loop();
            }
            self.rounds += 1;
        } else {
            yield_now();
        }
    }
}

/// shuttle's locks, called as parking_lot's are.
#[cfg(shuttle)]
mod scheduled {
    use std::sync::{PoisonError, TryLockError};

    pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
