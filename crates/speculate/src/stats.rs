//! What loops have done, and which reads and writes stood in their way.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::Duration;

use crate::forward::Site;

/// What loops have done since the speculator was built or [`Speculator::take_stats`](crate::Speculator::take_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Epochs that committed.
    pub epochs: u64,
    /// Times that an epoch was rewound.
    pub violations: u64,
    /// Those of them that were asked for: see [`Options::inject_violations`](crate::Options::inject_violations).
    pub injected: u64,
    /// Operations of committed epochs.
    pub operations: u64,
    /// Operations that were done in vain.
    pub rewound: u64,
    /// Operations that got a recorded answer when an epoch ran again.
    pub replayed: u64,
    /// Time of bodies that ran in vain, in nanoseconds, without the replayed part.
    pub rewound_ns: u64,
    /// Time in which epochs held the token, in nanoseconds.
    pub in_order_ns: u64,
    /// Time in which workers waited for the token, in nanoseconds.
    pub waited_ns: u64,
    /// Reads that waited for earlier epochs: see [`Options::wait_at`](crate::Options::wait_at).
    pub waits: u64,
    /// Time in which they did, in nanoseconds.
    pub waits_ns: u64,
}

impl Stats {
    /// Epochs, and violations that were not asked for.
    pub(crate) fn done(&self) -> (u64, u64) {
        (self.epochs, self.violations.saturating_sub(self.injected))
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        let Stats { epochs, violations, injected, operations, rewound, replayed, rewound_ns, .. } = other;
        let Stats { in_order_ns, waited_ns, waits, waits_ns, .. } = other;
        self.epochs += epochs;
        self.violations += violations;
        self.injected += injected;
        self.operations += operations;
        self.rewound += rewound;
        self.replayed += replayed;
        self.rewound_ns += rewound_ns;
        self.in_order_ns += in_order_ns;
        self.waited_ns += waited_ns;
        self.waits += waits;
        self.waits_ns += waits_ns;
    }
}

/// Where the other side of a dependence was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// An earlier epoch wrote here.
    Epoch(Site),
    /// `then` wrote, an earlier epoch took a write back, another transaction wrote, or the read was violated on request.
    Other,
}

/// A dependence that has rewound epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dependence {
    /// Where the value was read too early.
    pub read: Site,
    /// Where it was written.
    pub written: Writer,
    /// How many times.
    pub violations: u64,
    /// Operations that were done in vain.
    pub rewound: u64,
    /// Their time.
    pub lost: Duration,
}

/// Violations, lost operations and lost nanoseconds by the source locations of a read and a write.
#[derive(Debug, Default)]
pub(crate) struct Profile(HashMap<(Site, Writer), (u64, u64, u64)>);

impl Profile {
    pub(crate) fn note(&mut self, read: Site, written: Writer, rewound: u64, lost_ns: u64) {
        let sum = self.0.entry((read, written)).or_default();
        *sum = (sum.0 + 1, sum.1 + rewound, sum.2 + lost_ns);
    }

    pub(crate) fn merge(&mut self, other: &mut Profile) {
        for (at, (violations, rewound, lost)) in other.0.drain() {
            let sum = self.0.entry(at).or_default();
            *sum = (sum.0 + violations, sum.1 + rewound, sum.2 + lost);
        }
    }

    /// The dependences, the one that cost most first.
    pub(crate) fn sorted(&self) -> Vec<Dependence> {
        let each = self.0.iter().map(|(&(read, written), &(violations, rewound, lost))| Dependence {
            read,
            written,
            violations,
            rewound,
            lost: Duration::from_nanos(lost),
        });
        let mut all: Vec<_> = each.collect();
        all.sort_by_key(|of| (std::cmp::Reverse((of.lost, of.violations)), of.read.to_string()));
        all
    }
}
