//! Code that fills an instruction cache, as other operations do between two executions of the same operation.

#![allow(unsafe_code)]

/// Number of 64-byte lines of code that [`run`] executes.
#[cfg(target_arch = "x86_64")]
pub(crate) const LINES: u64 = 2048;
/// Number of lines on other targets, which have no such code.
#[cfg(not(target_arch = "x86_64"))]
pub const LINES: u64 = 0;

/// Jumps from line to line through 128 KiB of code, and so replaces every line of an instruction cache of at most 128 KiB.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(crate) fn run() {
    // SAFETY: each jump leads to the next line of the block, over bytes that are never executed, and the last jump leads to
    // the end of the block. The code changes no register, no memory and no flag.
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

/// Does nothing on other targets.
#[cfg(not(target_arch = "x86_64"))]
pub fn run() {}

/// Number of instructions in a round of [`mixed`]; 0 on targets without such code.
pub(crate) const ROUND: u64 = if cfg!(target_arch = "x86_64") { 16 } else { 0 };

/// Executes an instruction mix similar to the mix of a database, without stalls. Of 16 instructions 5 read memory, 2 write
/// memory, 3 are predictable branches, and the rest compute on four dependency chains. Executes at least one round.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn mixed(rounds: u64, memory: &mut [u64; 8]) {
    let rounds = rounds.max(1);
    // SAFETY: reads and writes only the eight words of `memory`, which is borrowed mutably; jumps only to its own labels.
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

/// Does nothing on other targets.
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
