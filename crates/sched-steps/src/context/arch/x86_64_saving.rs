//! A hop that saves more than it must, for x86-64: what a small context is worth is measured against it (`tpcc reproduce
//! compiler`; the compiler paper makes the buffer of `setjmp` smaller in the same way, its section 2.6.1).
//!
//! * `save-callee`: the six registers that a callee preserves, whether or not they hold anything. Without it, the compiler
//!   spills those of them that are live.
//! * `save-float`: those, and the 512 bytes of floating-point and vector state.
#![allow(unsafe_code)]

use std::arch::asm;

use crate::context::local::Local;

/// Bytes between where a hop goes on and the code in front of it that unwinds: it gives the registers back and jumps.
pub(super) const HOP_RESUME_GAP: usize = if cfg!(feature = "save-float") { 21 } else { 13 };

/// Code bytes of the two instructions in front of the `asm!` of a hop: see `x86_64`.
#[cfg(feature = "measure")]
pub(crate) const RING_ADVANCE_BYTES: usize = 13;

/// Runs the next node of the ring; returns when a hop or switch comes back.
///
/// # Safety
/// `local.current` is a node in a ring of suspended contexts of this thread, other than itself alone.
#[cfg(not(feature = "save-float"))]
#[inline(always)]
pub(crate) unsafe fn hop(local: &Local) {
    let me = local.current.get();
    // SAFETY: as in `x86_64::hop`; r12 to r15 are saved on the stack, which is this context's own, and given back in front
    // of both ways to go on.
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
            // Thirteen bytes in front of where a hop goes on: eight that give registers back, and the jump.
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

/// Runs the next node of the ring; returns when a hop or switch comes back.
///
/// # Safety
/// `local.current` is a node in a ring of suspended contexts of this thread, other than itself alone.
#[cfg(feature = "save-float")]
#[inline(always)]
pub(crate) unsafe fn hop(local: &Local) {
    let me = local.current.get();
    // SAFETY: as in `x86_64::hop`; r12 to r15 and the floating-point state are saved on the stack, which is this context's
    // own, and given back in front of both ways to go on. `fxsave64` writes 512 bytes at a multiple of 16.
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
            // 21 bytes in front of where a hop goes on: eight that find the stack, eight that give registers back, and the
            // jump. The unwinding needs no floating-point state.
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
