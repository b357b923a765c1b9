//! Detection of a loop that begins inside the body of another loop.
//!
//! The mark belongs to a thread. It counts only for calls on the thread's own stack, which are nested. Fibers share a
//! thread: if a loop begins on one fiber during the loop of another fiber, the loops are not nested.

#![allow(unsafe_code)]

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// True while this thread runs a loop, in a call that has not returned.
    static IN_LOOP: Cell<bool> = const { Cell::new(false) };
}

/// Guard that marks this thread as working on a loop until it is dropped.
pub(crate) struct LoopGuard {
    is_marked: bool,
}

impl LoopGuard {
    /// Marks the thread as working on a loop; `None` if the caller is inside the body of a loop.
    pub(crate) fn begin() -> Option<LoopGuard> {
        let is_marked = is_own_stack();
        if is_marked && IN_LOOP.with(|in_loop| in_loop.replace(true)) {
            return None;
        }
        Some(LoopGuard { is_marked })
    }
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        if self.is_marked {
            IN_LOOP.with(|in_loop| in_loop.set(false));
        }
    }
}

/// Returns true if the caller runs on the initial stack of its thread. Always true on systems other than Linux.
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
fn is_own_stack() -> bool {
    std::thread_local! {
        static OWN: std::ops::Range<usize> = own_stack();
    }
    OWN.with(|own| own.contains(&here()))
}

/// Returns the current stack pointer.
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
#[inline(always)]
fn here() -> usize {
    // AddressSanitizer moves locals to other memory, so the address of a local cannot be used.
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: the instruction copies the stack pointer into a register, and changes neither memory nor flags.
        unsafe { std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let local = 0_u8;
        (&raw const local).addr()
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
fn is_own_stack() -> bool {
    true
}

/// Returns the address range of the thread's own stack, or all addresses if the system does not report the range.
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
fn own_stack() -> std::ops::Range<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call initializes the attributes of this thread unless it fails, and only then are they read and
    // destroyed, once; the second call gets valid pointers for an address and a size.
    let is_known = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 && {
            let read = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut bytes);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            read == 0
        }
    };
    if is_known { lowest.addr()..lowest.addr() + bytes } else { 0..usize::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_mark_at_a_time() {
        for _ in 0..2 {
            let outer = LoopGuard::begin();
            assert!(outer.is_some() && LoopGuard::begin().is_none());
        }
        let other = std::thread::scope(|s| s.spawn(|| LoopGuard::begin().is_some()).join());
        assert!(other.unwrap_or(false));
    }
}
