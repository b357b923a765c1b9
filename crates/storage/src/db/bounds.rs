//! Bounds of settings.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::base::error::OpenError;

/// Checks that the value of a setting lies within its bounds.
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
