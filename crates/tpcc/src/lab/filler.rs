//! Code that fills an instruction cache: what other operations do to one between two executions of the same.

#![allow(unsafe_code)]

/// Lines of 64 bytes that [`run`] goes through.
#[cfg(target_arch = "x86_64")]
pub(crate) const LINES: u64 = 2048;
/// Elsewhere there is no such code.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const LINES: u64 = 0;

/// Jumps from line to line through 128 KiB of code: every line of a cache that is no larger is replaced.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(crate) fn run() {
    // SAFETY: jumps forward to the next line of the block, over bytes that are never executed, and falls out at its end.
    // Touches no register, no memory and no flag.
    unsafe {
        std::arch::asm!(
            ".p2align 6",
            ".rept 2048",
            ".byte 0xeb, 62", // jmp to the next line
            ".fill 62, 1, 0xcc",
            ".endr",
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Does nothing.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn run() {}

#[cfg(test)]
mod tests {
    #[test]
    fn comes_to_its_end() {
        super::run();
    }
}
