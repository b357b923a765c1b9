//! Bound on the wait of a fiber that can run.
//!
//! # The bound
//! A core gives each of its fibers a vruntime that only grows. It grows by the time that the fiber runs, at most two
//! slices per run, divided by the fiber's weight. The core chooses no fiber whose vruntime exceeds the smallest by more
//! than the *lead* of its group, `min(agg_bonus, agg_limit * slice)`. A fiber that wakes up is placed at most the
//! *credit* below the core's smallest vruntime. A new fiber starts above the smallest vruntime, by the largest lead so
//! far and the charge of one slice (a start debit, as in CFS): before the core chooses it, the smallest vruntime has
//! grown by that slice.
//!
//! Let `k` be 1024 divided by the smallest weight, and `n` the maximum number of live fibers. When a fiber X begins to
//! wait, its vruntime is at most `R = lead + 2 * slice * k` above the smallest: it was within the lead when it was
//! chosen, and then ran, or it is new. While X waits, the smallest vruntime does not exceed X's: it grows by at most `R`.
//!
//! The other fibers that run while X waits form at most `n - 1` chains, in which each fiber arrives after its predecessor
//! has ended. The first fiber of a chain is at most `credit` below the smallest vruntime, and no more than `lead` above
//! it when it is chosen for the last time. So its vruntime advances by the growth of the smallest one meanwhile plus
//! `credit + lead + 2 * slice * k`. Each later fiber starts `lead` and a slice above the smallest, and is charged at most
//! two slices after its last choice: it advances by at most twice the growth of the smallest one meanwhile. So a chain
//! advances by at most `2 * R + credit + lead + 2 * slice * k`, regardless of its number of fibers, and takes that time
//! multiplied by the weight.
//!
//! Runs that exceed two slices are charged for two only (otherwise a core that the operating system preempts would cost
//! one fiber its turns). They take longer by the factor `max(1, longest / (2 * slice))`. A run is measured from the end
//! of the previous one, so it includes the choice and any other work of the thread. With the run that was in
//! progress when X began to wait, and the choice of X itself:
//!
//! ```text
//! wait <= 2 * longest + (n - 1) * max(1, longest / (2 * slice)) * (largest weight / 1024) * (3 * lead + credit + 6 * slice * k)
//! ```
//!
//! The paper's own rules bound nothing on a slave (IP6.1 sets `agg_count` to 0, so that a slave may follow for ever). If
//! the core is set to [the paper's rules](crate::CoreSettings::paper_slaves), the lead is `agg_bonus` alone.

use std::time::Duration;

use crate::group::DEFAULT_WEIGHT;

/// Extreme values that the bound of a core depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extremes {
    /// Maximum number of live fibers.
    pub(crate) fibers: u64,
    pub(crate) lead_ns: u64,
    pub(crate) credit_ns: u64,
    /// Longest slice that was set; `shortest_slice_ns` is the shortest.
    pub(crate) slice_ns: u64,
    pub(crate) shortest_slice_ns: u64,
    /// Duration of the longest run.
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

    /// Computes the bound. See the module documentation.
    pub(crate) fn wait_bound(&self) -> Duration {
        let weight = f64::from(DEFAULT_WEIGHT);
        let stolen = (self.longest_ns as f64 / (2.0 * self.shortest_slice_ns as f64)).max(1.0);
        let charged = 6.0 * self.slice_ns as f64 * weight / f64::from(self.lightest);
        let each = (3 * self.lead_ns + self.credit_ns) as f64 + charged;
        let others = self.fibers.saturating_sub(1) as f64 * stolen * f64::from(self.heaviest) / weight * each;
        Duration::from_nanos((others.ceil() as u64).saturating_add(2 * self.longest_ns))
    }
}
