//! Sums of what was counted.

use super::event::{Event, PLACES, Reading, Reasons, Ring, place};
use super::software::{SoftwareCounts, SoftwareSource};
use crate::workload::generate::deck::Kind;

/// Counts of some transactions.
#[derive(Clone, Debug)]
struct Sum {
    transactions: u64,
    samples: [Reading; PLACES],
}

impl Sum {
    const NONE: Sum = Sum { transactions: 0, samples: [Reading { count: 0, enabled: 0, running: 0 }; PLACES] };

    fn add(&mut self, other: &Sum) {
        self.transactions += other.transactions;
        self.samples.iter_mut().zip(other.samples).for_each(|(sum, more)| sum.add(more));
    }
}

/// What was counted of the workers, while measuring.
#[derive(Clone, Debug)]
pub struct Counted {
    kinds: [Sum; Kind::ALL.len()],
    all: Sum,
    /// What the system counted of their threads.
    pub software: SoftwareCounts,
    /// Who counted that.
    pub software_source: SoftwareSource,
    /// Why counters of the processor are not there, by their keys.
    pub reasons: Reasons,
    /// Whether transactions were counted one by one.
    pub apart: bool,
}

impl Counted {
    pub(super) fn new(reasons: Reasons, software_source: SoftwareSource) -> Counted {
        Counted {
            kinds: [const { Sum::NONE }; Kind::ALL.len()],
            all: Sum::NONE,
            software: SoftwareCounts::default(),
            software_source,
            reasons,
            apart: true,
        }
    }

    /// Adds what was counted between two readings, in so many transactions, of one kind where it is known.
    pub(super) fn add(
        &mut self,
        kind: Option<Kind>,
        before: &[Reading; PLACES],
        now: &[Reading; PLACES],
        transactions: u64,
    ) {
        let sum = Sum { transactions, samples: std::array::from_fn(|at| now[at].since(before[at])) };
        self.all.add(&sum);
        if let Some(kind) = kind {
            self.kinds[kind as usize].add(&sum);
        }
    }

    /// Adds what another worker counted.
    pub fn merge(&mut self, other: Counted) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(sum, more)| sum.add(more));
        self.all.add(&other.all);
        self.software.add(&other.software);
        self.reasons.extend(other.reasons);
        self.apart &= other.apart;
    }

    /// The mean of a transaction, of this kind or of all; none where it was not counted.
    pub fn mean(&self, kind: Option<Kind>, event: Event, ring: Ring) -> Option<f64> {
        let sum = kind.map_or(&self.all, |kind| &self.kinds[kind as usize]);
        let scaled = sum.samples[place(event, ring)].scaled()?;
        (sum.transactions > 0).then(|| scaled / sum.transactions as f64)
    }

    /// The share of the time that a counter ran, in both rings, the smaller; below 1 it took turns with others, and its
    /// figures are estimates. None where there is no such counter.
    pub fn ran(&self, event: Event) -> Option<f64> {
        let shares = Ring::BOTH.iter().filter_map(|ring| {
            let sample = self.all.samples[place(event, *ring)];
            (sample.running > 0).then(|| sample.running as f64 / sample.enabled as f64)
        });
        shares.min_by(f64::total_cmp)
    }
}
