//! Conversion of durations to numbers.

use std::time::Duration;

/// Converts a duration to nanoseconds, at most `u64::MAX`.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
