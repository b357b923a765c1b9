//! Interrupted system calls. The C library's functions are replaced here: one call in `EVERY` is interrupted by a
//! signal.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

mod common;

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use common::ROWS;
use storage::{Database, Durability, Options, TxnError};

static CALLS: AtomicU64 = AtomicU64::new(0);
static EVERY: AtomicU64 = AtomicU64::new(u64::MAX);

/// Returns true if this call is to be interrupted.
fn is_interrupted() -> bool {
    let interrupted = (CALLS.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(EVERY.load(Ordering::Relaxed));
    if interrupted {
        // SAFETY: the location belongs to the calling thread.
        unsafe { *libc::__errno_location() = libc::EINTR };
    }
    interrupted
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(file: c_int, mode: c_int, offset: i64, len: i64) -> c_int {
    if is_interrupted() {
        return -1;
    }
    // SAFETY: forwards the arguments of the caller.
    unsafe { libc::syscall(libc::SYS_fallocate, file, mode, offset, len) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    if is_interrupted() {
        return -1;
    }
    // SAFETY: forwards the arguments of the caller.
    unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) as c_int }
}

#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    if is_interrupted() {
        return -1;
    }
    // SAFETY: forwards the arguments of the caller.
    unsafe { libc::syscall(libc::SYS_fsync, file) as c_int }
}

#[test]
fn interrupted_calls_are_made_again() {
    let directory = std::env::temp_dir().join(format!("storage-interrupted-{}", std::process::id()));
    for every in [u64::MAX, 3, 2] {
        let _ = std::fs::remove_dir_all(&directory);
        EVERY.store(every, Ordering::Relaxed);
        let options = Options::new().durability(Durability::Async).log_segment(1 << 20).checkpoint_every(4 << 20);
        let db = Database::open(&directory, options).unwrap();
        for round in 0..40_u64 {
            let key = |i: u64| (round * 200 + i).to_be_bytes().to_vec();
            db.transact::<_, TxnError>(|tx| (0..200).try_for_each(|i| tx.put(&ROWS, &key(i), &vec![7; 1000]))).unwrap();
        }
        db.sync().unwrap();
        db.close().unwrap();
        EVERY.store(u64::MAX, Ordering::Relaxed);
    }
    assert!(CALLS.load(Ordering::Relaxed) > 30, "the calls come by here");
    let _ = std::fs::remove_dir_all(&directory);
}
