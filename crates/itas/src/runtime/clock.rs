//! Clock of the process, cheap enough to be read at every point.

use std::sync::LazyLock;

use quanta::Clock;

static CLOCK: LazyLock<(Clock, u64)> = LazyLock::new(|| {
    let clock = Clock::new();
    let start = clock.raw();
    (clock, start)
});

/// Returns the nanoseconds since the first call in the process.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let (clock, start) = &*CLOCK;
    clock.delta_as_nanos(*start, clock.raw())
}
