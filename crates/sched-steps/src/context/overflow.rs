//! Detection of stack overflows, reported by a message that names the fiber.
//!
//! A write into a guard page raises SIGSEGV. The signal handler runs on the signal stack that the Rust runtime gives
//! each thread, or on a stack of this module if the thread has none. The handler looks up the address among the guards
//! of all executors, prints the name of the fiber, and aborts. Other faults are passed to the previously installed
//! handler.
//!
//! The handler may interrupt any code. Therefore it allocates no memory, takes no lock, and reads only atomics.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use super::stack::Layout;

/// Maximum number of bytes of a fiber's name in a message.
const NAME_BYTES: usize = 48;
/// Size in bytes of a signal stack that this module allocates.
const SIGNAL_STACK_BYTES: usize = 64 * 1024;

/// Stacks of one executor, as the signal handler reads them. Entries are reused and never freed.
pub(crate) struct StackRegion {
    /// First address of the slab; 0 while no slab uses the entry.
    base: AtomicUsize,
    len: AtomicUsize,
    stride: AtomicUsize,
    guard: AtomicUsize,
    span: AtomicUsize,
    stack: AtomicUsize,
    names: AtomicPtr<[AtomicU8; NAME_BYTES]>,
    next: AtomicPtr<StackRegion>,
}

static REGIONS: AtomicPtr<StackRegion> = AtomicPtr::new(ptr::null_mut());
static REGISTRATION_LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Registration of an executor's stacks with the signal handler, until it is dropped.
pub(crate) struct RegionRegistration {
    entry: &'static StackRegion,
    names: Box<[[AtomicU8; NAME_BYTES]]>,
}

impl StackRegion {
    fn entries() -> impl Iterator<Item = &'static StackRegion> {
        let mut at = REGIONS.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: entries are leaked, and are linked only after they are complete.
            let entry = unsafe { at.as_ref() }?;
            at = entry.next.load(Ordering::Acquire);
            Some(entry)
        })
    }

    /// Registers a slab of `count` stacks. A fiber may use `stack` bytes of each stack.
    pub(crate) fn register(layout: Layout, stack: usize, count: usize) -> RegionRegistration {
        let Layout { base, len, stride, guard, span } = layout;
        install();
        let names: Box<[[AtomicU8; NAME_BYTES]]> =
            (0..count).map(|_| [const { AtomicU8::new(0) }; NAME_BYTES]).collect();
        let _lock = REGISTRATION_LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let entry = StackRegion::entries().find(|entry| entry.base.load(Ordering::Relaxed) == 0).unwrap_or_else(|| {
            let entry = Box::leak(Box::new(StackRegion {
                base: AtomicUsize::new(0),
                len: AtomicUsize::new(0),
                stride: AtomicUsize::new(1),
                guard: AtomicUsize::new(0),
                span: AtomicUsize::new(0),
                stack: AtomicUsize::new(0),
                names: AtomicPtr::new(ptr::null_mut()),
                next: AtomicPtr::new(REGIONS.load(Ordering::Acquire)),
            }));
            REGIONS.store(entry, Ordering::Release);
            entry
        });
        entry.len.store(len, Ordering::Relaxed);
        entry.stride.store(stride.max(1), Ordering::Relaxed);
        entry.guard.store(guard, Ordering::Relaxed);
        entry.span.store(span, Ordering::Relaxed);
        entry.stack.store(stack, Ordering::Relaxed);
        entry.names.store(names.as_ptr().cast_mut(), Ordering::Relaxed);
        entry.base.store(base, Ordering::Release);
        RegionRegistration { entry, names }
    }

    /// Returns the number of the stack whose guard contains `address`.
    fn guard_of(&self, address: usize) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire);
        let offset = address.checked_sub(base)?;
        let stride = self.stride.load(Ordering::Relaxed);
        (base != 0 && offset < self.len.load(Ordering::Relaxed) && offset % stride < self.guard.load(Ordering::Relaxed))
            .then_some(offset / stride)
    }

    /// Returns the number of bytes that stack `number` has used.
    fn used(&self, number: usize) -> usize {
        let [base, stride, guard, span] =
            [&self.base, &self.stride, &self.guard, &self.span].map(|word| word.load(Ordering::Relaxed));
        let low = base + number * stride + guard;
        // The size of a guard is the size of a page.
        super::used_bytes(low, low + span, guard)
    }
}

impl RegionRegistration {
    /// Sets the name of a fiber, truncated to `NAME_BYTES`.
    pub(crate) fn set_name(&self, fiber: usize, name: &str) {
        let bytes = name.bytes().chain(std::iter::repeat(0));
        self.names[fiber].iter().zip(bytes).for_each(|(at, byte)| at.store(byte, Ordering::Relaxed));
    }
}

impl Drop for RegionRegistration {
    fn drop(&mut self) {
        self.entry.base.store(0, Ordering::Release);
    }
}

/// Signal action that was installed before the action of this module.
static mut PREVIOUS_ACTION: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

fn install() {
    static ONCE: Once = Once::new();
    if cfg!(miri) {
        return;
    }
    ONCE.call_once(|| {
        // SAFETY: the handler performs only operations that are permitted in a signal handler. `PREVIOUS_ACTION` is
        // written here once, before the handler can read it, because the previous action is queried first.
        unsafe {
            libc::sigaction(libc::SIGSEGV, ptr::null(), (&raw mut PREVIOUS_ACTION).cast());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_segv as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
        }
    });
    ensure_signal_stack();
}

/// Gives the calling thread a signal stack if it has none. The Rust runtime gives a signal stack to the main thread and
/// to the threads that it starts; a thread started by other code may lack one.
fn ensure_signal_stack() {
    // SAFETY: the calls query the present signal stack, and then install a new one that is never freed.
    unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(ptr::null(), &raw mut now) != 0 || now.ss_flags & libc::SS_DISABLE == 0 {
            return;
        }
        let memory = Box::leak(vec![0_u8; SIGNAL_STACK_BYTES].into_boxed_slice());
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: SIGNAL_STACK_BYTES };
        libc::sigaltstack(&raw const stack, ptr::null_mut());
    }
}

/// Buffer of a message, which is written to standard error without further buffering or locks.
struct Line {
    bytes: [u8; 384],
    len: usize,
}

impl Line {
    fn push(&mut self, text: &[u8]) {
        for &byte in text.iter().take(self.bytes.len() - self.len) {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    fn push_number(&mut self, mut number: usize) {
        let mut digits = [0_u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }
}

impl Line {
    /// Appends the name of a fiber, or the fiber's number if it has no name.
    fn push_name(&mut self, entry: &StackRegion, fiber: usize) {
        let begin = self.len;
        // SAFETY: the names live as long as the registration of the executor whose fiber is running now.
        let name = unsafe { &*entry.names.load(Ordering::Relaxed).add(fiber) };
        for byte in name.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|&byte| byte != 0) {
            self.push(&[byte]);
        }
        if self.len == begin {
            self.push_number(fiber);
        }
    }
}

extern "C" fn on_segv(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    for entry in StackRegion::entries() {
        if let Some(fiber) = entry.guard_of(address) {
            report(entry, fiber);
        }
    }
    // SAFETY: `PREVIOUS_ACTION` was written before this handler was installed.
    let before = unsafe { (&raw const PREVIOUS_ACTION).cast::<libc::sigaction>().read() };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The faulting instruction runs again after the return, and its fault ends the process with the system's
            // action.
            // SAFETY: the call restores the action of the system.
            unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler of this type was installed with SA_SIGINFO.
            let call: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
            call(signal, info, context);
        }
        handler => {
            // SAFETY: a handler of this type was installed without SA_SIGINFO.
            let call: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            call(signal);
        }
    }
}

fn report(entry: &StackRegion, fiber: usize) -> ! {
    let mut line = Line { bytes: [0; 384], len: 0 };
    line.push(b"\nfiber '");
    line.push_name(entry, fiber);
    line.push(b"' has overflowed its stack of ");
    line.push_number(entry.stack.load(Ordering::Relaxed));
    line.push(b" bytes: give the executor a larger Builder::stack_bytes\n");
    let stacks = entry.len.load(Ordering::Relaxed) / entry.stride.load(Ordering::Relaxed);
    let others = (0..stacks).filter(|&other| other != fiber).map(|other| (entry.used(other), other));
    if let Some((most, fullest)) = others.max()
        && most > 0
    {
        line.push(b"high-water mark of the others: ");
        line.push_number(most);
        line.push(b" bytes, fiber '");
        line.push_name(entry, fullest);
        line.push(b"'\n");
    }
    // SAFETY: the call writes only bytes that the line holds.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
    // SAFETY: the call ends the process.
    unsafe { libc::abort() }
}
