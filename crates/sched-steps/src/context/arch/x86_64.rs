//! Context switch for x86-64, System V.
//!
//! ```text
//! suspended by a hop             suspended by a switch         fresh
//!   frames of the fiber            frames of the fiber           top (coloured)
//!   whatever the compiler          return address                rsp ->
//!   spilled before the asm         r12 r13 r14 r15
//!   rsp ->                         rsp ->
//! ```
//!
//! A hop uses neither call nor return, so the processor's return stack is unaffected. Team mates that run the same code
//! have the same return addresses, so their returns stay predicted. A switch that ends in `ret` mispredicts this `ret`
//! whenever the team mate is at another point, which under STEPS is nearly always the case.
#![allow(unsafe_code)]

#[cfg(not(feature = "save-callee"))]
use std::arch::asm;
use std::arch::naked_asm;

#[cfg(not(feature = "save-callee"))]
use crate::context::local::Local;
use crate::context::node::Node;

/// Bytes between the resume address of a hop and the jump in front of that address, which unwinds the fiber.
#[cfg(not(feature = "save-callee"))]
pub(super) const HOP_RESUME_GAP: usize = 5;

/// Code bytes of the two compiler-generated instructions in front of the `asm!` of a hop that are part of the hop: the
/// load of the next node (4) and the store of the current node into thread-local memory (9).
#[cfg(all(feature = "measure", not(feature = "save-callee")))]
pub(crate) const RING_ADVANCE_BYTES: usize = 13;

/// Switches to the next node of the ring; returns when a hop or switch resumes this context.
///
/// # Safety
/// `local.current` is a node in a ring of suspended contexts of this thread, and not the ring's only member.
#[cfg(not(feature = "save-callee"))]
#[cfg_attr(feature = "asan", allow(dead_code))]
#[inline(always)]
pub(crate) unsafe fn hop(local: &Local) {
    debug_assert_eq!(mxcsr() & 0xffc0, 0x1f80, "a fiber changed MXCSR, which a switch does not save");
    let me = local.current.get();
    // SAFETY: `me` is the running node and its `next` the node to run: both are in the executor's arena. The target was
    // suspended by this code, by `switch` or by `prepare`, each of which left a stack and a resume address that may be
    // used once. All registers that the compiler may not spill by itself (rbx, rbp, rsp) are saved here; all other
    // registers are declared clobbered.
    unsafe {
        let next = (*me).next.get();
        local.current.set(next);
        asm!(
            "2:",
            "lea rdx, [rip + 3f]",
            "mov [rdi], rsp",
            "mov [rdi + 16], rdx",
            "mov [rdi + 24], rbp",
            "mov [rdi + 32], rbx",
            "mov rsp, [rsi]",
            "mov rbp, [rsi + 24]",
            "mov rbx, [rsi + 32]",
            "jmp qword ptr [rsi + 16]",
            // This jump is five bytes in front of the resume address: see `make_unwind`.
            ".byte 0xe9",
            ".long {unwind} - . - 4",
            "3:",
            // Records the size of each copy of the hop for the module `measure`. A hop does not read this section.
            ".pushsection sched_steps_hops, \"aR\", @progbits",
            ".long 3b - 2b",
            ".popsection",
            inout("rdi") me => _,
            inout("rsi") next => _,
            out("rdx") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            unwind = label { crate::context::panic::unwind_now() },
            clobber_abi("sysv64"),
        );
    }
}

/// Suspends `from`, the running context, and runs `to`.
///
/// # Safety
/// `to` is a suspended or prepared context of this thread; `local.current` has been set to it.
#[unsafe(naked)]
pub(crate) unsafe extern "sysv64" fn switch(from: *const Node, to: *const Node) {
    naked_asm!(
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "lea rax, [rip + {resume}]",
        "mov [rdi], rsp",
        "mov [rdi + 16], rax",
        "mov [rdi + 24], rbp",
        "mov [rdi + 32], rbx",
        "mov rsp, [rsi]",
        "mov rbp, [rsi + 24]",
        "mov rbx, [rsi + 32]",
        "jmp qword ptr [rsi + 16]",
        resume = sym resume,
    )
}

/// Resumes a context that `switch` suspended: this is its resume address.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn resume() {
    naked_asm!("pop r15", "pop r14", "pop r13", "pop r12", "ret")
}

/// Enters a fresh fiber: `rbx` holds its node. Every backtrace ends here, by the unwind information.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "xor ebp, ebp",
        "mov rdi, rbx",
        "call {main}",
        "ud2",
        ".cfi_endproc",
        main = sym super::fiber_main,
    )
}

#[cfg(not(feature = "save-callee"))]
fn mxcsr() -> u32 {
    let mut word = 0_u32;
    // SAFETY: stores four bytes to `word`.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
    word
}
