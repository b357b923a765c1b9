//! Number of page latches that this thread holds, counted in builds with debug assertions.
//!
//! Fibers switch only at points and blocks, where they hold no latch, so the count of a thread is the count of its running
//! fiber. (Under shuttle all tasks share one thread and switch anywhere: nothing is counted there.) The count lies in a
//! lower module than the latches because points and hooks check it, and latches use points and hooks.

#[cfg(all(debug_assertions, not(shuttle)))]
mod held {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<i64> = const { Cell::new(0) };
    }

    pub(super) fn change(by: i64) {
        HELD.set(HELD.get() + by);
    }

    pub(super) fn count() -> i64 {
        HELD.get()
    }
}

/// Adds `_by` to the count when a latch is acquired or released. Counts only with debug assertions, and not under shuttle.
#[inline(always)]
pub(crate) fn note(_by: i64) {
    #[cfg(all(debug_assertions, not(shuttle)))]
    held::change(_by);
}

/// Asserts in debug builds that this thread holds no page latch. The message contains `_where`.
#[inline(always)]
pub(crate) fn assert_none_held(_where: &str) {
    #[cfg(all(debug_assertions, not(shuttle)))]
    assert_eq!(held::count(), 0, "a latch is held at {_where}, where another fiber may run");
}
