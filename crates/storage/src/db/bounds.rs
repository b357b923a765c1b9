//! Settings that must lie within bounds.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::base::error::OpenError;

/// Refuses a value out of bounds.
pub(super) fn within<N: PartialOrd + Display>(
    setting: &'static str,
    value: N,
    bounds: &RangeInclusive<N>,
) -> Result<(), OpenError> {
    let what = if value < *bounds.start() {
        format!("{value}; at least {} is needed", bounds.start())
    } else if value > *bounds.end() {
        format!("{value}; at most {} is possible", bounds.end())
    } else {
        return Ok(());
    };
    Err(OpenError::Setting { setting, what })
}
