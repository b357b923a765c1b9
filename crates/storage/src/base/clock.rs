//! The clock of the crate. No other module reads the time, so that a simulation can supply its own clock.

use crate::base::sync::plain::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns a duration in nanoseconds; `u64::MAX` for durations of 584 years or more, such as [`Duration::MAX`].
pub(crate) const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// Monotonic clock that counts nanoseconds since its creation.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Machine(Instant),
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// Returns the machine's monotonic clock.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn machine() -> Clock {
        Clock(Source::Machine(Instant::now()))
    }

    /// Returns a clock for simulations. The clock advances when a caller stores to `now`, and by a nanosecond at each call
    /// of [`Clock::age`].
    pub(crate) fn simulated(now: Arc<AtomicU64>) -> Clock {
        Clock(Source::Virtual(now))
    }

    /// Returns the number of nanoseconds since the creation of the clock.
    pub(crate) fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::Machine(start) => nanos(start.elapsed()),
            Source::Virtual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Runs `wait`. Also returns its duration in nanoseconds.
    pub(crate) fn timed<T>(&self, wait: impl FnOnce() -> T) -> (T, u64) {
        let begin_ns = self.now_ns();
        let result = wait();
        (result, self.now_ns().saturating_sub(begin_ns))
    }

    /// Returns a timestamp for use as the age of a transaction. Timestamps grow with time and are comparable between
    /// threads; their unit is unspecified. Cheaper than [`Clock::now_ns`].
    #[inline]
    pub(crate) fn age(&self) -> u64 {
        match &self.0 {
            Source::Machine(_) => stamp(),
            // Ages are unique even if the simulated time does not advance.
            Source::Virtual(now) => now.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns true if this is the clock of a simulation.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.0, Source::Virtual(_))
    }
}

#[inline]
#[allow(unsafe_code)]
fn stamp() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 processor has the instruction `rdtsc`.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        static START: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
        START.get_or_init(Clock::machine).now_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_duration_is_too_long_to_be_counted() {
        let longest = Duration::from_nanos(u64::MAX);
        for (duration, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::new(3, 5), 3_000_000_005),
            (longest, u64::MAX),
            (longest + Duration::from_nanos(1), u64::MAX),
            (Duration::from_secs(u64::MAX / 2), u64::MAX),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(nanos(duration), expected, "{duration:?}");
        }
    }
}
