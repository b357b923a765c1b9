//! Code that fills an instruction cache: what other operations do to one between two executions of the same.

#![allow(unsafe_code)]

/// Lines of 64 bytes that [`run`] goes through.
#[cfg(target_arch = "x86_64")]
pub(crate) const LINES: u64 = 2048;
/// Elsewhere there is no such code.
#[cfg(not(target_arch = "x86_64"))]
pub const LINES: u64 = 0;

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
pub fn run() {}

/// Instructions of a round of [`mixed`]; 0 where there is no such code.
pub(crate) const ROUND: u64 = if cfg!(target_arch = "x86_64") { 16 } else { 0 };

/// Instructions as a database runs them, none of which waits for anything: of sixteen five read, two write, three are branches
/// that are foreseen, the rest compute on four chains. `rounds` is at least one.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn mixed(rounds: u64, memory: &mut [u64; 8]) {
    let rounds = rounds.max(1);
    // SAFETY: reads and writes the eight words of `memory`, which is borrowed mutably; jumps to labels of its own.
    unsafe {
        std::arch::asm!(
            "2:",
            "mov {a}, [{memory}]",
            "add {b}, 1",
            "mov {c}, [{memory} + 8]",
            "xor {d}, 3",
            "mov [{memory} + 16], {b}",
            "test {a}, {a}",
            "js 3f",
            "mov {a}, [{memory} + 24]",
            "add {b}, [{memory} + 32]",
            "lea {c}, [{d} + 8]",
            "mov [{memory} + 40], {d}",
            "cmp {c}, 0",
            "je 3f",
            "mov {c}, [{memory} + 48]",
            "3:",
            "sub {rounds}, 1",
            "jnz 2b",
            memory = in(reg) memory.as_mut_ptr(),
            rounds = inout(reg) rounds => _,
            a = out(reg) _,
            b = inout(reg) 0_u64 => _,
            c = out(reg) _,
            d = inout(reg) 16_u64 => _,
            options(nostack)
        );
    }
}

/// Does nothing.
#[cfg(not(target_arch = "x86_64"))]
pub fn mixed(_rounds: u64, _memory: &mut [u64; 8]) {}

#[cfg(test)]
mod tests {
    #[test]
    fn comes_to_its_end() {
        super::run();
        let mut memory = [0; 8];
        super::mixed(3, &mut memory);
        assert_eq!(memory[3], 0);
        assert_eq!(memory[2] > 0, super::ROUND > 0);
    }
}
