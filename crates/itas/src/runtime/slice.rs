//! End of a slice: the first point that a fiber passes after its time is up.

use std::cell::Cell;

use sched_steps::fiber;

use super::clock::now_ns;

thread_local! {
    /// End of the slice of this thread's running fiber, in nanoseconds of the clock.
    static SLICE_END: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Sets the end of the slice of the fiber that runs next.
#[inline]
pub(super) fn set_end(ends_ns: u64) {
    SLICE_END.set(ends_ns);
}

/// Lets another fiber run if the slice of the running fiber is over. Call this function at places that permit a
/// suspension: between two operations, two statements, two iterations of a loop. A call costs as much as reading a
/// clock.
///
/// Has no effect while a latch is held ([`fiber::LatchGuardCount`]), during a panic, and outside of a runtime.
#[inline]
pub fn point() {
    let ends = SLICE_END.get();
    if ends != u64::MAX && now_ns() >= ends {
        yield_fiber();
    }
}

/// Lets another fiber run, even if the slice is not over.
#[cold]
fn yield_fiber() {
    if fiber::is_fiber() && fiber::latches_held() == 0 && !std::thread::panicking() {
        fiber::yield_now();
    }
}
