//! Functions that act on the running fiber, and their equivalents on a thread without an executor.

use super::core::Core;
use super::remote::{Monitor, Waker};

/// Returns the number of the running fiber in its executor, below [`Builder::fibers`](crate::Builder::fibers); `None`
/// outside of a fiber.
#[must_use]
pub fn index() -> Option<usize> {
    Core::current(|core| core.running().map(|index| index as usize)).flatten()
}

/// Returns the waker of the running fiber, by which any thread can end a [`park`]; `None` outside of a fiber.
#[must_use]
pub fn waker() -> Option<Waker> {
    Core::current(Core::give_waker).flatten()
}

/// Returns a monitor of the running fiber's executor, for use on other threads; `None` outside of a fiber.
#[must_use]
pub fn monitor() -> Option<Monitor> {
    Core::current(|core| Monitor::new(core.remote))
}

/// Gives up the running fiber's place in the ring: the other ready fibers run before the caller resumes. Call this
/// function between two transactions.
///
/// Outside of a fiber this function yields the thread.
pub fn yield_now() {
    if Core::current(Core::yield_now).is_none() {
        std::thread::yield_now();
    }
}

/// Suspends the running fiber until its [`Waker`] is called; an earlier call is not lost. The function may return
/// spuriously, so test the awaited condition again. A fiber that never requests its waker is parked without end; the
/// executor detects this when no other fiber can run ([`FiberError::Stopped`](crate::FiberError::Stopped)).
///
/// The fiber must not hold a latch (debug assertion). In a destructor that runs during a panic the function returns
/// after a moment, even without a wake. Outside of a fiber it parks the thread.
pub fn park() {
    if Core::current(Core::park).is_none() {
        std::thread::park();
    }
}

/// Suspends the running fiber until `is_ready` returns true. The executor calls `is_ready` each time it looks for work,
/// on its own thread, on an arbitrary stack, as if outside of a fiber. Therefore the closure should be short and must
/// not wait. If the closure panics, the panic is resumed in the fiber.
///
/// Prefer [`park`] and a [`Waker`] if many fibers wait, because each closure costs a call per round. Outside of a fiber
/// the function spins and yields the thread. In a destructor that runs during a panic it blocks the thread.
///
/// # Panics
/// During a panic, if the condition does not become true within the executor's [limit](crate::Builder::limit) or one
/// second, whichever is longer: this second panic ends the process.
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
