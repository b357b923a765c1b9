//! Marks: messages of the traced program to the tracer, sent by a trap with numbers in registers.
//!
//! | register | at the trap | after it |
//! | --- | --- | --- |
//! | `rdi` | number of a [`Mark`] | |
//! | `rsi`, `rdx` | two arguments of the mark | |
//! | `rax` | 0 | 1 if the tracer ends the trace |

#![allow(unsafe_code)]

/// Kind of mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Mark {
    /// A transaction begins. Arguments: its kind and its number.
    Transaction = 1,
    /// A statement begins. Arguments: kind of the statement, and number of its index.
    Enter = 2,
    /// A context-switch point. Argument: the number of its site.
    Point = 3,
    /// Instructions that do not belong to the transaction begin (both arguments 0), or end with a text for the tracer
    /// (arguments: its address and its length).
    Aside = 4,
}

impl Mark {
    /// Returns the mark with this number.
    pub(super) fn of(number: u64) -> Option<Mark> {
        [Mark::Transaction, Mark::Enter, Mark::Point, Mark::Aside].into_iter().find(|mark| *mark as u64 == number)
    }
}

/// Value of `rax` with which the tracer ends the trace.
pub(super) const END_TRACE: u64 = 1;

/// Executes a trap with a mark and its two arguments. Returns true if the tracer ends the trace. Without a tracer, the trap
/// ends the program.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(super) fn trap(mark: Mark, first: u64, second: u64) -> bool {
    let mut answer = 0_u64;
    // SAFETY: a breakpoint changes no state except `rax`, which the tracer may write and which is an output.
    unsafe {
        std::arch::asm!("int3", inlateout("rax") answer, in("rdi") mark as u64, in("rsi") first, in("rdx") second,
            options(nostack, preserves_flags));
    }
    answer == END_TRACE
}

/// Returns true, so that the trace ends at once: other targets are not traced.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn trap(_mark: Mark, _first: u64, _second: u64) -> bool {
    true
}
