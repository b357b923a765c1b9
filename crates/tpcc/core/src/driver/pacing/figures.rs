//! Figures of paced terminals and deferred Deliveries, and the check of their time limits.

use std::time::Duration;

use super::times::{DEFERRED_LIMIT, MEAN_SLACK, requirements};
use crate::driver::measure::{Stats, Times};
use crate::workload::generate::deck::Kind;
use crate::workload::time::nanos;

/// Outcome of the deferred Deliveries that were queued during the measurement.
#[derive(Clone, Debug)]
pub struct Deferrals {
    /// Number of Deliveries that were executed and made durable.
    pub done: u64,
    /// Number of Deliveries that were not executed when the run ended.
    pub left: u64,
    /// Times from queueing to durability. For Deliveries that were not executed: times from queueing to the end of the run.
    pub times: Times,
}

impl Default for Deferrals {
    fn default() -> Self {
        Deferrals { done: 0, left: 0, times: Times::new() }
    }
}

impl Deferrals {
    /// Records an executed Delivery. `after` is the time from queueing to durability.
    pub(super) fn done(&mut self, after: Duration) {
        self.done += 1;
        self.times.record(nanos(after));
    }

    /// Records a Delivery that was not executed when the run ended. `after` is the time since its queueing.
    pub(super) fn left(&mut self, after: Duration) {
        self.left += 1;
        self.times.record(nanos(after));
    }

    /// Adds the figures of another worker.
    pub(super) fn merge(&mut self, other: &Deferrals) {
        self.done += other.done;
        self.left += other.left;
        self.times.merge(&other.times);
    }

    /// Returns true if 90% of the Deliveries were executed within the limit (2.7.2.2). `None` if no Delivery was queued.
    pub fn limit_holds(&self) -> Option<bool> {
        Some(self.times.quantile_us(0.9)? <= DEFERRED_LIMIT.as_secs_f64() * 1e6)
    }
}

/// Figures of the terminal cycles during the measurement.
#[derive(Clone, Debug, Default)]
pub struct Cycles {
    /// Number and sum of the drawn think times, indexed by kind of transaction.
    pub thought: [(u64, Duration); 5],
    /// Total keying and think time of the cycles that got a response.
    pub asked: Duration,
    /// Total response time of the cycles that got a response.
    pub waited: Duration,
    /// Number of queued Deliveries.
    pub queued: u64,
}

impl Cycles {
    /// Records a cycle that got a response. Its think time is drawn, but has not passed yet.
    pub(super) fn count(&mut self, kind: Kind, keying: Duration, think: Duration, response: Duration) {
        let (count, sum) = &mut self.thought[kind as usize];
        *count += 1;
        *sum += think;
        self.asked += keying + think;
        self.waited += response;
        self.queued += u64::from(kind == Kind::Delivery);
    }

    /// Returns the fraction of a terminal's time in which the terminal did not wait for a response. This is the fraction of
    /// the offered load that was served. `None` if no cycle got a response.
    pub fn share_of_offered(&self) -> Option<f64> {
        let all = self.asked + self.waited;
        (!all.is_zero()).then(|| self.asked.as_secs_f64() / all.as_secs_f64())
    }
}

/// Additional figures of a paced run.
#[derive(Clone, Debug)]
pub struct PacedFigures {
    /// Cycles of the terminals: keying, waiting for the response, thinking.
    pub cycles: Cycles,
    /// Outcome of the deferred Deliveries.
    pub deferrals: Deferrals,
    /// CPU time of the whole process during the measurement; `None` if the system does not report it.
    pub cpu: Option<Duration>,
    /// Path of the result file of Deliveries.
    pub results: std::path::PathBuf,
}

/// Checks the response times of a kind of transaction: the 90th percentile must be within the limit, and the mean at most
/// [`MEAN_SLACK`] above the 90th percentile (5.2.5.6). Returns `None` without a response.
pub fn limit_holds(stats: &Stats, kind: Kind) -> Option<bool> {
    let response = &stats.kinds[kind as usize].response;
    let (p90, mean) = (response.quantile_us(0.9)?, response.mean_us()?);
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    Some(p90 <= us(requirements(kind).limit) && mean <= p90 + us(MEAN_SLACK))
}

/// Checks all time limits. Returns false if a limit is exceeded, otherwise `None` if a limit has no measurements, otherwise
/// true.
pub fn limits_hold(stats: &Stats, deferrals: &Deferrals) -> Option<bool> {
    let mut each = Kind::ALL.map(|kind| limit_holds(stats, kind)).into_iter().chain([deferrals.limit_holds()]);
    if each.clone().any(|one| one == Some(false)) {
        return Some(false);
    }
    each.all(|one| one.is_some()).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(kind: Kind, seconds: &[f64]) -> Stats {
        let mut stats = Stats::new();
        seconds.iter().for_each(|s| stats.answered(kind, (s * 1e9) as u64));
        stats
    }

    #[test]
    fn ninety_of_a_hundred_answers_have_to_be_in_time() {
        let with_late = |late: usize| -> Vec<f64> { (0..100).map(|n| if n < late { 6.0 } else { 0.1 }).collect() };
        assert_eq!(limit_holds(&answered(Kind::Payment, &[]), Kind::Payment), None);
        assert_eq!(limit_holds(&answered(Kind::Payment, &with_late(11)), Kind::Payment), Some(false));
        // The limit of Stock-Level is 20 s.
        assert_eq!(limit_holds(&answered(Kind::StockLevel, &with_late(11)), Kind::StockLevel), Some(true));
        // The 90th percentile is within the limit, but a few responses are so late that the mean exceeds the 90th
        // percentile.
        assert_eq!(limit_holds(&answered(Kind::Payment, &with_late(9)), Kind::Payment), Some(false));
        assert_eq!(limit_holds(&answered(Kind::Payment, &with_late(1)), Kind::Payment), Some(true));
    }

    #[test]
    fn deliveries_that_are_left_count_as_late_as_they_are() {
        let mut deferrals = Deferrals::default();
        assert_eq!(deferrals.limit_holds(), None);
        (0..9).for_each(|_| deferrals.done(Duration::from_secs(1)));
        deferrals.left(Duration::from_secs(100));
        assert_eq!((deferrals.limit_holds(), deferrals.done, deferrals.left), (Some(true), 9, 1));
        deferrals.left(Duration::from_secs(81));
        assert_eq!(deferrals.limit_holds(), Some(false));
    }

    #[test]
    fn one_limit_that_does_not_hold_is_enough_and_all_have_to_be_known() {
        let mut stats = Stats::new();
        let mut deferrals = Deferrals::default();
        assert_eq!(limits_hold(&stats, &deferrals), None);
        Kind::ALL.into_iter().for_each(|kind| stats.answered(kind, 1_000));
        assert_eq!(limits_hold(&stats, &deferrals), None, "no Delivery is done");
        deferrals.done(Duration::from_secs(79));
        assert_eq!(limits_hold(&stats, &deferrals), Some(true));
        stats.answered(Kind::OrderStatus, 6_000_000_000);
        assert_eq!(limits_hold(&stats, &deferrals), Some(false));
        assert_eq!(limits_hold(&answered(Kind::NewOrder, &[6.0]), &Deferrals::default()), Some(false));
    }

    #[test]
    fn the_share_of_what_was_offered_is_time_not_spent_waiting() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.share_of_offered(), None);
        let s = Duration::from_secs;
        cycles.count(Kind::NewOrder, s(18), s(12), s(10));
        cycles.count(Kind::Delivery, s(2), s(8), s(0));
        assert_eq!((cycles.share_of_offered(), cycles.queued), (Some(0.8), 1));
        assert_eq!(cycles.thought[Kind::Delivery as usize], (1, s(8)));
    }
}
