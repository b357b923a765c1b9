//! Number of page latches that this thread holds, counted in builds with debug assertions.
//!
//! Fibers switch only at points and blocks, where they hold no latch, so the thread's count is that of the running fiber.
//! (Under shuttle all tasks share one thread and switch anywhere: nothing is counted there.) The count lies in a lower
//! module than the latches because points and hooks, which latches use, check it.

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

/// Adds to the count, in debug builds, when a latch is acquired or released.
#[inline(always)]
pub(crate) fn note(_by: i64) {
    #[cfg(all(debug_assertions, not(shuttle)))]
    held::change(_by);
}

/// Asserts in debug builds that this thread holds no page latch; `_where` is for the message.
#[inline(always)]
pub(crate) fn assert_none_held(_where: &str) {
    #[cfg(all(debug_assertions, not(shuttle)))]
    assert_eq!(held::count(), 0, "a latch is held at {_where}, where another fiber may run");
}
