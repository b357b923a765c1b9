//! Fibers: what runs on a stack of its own and gives way only where it says so.
//!
//! The functions of this module act on the running fiber; outside of one they do nothing, or wait as a
//! thread would.
//!
//! # Rules of a fiber
//! - It stays on the thread of its executor: neither handles nor executors are `Send`.
//! - It shares the thread's thread-locals with its mates: none that must be closed in the reverse order of opening is
//!   open where it gives way (the contract of [`Builder::build`](crate::Builder::build)). What belongs to a fiber is
//!   declared with [`fiber_local!`](crate::fiber_local).
//! - What it calls must not block the thread; it waits with [`park`] or [`block_until`].
//! - MXCSR and x87 control words are those of the thread and must not be changed across a point.
//! - A destructor that waits while a panic unwinds blocks the whole worker.
//! - Shadow stacks (CET) are not supported.

mod arch;
mod locals;
mod node;
mod overflow;
pub(crate) mod panic;
mod remote;
mod stack;
pub(crate) mod tools;

#[cfg(all(
    feature = "measure",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, feature = "asan"))
))]
pub(crate) use arch::RING_ADVANCE_BYTES;
pub(crate) use arch::{OWN_STACKS, Rest, conclude, dispose, divert, prepare, rest, switch};
pub use locals::FiberLocal;
pub(crate) use locals::Locals;
pub(crate) use node::{INERT, Node, local};
pub(crate) use overflow::{Watch, Watched};
pub(crate) use remote::{FIBERS, Remote};
pub use remote::{Monitor, Sample, Waker};
pub use stack::StackError;
pub(crate) use stack::{Slab, used_bytes};

use crate::executor::Core;

/// Passes the CPU to the next team mate. Returns at once if the caller is no fiber, has no mate, or holds a
/// latch.
///
/// This is what a live point does; it costs 2.5-3.5 ns. It does not look whether a panic unwinds: a point that a
/// destructor may pass asks [`std::thread::panicking`] first, for nobody else may run in the middle of a panic.
#[inline(always)]
#[allow(unsafe_code)]
pub fn hop() {
    let local = local();
    if local.hold.get() == 0 {
        // SAFETY: `hold` is zero only while a fiber runs whose ring holds another suspended one.
        unsafe { pass(local) }
    }
}

/// The hop itself, without its checks.
///
/// # Safety
/// A fiber runs whose ring holds another suspended one.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(feature = "asan")
))]
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn pass(local: &node::Local) {
    // SAFETY: the caller's promise.
    unsafe { arch::hop(local) }
}

/// The same where a switch has to be announced, or is none of ours.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(feature = "asan")
)))]
#[allow(unsafe_code)]
unsafe fn pass(_local: &node::Local) {
    Core::current(Core::pass_slowly);
}

/// True in a fiber.
#[must_use]
pub fn is_fiber() -> bool {
    Core::current(Core::running).flatten().is_some()
}

/// True where a point could switch: in a fiber that has a team mate and holds no latch.
#[inline(always)]
#[must_use]
pub fn may_hop() -> bool {
    local().hold.get() == 0
}

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

/// Gives up the place in the ring: whoever else is ready runs first, and the caller goes on after them. The
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
/// Holding a latch here is a mistake (debug assertion). Outside of a fiber it parks the thread.
pub fn park() {
    if Core::current(Core::park).is_none() {
        std::thread::park();
    }
}

/// Suspends the running fiber until `is_ready` returns true. The executor asks each time it looks for work,
/// from its own thread, on whatever stack it happens to be: the closure must be short, must not panic and
/// must not wait.
///
/// Prefer [`park`] and a [`Waker`] where many wait: each closure costs a call per round.
/// Outside of a fiber it spins, yielding the thread.
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

/// Counts a latch that the running fiber holds: no point switches while one lives (paper 4.1.3, the counter
/// of mutexes). It costs one instruction each way.
#[derive(Debug)]
pub struct LatchGuardCount {
    affine: std::marker::PhantomData<*mut ()>,
}

impl LatchGuardCount {
    /// Counts one latch until dropped.
    #[inline(always)]
    #[must_use]
    pub fn hold() -> LatchGuardCount {
        latch_taken();
        LatchGuardCount { affine: std::marker::PhantomData }
    }
}

impl Drop for LatchGuardCount {
    #[inline(always)]
    fn drop(&mut self) {
        latch_released();
    }
}

/// The same as [`LatchGuardCount::hold`] where a guard is in the way; pair it with [`latch_released`].
#[inline(always)]
pub fn latch_taken() {
    let hold = &local().hold;
    // No carry: what lies above the counter says whether there is a mate.
    let more = u32::from(hold.get() & !INERT != !INERT);
    hold.set(hold.get() + more);
}

/// Ends a [`latch_taken`].
///
/// # Panics
/// Debug builds, if no latch is counted.
#[inline(always)]
pub fn latch_released() {
    let hold = &local().hold;
    let counted = hold.get() & !INERT != 0;
    debug_assert!(counted, "a latch is released that nobody counted");
    hold.set(hold.get() - u32::from(counted));
}

/// Latches that the caller counts.
#[inline(always)]
#[must_use]
pub fn latches_held() -> u32 {
    local().hold.get() & !INERT
}
