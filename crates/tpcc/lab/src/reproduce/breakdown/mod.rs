//! Where the time of a transaction goes, modelled: what is counted of it ([`Events`]) times what an event costs on this machine
//! beside other work ([`Exposed`], by [`Probe`]s); [`Model`] says which part is which.

mod events;
mod model;
mod overlap;
mod probe;
mod small_pages;

pub(super) use events::Events;
pub(super) use model::{Breakdown, Model, SOURCES};
pub(super) use overlap::Exposed;
pub(super) use probe::Probe;

use super::cachegrind::Behind;

/// The second level, and a share of the third: one level behind the first can be simulated, so each needs a run of its own.
pub(super) const SECOND: Behind = Behind { d1: "32768,8,64", ll: "1048576,8,64" };
pub(super) const THIRD: Behind = Behind { d1: "32768,8,64", ll: "16777216,16,64" };
/// Translation buffers are caches whose lines are pages: 64 of the first, 2,048 of the second.
pub(super) const SMALL_PAGES: Behind = Behind { d1: "262144,64,4096", ll: "8388608,8,4096" };
/// The same with pages of 2 MiB for data; 512 of the second, which is as many as can be simulated.
pub(super) const LARGE_PAGES: Behind = Behind { d1: "134217728,64,2097152", ll: "1073741824,8,2097152" };
