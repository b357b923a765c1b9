//! Contexts: stacks, the switch between them, and the words of a thread that a point touches.
//!
//! This module suspends and resumes; it does not choose. What drives it is a [`Driver`], which it knows by three calls.

mod arch;
mod driver;
mod local;
mod node;
mod outside;
mod overflow;
pub(crate) mod panic;
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
pub(crate) use driver::Driver;
pub(crate) use local::{INERT, driving, local};
pub(crate) use node::{NO_INDEX, Node};
pub(crate) use outside::{discard, dropped, outside};
pub(crate) use overflow::{Watch, Watched};
pub use stack::StackError;
pub(crate) use stack::{Slab, used_bytes};

/// Passes the CPU to the next team mate. Returns at once if the caller is no fiber, has no mate, or holds a
/// latch.
///
/// This is what a live point does; it costs 2.5-3.5 ns. A destructor that runs in the middle of a panic may pass one: no
/// other fiber runs then. In a fiber that was cancelled it unwinds.
#[inline(always)]
#[allow(unsafe_code)]
pub fn hop() {
    let local = local();
    if local.hold.get() == 0 {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: `hold` is zero only while a fiber runs whose `next` is another suspended context of its driver: its mate
        // in the ring, or the context of the thread if it was cancelled.
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
unsafe fn pass(local: &local::Local) {
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
unsafe fn pass(_local: &local::Local) {
    driving(|driver| driver.pass());
}

/// True in a fiber.
#[must_use]
#[allow(unsafe_code)]
pub fn is_fiber() -> bool {
    let local = local();
    // SAFETY: while an executor drives this thread, `current` is one of its nodes.
    local.driver.get().is_some() && unsafe { (*local.current.get()).index.get() } != NO_INDEX
}

/// True where a point could switch: in a fiber that has a team mate, holds no latch and does not unwind.
#[inline(always)]
#[must_use]
pub fn may_hop() -> bool {
    local().hold.get() == 0 && !std::thread::panicking()
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
    debug_assert!(counted, "a latch is released that was not counted");
    hold.set(hold.get() - u32::from(counted));
}

/// Latches that the caller counts.
#[inline(always)]
#[must_use]
pub fn latches_held() -> u32 {
    local().hold.get() & !INERT
}
