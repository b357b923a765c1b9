//! How long a fiber that can run waits at most.
//!
//! # The bound
//! A core gives each of its fibers a vruntime that only grows: by the time that the fiber runs, at most two slices of it a
//! run, divided by its weight. The core chooses no fiber whose vruntime exceeds the smallest by more than the *lead* of its
//! group, `min(agg_bonus, agg_limit * slice)`. A fiber that wakes up is set no further back than the *credit* below the
//! core's smallest vruntime. A new fiber begins above it, by the largest lead so far and what a slice is charged (a start
//! debit, as in CFS): before the core chooses it, the smallest vruntime has grown by that slice.
//!
//! Let `k` be 1024 divided by the smallest weight, and `n` the most fibers that lived at a time. A fiber X that begins to wait
//! stands at most `R = lead + 2 * slice * k` above the smallest vruntime: it was within the lead when it was chosen, and then
//! ran, or it is new. While X waits, the smallest vruntime does not exceed X's: it grows by at most `R`.
//!
//! The other fibers that run while X waits form at most `n - 1` chains, in which each fiber arrives after the one before it
//! has ended. The first of a chain stands at most `credit` below the smallest, and no more than `lead` above it when it is
//! chosen for the last time; so it moves by what the smallest grows meanwhile, and `credit + lead + 2 * slice * k`. Each
//! later one begins `lead` and a slice above the smallest, and is charged at most two slices after its last choice: it moves
//! by at most twice what the smallest grows meanwhile. So a chain moves by at most `2 * R + credit + lead + 2 * slice * k`,
//! however many fibers it has, which takes that long times the weight.
//!
//! Runs that exceed two slices are charged for two only (else a core that the operating system takes away for a while would
//! cost one fiber its turns); they take longer by the factor `max(1, longest / (2 * slice))`. A run counts from the end of the
//! one before, so that choosing, and whatever else the thread does, is part of it. With the run that was under way when X
//! began to wait, and the choice of X itself:
//!
//! ```text
//! wait <= 2 * longest + (n - 1) * max(1, longest / (2 * slice)) * (largest weight / 1024) * (3 * lead + credit + 6 * slice * k)
//! ```
//!
//! The paper's own rules bound nothing on a slave (IP6.1 sets `agg_count` to 0, so that a slave follows for ever): there the
//! lead is `agg_bonus` alone if the core is told to keep to [the paper's rules](crate::CoreSettings::paper_slaves).

use std::time::Duration;

use crate::group::DEFAULT_WEIGHT;

/// What the bound of a core depends on: the largest of each that there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extremes {
    /// Fibers alive at a time.
    pub(crate) fibers: u64,
    pub(crate) lead_ns: u64,
    pub(crate) credit_ns: u64,
    /// The longest time of a slice that was set, and the shortest.
    pub(crate) slice_ns: u64,
    pub(crate) shortest_slice_ns: u64,
    /// The longest run.
    pub(crate) longest_ns: u64,
    pub(crate) heaviest: u32,
    pub(crate) lightest: u32,
}

impl Extremes {
    pub(crate) fn new() -> Extremes {
        Extremes {
            fibers: 0,
            lead_ns: 0,
            credit_ns: 0,
            slice_ns: 1,
            shortest_slice_ns: u64::MAX,
            longest_ns: 0,
            heaviest: DEFAULT_WEIGHT,
            lightest: DEFAULT_WEIGHT,
        }
    }

    /// See the module.
    pub(crate) fn wait_bound(&self) -> Duration {
        let weight = f64::from(DEFAULT_WEIGHT);
        let stolen = (self.longest_ns as f64 / (2.0 * self.shortest_slice_ns as f64)).max(1.0);
        let charged = 6.0 * self.slice_ns as f64 * weight / f64::from(self.lightest);
        let each = (3 * self.lead_ns + self.credit_ns) as f64 + charged;
        let others = self.fibers.saturating_sub(1) as f64 * stolen * f64::from(self.heaviest) / weight * each;
        Duration::from_nanos((others.ceil() as u64).saturating_add(2 * self.longest_ns))
    }
}
