//! Locks, atomics and pauses, in one place so that model checkers can substitute their own.
//!
//! Two model checkers are supported:
//!
//! * **loom** (`--cfg loom`) tries every order of steps and every outcome that the memory model allows. This is feasible
//!   only for small structures: the users of [`word`], namely the latch, the translation table and the log's reservations.
//! * **shuttle** (`--cfg shuttle`) runs many random schedules, sequentially consistent, of protocols of any length. It
//!   covers all code that uses [`atomic`], [`Mutex`] and [`RwLock`] of this module: lock table, log, checkpoints, active
//!   transactions.
//!
//! Without a checker, these are the types of the standard library and of parking_lot. Under shuttle all tasks run on one
//! thread: while a mutex of another origin is held, no lock or atomic of this module may be used.

//!
//! In debug builds the locked mutexes of each thread are counted. None may be locked when the thread waits through the hook
//! or passes a point: another fiber of the same thread may run meanwhile, and if it requests that mutex the thread blocks
//! for ever. [`assert_none_locked`] checks this.

#[cfg(all(debug_assertions, not(shuttle)))]
pub(crate) use counted::{Mutex, MutexGuard, RwLock};
#[cfg(all(not(debug_assertions), not(shuttle)))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(shuttle)]
pub(crate) use scheduled::{Mutex, MutexGuard, RwLock};

/// Atomics for protocols that shuttle checks.
pub(crate) mod atomic {
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::atomic::*;
    #[cfg(not(shuttle))]
    pub(crate) use std::sync::atomic::*;

    #[cfg(feature = "seqcst")]
    pub(crate) use super::sequential::Ordering;
}

/// Atomics for small structures that loom checks. Under shuttle each access to a word of a latch is a scheduling step.
pub(crate) mod word {
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::*;
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) use std::sync::atomic::*;
    #[cfg(shuttle)]
    pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

    #[cfg(shuttle)]
    pub(crate) use super::stepped::AtomicU64;

    #[cfg(feature = "seqcst")]
    pub(crate) use super::sequential::Ordering;
}

/// Atomics that no checker schedules.
pub(crate) mod plain {
    pub(crate) use std::sync::atomic::*;

    #[cfg(feature = "seqcst")]
    pub(crate) use super::sequential::Ordering;
}

/// Atomic words whose accesses are scheduling steps of shuttle. They have the size of plain atomics, which the layouts of
/// pages and tables require; shuttle's own atomics are larger.
#[cfg(shuttle)]
mod stepped {
    use std::sync::atomic::Ordering;

    use shuttle::thread::yield_now;

    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct AtomicU64(std::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) const fn new(value: u64) -> AtomicU64 {
            AtomicU64(std::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            yield_now();
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            yield_now();
            self.0.store(value, order);
        }

        pub(crate) fn fetch_add(&self, by: u64, order: Ordering) -> u64 {
            yield_now();
            self.0.fetch_add(by, order)
        }

        pub(crate) fn fetch_sub(&self, by: u64, order: Ordering) -> u64 {
            yield_now();
            self.0.fetch_sub(by, order)
        }

        pub(crate) fn compare_exchange(&self, old: u64, new: u64, yes: Ordering, no: Ordering) -> Result<u64, u64> {
            yield_now();
            self.0.compare_exchange(old, new, yes, no)
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            old: u64,
            new: u64,
            yes: Ordering,
            no: Ordering,
        ) -> Result<u64, u64> {
            self.compare_exchange(old, new, yes, no)
        }
    }
}

/// Feature `seqcst`: every access is sequentially consistent, regardless of the order that the code requests. Such a build
/// is the baseline for the gain of weaker orders (`tpcc reproduce compiler`).
#[cfg(feature = "seqcst")]
#[allow(non_upper_case_globals)]
mod sequential {
    use std::sync::atomic::Ordering as Order;

    /// Replacement of the standard library's `Ordering`.
    #[derive(Debug)]
    pub(crate) struct Ordering;

    impl Ordering {
        pub(crate) const Relaxed: Order = Order::SeqCst;
        pub(crate) const Acquire: Order = Order::SeqCst;
        pub(crate) const Release: Order = Order::SeqCst;
        pub(crate) const AcqRel: Order = Order::SeqCst;
        pub(crate) const SeqCst: Order = Order::SeqCst;
    }
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

/// Back-off for waits of tens of nanoseconds. It spins first. After some rounds it yields to other threads, because the
/// awaited thread was probably preempted.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Pauses, longer with each call.
    pub(crate) fn pause(&mut self) {
        // Under a checker no state changes until another thread runs.
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

/// Asserts in debug builds that this thread holds none of the engine's mutexes. The message contains `_where`.
#[inline(always)]
pub(crate) fn assert_none_locked(_where: &str) {
    #[cfg(all(debug_assertions, not(shuttle)))]
    assert!(
        counted::locked() == 0 || std::thread::panicking(),
        "a mutex is locked at {_where}: a fiber of this thread that asks for it would stop the thread"
    );
}

/// Locks of parking_lot that count the locks held by each thread.
#[cfg(all(debug_assertions, not(shuttle)))]
mod counted {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};

    thread_local! {
        static LOCKED: Cell<u32> = const { Cell::new(0) };
    }

    /// Number of locks that this thread holds.
    pub(super) fn locked() -> u32 {
        LOCKED.try_with(Cell::get).unwrap_or(0)
    }

    /// Guard of a held lock. Guards stay on their thread.
    #[derive(Debug)]
    pub(crate) struct Counted<G> {
        guard: G,
    }

    impl<G> Counted<G> {
        fn new(guard: G) -> Counted<G> {
            let _ = LOCKED.try_with(|locked| locked.set(locked.get() + 1));
            Counted { guard }
        }
    }

    impl<G> Drop for Counted<G> {
        fn drop(&mut self) {
            let _ = LOCKED.try_with(|locked| locked.set(locked.get() - 1));
        }
    }

    impl<G: Deref> Deref for Counted<G> {
        type Target = G::Target;

        fn deref(&self) -> &G::Target {
            &self.guard
        }
    }

    impl<G: DerefMut> DerefMut for Counted<G> {
        fn deref_mut(&mut self) -> &mut G::Target {
            &mut self.guard
        }
    }

    pub(crate) type MutexGuard<'a, T> = Counted<parking_lot::MutexGuard<'a, T>>;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Mutex<T> {
            Mutex(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            Counted::new(self.0.lock())
        }

        #[allow(dead_code, reason = "asked for by some builds only")]
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().map(Counted::new)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> RwLock<T> {
            RwLock(parking_lot::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> Counted<parking_lot::RwLockReadGuard<'_, T>> {
            Counted::new(self.0.read())
        }

        pub(crate) fn write(&self) -> Counted<parking_lot::RwLockWriteGuard<'_, T>> {
            Counted::new(self.0.write())
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::assert_none_locked;
        use super::{Mutex, RwLock, locked};

        #[test]
        fn what_is_locked_is_counted_by_thread() {
            let (one, two) = (Mutex::new(1), RwLock::new(2));
            assert_none_locked("the begin");
            let (first, second) = (one.lock(), two.read());
            assert_eq!((locked(), *first, *second), (2, 1, 2));
            assert!(one.try_lock().is_none());
            std::thread::scope(|s| s.spawn(|| assert_none_locked("another thread")).join().unwrap());
            drop(first);
            let told = std::panic::catch_unwind(|| assert_none_locked("a wait")).unwrap_err();
            assert!(told.downcast_ref::<String>().is_some_and(|told| told.contains("a mutex is locked at a wait")));
            drop(second);
            *two.write() += 1;
            assert_none_locked("the end");
        }
    }
}

/// Locks of shuttle with the interface of parking_lot.
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
