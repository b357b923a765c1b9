//! Contexts: stacks, the switch between them, and the thread-local state that a point accesses.
//!
//! This module suspends and resumes contexts; it does not choose the next one. Its driver is known only through the trait
//! [`Driver`].

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

/// Passes the CPU to the next team mate. Returns at once if the caller is not a fiber, has no team mate, or holds a
/// latch.
///
/// This is the action of a live point. In a destructor that runs during a panic it returns at once, because no other
/// fiber may run then. In a cancelled fiber it unwinds.
#[inline(always)]
#[allow(unsafe_code)]
pub fn hop() {
    let local = local();
    if local.hold.get() == 0 {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: `hold` is zero only while a fiber runs whose `next` is another suspended context of its driver: its
        // team mate in the ring, or the context of the thread if the fiber was cancelled.
        unsafe { pass(local) }
    }
}

/// The hop without its checks.
///
/// # Safety
/// A fiber runs whose ring holds another suspended context.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(feature = "asan")
))]
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn pass(local: &local::Local) {
    // SAFETY: the caller guarantees the precondition.
    unsafe { arch::hop(local) }
}

/// The hop where a switch must be announced to a tool, or is not a native one.
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

/// Returns true if the caller is a fiber.
#[must_use]
#[allow(unsafe_code)]
pub fn is_fiber() -> bool {
    let local = local();
    // SAFETY: while an executor drives this thread, `current` is one of its nodes.
    local.driver.get().is_some() && unsafe { (*local.current.get()).index.get() } != NO_INDEX
}

/// Returns true if a point could switch here: in a fiber that has a team mate, holds no latch and is not unwinding.
#[inline(always)]
#[must_use]
pub fn may_hop() -> bool {
    local().hold.get() == 0 && !std::thread::panicking()
}

/// Guard that counts a latch of the running fiber: no point switches while the guard lives (paper 4.1.3, the counter of
/// mutexes). Costs one instruction each to create and to drop.
#[derive(Debug)]
pub struct LatchGuardCount {
    affine: std::marker::PhantomData<*mut ()>,
}

impl LatchGuardCount {
    /// Counts one latch until the guard is dropped.
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

/// Like [`LatchGuardCount::hold`], where a guard object is impractical; pair it with [`latch_released`].
#[inline(always)]
pub fn latch_taken() {
    let hold = &local().hold;
    // The count saturates, so that it never carries into the `INERT` flag.
    let more = u32::from(hold.get() & !INERT != !INERT);
    hold.set(hold.get() + more);
}

/// Ends a [`latch_taken`].
///
/// # Panics
/// In debug builds, if no latch is counted.
#[inline(always)]
pub fn latch_released() {
    let hold = &local().hold;
    let counted = hold.get() & !INERT != 0;
    debug_assert!(counted, "a latch is released that was not counted");
    hold.set(hold.get() - u32::from(counted));
}

/// Number of latches counted for the caller.
#[inline(always)]
#[must_use]
pub fn latches_held() -> u32 {
    local().hold.get() & !INERT
}
