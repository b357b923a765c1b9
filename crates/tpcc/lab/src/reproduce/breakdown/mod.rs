//! Where the time of a transaction goes, modelled: what is counted of it ([`Events`]) times what an event costs on this machine
//! beside other work ([`Exposed`], by [`Probe`]s); [`Model`] says which part is which.

mod events;
mod model;
mod overlap;
mod probe;
mod small_pages;

pub(crate) use events::Events;
pub(crate) use model::{Breakdown, Model, SOURCES};
pub(crate) use overlap::Exposed;
pub(crate) use probe::Probe;

use super::cachegrind::Behind;

/// The second level, and a share of the third: one level behind the first can be simulated, so each needs a run of its own.
pub(crate) const SECOND: Behind = Behind { d1: "32768,8,64", ll: "1048576,8,64" };
pub(crate) const THIRD: Behind = Behind { d1: "32768,8,64", ll: "16777216,16,64" };
/// Translation buffers are caches whose lines are pages: 64 of the first, 2,048 of the second.
pub(crate) const SMALL_PAGES: Behind = Behind { d1: "262144,64,4096", ll: "8388608,8,4096" };
/// The same with pages of 2 MiB for data; 512 of the second, which is as many as can be simulated.
pub(crate) const LARGE_PAGES: Behind = Behind { d1: "134217728,64,2097152", ll: "1073741824,8,2097152" };
