//! Announcements to tools: of stacks to Valgrind, and of switches to AddressSanitizer.
//!
//! Without an announcement, Memcheck interprets a switch as a large change of the stack and reports thousands of
//! errors. The counts of Cachegrind do not depend on announcements.
#![allow(unsafe_code)]

/// Registers a stack with Valgrind, and returns Valgrind's number of the stack. Outside of Valgrind this executes a few
/// instructions without effect.
pub(crate) fn register_stack(low: usize, high: usize) -> usize {
    const STACK_REGISTER: usize = 0x1501;
    request(STACK_REGISTER, low, high)
}

/// Ends the registration of a stack by [`register_stack`].
pub(crate) fn deregister_stack(number: usize) {
    const STACK_DEREGISTER: usize = 0x1502;
    request(STACK_DEREGISTER, number, 0);
}

/// Sends a client request to Valgrind. The request is a preamble of rotations that add up to a full turn, followed by
/// an instruction without effect. Valgrind recognises this sequence.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
fn request(number: usize, first: usize, second: usize) -> usize {
    let words = [number, first, second, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: outside of Valgrind all five instructions leave every register unchanged; inside, rdx is set to the
    // answer.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") answer,
            in("rax") words.as_ptr(),
            inout("rdi") 0_usize => _,
        );
    }
    answer
}

#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
fn request(number: usize, first: usize, second: usize) -> usize {
    let words = [number, first, second, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: as on x86-64; here the answer is in x3.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            inout("x3") answer,
            in("x4") words.as_ptr(),
            inout("x12") 0_usize => _,
        );
    }
    answer
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
fn request(_number: usize, _first: usize, _second: usize) -> usize {
    0
}

/// AddressSanitizer's state of the suspended contexts.
#[cfg(feature = "asan")]
pub(crate) mod asan {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr;

    use crate::context::Node;

    /// Saved state of the driving thread's context, and state of the switch in progress.
    #[derive(Debug)]
    pub(crate) struct MainStack {
        pub(crate) save: Cell<*mut c_void>,
        pub(crate) stack: Cell<(usize, usize)>,
        pub(crate) left: Cell<*const Node>,
    }

    impl Default for MainStack {
        fn default() -> MainStack {
            MainStack { save: Cell::new(ptr::null_mut()), stack: Cell::new((0, 0)), left: Cell::new(ptr::null()) }
        }
    }

    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(save: *mut *mut c_void, bottom: *const c_void, size: usize);
        fn __asan_unpoison_memory_region(address: *const c_void, size: usize);
        fn __sanitizer_finish_switch_fiber(save: *mut c_void, bottom: *mut *const c_void, size: *mut usize);
    }

    /// Announces a switch to the stack `bottom..bottom + size`. `save` is null if the context will not return.
    ///
    /// # Safety
    /// A switch to that stack follows at once.
    pub(crate) unsafe fn start(save: *mut *mut c_void, bottom: usize, size: usize) {
        // SAFETY: the caller guarantees that the switch follows.
        unsafe { __sanitizer_start_switch_fiber(save, bottom as *const c_void, size) }
    }

    /// Clears the poison that frames which never returned have left on a stack that no fiber uses.
    pub(crate) fn clean(bottom: usize, size: usize) {
        // SAFETY: the call changes the sanitizer's record of the memory, not the memory itself.
        unsafe { __asan_unpoison_memory_region(bottom as *const c_void, size) }
    }

    /// Completes a switch; returns the bottom and size of the stack that was left.
    ///
    /// # Safety
    /// A switch announced by `start` has just happened, and `save` is the value that `start` saved for this context.
    pub(crate) unsafe fn finish(save: *mut c_void) -> (usize, usize) {
        let (mut bottom, mut size) = (std::ptr::null(), 0);
        // SAFETY: the caller guarantees that the switch was announced; both pointers point to local variables.
        unsafe { __sanitizer_finish_switch_fiber(save, &raw mut bottom, &raw mut size) };
        (bottom as usize, size)
    }
}
