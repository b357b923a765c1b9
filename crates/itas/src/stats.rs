//! What cores and groups did: run time, waits, switches, lengths of aggregation.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest wait that a histogram tells apart from longer ones, in nanoseconds: 100 s.
const LONGEST_NS: u64 = 100_000_000_000;
/// Classes of [`CoreStatistics::aggregations`].
const CLASSES: usize = 16;

/// What the fibers of a group did on one core, or on several added up.
#[derive(Clone, Debug)]
pub struct GroupStatistics {
    /// Time that its fibers ran, in nanoseconds.
    pub run_ns: u64,
    /// Slices that they ran.
    pub slices: u64,
    /// Slices that lasted longer than twice the time set.
    pub overruns: u64,
    /// The longest slice, in nanoseconds.
    pub longest_slice_ns: u64,
    /// The longest wait, from the moment a fiber could run to the moment it ran, in nanoseconds.
    pub longest_wait_ns: u64,
    waits: Histogram<u32>,
}

impl Default for GroupStatistics {
    fn default() -> GroupStatistics {
        GroupStatistics {
            run_ns: 0,
            slices: 0,
            overruns: 0,
            longest_slice_ns: 0,
            longest_wait_ns: 0,
            // One digit: the counters of all groups are to stay in a core's private cache.
            waits: Histogram::new_with_bounds(1, LONGEST_NS, 1).unwrap_or_else(|_| unreachable!("constant bounds")),
        }
    }
}

impl GroupStatistics {
    /// How long fibers waited that could run: the `quantile` of all waits, from 0 to 1, to 10%.
    #[must_use]
    pub fn wait_quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.waits.value_at_quantile(quantile))
    }

    /// Adds what it did elsewhere.
    pub fn add(&mut self, other: &GroupStatistics) {
        self.run_ns += other.run_ns;
        self.slices += other.slices;
        self.overruns += other.overruns;
        self.longest_slice_ns = self.longest_slice_ns.max(other.longest_slice_ns);
        self.longest_wait_ns = self.longest_wait_ns.max(other.longest_wait_ns);
        // Both have the same bounds.
        let _ = self.waits.add(&other.waits);
    }

    #[inline]
    pub(crate) fn waited(&mut self, ns: u64) {
        self.longest_wait_ns = self.longest_wait_ns.max(ns);
        self.waits.saturating_record(ns.max(1));
    }

    #[inline]
    pub(crate) fn ran(&mut self, ns: u64, slice_ns: u64) {
        self.run_ns += ns;
        self.slices += 1;
        self.longest_slice_ns = self.longest_slice_ns.max(ns);
        self.overruns += u64::from(ns > 2 * slice_ns);
    }
}

/// What one core did, or several added up.
#[derive(Clone, Debug, Default)]
pub struct CoreStatistics {
    /// Choices after which a fiber of the same group ran.
    pub switches_within: u64,
    /// Choices after which a fiber of another group ran.
    pub switches_between: u64,
    /// Choices of a fiber that had not the highest priority.
    pub preferred: u64,
    /// Choices of the policy that were overruled so that no fiber waits beyond the bound.
    pub overruled: u64,
    /// Time without a fiber that could run, in nanoseconds.
    pub idle_ns: u64,
    /// How many slices in a row were of one group: aggregations of 1, 2 to 3, 4 to 7 and so on, in powers of two.
    pub aggregations: [u64; CLASSES],
    /// By number of the group.
    pub groups: Vec<GroupStatistics>,
}

impl CoreStatistics {
    /// Adds what another core did.
    pub fn add(&mut self, other: &CoreStatistics) {
        self.switches_within += other.switches_within;
        self.switches_between += other.switches_between;
        self.preferred += other.preferred;
        self.overruled += other.overruled;
        self.idle_ns += other.idle_ns;
        self.aggregations.iter_mut().zip(other.aggregations).for_each(|(mine, others)| *mine += others);
        if self.groups.len() < other.groups.len() {
            self.groups.resize_with(other.groups.len(), GroupStatistics::default);
        }
        self.groups.iter_mut().zip(&other.groups).for_each(|(mine, others)| mine.add(others));
    }

    /// How evenly the groups that ran at all got their time: Jain's index, 1 if all got the same, down to 1 divided by
    /// their number. `of` chooses the groups that are to be compared.
    #[must_use]
    pub fn jain(&self, of: impl Fn(usize) -> bool) -> f64 {
        let times = self.groups.iter().enumerate().filter(|(at, group)| of(*at) && group.slices > 0);
        jain(times.map(|(_, group)| group.run_ns as f64))
    }

    /// The longest wait of a fiber of any group, in nanoseconds.
    #[must_use]
    pub fn longest_wait_ns(&self) -> u64 {
        self.groups.iter().map(|group| group.longest_wait_ns).max().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn group(&mut self, at: usize) -> &mut GroupStatistics {
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, GroupStatistics::default);
        }
        &mut self.groups[at]
    }

    #[inline]
    pub(crate) fn aggregated(&mut self, slices: u64) {
        if let Some(class) = slices.checked_ilog2() {
            self.aggregations[(class as usize).min(CLASSES - 1)] += 1;
        }
    }
}

/// Jain's index of fairness of what several got; 1 if there is nothing to share.
#[must_use]
pub fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (n, sum, squares) = shares.fold((0.0, 0.0, 0.0), |(n, sum, squares), x| (n + 1.0, sum + x, squares + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_a_share_for_one_of_many() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain([5.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert_eq!(jain(std::iter::empty()), 1.0);
    }

    #[test]
    fn cores_add_up() {
        let mut one = CoreStatistics::default();
        one.group(1).ran(10, 4);
        one.group(1).waited(7);
        one.aggregated(5);
        let mut sum = CoreStatistics::default();
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.groups[1].run_ns, sum.groups[1].overruns, sum.groups[1].slices), (20, 2, 2));
        assert_eq!((sum.aggregations[2], sum.longest_wait_ns()), (2, 7));
        assert_eq!(sum.groups[1].wait_quantile(0.5), Duration::from_nanos(7));
    }
}
