//! Statistics of cores and groups: run times, waits, switches, numbers of aggregated slices.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest wait that a histogram distinguishes, in nanoseconds: 100 s.
const MAX_WAIT_NS: u64 = 100_000_000_000;
/// Number of classes of [`CoreStatistics::aggregations`].
const AGGREGATION_CLASSES: usize = 16;

/// Statistics of a group's fibers on one core, or summed over several cores.
#[derive(Clone, Debug)]
pub struct GroupStatistics {
    /// Run time of the group's fibers, in nanoseconds.
    pub run_ns: u64,
    /// Number of slices.
    pub slices: u64,
    /// Number of slices that lasted longer than twice the configured slice length.
    pub overruns: u64,
    /// Longest slice, in nanoseconds.
    pub longest_slice_ns: u64,
    /// Longest wait of a fiber from the time at which it became ready to the start of its run, in nanoseconds.
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
            // One significant digit, so that the counters of all groups fit into a core's private cache.
            waits: Histogram::new_with_bounds(1, MAX_WAIT_NS, 1).unwrap_or_else(|_| unreachable!("constant bounds")),
        }
    }
}

impl GroupStatistics {
    /// Returns the quantile `quantile` (0 to 1) of the waits of the group's fibers that could run, with a precision of
    /// 10%.
    #[must_use]
    pub fn wait_quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.waits.value_at_quantile(quantile))
    }

    /// Adds the statistics of another core.
    pub fn add(&mut self, other: &GroupStatistics) {
        self.run_ns += other.run_ns;
        self.slices += other.slices;
        self.overruns += other.overruns;
        self.longest_slice_ns = self.longest_slice_ns.max(other.longest_slice_ns);
        self.longest_wait_ns = self.longest_wait_ns.max(other.longest_wait_ns);
        // Cannot fail: both histograms have the same bounds.
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

/// Statistics of one core, or sums over several cores.
#[derive(Clone, Debug, Default)]
pub struct CoreStatistics {
    /// Number of choices of a fiber of the same group as the previous one.
    pub switches_within: u64,
    /// Number of choices of a fiber of another group than the previous one.
    pub switches_between: u64,
    /// Number of choices of a fiber that did not have the highest priority.
    pub preferred: u64,
    /// Number of choices of the policy that were overruled because a fiber could have waited beyond the bound.
    pub overruled: u64,
    /// Time in which no fiber could run, in nanoseconds.
    pub idle_ns: u64,
    /// Histogram of the number of slices in a row of one group: 1, 2 to 3, 4 to 7 and so on, in powers of two.
    pub aggregations: [u64; AGGREGATION_CLASSES],
    /// Statistics of each group, indexed by the number of the group.
    pub groups: Vec<GroupStatistics>,
}

impl CoreStatistics {
    /// Adds the statistics of another core.
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

    /// Returns the fairness of the run time among the groups that ran, as Jain's index: 1 if all groups got the same
    /// time, and at least 1 divided by the number of groups. `of` selects the groups to compare by number.
    #[must_use]
    pub fn jain(&self, of: impl Fn(usize) -> bool) -> f64 {
        let times = self.groups.iter().enumerate().filter(|(at, group)| of(*at) && group.slices > 0);
        jain(times.map(|(_, group)| group.run_ns as f64))
    }

    /// Returns the longest wait of a fiber of any group, in nanoseconds.
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
            self.aggregations[(class as usize).min(AGGREGATION_CLASSES - 1)] += 1;
        }
    }
}

/// Returns Jain's fairness index of `shares`; 1 if all shares are zero or there are none.
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
