//! Contexts: stacks, the switch between them, and the thread-local state that a point accesses.
//!
//! This module suspends and resumes contexts; it does not choose the next context. It calls the executor only through
//! the trait [`Driver`].

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
pub(crate) use arch::{
    OWN_STACKS, SuspendedState, dispose, make_unwind, mark_last_switch, prepare, suspended_state, switch,
};
pub(crate) use driver::Driver;
pub(crate) use local::{NO_MATE_FLAG, local, with_current_driver};
pub(crate) use node::{NO_INDEX, Node};
pub(crate) use outside::{call_outside, catch_drop, discard};
pub(crate) use overflow::{RegionRegistration, StackRegion};
pub use stack::StackError;
pub(crate) use stack::{Slab, used_bytes};

/// Passes the CPU to the next team mate. Returns at once if the caller is not a fiber, has no team mate, or holds a
/// latch.
///
/// This is the action of a live point. In a destructor that runs during a panic this function returns at once, because
/// no other fiber may run then. In a cancelled fiber it unwinds the fiber.
#[inline(always)]
#[allow(unsafe_code)]
pub fn hop() {
    let local = local();
    if local.hop_block_word.get() == 0 {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: `hop_block_word` is zero only while a fiber runs whose `next` is another suspended context of its
        // driver: its team mate in the ring, or the context of the thread if the fiber was cancelled.
        unsafe { hop_unchecked(local) }
    }
}

/// Performs a hop without the checks of `hop`.
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
unsafe fn hop_unchecked(local: &local::Local) {
    // SAFETY: the caller guarantees the precondition.
    unsafe { arch::hop(local) }
}

/// Performs a hop through the general switch, in builds in which a switch must be announced to a tool or is not native.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    not(feature = "asan")
)))]
#[allow(unsafe_code)]
unsafe fn hop_unchecked(_local: &local::Local) {
    with_current_driver(|driver| driver.hop());
}

/// Returns true if the caller is a fiber.
#[must_use]
#[allow(unsafe_code)]
pub fn is_fiber() -> bool {
    let local = local();
    // SAFETY: while an executor drives this thread, `current` is one of its nodes.
    local.driver.get().is_some() && unsafe { (*local.current.get()).index.get() } != NO_INDEX
}

/// Returns true if a point could switch here: in a fiber that has a team mate, holds no latch and does not unwind.
#[inline(always)]
#[must_use]
pub fn may_hop() -> bool {
    local().hop_block_word.get() == 0 && !std::thread::panicking()
}

/// Guard that counts a latch of the running fiber: no point switches while the guard exists (paper 4.1.3, the counter
/// of mutexes). Creating the guard costs one instruction, and so does dropping it.
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

/// Counts one latch, like [`LatchGuardCount::hold`], in code that cannot keep a guard object. Call
/// [`latch_released`] when the latch is released.
#[inline(always)]
pub fn latch_taken() {
    let hop_block_word = &local().hop_block_word;
    // The count saturates, so that it never carries into `NO_MATE_FLAG`.
    let more = u32::from(hop_block_word.get() & !NO_MATE_FLAG != !NO_MATE_FLAG);
    hop_block_word.set(hop_block_word.get() + more);
}

/// Ends the count of a latch that [`latch_taken`] began.
///
/// # Panics
/// In debug builds, if no latch of the caller is counted.
#[inline(always)]
pub fn latch_released() {
    let hop_block_word = &local().hop_block_word;
    let counted = hop_block_word.get() & !NO_MATE_FLAG != 0;
    debug_assert!(counted, "a latch is released that was not counted");
    hop_block_word.set(hop_block_word.get() - u32::from(counted));
}

/// Returns the number of latches that are counted for the caller.
#[inline(always)]
#[must_use]
pub fn latches_held() -> u32 {
    local().hop_block_word.get() & !NO_MATE_FLAG
}
