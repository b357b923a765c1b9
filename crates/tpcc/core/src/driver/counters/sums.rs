//! Sums of counter readings.

use super::event::{Event, PLACES, Reading, Reasons, Ring, place};
use super::software::{SoftwareCounts, SoftwareSource};
use crate::workload::generate::deck::Kind;

/// Sum of counts over a number of transactions.
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

/// Counts of all workers over the measurement.
#[derive(Clone, Debug)]
pub struct EventCounts {
    kinds: [Sum; Kind::ALL.len()],
    all: Sum,
    /// Operating system counts of the worker threads.
    pub software: SoftwareCounts,
    /// Source of the operating system counts.
    pub software_source: SoftwareSource,
    /// Reasons why hardware counters are not available, by counter key.
    pub reasons: Reasons,
    /// True if the counts are separate for each kind of transaction.
    pub apart: bool,
}

impl EventCounts {
    pub(super) fn new(reasons: Reasons, software_source: SoftwareSource) -> EventCounts {
        EventCounts {
            kinds: [const { Sum::NONE }; Kind::ALL.len()],
            all: Sum::NONE,
            software: SoftwareCounts::default(),
            software_source,
            reasons,
            apart: true,
        }
    }

    /// Adds the counts between two readings, over `transactions` transactions; `kind` is their kind if known.
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

    /// Adds the counts of another worker.
    pub fn merge(&mut self, other: EventCounts) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(sum, more)| sum.add(more));
        self.all.add(&other.all);
        self.software.add(&other.software);
        self.reasons.extend(other.reasons);
        self.apart &= other.apart;
    }

    /// Returns the mean count per transaction, of one kind or of all kinds. `None` if the event was not counted.
    pub fn mean(&self, kind: Option<Kind>, event: Event, ring: Ring) -> Option<f64> {
        let sum = kind.map_or(&self.all, |kind| &self.kinds[kind as usize]);
        let scaled = sum.samples[place(event, ring)].scaled()?;
        (sum.transactions > 0).then(|| scaled / sum.transactions as f64)
    }

    /// Returns the fraction of the time during which the counter of an event ran, the minimum of both privilege levels. If
    /// the fraction is below 1, the counter was multiplexed, and its values are estimates. `None` if the counter is not
    /// available.
    pub fn ran(&self, event: Event) -> Option<f64> {
        let shares = Ring::BOTH.iter().filter_map(|ring| {
            let sample = self.all.samples[place(event, *ring)];
            (sample.running > 0).then(|| sample.running as f64 / sample.enabled as f64)
        });
        shares.min_by(f64::total_cmp)
    }
}
