//! Counters of loops, and the profile of dependences between reads and writes.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::Duration;

use crate::forward::Site;

/// Counters of all loops since the speculator was built or [`Speculator::take_stats`](crate::Speculator::take_stats) was
/// last called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of committed epochs.
    pub epochs: u64,
    /// Number of times that an epoch was rewound.
    pub violations: u64,
    /// Number of injected violations among the violations: see
    /// [`Options::inject_violations`](crate::Options::inject_violations).
    pub injected: u64,
    /// Number of operations of committed epochs.
    pub operations: u64,
    /// Number of operations that were discarded by rewinds.
    pub rewound: u64,
    /// Number of operations that were replayed with their recorded answers when an epoch ran again.
    pub replayed: u64,
    /// Nanoseconds of discarded runs of bodies, without their replayed parts.
    pub rewound_ns: u64,
    /// Nanoseconds that epochs held the token, summed over all epochs.
    pub in_order_ns: u64,
    /// Nanoseconds that workers waited for the token, summed over all workers.
    pub waited_ns: u64,
    /// Number of reads that waited for earlier epochs: see [`Options::wait_at`](crate::Options::wait_at).
    pub waits: u64,
    /// Nanoseconds that reads waited for earlier epochs.
    pub waits_ns: u64,
}

impl Stats {
    /// Returns the numbers of epochs and of violations that were not injected.
    pub(crate) fn epochs_and_violations(&self) -> (u64, u64) {
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

/// Origin of the write of a dependence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// A write of an earlier epoch at this site.
    Epoch(Site),
    /// A write of `then` or of another transaction, a write that an earlier epoch withdrew, or an injected violation.
    Other,
}

/// Dependence of a read on a write that has rewound epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dependence {
    /// Site of the read that was too early.
    pub read: Site,
    /// Origin of the write that the read missed.
    pub written: Writer,
    /// Number of violations by this dependence.
    pub violations: u64,
    /// Number of operations discarded because of this dependence.
    pub rewound: u64,
    /// Duration of the discarded operations.
    pub lost: Duration,
}

/// Numbers of violations, of discarded operations and of lost nanoseconds, by the site of the read and the origin of the
/// write.
#[derive(Debug, Default)]
pub(crate) struct Profile(HashMap<(Site, Writer), (u64, u64, u64)>);

impl Profile {
    pub(crate) fn record(&mut self, read: Site, written: Writer, rewound: u64, lost_ns: u64) {
        let sum = self.0.entry((read, written)).or_default();
        *sum = (sum.0 + 1, sum.1 + rewound, sum.2 + lost_ns);
    }

    pub(crate) fn merge(&mut self, other: &mut Profile) {
        for (at, (violations, rewound, lost)) in other.0.drain() {
            let sum = self.0.entry(at).or_default();
            *sum = (sum.0 + violations, sum.1 + rewound, sum.2 + lost);
        }
    }

    /// Returns the dependences, the most expensive one first.
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
