//! Marks: what the traced program tells the one who traces it, by a trap with numbers in registers.
//!
//! | register | at the trap | after it |
//! | --- | --- | --- |
//! | `rdi` | a [`Mark`] as number | |
//! | `rsi`, `rdx` | its two figures | |
//! | `rax` | 0 | 1 when the tracer has seen enough |

#![allow(unsafe_code)]

/// What a trap means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Mark {
    /// A transaction begins; its kind and its number.
    Transaction = 1,
    /// A statement begins; its kind and its index.
    Enter = 2,
    /// A point; its site.
    Point = 3,
}

impl Mark {
    /// The mark of a number.
    pub(super) fn of(number: u64) -> Option<Mark> {
        [Mark::Transaction, Mark::Enter, Mark::Point].into_iter().find(|mark| *mark as u64 == number)
    }
}

/// What the tracer answers when it has seen enough.
pub(super) const ENOUGH: u64 = 1;

/// Traps. Whether the tracer has seen enough. Without a tracer the trap ends the program.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(super) fn trap(mark: Mark, first: u64, second: u64) -> bool {
    let mut answer = 0_u64;
    // SAFETY: a breakpoint changes nothing but what the tracer writes into rax, which is an output.
    unsafe {
        std::arch::asm!("int3", inlateout("rax") answer, in("rdi") mark as u64, in("rsi") first, in("rdx") second,
            options(nostack, preserves_flags));
    }
    answer == ENOUGH
}

/// Elsewhere nothing is traced.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn trap(_mark: Mark, _first: u64, _second: u64) -> bool {
    true
}
