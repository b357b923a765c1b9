//! Context switch for aarch64, AAPCS64. This file is compiled on all hosts and runs on machines of this architecture.
//! It has the same structure as `x86_64.rs`: see the comments there.
#![allow(unsafe_code)]

use std::arch::{asm, naked_asm};

use crate::context::local::Local;
use crate::context::node::Node;

/// Bytes between the resume address of a hop and the branch in front of that address, which unwinds the fiber.
pub(super) const HOP_RESUME_GAP: usize = 4;

/// Code bytes of the two instructions in front of the `asm!` of a hop that are part of the hop.
#[cfg(feature = "measure")]
pub(crate) const RING_ADVANCE_BYTES: usize = 8;

/// Switches to the next node of the ring; returns when a hop or switch resumes this context.
///
/// # Safety
/// `local.current` is a node in a ring of suspended contexts of this thread, and not the ring's only member.
#[cfg_attr(feature = "asan", allow(dead_code))]
#[inline(always)]
pub(crate) unsafe fn hop(local: &Local) {
    let me = local.current.get();
    // SAFETY: as on x86-64. The compiler does not accept x19 and x29 as clobbers of an `asm!`, so this code saves them.
    unsafe {
        let next = (*me).next.get();
        local.current.set(next);
        asm!(
            "2:",
            "adr x2, 3f",
            "mov x3, sp",
            "str x3, [x0]",
            "str x2, [x0, #16]",
            "stp x29, x19, [x0, #24]",
            "ldr x3, [x1]",
            "ldr x2, [x1, #16]",
            "ldp x29, x19, [x1, #24]",
            "mov sp, x3",
            "br x2",
            "b {unwind}",
            "3:",
            ".pushsection sched_steps_hops, \"aR\", %progbits",
            ".long 3b - 2b",
            ".popsection",
            inout("x0") me => _,
            inout("x1") next => _,
            out("x2") _, out("x3") _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _, out("x25") _,
            out("x26") _, out("x27") _, out("x28") _, out("x30") _,
            // The ABI's list of clobbers omits these registers, because callees preserve the low halves of these
            // registers.
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _, out("v15") _,
            unwind = label { crate::context::panic::unwind_now() },
            clobber_abi("C"),
        );
    }
}

/// Suspends `from`, the running context, and runs `to`.
///
/// # Safety
/// `to` is a suspended or prepared context of this thread; `local.current` has been set to it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *const Node, to: *const Node) {
    naked_asm!(
        "stp d8, d9, [sp, #-160]!",
        "stp d10, d11, [sp, #16]",
        "stp d12, d13, [sp, #32]",
        "stp d14, d15, [sp, #48]",
        "stp x20, x21, [sp, #64]",
        "stp x22, x23, [sp, #80]",
        "stp x24, x25, [sp, #96]",
        "stp x26, x27, [sp, #112]",
        "stp x28, x30, [sp, #128]",
        "adrp x2, {resume}",
        "add x2, x2, :lo12:{resume}",
        "mov x3, sp",
        "str x3, [x0]",
        "str x2, [x0, #16]",
        "stp x29, x19, [x0, #24]",
        "ldr x3, [x1]",
        "ldr x2, [x1, #16]",
        "ldp x29, x19, [x1, #24]",
        "mov sp, x3",
        "br x2",
        resume = sym resume,
    )
}

/// Resumes a context that `switch` suspended: this is its resume address.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn resume() {
    naked_asm!(
        "ldp d10, d11, [sp, #16]",
        "ldp d12, d13, [sp, #32]",
        "ldp d14, d15, [sp, #48]",
        "ldp x20, x21, [sp, #64]",
        "ldp x22, x23, [sp, #80]",
        "ldp x24, x25, [sp, #96]",
        "ldp x26, x27, [sp, #112]",
        "ldp x28, x30, [sp, #128]",
        "ldp d8, d9, [sp], #160",
        "ret",
    )
}

/// Enters a fresh fiber: `x19` holds its node. Every backtrace ends here, by the unwind information.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "mov x29, xzr",
        "mov x30, xzr",
        "mov x0, x19",
        "bl {main}",
        "brk #1",
        ".cfi_endproc",
        main = sym super::fiber_main,
    )
}
