//! Where a slice ends: at the first point that a fiber passes after its time.

use std::cell::Cell;

use sched_steps::fiber;

use super::clock::now_ns;

thread_local! {
    /// When the slice of the fiber that runs on this thread is over.
    static ENDS: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The slice of the fiber that runs next is over at this time.
#[inline]
pub(super) fn begin(ends_ns: u64) {
    ENDS.set(ends_ns);
}

/// Lets another fiber run if the slice of the running one is over. The place for it is wherever a fiber may stop: between
/// two operations, two statements, two passes of a loop. It reads a clock, some 10 ns.
///
/// Nothing happens while a latch is held ([`fiber::LatchGuardCount`]), during a panic, and outside of a runtime.
#[inline]
pub fn point() {
    let ends = ENDS.get();
    if ends != u64::MAX && now_ns() >= ends {
        give_way();
    }
}

/// Lets another fiber run, whether the slice is over or not.
#[cold]
fn give_way() {
    if fiber::is_fiber() && fiber::latches_held() == 0 && !std::thread::panicking() {
        fiber::yield_now();
    }
}
