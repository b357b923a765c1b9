//! Hop for x86-64 that saves more than necessary. It is the baseline against which the benefit of a small context is
//! measured (`tpcc reproduce compiler`; section 2.6.1 of the compiler paper shrinks the buffer of `setjmp` in the same
//! way).
//!
//! * `save-callee`: saves the six registers that a callee preserves, whether or not they hold a value. Without this
//!   feature the compiler spills the live ones.
//! * `save-float`: saves these registers and the 512 bytes of floating-point and vector state.
#![allow(unsafe_code)]

use std::arch::asm;

use crate::context::local::Local;

/// Bytes between the resume address of a hop and the code in front of that address. This code restores registers and
/// jumps to unwind the fiber.
pub(super) const HOP_RESUME_GAP: usize = if cfg!(feature = "save-float") { 21 } else { 13 };

/// Code bytes of the two instructions in front of the `asm!` of a hop that are part of the hop: see `x86_64`.
#[cfg(feature = "measure")]
pub(crate) const RING_ADVANCE_BYTES: usize = 13;

/// Switches to the next node of the ring; returns when a hop or switch resumes this context.
///
/// # Safety
/// `local.current` is a node in a ring of suspended contexts of this thread, and not the ring's only member.
#[cfg(not(feature = "save-float"))]
#[inline(always)]
pub(crate) unsafe fn hop(local: &Local) {
    let me = local.current.get();
    // SAFETY: as in `x86_64::hop`; r12 to r15 are saved on the stack, which is this context's own, and restored on both
    // resume paths.
    unsafe {
        let next = (*me).next.get();
        local.current.set(next);
        asm!(
            "2:",
            "push r12", "push r13", "push r14", "push r15",
            "lea rdx, [rip + 3f]",
            "mov [rdi], rsp",
            "mov [rdi + 16], rdx",
            "mov [rdi + 24], rbp",
            "mov [rdi + 32], rbx",
            "mov rsp, [rsi]",
            "mov rbp, [rsi + 24]",
            "mov rbx, [rsi + 32]",
            "jmp qword ptr [rsi + 16]",
            // This code is thirteen bytes in front of the resume address: eight bytes that restore registers, and the
            // jump.
            "pop r15", "pop r14", "pop r13", "pop r12",
            ".byte 0xe9",
            ".long {unwind} - . - 4",
            "3:",
            "pop r15", "pop r14", "pop r13", "pop r12",
            "4:",
            ".pushsection sched_steps_hops, \"aR\", @progbits",
            ".long 4b - 2b",
            ".popsection",
            inout("rdi") me => _,
            inout("rsi") next => _,
            out("rdx") _,
            unwind = label { crate::context::panic::unwind_now() },
            clobber_abi("sysv64"),
        );
    }
}

/// Switches to the next node of the ring; returns when a hop or switch resumes this context.
///
/// # Safety
/// `local.current` is a node in a ring of suspended contexts of this thread, and not the ring's only member.
#[cfg(feature = "save-float")]
#[inline(always)]
pub(crate) unsafe fn hop(local: &Local) {
    let me = local.current.get();
    // SAFETY: as in `x86_64::hop`; r12 to r15 and the floating-point state are saved on the stack, which is this
    // context's own, and restored on both resume paths. `fxsave64` writes 512 bytes at a multiple of 16.
    unsafe {
        let next = (*me).next.get();
        local.current.set(next);
        asm!(
            "2:",
            "push r12", "push r13", "push r14", "push r15",
            "mov rcx, rsp",
            "sub rsp, 528",
            "and rsp, -16",
            "fxsave64 [rsp]",
            "mov [rsp + 512], rcx",
            "lea rdx, [rip + 3f]",
            "mov [rdi], rsp",
            "mov [rdi + 16], rdx",
            "mov [rdi + 24], rbp",
            "mov [rdi + 32], rbx",
            "mov rsp, [rsi]",
            "mov rbp, [rsi + 24]",
            "mov rbx, [rsi + 32]",
            "jmp qword ptr [rsi + 16]",
            // This code is 21 bytes in front of the resume address: eight bytes that restore the stack pointer, eight
            // bytes that restore registers, and the jump. Unwinding needs no floating-point state.
            "mov rsp, [rsp + 512]",
            "pop r15", "pop r14", "pop r13", "pop r12",
            ".byte 0xe9",
            ".long {unwind} - . - 4",
            "3:",
            "fxrstor64 [rsp]",
            "mov rsp, [rsp + 512]",
            "pop r15", "pop r14", "pop r13", "pop r12",
            "4:",
            ".pushsection sched_steps_hops, \"aR\", @progbits",
            ".long 4b - 2b",
            ".popsection",
            inout("rdi") me => _,
            inout("rsi") next => _,
            out("rdx") _,
            out("rcx") _,
            unwind = label { crate::context::panic::unwind_now() },
            clobber_abi("sysv64"),
        );
    }
}
