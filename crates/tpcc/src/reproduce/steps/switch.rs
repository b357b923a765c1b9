//! The switch itself: nanoseconds of a hop between team mates, and the rivals.

use crate::error::Error;
use crate::reproduce::Findings;
use crate::reproduce::claims;
use crate::reproduce::lab::Lab;

/// Measures hops.
pub(super) fn switch(_lab: &mut Lab, findings: &mut Findings) -> Result<(), Error> {
    for promise in [claims::HOP_NS, claims::HOP_VS_COROSENSEI, claims::HOP_VS_TOKIO, claims::SWITCH_CODE] {
        findings.claim(promise.missing(""));
    }
    Ok(())
}
