//! The part of the x86-64 encoding that tracing of memory accesses needs: the address of an instruction's operand in memory,
//! and the kind of access.
//!
//! Not traced: gathers and scatters, implicit accesses of the processor (descriptors, saved states), and stack accesses of
//! calls and pushes, which no other thread reads.

use nix::libc::user_regs_struct;

/// Kind of memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Read access.
    Read,
    /// Write without a read.
    Write,
    /// Read and write, not atomic.
    Change,
    /// Atomic read and write.
    Atomic,
    /// Prefetch for a read.
    PrefetchRead,
    /// Prefetch for a write.
    PrefetchWrite,
}

impl AccessKind {
    /// Returns true if the core needs the line exclusively.
    pub fn writes(self) -> bool {
        !matches!(self, AccessKind::Read | AccessKind::PrefetchRead)
    }

    /// Returns true if the access only announces another one.
    pub fn is_prefetch(self) -> bool {
        matches!(self, AccessKind::PrefetchRead | AccessKind::PrefetchWrite)
    }

    /// Returns true if the core waits for the line.
    pub fn waits(self) -> bool {
        self != AccessKind::Write && !self.is_prefetch()
    }
}

/// A memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    /// Access of the instruction to the operand.
    pub operation: AccessKind,
    place: OperandPlace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OperandPlace {
    /// Sum of a base, an index times its factor, and a displacement. Registers are given by number.
    Sum { base: Option<u8>, index: Option<(u8, u8)>, displacement: i64, segment: OperandSegment },
    /// Displacement relative to the address of the next instruction.
    Next(i64),
    /// Operand of a string instruction: at rdi if `true`, at rsi otherwise.
    Pointer(bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OperandSegment {
    None,
    Fs,
    Gs,
}

/// Operands of an instruction. String moves have two, all other instructions have at most one.
pub type Operands = [Option<Operand>; 2];

/// Prefixes of an opcode.
#[derive(Default)]
struct Prefixes {
    locked: bool,
    /// True if the opcode has the prefix F3, or its equivalent in VEX and EVEX. The prefix selects another instruction.
    repeated: bool,
    rex: u8,
    segment: Option<OperandSegment>,
    /// Factor of a one-byte displacement; 1 except in EVEX.
    scale: i64,
    map: u8,
}

impl Operand {
    /// Decodes the operands of the instruction at the start of `code`.
    pub fn of(code: &[u8]) -> Operands {
        decode(code).unwrap_or([None, None])
    }

    /// Returns the address of the operand; `next` is the address of the next instruction.
    pub fn address(&self, registers: &user_regs_struct, next: u64) -> u64 {
        match self.place {
            OperandPlace::Next(displacement) => next.wrapping_add_signed(displacement),
            OperandPlace::Pointer(destination) => {
                if destination {
                    registers.rdi
                } else {
                    registers.rsi
                }
            }
            OperandPlace::Sum { base, index, displacement, segment } => {
                let base = base.map_or(0, |base| register(registers, base));
                let index =
                    index.map_or(0, |(index, factor)| register(registers, index).wrapping_mul(u64::from(factor)));
                let segment = match segment {
                    OperandSegment::None => 0,
                    OperandSegment::Fs => registers.fs_base,
                    OperandSegment::Gs => registers.gs_base,
                };
                base.wrapping_add(index).wrapping_add_signed(displacement).wrapping_add(segment)
            }
        }
    }
}

fn register(registers: &user_regs_struct, number: u8) -> u64 {
    let r = registers;
    match number & 15 {
        0 => r.rax,
        1 => r.rcx,
        2 => r.rdx,
        3 => r.rbx,
        4 => r.rsp,
        5 => r.rbp,
        6 => r.rsi,
        7 => r.rdi,
        8 => r.r8,
        9 => r.r9,
        10 => r.r10,
        11 => r.r11,
        12 => r.r12,
        13 => r.r13,
        14 => r.r14,
        _ => r.r15,
    }
}

fn decode(code: &[u8]) -> Option<Operands> {
    let mut prefixes = Prefixes { scale: 1, ..Prefixes::default() };
    let mut at = 0;
    loop {
        match *code.get(at)? {
            0xf0 => prefixes.locked = true,
            0x64 => prefixes.segment = Some(OperandSegment::Fs),
            0x65 => prefixes.segment = Some(OperandSegment::Gs),
            0xf3 => prefixes.repeated = true,
            0x66 | 0x67 | 0xf2 | 0x2e | 0x36 | 0x3e | 0x26 => {}
            _ => break,
        }
        at += 1;
    }
    let byte = |i: usize| code.get(i).copied();
    if byte(at)? & 0xf0 == 0x40 {
        prefixes.rex = byte(at)? & 15;
        at += 1;
    }
    // VEX and EVEX store the high bits of register numbers inverted.
    let high = |inverted: u8| (!inverted >> 5) & 7;
    match byte(at)? {
        0xc5 => {
            prefixes.rex = high(byte(at + 1)?) & 4;
            prefixes.map = 1;
            prefixes.repeated = byte(at + 1)? & 3 == 2;
            at += 2;
        }
        0xc4 => {
            prefixes.rex = high(byte(at + 1)?);
            prefixes.map = byte(at + 1)? & 31;
            prefixes.repeated = byte(at + 2)? & 3 == 2;
            at += 3;
        }
        0x62 => {
            prefixes.rex = high(byte(at + 1)?);
            prefixes.map = byte(at + 1)? & 7;
            prefixes.repeated = byte(at + 2)? & 3 == 2;
            // A one-byte displacement counts in units of the vector length. EVEX instructions are assumed to move whole
            // vectors.
            prefixes.scale = 16 << (byte(at + 3)? >> 5 & 3);
            at += 4;
        }
        0x0f => match byte(at + 1)? {
            0x38 => (prefixes.map, at) = (2, at + 2),
            0x3a => (prefixes.map, at) = (3, at + 2),
            _ => (prefixes.map, at) = (1, at + 1),
        },
        _ => {}
    }
    let opcode = byte(at)?;
    if prefixes.map == 0 && matches!(opcode, 0xa4..=0xa7 | 0xaa..=0xaf) {
        let of = |operation, destination| Some(Operand { operation, place: OperandPlace::Pointer(destination) });
        return Some(match opcode {
            0xa4 | 0xa5 => [of(AccessKind::Read, false), of(AccessKind::Write, true)],
            0xa6 | 0xa7 => [of(AccessKind::Read, false), of(AccessKind::Read, true)],
            0xaa | 0xab => [of(AccessKind::Write, true), None],
            0xac | 0xad => [of(AccessKind::Read, false), None],
            _ => [of(AccessKind::Read, true), None],
        });
    }
    let modrm = byte(at + 1)?;
    let operation = operation(&prefixes, opcode, modrm >> 3 & 7)?;
    let place = place(&prefixes, modrm, code.get(at + 2..)?)?;
    Some([Some(Operand { operation, place }), None])
}

/// Returns the kind of access of the instruction to its operand in memory; `None` if it has no such operand.
fn operation(prefixes: &Prefixes, opcode: u8, digit: u8) -> Option<AccessKind> {
    use AccessKind::{Change, Read, Write};
    let changes = if prefixes.locked { AccessKind::Atomic } else { Change };
    match (prefixes.map, opcode) {
        // add, or, adc, sbb, and, sub, xor, cmp: with a memory destination or a memory source.
        (0, 0x00..=0x3f) => match opcode & 7 {
            0 | 1 if opcode < 0x38 => Some(changes),
            0..=3 => Some(Read),
            _ => None,
        },
        (0, 0x63 | 0x69 | 0x6b | 0x84 | 0x85 | 0x8a | 0x8b) => Some(Read),
        (0, 0x80 | 0x81 | 0x83) => Some(if digit == 7 { Read } else { changes }),
        // xchg is atomic without the lock prefix.
        (0, 0x86 | 0x87) => Some(AccessKind::Atomic),
        (0, 0x88 | 0x89 | 0xc6 | 0xc7) => Some(Write),
        (0, 0xc0 | 0xc1 | 0xd0..=0xd3) => Some(changes),
        (0, 0xf6 | 0xf7) => Some(if matches!(digit, 2 | 3) { changes } else { Read }),
        (0, 0xfe) => Some(changes),
        (0, 0xff) => match digit {
            0 | 1 => Some(changes),
            _ => Some(Read),
        },
        (0, _) => None,
        // prefetchw and prefetchwt1; prefetcht0, t1, t2 and nta.
        (1, 0x0d) if matches!(digit, 1 | 2) => Some(AccessKind::PrefetchWrite),
        (1, 0x18) if digit < 4 => Some(AccessKind::PrefetchRead),
        // Other prefetches, hints, no-operations; jumps, which have no operand.
        (
            1,
            0x01
            | 0x05
            | 0x0b
            | 0x0d
            | 0x18..=0x1f
            | 0x30..=0x37
            | 0x77
            | 0x80..=0x8f
            | 0xa0..=0xa2
            | 0xa8..=0xaa
            | 0xae
            | 0xc8..=0xcf,
        ) => None,
        (1, 0x7e) if prefixes.repeated => Some(Read),
        (1, 0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7e | 0x7f | 0x90..=0x9f | 0xc3 | 0xd6 | 0xe7) => Some(Write),
        // cmpxchg, xadd, shifts of two words, bts, btr, btc, cmpxchg16b.
        (1, 0xb0 | 0xb1 | 0xc0 | 0xc1 | 0xa4 | 0xa5 | 0xac | 0xad | 0xab | 0xb3 | 0xbb) => Some(changes),
        (1, 0xba) => Some(if digit == 4 { Read } else { changes }),
        (1, 0xc7) if digit == 1 => Some(changes),
        (2, 0xf1) if !prefixes.locked => Some(Write),
        (3, 0x14..=0x17 | 0x19 | 0x39) => Some(Write),
        _ => Some(Read),
    }
}

fn place(prefixes: &Prefixes, modrm: u8, rest: &[u8]) -> Option<OperandPlace> {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return None;
    }
    let extended = |number: u8, bit: u8| number | if prefixes.rex & bit != 0 { 8 } else { 0 };
    let (mut base, mut index, mut rest) = (Some(extended(rm, 1)), None, rest);
    if rm == 4 {
        let sib = *rest.first()?;
        rest = rest.get(1..)?;
        let number = extended(sib >> 3 & 7, 2);
        index = (number != 4).then_some((number, 1 << (sib >> 6)));
        base = (mode != 0 || sib & 7 != 5).then_some(extended(sib & 7, 1));
    }
    let long = || Some(i64::from(i32::from_le_bytes(rest.get(..4)?.try_into().ok()?)));
    let displacement = match mode {
        0 if rm == 5 => return Some(OperandPlace::Next(long()?)),
        0 if base.is_none() => long()?,
        0 => 0,
        1 => i64::from(*rest.first()? as i8) * prefixes.scale,
        _ => long()?,
    };
    Some(OperandPlace::Sum { base, index, displacement, segment: prefixes.segment.unwrap_or(OperandSegment::None) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> user_regs_struct {
        user_regs_struct {
            r15: 0,
            r14: 0,
            r13: 0x6000,
            r12: 0x5000,
            rbp: 0,
            rbx: 0x2000,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0x1000,
            rcx: 0x10,
            rdx: 0,
            rsi: 0x3000,
            rdi: 0x4000,
            orig_rax: 0,
            rip: 0,
            cs: 0,
            eflags: 0,
            rsp: 0,
            ss: 0,
            fs_base: 0x7_0000,
            gs_base: 0,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }

    #[test]
    fn operands_are_found() {
        use AccessKind::{Atomic, Change, Read, Write};
        for (code, want) in [
            // mov (%rax),%rcx; mov %rcx,0x8(%rbx); mov 0x12345678(%rip),%eax at 0x100
            (&[0x48, 0x8b, 0x08][..], Some((Read, 0x1000))),
            (&[0x48, 0x89, 0x4b, 0x08], Some((Write, 0x2008))),
            (&[0x8b, 0x05, 0x78, 0x56, 0x34, 0x12], Some((Read, 0x100 + 0x1234_5678))),
            // lock cmpxchg %rcx,(%rbx,%rcx,8); lock xadd %rax,-8(%r13); lock sub $2,(%rax); xchg %rax,(%r12)
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x0c, 0xcb], Some((Atomic, 0x2080))),
            (&[0xf0, 0x49, 0x0f, 0xc1, 0x45, 0xf8], Some((Atomic, 0x5ff8))),
            (&[0xf0, 0x48, 0x83, 0x28, 0x02], Some((Atomic, 0x1000))),
            (&[0x49, 0x87, 0x04, 0x24], Some((Atomic, 0x5000))),
            // add %eax,(%rbx); cmp %eax,(%rbx); cmp $1,(%rbx); incq (%rbx); testb $1,(%rbx); not (%rbx)
            (&[0x01, 0x03], Some((Change, 0x2000))),
            (&[0x39, 0x03], Some((Read, 0x2000))),
            (&[0x83, 0x3b, 0x01], Some((Read, 0x2000))),
            (&[0x48, 0xff, 0x03], Some((Change, 0x2000))),
            (&[0xf6, 0x03, 0x01], Some((Read, 0x2000))),
            (&[0xf7, 0x13], Some((Change, 0x2000))),
            // mov %fs:0x10,%rax; movups (%rax),%xmm0; movups %xmm0,(%rbx); vmovdqu %ymm0,0x20(%rbx); movzbl (%rax,%rcx,1),%eax
            (&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0], Some((Read, 0x7_0010))),
            (&[0x0f, 0x10, 0x00], Some((Read, 0x1000))),
            (&[0x0f, 0x11, 0x03], Some((Write, 0x2000))),
            (&[0xc5, 0xfe, 0x7f, 0x43, 0x20], Some((Write, 0x2020))),
            (&[0x0f, 0xb6, 0x04, 0x08], Some((Read, 0x1010))),
            // vmovdqu64 0x40(%rsi),%zmm0; vmovdqu64 %ymm16,-0x20(%rdi): the unit of an 8-bit displacement is the vector
            // length
            (&[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x46, 0x01], Some((Read, 0x3040))),
            (&[0x62, 0xe1, 0xfe, 0x28, 0x7f, 0x47, 0xff], Some((Write, 0x3fe0))),
            // prefetcht0 (%rax); prefetchw (%rbx)
            (&[0x0f, 0x18, 0x08], Some((AccessKind::PrefetchRead, 0x1000))),
            (&[0x0f, 0x0d, 0x0b], Some((AccessKind::PrefetchWrite, 0x2000))),
            // lea (%rax),%rcx; nopw (%rax); mov %rax,%rbx; jmp; ret; push %rbp; setne (%rbx)
            (&[0x48, 0x8d, 0x08], None),
            (&[0x66, 0x0f, 0x1f, 0x00], None),
            (&[0x48, 0x89, 0xc3], None),
            (&[0xeb, 0x10], None),
            (&[0xc3], None),
            (&[0x55], None),
            (&[0x0f, 0x95, 0x03], Some((Write, 0x2000))),
            (&[], None),
        ] {
            let [found, second] = Operand::of(code);
            let found = found.map(|operand| (operand.operation, operand.address(&registers(), 0x100)));
            assert_eq!((found, second), (want, None), "{code:02x?}");
        }
        // rep movsb
        let found = Operand::of(&[0xf3, 0xa4])
            .map(|operand| operand.map(|operand| (operand.operation, operand.address(&registers(), 0))));
        assert_eq!(found, [Some((AccessKind::Read, 0x3000)), Some((AccessKind::Write, 0x4000))]);
    }
}
