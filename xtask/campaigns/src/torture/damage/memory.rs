//! Memory use of a thread. It detects an engine that allocates memory of an absurd length from a damaged file.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocator of the system, with counters of the allocated bytes.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

thread_local! {
    /// Number of bytes that this thread has allocated minus the number that it has freed, and the maximum of this
    /// difference. The difference is negative if the thread frees memory of other threads.
    static ALLOCATED: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn add(bytes: i64) {
    // A thread may still allocate after its thread-local variables were destroyed, so an error is ignored.
    let _ = ALLOCATED.try_with(|allocated| {
        let (now, most) = allocated.get();
        allocated.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is passed unchanged to the system's allocator. Counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller guarantees the requirements of the same method of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller guarantees the requirements of the same method of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as i64 - layout.size() as i64);
        // SAFETY: the caller guarantees the requirements of the same method of the system's allocator.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller guarantees the requirements of the same method of the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Runs `work`. Returns its result, and the maximum increase of this thread's allocated bytes during `work`.
pub(crate) fn peak_during<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = ALLOCATED.with(|allocated| {
        let (now, _) = allocated.get();
        allocated.set((now, now));
        now
    });
    let result = work();
    (result, ALLOCATED.with(|allocated| (allocated.get().1 - before).max(0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_seen_though_it_is_given_back() {
        let (_, most) = peak_during(|| drop(vec![0u8; 1 << 20]));
        assert!((1 << 20..1 << 21).contains(&most), "{most}");
    }
}
