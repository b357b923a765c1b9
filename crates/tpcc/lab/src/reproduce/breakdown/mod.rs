//! Modelled breakdown of the time of a transaction. The number of each counted event ([`Events`]) is multiplied by the cost
//! of the event on this machine, alone ([`Probe`]) and beside other work ([`ExposedCosts`]). [`Model`] assigns the costs to
//! parts.

mod events;
mod model;
mod overlap;
mod probe;
mod small_pages;

pub(super) use events::Events;
pub(super) use model::{Breakdown, Model, SOURCES};
pub(super) use overlap::ExposedCosts;
pub(super) use probe::Probe;

use super::cachegrind::DataCaches;

/// Simulated caches with the second level, and with a share of the third level. Cachegrind simulates only one level behind
/// the first, so that each of them needs its own run.
pub(super) const SECOND_LEVEL: DataCaches = DataCaches { d1: "32768,8,64", ll: "1048576,8,64" };
pub(super) const THIRD_LEVEL: DataCaches = DataCaches { d1: "32768,8,64", ll: "16777216,16,64" };
/// Translation buffers for small pages, simulated as caches whose lines are pages: 64 entries in the first buffer, 2,048 in
/// the second.
pub(super) const SMALL_PAGES: DataCaches = DataCaches { d1: "262144,64,4096", ll: "8388608,8,4096" };
/// Translation buffers for data pages of 2 MiB. The second buffer has 512 entries, the maximum that can be simulated.
pub(super) const LARGE_PAGES: DataCaches = DataCaches { d1: "134217728,64,2097152", ll: "1073741824,8,2097152" };
