//! Durations as numbers.

use std::time::Duration;

/// Nanoseconds of a duration; the largest number for one that has more.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
