//! How many page latches this thread holds, counted in builds with debug assertions.
//!
//! A fiber is left only at points and blocks, where it holds none, so the thread's count is that of the fiber that
//! runs. (Under shuttle all tasks share one thread and are left anywhere: nothing is counted there.) The count lies
//! below the latches because points and hooks, which latches use, ask for it.

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

/// Notes in debug builds that a latch was taken or given back.
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
