//! The part of the x86-64 encoding that tracing needs: the kinds and lengths of calls, returns and jumps. The length of any
//! other instruction follows from the address of the next instruction.

/// Effect of an instruction on the control flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// Execution continues with the next instruction.
    Straight,
    /// Conditional or unconditional jump, with its length in bytes.
    Jump(u8),
    /// Call, with its length in bytes.
    Call(u8),
    /// Return, with its length in bytes.
    Return(u8),
}

impl Flow {
    /// Decodes the instruction at the start of `code`.
    pub(super) fn of(code: &[u8]) -> Flow {
        // Prefixes that compilers put before jumps: bnd, notrack, rep (of rep ret), and REX.
        let prefixes = code.iter().take_while(|&&byte| matches!(byte, 0xf2 | 0xf3 | 0x3e | 0x66)).count();
        let rex = usize::from(code.get(prefixes).is_some_and(|byte| byte & 0xf0 == 0x40));
        let at = prefixes + rex;
        let byte = |i: usize| code.get(at + i).copied().unwrap_or(0);
        let long = |more: usize| (at + more) as u8;
        match byte(0) {
            0xe8 => Flow::Call(long(5)),
            0xe9 => Flow::Jump(long(5)),
            0xeb | 0x70..=0x7f | 0xe0..=0xe3 => Flow::Jump(long(2)),
            0x0f if matches!(byte(1), 0x80..=0x8f) => Flow::Jump(long(6)),
            0xc3 => Flow::Return(long(1)),
            0xc2 => Flow::Return(long(3)),
            0xff => match (byte(1) >> 3) & 7 {
                2 => Flow::Call(long(1 + operand(byte(1), byte(2)))),
                4 => Flow::Jump(long(1 + operand(byte(1), byte(2)))),
                _ => Flow::Straight,
            },
            _ => Flow::Straight,
        }
    }

    /// Returns the length in bytes; `None` if the length follows from the address of the next instruction.
    pub(super) fn len(self) -> Option<u32> {
        match self {
            Flow::Straight => None,
            Flow::Jump(len) | Flow::Call(len) | Flow::Return(len) => Some(u32::from(len)),
        }
    }
}

/// Returns the number of bytes of a ModRM operand: ModRM byte, SIB byte and displacement.
fn operand(modrm: u8, sib: u8) -> usize {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let scaled = mode != 3 && rm == 4;
    let displacement = match mode {
        0 if rm == 5 || (scaled && sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    1 + usize::from(scaled) + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_is_read_from_bytes() {
        for (code, flow) in [
            (&[0xe8, 1, 2, 3, 4][..], Flow::Call(5)),
            (&[0xe9, 1, 2, 3, 4], Flow::Jump(5)),
            (&[0x74, 0x10], Flow::Jump(2)),
            (&[0x0f, 0x84, 1, 2, 3, 4], Flow::Jump(6)),
            (&[0xc3], Flow::Return(1)),
            (&[0xf3, 0xc3], Flow::Return(2)),
            // call *0x2f1a(%rip); call *%rax; call *%r11; call *0x18(%r12); jmp *(%rsp); jmp *%rdx
            (&[0xff, 0x15, 0x1a, 0x2f, 0, 0], Flow::Call(6)),
            (&[0xff, 0xd0], Flow::Call(2)),
            (&[0x41, 0xff, 0xd3], Flow::Call(3)),
            (&[0x41, 0xff, 0x54, 0x24, 0x18], Flow::Call(5)),
            (&[0xff, 0x24, 0x24], Flow::Jump(3)),
            (&[0xff, 0xe2], Flow::Jump(2)),
            // jmp *0x100(,%rax,8); notrack jmp *%rax
            (&[0xff, 0x24, 0xc5, 0, 1, 0, 0], Flow::Jump(7)),
            (&[0x3e, 0xff, 0xe0], Flow::Jump(3)),
            // push %rbp; mov %rsp,%rbp; incl (%rax); movzbl
            (&[0x55], Flow::Straight),
            (&[0x48, 0x89, 0xe5], Flow::Straight),
            (&[0xff, 0x00], Flow::Straight),
            (&[0x0f, 0xb6, 0xc0], Flow::Straight),
            (&[], Flow::Straight),
        ] {
            assert_eq!(Flow::of(code), flow, "{code:02x?}");
        }
    }
}
