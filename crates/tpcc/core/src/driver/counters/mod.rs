//! Hardware and operating system counters of a run's workers (`--counters on`), by kind of transaction.
//!
//! Follows the cycle accounting of Saylor and Khessib (DaMoN 2006), section 5.1: cycles by cause, user and kernel separate.
//! A worker that runs one transaction at a time reads its counters between two transactions, so that its work between them
//! counts towards the earlier one. A worker with interleaved transactions reads its counters only at the start and the end
//! of the measurement.

mod event;
mod perf;
mod software;
mod sums;

pub use event::{Event, Ring};
pub use sums::EventCounts;

use crate::workload::generate::deck::Kind;
use event::{PLACES, Reading, Source};
use perf::PerfSource;
use software::{Software, SoftwareCounts};

/// Counters of one worker. Must be used only on the thread of this worker.
pub struct Meter {
    source: Box<dyn Source>,
    software: Software,
    /// Last reading of the hardware counters.
    last: [Reading; PLACES],
    began: Option<SoftwareCounts>,
    counted: EventCounts,
}

impl Meter {
    /// Opens the available counters for the calling thread. [`EventCounts::reasons`] contains the reasons why other counters
    /// are not available.
    pub fn open() -> Meter {
        let (source, reasons) = PerfSource::open();
        Meter::over(Box::new(source), Software::open(), reasons)
    }

    fn over(source: Box<dyn Source>, software: Software, reasons: event::Reasons) -> Meter {
        let counted = EventCounts::new(reasons, software.source());
        Meter { source, software, last: [Reading::default(); PLACES], began: None, counted }
    }

    /// Returns true if [`Self::begin`] was called.
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    /// Starts the measurement: takes the first reading.
    #[cold]
    pub fn begin(&mut self) {
        self.began = Some(self.software.read());
        self.last = self.source.read();
    }

    /// Attributes the counts since the last reading to a finished transaction. Requires that no other transaction was in
    /// progress on this thread.
    pub fn ended(&mut self, kind: Kind) {
        if !self.has_begun() || self.source.is_empty() {
            return;
        }
        let now = self.source.read();
        self.counted.add(Some(kind), &self.last, &now, 1);
        self.last = now;
    }

    /// Ends the measurement. `transactions` is the number of transactions if they were not counted individually.
    pub fn close(mut self, transactions: Option<u64>) -> EventCounts {
        if let Some(began) = self.began {
            self.counted.software = self.software.read().since(&began);
            if let (Some(transactions), false) = (transactions, self.source.is_empty()) {
                let now = self.source.read();
                self.counted.add(None, &self.last, &now, transactions);
            }
        }
        self.counted.apart = transactions.is_none();
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::event::Reasons;
    use super::*;

    /// Counter source that returns readings provided by a test.
    struct Fake(VecDeque<[Reading; PLACES]>);

    impl Source for Fake {
        fn is_empty(&self) -> bool {
            false
        }

        fn read(&mut self) -> [Reading; PLACES] {
            self.0.pop_front().expect("as many readings as boundaries")
        }
    }

    /// Creates a reading in which every counter ran for `running` of `enabled` nanoseconds. User counts are `count`, kernel
    /// counts a tenth of `count`.
    fn reading(count: u64, enabled: u64, running: u64) -> [Reading; PLACES] {
        std::array::from_fn(|place| {
            let ring = if place % 2 == 0 { 1 } else { 10 };
            Some((count / ring, enabled, running))
        })
        .map(|sample: Option<(u64, u64, u64)>| {
            sample.map_or(Reading::default(), |(count, enabled, running)| Reading { count, enabled, running })
        })
    }

    fn meter(readings: impl IntoIterator<Item = [Reading; PLACES]>) -> Meter {
        let mut meter =
            Meter::over(Box::new(Fake(readings.into_iter().collect())), Software::of_the_system(), Reasons::new());
        meter.begin();
        meter
    }

    #[test]
    fn what_lies_between_two_ends_belongs_to_the_second() {
        let mut meter =
            meter([reading(1_000, 10, 10), reading(3_000, 20, 20), reading(3_500, 30, 30), reading(9_500, 40, 40)]);
        meter.ended(Kind::NewOrder);
        meter.ended(Kind::Payment);
        meter.ended(Kind::NewOrder);
        let counted = meter.close(None);
        assert_eq!(counted.mean(Some(Kind::NewOrder), Event::Cycles, Ring::User), Some(4_000.0));
        assert_eq!(counted.mean(Some(Kind::NewOrder), Event::Cycles, Ring::Kernel), Some(400.0));
        assert_eq!(counted.mean(Some(Kind::Payment), Event::BranchMisses, Ring::User), Some(500.0));
        assert_eq!(counted.mean(Some(Kind::Delivery), Event::Cycles, Ring::User), None, "none ran");
        let all = counted.mean(None, Event::Instructions, Ring::User).unwrap();
        assert!((all - 8_500.0 / 3.0).abs() < 1e-9, "{all}");
        assert_eq!(counted.ran(Event::Cycles), Some(1.0));
    }

    #[test]
    fn a_counter_that_took_turns_is_scaled_and_told() {
        let mut meter =
            meter([reading(0, 0, 0), reading(100, 1_000, 250), reading(100, 2_000, 250), reading(300, 4_000, 750)]);
        (0..3).for_each(|_| meter.ended(Kind::Payment));
        let counted = meter.close(None);
        // A count of 300 in 750 of 4,000 ns. The counter did not run during the second transaction.
        assert_eq!(
            counted.mean(Some(Kind::Payment), Event::DtlbMisses, Ring::User),
            Some(300.0 * 4_000.0 / 750.0 / 3.0)
        );
        assert_eq!(counted.ran(Event::DtlbMisses), Some(750.0 / 4_000.0));
    }

    #[test]
    fn workers_are_merged_and_those_that_take_turns_have_one_sum() {
        let mut one = meter([reading(0, 0, 0), reading(100, 10, 10)]);
        one.ended(Kind::Payment);
        let mut one = one.close(None);
        let mut two = meter([reading(0, 0, 0), reading(500, 10, 10)]);
        two.ended(Kind::Payment);
        one.merge(two.close(None));
        assert_eq!(one.mean(Some(Kind::Payment), Event::Cycles, Ring::User), Some(300.0));

        let counted = meter([reading(0, 0, 0), reading(900, 10, 10)]).close(Some(3));
        assert_eq!(counted.mean(None, Event::Cycles, Ring::User), Some(300.0));
        assert_eq!(counted.mean(Some(Kind::Payment), Event::Cycles, Ring::User), None);
        assert!(!counted.apart);
    }
}
