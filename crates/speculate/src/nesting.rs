//! Whether a loop begins inside the body of another one.
//!
//! The mark is the thread's, and counts on the thread's own stack, where one call leads to the next. Fibers share a thread:
//! a loop that begins on one of them while the loop of another is under way is not inside it.

#![allow(unsafe_code)]

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// Whether this thread works on a loop, on its own stack.
    static AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as working on a loop.
pub(crate) struct AtWork {
    is_marked: bool,
}

impl AtWork {
    /// `None` inside the body of a loop.
    pub(crate) fn begin() -> Option<AtWork> {
        let is_marked = is_own_stack();
        if is_marked && AT_WORK.with(|at_work| at_work.replace(true)) {
            return None;
        }
        Some(AtWork { is_marked })
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if self.is_marked {
            AT_WORK.with(|at_work| at_work.set(false));
        }
    }
}

/// Whether the caller runs on the stack that its thread began with. Unknown elsewhere than on Linux: true.
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
fn is_own_stack() -> bool {
    std::thread_local! {
        static OWN: std::ops::Range<usize> = own_stack();
    }
    OWN.with(|own| own.contains(&here()))
}

/// An address on the stack in use.
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
#[inline(always)]
fn here() -> usize {
    // AddressSanitizer moves locals elsewhere.
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

/// The addresses of the thread's own stack; all, if the system does not say.
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
fn own_stack() -> std::ops::Range<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call fills the attributes of this thread in unless it fails, and only then are they read and
    // destroyed, once; the second gets places for an address and a size.
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
            let outer = AtWork::begin();
            assert!(outer.is_some() && AtWork::begin().is_none());
        }
        let other = std::thread::scope(|s| s.spawn(|| AtWork::begin().is_some()).join());
        assert!(other.unwrap_or(false));
    }
}
