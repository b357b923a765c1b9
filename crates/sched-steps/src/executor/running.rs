//! What the running fiber may ask of its executor, and what the same means on a thread without one.

use super::core::Core;
use super::remote::{Monitor, Waker};

/// Number of the running fiber in its executor, below [`Builder::fibers`](crate::Builder::fibers).
#[must_use]
pub fn index() -> Option<usize> {
    Core::current(|core| core.running().map(|index| index as usize)).flatten()
}

/// The handle by which any thread ends a [`park`] of the running fiber; `None` outside of a fiber.
#[must_use]
pub fn waker() -> Option<Waker> {
    Core::current(Core::give_waker).flatten()
}

/// Watches the executor of the running fiber from other threads; `None` outside of a fiber.
#[must_use]
pub fn monitor() -> Option<Monitor> {
    Core::current(|core| Monitor::new(core.remote))
}

/// Gives up the place in the ring: the other ready fibers run first, and the caller goes on after them. The
/// place for it is between two transactions.
///
/// Outside of a fiber it yields the thread.
pub fn yield_now() {
    if Core::current(Core::yield_now).is_none() {
        std::thread::yield_now();
    }
}

/// Suspends the running fiber until its [`Waker`] is called; a call that came before is not lost. May return
/// without one, so test the condition again. One that never asks for its waker is parked for good, which the executor
/// sees when nothing else can run ([`FiberError::Stopped`](crate::FiberError::Stopped)).
///
/// Holding a latch here is a mistake (debug assertion). In a destructor that runs in the middle of a panic it returns after a
/// moment, woken or not. Outside of a fiber it parks the thread.
pub fn park() {
    if Core::current(Core::park).is_none() {
        std::thread::park();
    }
}

/// Suspends the running fiber until `is_ready` returns true. The executor asks each time it looks for work,
/// from its own thread, on whatever stack it happens to be, as if outside of a fiber: the closure should be short and must not
/// wait. If it panics, that is the fiber's panic.
///
/// Prefer [`park`] and a [`Waker`] where many wait: each closure costs a call per round.
/// Outside of a fiber it spins, yielding the thread. In a destructor that runs in the middle of a panic it keeps the thread.
///
/// # Panics
/// In the middle of a panic, after the executor's [limit](crate::Builder::limit), at least a second: that ends the process.
pub fn block_until(is_ready: impl Fn() -> bool) {
    if is_ready() {
        return;
    }
    if Core::current(|core| core.block_until(&is_ready)).is_none() {
        while !is_ready() {
            std::thread::yield_now();
        }
    }
}
