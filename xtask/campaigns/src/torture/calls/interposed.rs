//! Interposes functions of the C library in this process. Calls are passed to the system unchanged, except for one call that
//! a plan names.
//!
//! The linker prefers a function of the program to a function of a library with the same name, so the standard library and
//! every crate call the functions of this module. Without a plan, the overhead of a call is one relaxed load.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{iovec, mode_t, off64_t, pthread_attr_t, pthread_t, size_t, ssize_t};
use serde::{Deserialize, Serialize};

/// Function of the C library that can be interposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(usize)]
pub(super) enum Function {
    Open,
    OpenAt,
    MakeDirectory,
    ReadDirectory,
    Stat,
    Lock,
    Read,
    ReadAt,
    ReadResidentAt,
    Write,
    WriteAt,
    WriteBlocksAt,
    SetLength,
    Allocate,
    SyncData,
    Sync,
    Remove,
    RenameNew,
    Thread,
}

/// Call to change, and its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallPlan {
    pub(super) function: Function,
    /// Index of the call among all calls of the same function, from 0.
    pub(super) number: u64,
    pub(super) fate: CallFate,
}

/// Change of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CallFate {
    /// The call is interrupted by a signal before it has any effect.
    Interrupted,
    /// The call transfers half of the requested bytes.
    Short,
    /// The call has no effect and fails with this error number.
    Fails(c_int),
}

impl Function {
    /// All functions, in the order of their discriminants.
    pub(super) const ALL: [Function; 19] = [
        Function::Open,
        Function::OpenAt,
        Function::MakeDirectory,
        Function::ReadDirectory,
        Function::Stat,
        Function::Lock,
        Function::Read,
        Function::ReadAt,
        Function::ReadResidentAt,
        Function::Write,
        Function::WriteAt,
        Function::WriteBlocksAt,
        Function::SetLength,
        Function::Allocate,
        Function::SyncData,
        Function::Sync,
        Function::Remove,
        Function::RenameNew,
        Function::Thread,
    ];

    /// Returns the name of the function in the C library.
    pub(super) fn name(self) -> &'static str {
        match self {
            Function::Open => "open64",
            Function::OpenAt => "openat64",
            Function::MakeDirectory => "mkdir",
            Function::ReadDirectory => "readdir64",
            Function::Stat => "fstat64",
            Function::Lock => "flock",
            Function::Read => "read",
            Function::ReadAt => "pread64",
            Function::ReadResidentAt => "preadv64v2",
            Function::Write => "write",
            Function::WriteAt => "pwrite64",
            Function::WriteBlocksAt => "pwritev64",
            Function::SetLength => "ftruncate64",
            Function::Allocate => "fallocate64",
            Function::SyncData => "fdatasync",
            Function::Sync => "fsync",
            Function::Remove => "unlinkat",
            Function::RenameNew => "renameat2",
            Function::Thread => "pthread_create",
        }
    }

    /// Returns the possible changes of a call of the function.
    pub(super) fn fates(self) -> &'static [CallFate] {
        use CallFate::{Fails, Interrupted, Short};
        match self {
            Function::Open => &[Interrupted, Fails(libc::EMFILE), Fails(libc::EACCES)],
            Function::OpenAt => {
                &[Interrupted, Fails(libc::EMFILE), Fails(libc::ENFILE), Fails(libc::EROFS), Fails(libc::EIO)]
            }
            Function::MakeDirectory => &[Interrupted, Fails(libc::EACCES), Fails(libc::ENOSPC), Fails(libc::EROFS)],
            Function::ReadDirectory => &[Interrupted, Fails(libc::EIO), Fails(libc::ESTALE)],
            Function::Stat => &[Interrupted, Fails(libc::EIO), Fails(libc::ESTALE)],
            Function::Lock => &[Interrupted, Fails(libc::ENOLCK), Fails(libc::EIO)],
            Function::Read | Function::ReadAt => &[Interrupted, Short, Fails(libc::EIO), Fails(libc::ESTALE)],
            // A temporary error of this function is hidden by the engine, which then reads the page by a call that may
            // block.
            Function::ReadResidentAt => {
                &[Interrupted, Short, Fails(libc::EAGAIN), Fails(libc::EOPNOTSUPP), Fails(libc::EIO)]
            }
            Function::Write | Function::WriteAt | Function::WriteBlocksAt => {
                &[Interrupted, Short, Fails(libc::EIO), Fails(libc::ENOSPC), Fails(libc::EDQUOT), Fails(libc::EAGAIN)]
            }
            Function::SetLength => &[Interrupted, Fails(libc::EIO), Fails(libc::EFBIG), Fails(libc::EROFS)],
            Function::Allocate => {
                &[Interrupted, Fails(libc::EIO), Fails(libc::ENOSPC), Fails(libc::EDQUOT), Fails(libc::EOPNOTSUPP)]
            }
            Function::SyncData | Function::Sync => {
                &[Interrupted, Fails(libc::EIO), Fails(libc::ENOSPC), Fails(libc::EDQUOT)]
            }
            Function::Remove => &[Interrupted, Fails(libc::EROFS), Fails(libc::EIO)],
            Function::RenameNew => &[Interrupted, Fails(libc::EINVAL), Fails(libc::EROFS), Fails(libc::ENOSPC)],
            Function::Thread => &[Fails(libc::EAGAIN)],
        }
    }
}

/// True while calls are counted.
static COUNTS: AtomicBool = AtomicBool::new(false);
static CALLS: [AtomicU64; Function::ALL.len()] = [const { AtomicU64::new(0) }; Function::ALL.len()];
static PLAN: OnceLock<CallPlan> = OnceLock::new();
static HAS_OCCURRED: AtomicBool = AtomicBool::new(false);

/// Begins to count calls, and sets the plan. Must be called at most once per process.
pub(super) fn begin(plan: Option<CallPlan>) {
    if let Some(plan) = plan {
        let _ = PLAN.set(plan);
    }
    COUNTS.store(true, Ordering::Release);
}

/// Ends the counting. Returns the number of calls of each function, and true if the planned call has occurred.
pub(super) fn end() -> ([u64; Function::ALL.len()], bool) {
    COUNTS.store(false, Ordering::Release);
    (CALLS.each_ref().map(|calls| calls.load(Ordering::Relaxed)), HAS_OCCURRED.load(Ordering::Relaxed))
}

/// Counts a call. Returns its planned change, if it has one.
fn fate_of(function: Function) -> Option<CallFate> {
    if !COUNTS.load(Ordering::Relaxed) {
        return None;
    }
    let number = CALLS[function as usize].fetch_add(1, Ordering::Relaxed);
    let plan = PLAN.get().filter(|plan| (plan.function, plan.number) == (function, number))?;
    HAS_OCCURRED.store(true, Ordering::Relaxed);
    Some(plan.fate)
}

/// Returns true if the call must fail, and sets `errno` of the calling thread.
fn fails(fate: Option<CallFate>) -> bool {
    let number = match fate {
        Some(CallFate::Interrupted) => libc::EINTR,
        Some(CallFate::Fails(number)) => number,
        Some(CallFate::Short) | None => return false,
    };
    // SAFETY: the pointer is valid, and `errno` belongs to the calling thread alone.
    unsafe { *libc::__errno_location() = number };
    true
}

/// Returns the number of bytes to transfer if `bytes` bytes were requested.
fn transferred(fate: Option<CallFate>, bytes: usize) -> usize {
    if fate == Some(CallFate::Short) && bytes > 1 { bytes / 2 } else { bytes }
}

/// Returns the address of the C library's own function with this name.
fn real(of: &OnceLock<usize>, name: &'static std::ffi::CStr) -> usize {
    // SAFETY: the name is null-terminated, and the library outlives the threads of the process.
    *of.get_or_init(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize)
}

/// Defines functions that pass their arguments to a system call, unless the plan makes the call fail.
macro_rules! passed_on {
    ($($function:ident: $number:ident fn $name:ident($($arg:ident: $of:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $of),*) -> c_int {
            if fails(fate_of(Function::$function)) {
                return -1;
            }
            // SAFETY: the arguments are the caller's, unchanged.
            unsafe { libc::syscall(libc::$number, $($arg),*) as c_int }
        }
    )*};
}

passed_on! {
    OpenAt: SYS_openat fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    Stat: SYS_fstat fn fstat64(file: c_int, to: *mut libc::stat64);
    Lock: SYS_flock fn flock(file: c_int, how: c_int);
    SetLength: SYS_ftruncate fn ftruncate64(file: c_int, len: off64_t);
    Allocate: SYS_fallocate fn fallocate64(file: c_int, mode: c_int, offset: off64_t, len: off64_t);
    SyncData: SYS_fdatasync fn fdatasync(file: c_int);
    Sync: SYS_fsync fn fsync(file: c_int);
    Remove: SYS_unlinkat fn unlinkat(dir: c_int, path: *const c_char, flags: c_int);
    RenameNew: SYS_renameat2 fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: u32);
}

#[unsafe(no_mangle)]
extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if fails(fate_of(Function::Open)) {
        return -1;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    if fails(fate_of(Function::MakeDirectory)) {
        return -1;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn readdir64(stream: *mut libc::DIR) -> *mut libc::dirent64 {
    static REAL: OnceLock<usize> = OnceLock::new();
    if fails(fate_of(Function::ReadDirectory)) {
        return std::ptr::null_mut();
    }
    type ReadDirectory = unsafe extern "C" fn(*mut libc::DIR) -> *mut libc::dirent64;
    // SAFETY: the library's function of this name has this type. The arguments are the caller's, unchanged.
    unsafe { transmute::<usize, ReadDirectory>(real(&REAL, c"readdir64"))(stream) }
}

#[unsafe(no_mangle)]
extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    with: *mut c_void,
) -> c_int {
    static REAL: OnceLock<usize> = OnceLock::new();
    // This function returns the error number instead of setting `errno`.
    if let Some(CallFate::Fails(number)) = fate_of(Function::Thread) {
        return number;
    }
    type Create = unsafe extern "C" fn(
        *mut pthread_t,
        *const pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    // SAFETY: the library's function of this name has this type. The arguments are the caller's, unchanged.
    unsafe { transmute::<usize, Create>(real(&REAL, c"pthread_create"))(thread, attributes, run, with) }
}

/// Returns true if a descriptor is not one of the three standard descriptors.
fn is_file(file: c_int) -> bool {
    file > libc::STDERR_FILENO
}

#[unsafe(no_mangle)]
extern "C" fn read(file: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
    let fate = if is_file(file) { fate_of(Function::Read) } else { None };
    if fails(fate) {
        return -1;
    }
    // SAFETY: the arguments are the caller's; a short call uses only a part of the buffer.
    unsafe { libc::syscall(libc::SYS_read, file, to, transferred(fate, bytes)) as ssize_t }
}

#[unsafe(no_mangle)]
extern "C" fn write(file: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    let fate = if is_file(file) { fate_of(Function::Write) } else { None };
    if fails(fate) {
        return -1;
    }
    // SAFETY: the arguments are the caller's; a short call uses only a part of the buffer.
    unsafe { libc::syscall(libc::SYS_write, file, from, transferred(fate, bytes)) as ssize_t }
}

#[unsafe(no_mangle)]
extern "C" fn pread64(file: c_int, to: *mut c_void, bytes: size_t, offset: off64_t) -> ssize_t {
    let fate = fate_of(Function::ReadAt);
    if fails(fate) {
        return -1;
    }
    // SAFETY: the arguments are the caller's; a short call uses only a part of the buffer.
    unsafe { libc::syscall(libc::SYS_pread64, file, to, transferred(fate, bytes), offset) as ssize_t }
}

#[unsafe(no_mangle)]
extern "C" fn pwrite64(file: c_int, from: *const c_void, bytes: size_t, offset: off64_t) -> ssize_t {
    let fate = fate_of(Function::WriteAt);
    if fails(fate) {
        return -1;
    }
    // SAFETY: the arguments are the caller's; a short call uses only a part of the buffer.
    unsafe { libc::syscall(libc::SYS_pwrite64, file, from, transferred(fate, bytes), offset) as ssize_t }
}

/// Returns the slice to use for a short transfer: the first of several slices, or half of a single slice.
fn shortened(slices: *const iovec, count: c_int) -> iovec {
    // SAFETY: the slices are the caller's, and there is at least one.
    let first = unsafe { *slices };
    if count > 1 { first } else { iovec { iov_len: transferred(Some(CallFate::Short), first.iov_len), ..first } }
}

#[unsafe(no_mangle)]
extern "C" fn pwritev64(file: c_int, slices: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
    let fate = fate_of(Function::WriteBlocksAt);
    if fails(fate) {
        return -1;
    }
    if fate == Some(CallFate::Short) && count > 0 {
        let short = shortened(slices, count);
        // SAFETY: the slice is a part of the caller's slices.
        return unsafe { libc::syscall(libc::SYS_pwritev, file, &raw const short, 1, offset, 0) as ssize_t };
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { libc::syscall(libc::SYS_pwritev, file, slices, count, offset, 0) as ssize_t }
}

#[unsafe(no_mangle)]
extern "C" fn preadv64v2(file: c_int, slices: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
    let fate = fate_of(Function::ReadResidentAt);
    if fails(fate) {
        return -1;
    }
    if fate == Some(CallFate::Short) && count > 0 {
        let short = shortened(slices, count);
        // SAFETY: the slice is a part of the caller's slices.
        return unsafe { libc::syscall(libc::SYS_preadv2, file, &raw const short, 1, offset, 0, flags) as ssize_t };
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { libc::syscall(libc::SYS_preadv2, file, slices, count, offset, 0, flags) as ssize_t }
}
