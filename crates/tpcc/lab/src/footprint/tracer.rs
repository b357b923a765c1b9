//! Runs a program step by step (ptrace) and records the instructions that it executes between its marks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::instruction::Flow;
use super::marks::{END_TRACE, Mark};
use super::operand::{AccessKind, Operand, Operands};
use super::trace::{ExecutedInstruction, Operation, OperationId, PassedPoint};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::reading::{MAX_OUTPUT_BYTES, read_within};
use tpcc_core::workload::words::in_mib;

/// Address to which the program's own file is relocated. Valgrind loads programs at the same address, so that the sets of
/// large caches agree.
const PROGRAM_BASE: u64 = 0x10_8000;
/// Address to which the first other file is relocated, and distance between the addresses of other files.
const LIBRARY_BASE: u64 = 0x480_0000;
const LIBRARY_DISTANCE: u64 = 0x100_0000;
/// Maximum distance of a stack access from the stack pointer, in bytes.
const STACK_DISTANCE: u64 = 1 << 20;
/// Opcode of the breakpoint, one byte.
const INT3: u8 = 0xcc;
/// Number of steps between two checks for Ctrl-C.
const STEPS_PER_CHECK: u32 = 4096;
/// Maximum length of the text of an aside.
const MAX_ASIDE_BYTES: u64 = 1 << 20;
/// Maximum number of steps of one operation. A longer operation is cut at its next point.
const MOST_STEPS: usize = 5_000_000;

/// A traced program. Dropping the tracer kills the program.
pub(super) struct Tracer {
    child: Child,
    pid: Pid,
    memory: File,
    relocations: Relocations,
    /// Decoded instructions, keyed by address.
    decoded: HashMap<u64, DecodedInstruction>,
    steps_until_check: u32,
    _one_core: Option<OneCore>,
}

#[derive(Clone, Copy)]
struct DecodedInstruction {
    flow: Flow,
    is_trap: bool,
    operands: Operands,
}

/// A trap of the program: the mark and its two arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trap {
    pub(super) mark: Mark,
    pub(super) first: u64,
    pub(super) second: u64,
}

impl Tracer {
    /// Starts `command`, which must let its parent trace it, and waits until the program stops for the tracer.
    pub(super) fn start(command: &mut Command) -> Result<Tracer, Error> {
        let child = command.spawn().map_err(|e| Error::failed(format!("the traced program cannot be started: {e}")))?;
        let pid = Pid::from_raw(child.id() as i32);
        let mut child = KillOnDrop(Some(child));
        stopped(wait(pid)?)?;
        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL).map_err(tracing_failed)?;
        let memory = File::open(format!("/proc/{pid}/mem"))
            .map_err(|e| Error::failed(format!("the traced program's memory cannot be read: {e}")))?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
            .map_err(|e| Error::failed(format!("the traced program's files cannot be listed: {e}")))?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).map(|path| path.display().to_string());
        let relocations = Relocations::of(&maps, program.as_deref().unwrap_or(""));
        let child = child.0.take().ok_or_else(|| Error::failed("the traced program is gone"))?;
        Ok(Tracer {
            child,
            pid,
            memory,
            relocations,
            decoded: HashMap::new(),
            steps_until_check: STEPS_PER_CHECK,
            _one_core: OneCore::share_with(pid),
        })
    }

    /// Runs the program to its next mark; `None` if the program has exited successfully.
    pub(super) fn run_to_mark(&mut self) -> Result<Option<Trap>, Error> {
        loop {
            ptrace::cont(self.pid, None).map_err(tracing_failed)?;
            match wait(self.pid)? {
                WaitStatus::Exited(_, 0) => return Ok(None),
                status => stopped(status)?,
            }
            if interrupt::requested() {
                return Err(interrupted());
            }
            if let Some(trap) = self.trap(&self.registers()?) {
                return Ok(Some(trap));
            }
        }
    }

    /// Steps through an operation whose start was just marked, up to the next mark that is not a point. `calls` is the stack
    /// of open calls, kept across the operations of a transaction.
    pub(super) fn step_through(&mut self, id: OperationId, calls: &mut Vec<u64>) -> Result<(Operation, Trap), Error> {
        let mut operation = Operation { id, steps: Vec::new(), points: Vec::new() };
        // The marking function returns first; its instructions do not count.
        let mut registers = self.registers()?;
        let mut inside_mark = true;
        loop {
            let at = registers.rip;
            let code = self.decode(at)?;
            self.step()?;
            registers = self.registers()?;
            if code.is_trap {
                let trap =
                    self.trap(&registers).ok_or_else(|| Error::failed("the traced program stopped by itself"))?;
                if trap.mark != Mark::Point || operation.steps.len() >= MOST_STEPS {
                    return Ok((operation, trap));
                }
                // The last open call is the hook's call of the marking function.
                let open = calls.split_last().map_or(&[][..], |(_, rest)| rest);
                let steps_before = operation.steps.len();
                operation.points.push(PassedPoint { site: trap.first as u32, steps_before, calls: open.to_vec() });
                inside_mark = true;
                continue;
            }
            if inside_mark {
                // The marking function is a leaf: its return ends it.
                inside_mark = !matches!(code.flow, Flow::Return(_));
                if !inside_mark {
                    calls.pop();
                }
                continue;
            }
            let next = registers.rip;
            if next == at {
                continue; // A repeated string instruction, not yet at its end.
            }
            let straight = next.wrapping_sub(at);
            let len = code.flow.len().unwrap_or(if straight <= 15 { straight as u32 } else { 4 });
            operation.steps.push(ExecutedInstruction { at: self.relocations.relocate(at), len: len as u8 });
            match code.flow {
                Flow::Call(_) => calls.push(self.relocations.relocate(at)),
                Flow::Return(_) => drop(calls.pop()),
                Flow::Straight | Flow::Jump(_) => {}
            }
        }
    }

    /// Steps to the next mark of a transaction. For each memory access outside the stack, calls `on_access` with the kind
    /// and the address of the access and the number of instructions before it. The last call of `on_access` has no kind and
    /// gives the total number of instructions. Adds the texts of [`Mark::Aside`] to `texts`.
    pub(super) fn trace_accesses(
        &mut self,
        on_access: &mut dyn FnMut(Option<AccessKind>, u64, u32),
        texts: &mut String,
    ) -> Result<Trap, Error> {
        let mut instructions = 0;
        let mut registers = self.registers()?;
        loop {
            let before = registers;
            let code = self.decode(before.rip)?;
            self.step()?;
            registers = self.registers()?;
            if code.is_trap {
                let trap =
                    self.trap(&registers).ok_or_else(|| Error::failed("the traced program stopped by itself"))?;
                if trap.mark == Mark::Transaction {
                    on_access(None, 0, instructions);
                    return Ok(trap);
                }
                if trap.mark == Mark::Aside {
                    texts.push_str(&self.run_aside()?);
                    registers = self.registers()?;
                }
                continue;
            }
            for operand in code.operands.into_iter().flatten() {
                let address = operand.address(&before, registers.rip);
                if !(before.rsp.wrapping_sub(STACK_DISTANCE)..before.rsp.wrapping_add(STACK_DISTANCE))
                    .contains(&address)
                {
                    on_access(Some(operand.operation), address, instructions);
                }
            }
            // A repeated string instruction counts once.
            instructions += u32::from(registers.rip != before.rip);
        }
    }

    /// Runs the program, which is stopped at the start of an aside, to the end of the aside. Returns the text of the aside.
    pub(super) fn run_aside(&mut self) -> Result<String, Error> {
        let Some(Trap { mark: Mark::Aside, first: address, second: len }) = self.run_to_mark()? else {
            return Err(Error::failed("the traced program has begun an aside and not ended it"));
        };
        if len > MAX_ASIDE_BYTES {
            return Err(Error::failed(format!("the traced program has {len} bytes to say about a transaction")));
        }
        let mut text = vec![0; len as usize];
        self.memory
            .read_exact_at(&mut text, address)
            .map_err(|e| Error::failed(format!("the traced program's memory cannot be read: {e}")))?;
        String::from_utf8(text).map_err(|e| Error::failed(format!("the traced program's text is none: {e}")))
    }

    /// Returns a number of 32 bits in the program's memory.
    pub(super) fn read_u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    /// Lets the program, which is stopped at a mark, finish. Waits until the program has finished, and returns its output.
    pub(super) fn finish(mut self) -> Result<String, Error> {
        let mut registers = self.registers()?;
        registers.rax = END_TRACE;
        ptrace::setregs(self.pid, registers).map_err(tracing_failed)?;
        while let Some(_late) = self.run_to_mark()? {
            let mut registers = self.registers()?;
            registers.rax = END_TRACE;
            ptrace::setregs(self.pid, registers).map_err(tracing_failed)?;
        }
        let Some(stdout) = &mut self.child.stdout else { return Ok(String::new()) };
        let failed = |why: String| Error::failed(format!("what the traced program says cannot be read: {why}"));
        let printed = read_within(stdout, MAX_OUTPUT_BYTES).map_err(|e| failed(e.to_string()))?;
        let printed = printed.ok_or_else(|| failed(format!("more than {}", in_mib(MAX_OUTPUT_BYTES))))?;
        String::from_utf8(printed).map_err(|e| failed(e.to_string()))
    }

    fn step(&mut self) -> Result<(), Error> {
        self.steps_until_check -= 1;
        if self.steps_until_check == 0 {
            self.steps_until_check = STEPS_PER_CHECK;
            if interrupt::requested() {
                return Err(interrupted());
            }
        }
        ptrace::step(self.pid, None).map_err(tracing_failed)?;
        stopped(wait(self.pid)?)
    }

    fn registers(&self) -> Result<nix::libc::user_regs_struct, Error> {
        ptrace::getregs(self.pid).map_err(tracing_failed)
    }

    /// Returns the mark at which the program is stopped; `None` if it is not stopped at a mark.
    fn trap(&self, registers: &nix::libc::user_regs_struct) -> Option<Trap> {
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, registers.rip.checked_sub(1)?).ok()?;
        let mark = Mark::of(registers.rdi).filter(|_| byte[0] == INT3)?;
        Some(Trap { mark, first: registers.rsi, second: registers.rdx })
    }

    fn decode(&mut self, at: u64) -> Result<DecodedInstruction, Error> {
        match self.decoded.entry(at) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(new) => {
                let mut bytes = [0; 16];
                let n = self
                    .memory
                    .read_at(&mut bytes, at)
                    .map_err(|e| Error::failed(format!("the traced program's code cannot be read: {e}")))?;
                let read = bytes.get(..n).unwrap_or(&[]);
                let flow = Flow::of(read);
                // Operands of calls and jumps are omitted, because they are constants.
                let operands = if flow == Flow::Straight { Operand::of(read) } else { [None, None] };
                Ok(*new.insert(DecodedInstruction { flow, is_trap: bytes[0] == INT3, operands }))
            }
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // The program may have ended already: errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pins a thread and the program that it traces to one core until dropped. Each step switches twice between the thread and
/// the program. On two cores, each switch would wake up an idle core.
struct OneCore {
    /// Previous affinity of the thread.
    before: CpuSet,
}

impl OneCore {
    /// Pins this thread and the program to one core. Returns `None` if the system does not allow pinning: affinities are
    /// unchanged, and tracing is slower.
    fn share_with(pid: Pid) -> Option<OneCore> {
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this).ok()?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu().ok()?).ok()?;
        sched_setaffinity(pid, &one).ok()?;
        sched_setaffinity(this, &one).ok()?;
        Some(OneCore { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // The thread had this affinity before, so that the system accepts it.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// Kills a child process on drop, unless it has become a [`Tracer`].
struct KillOnDrop(Option<Child>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait(pid: Pid) -> Result<WaitStatus, Error> {
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Err(nix::errno::Errno::EINTR) => {}
            status => return status.map_err(tracing_failed),
        }
    }
}

/// Checks that the program stopped for the tracer. If the program failed, its own message is on stderr.
fn stopped(status: WaitStatus) -> Result<(), Error> {
    match status {
        WaitStatus::Stopped(_, Signal::SIGINT) if interrupt::requested() => Err(interrupted()),
        WaitStatus::Stopped(_, Signal::SIGSEGV | Signal::SIGABRT | Signal::SIGILL | Signal::SIGBUS) => {
            Err(Error::failed(format!("the traced program crashed: {status:?}")))
        }
        WaitStatus::Stopped(..) => Ok(()),
        WaitStatus::Exited(_, code) => Err(Error::failed(format!("the traced program ended with status {code}"))
            .help("what it says stands above; where tracing is forbidden (ptrace), so is this command")),
        other => Err(Error::failed(format!("the traced program was ended: {other:?}"))),
    }
}

fn tracing_failed(error: nix::errno::Errno) -> Error {
    Error::failed(format!("tracing failed: {}", error.desc())).help("ptrace must be allowed to this user")
}

fn interrupted() -> Error {
    Error::failed("interrupted while tracing")
}

/// Mappings of files in the traced program, and the addresses to which they are relocated.
#[derive(Debug)]
struct Relocations {
    /// Start and end of each mapping, and the offset to add to an address in it.
    ranges: Vec<(u64, u64, u64)>,
}

impl Relocations {
    fn of(maps: &str, program: &str) -> Relocations {
        let mut files: Vec<(String, u64)> = Vec::new();
        let mut ranges = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(file)) = (words.next(), words.nth(4)) else { continue };
            let Some((begin, end)) = range.split_once('-') else { continue };
            let number = |text| u64::from_str_radix(text, 16).ok();
            let (Some(begin), Some(end)) = (number(begin), number(end)) else { continue };
            let known = files.iter().position(|(name, _)| name == file);
            let known = known.unwrap_or_else(|| {
                files.push((file.to_owned(), begin));
                files.len() - 1
            });
            let target = match file == program {
                true => PROGRAM_BASE,
                false => LIBRARY_BASE + LIBRARY_DISTANCE * known as u64,
            };
            ranges.push((begin, end, target.wrapping_sub(files[known].1)));
        }
        Relocations { ranges }
    }

    #[inline]
    fn relocate(&self, at: u64) -> u64 {
        let range = self.ranges.iter().find(|(begin, end, _)| (*begin..*end).contains(&at));
        range.map_or(at, |(_, _, add)| at.wrapping_add(*add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_taken_to_lie_in_one_place() {
        let maps = "55d0c0000000-55d0c0100000 r--p 00000000 fe:00 12 /bin/tpcc\n\
                    55d0c0100000-55d0c0200000 r-xp 00100000 fe:00 12 /bin/tpcc\n\
                    7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n\
                    7f1234000000-7f1234100000 r-xp 00000000 fe:00 13 /lib/libc.so.6\n";
        let relocations = Relocations::of(maps, "/bin/tpcc");
        assert_eq!(relocations.relocate(0x55d0_c010_0040), PROGRAM_BASE + 0x10_0040);
        assert_eq!(relocations.relocate(0x7f12_3400_0010), LIBRARY_BASE + LIBRARY_DISTANCE + 0x10);
        assert_eq!(relocations.relocate(0x7f00_0000_0010), 0x7f00_0000_0010, "no file: left where it is");
    }
}
