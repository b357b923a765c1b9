//! Tuner of the row length (number of consecutive slices of siblings), based on the cost of operations by their place in
//! the row.
//!
//! After a change of group the first slices are slower, because the working set must be loaded. The lost time is `R =
//! sum over the slices i of slice * (1 - c_inf / c_i)`. Here `c_i` is the time of an operation in the `i`-th slice of a
//! row, and `c_inf` the time of an operation in late slices. A row of length `T` loses the fraction `R / T` of its
//! time. So a row of length `R / 3%` loses 3%, and a longer row gains little; if no data must be loaded, rows are
//! short. This needs neither a hardware counter nor a search, because every row shows the costs. At intervals the rows
//! are made four times as long, to measure a possible change of `c_inf`. (The paper leaves the adjustment of
//! `agg_bonus` to future work.)

use std::time::Duration;

use super::places::slices_at_place;
use super::{GroupWork, PLACES};
use crate::group::Aggregation;

/// Maximum fraction of the time of a row that may be lost on loading.
const MAX_LOSS: f64 = 0.03;
/// Minimum fraction of the weight of earlier observations that remains after an interval.
const MIN_RETENTION: f64 = 0.3;
/// Number of operations at a place that would reduce the weight of the place's earlier observations to 0; the weight is
/// at least `MIN_RETENTION`. With fewer operations the earlier observations keep more weight. If the rows of an
/// interval are too short to reach the place, its observations remain: without them the next row length would be a
/// guess.
const RENEWAL_OPERATIONS: f64 = 40.0;
/// Minimum number of operations at a place before its cost is used.
const MIN_OPERATIONS: f64 = 20.0;
/// Cost of an operation, relative to its cost in late slices, above which a slice counts as loading.
const LOADING_RATIO: f64 = 1.04;
/// Number of intervals from one probe to the next. A probe is an interval with longer rows.
const PROBE_PERIOD: u32 = 8;
/// Factor by which a probe lengthens the rows.
const PROBE_FACTOR: u32 = 4;
/// Maximum factor by which the limit of a group falls in one interval; a limit rises without such a maximum. An
/// interval is a noisy measurement, and the two possible errors have different costs: too long rows gain nothing, too
/// short rows load the working set in each slice.
const MAX_FALL: u32 = 3;
/// Row length in slices before the first measurement, and minimum row length in a probe.
const INITIAL_LIMIT: u32 = 32;
/// Bounds of the row length of a group, in slices.
const MIN_LIMIT: u32 = 1;
const MAX_LIMIT: u32 = 4096;

/// Settings of a [`Tuner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunerSettings {
    /// Time between two updates of the parameters, at least 1 ms.
    pub interval: Duration,
    /// Maximum time that a fiber may wait for its turn, by the bound on waiting; it limits the row length. (If it is
    /// shorter than one slice per fiber of a core, rows have one slice.)
    pub longest_wait: Duration,
}

impl Default for TunerSettings {
    /// Returns an interval of 10 ms, and a longest wait of one second.
    fn default() -> TunerSettings {
        TunerSettings { interval: Duration::from_millis(10), longest_wait: Duration::from_secs(1) }
    }
}

/// Observations of a group.
#[derive(Clone, Debug, Default)]
struct GroupObservations {
    /// Numbers of operations and nanoseconds, weighted by age, indexed by the place in the row.
    by_place: [(f64, f64); PLACES],
    limit: u32,
}

/// Tunes the aggregation parameters of groups. See the module documentation. It has no clock and no threads.
#[derive(Debug)]
pub struct Tuner {
    settings: TunerSettings,
    groups: Vec<GroupObservations>,
    intervals: u32,
}

impl Tuner {
    /// Creates a tuner without observations.
    #[must_use]
    pub fn new(settings: TunerSettings) -> Tuner {
        Tuner { settings, groups: Vec::new(), intervals: 0 }
    }

    /// Records the work of each group's fibers in an interval, by place in the row, on cores with slices of `slice_ns`
    /// and at most `fibers` live fibers. Returns the aggregation parameters of the groups for the next interval.
    pub fn interval(&mut self, work: &[[GroupWork; PLACES]], slice_ns: u64, fibers: usize) -> Vec<Aggregation> {
        self.intervals += 1;
        let probes = self.intervals.is_multiple_of(PROBE_PERIOD);
        let most = self.longest_row(slice_ns, fibers);
        if self.groups.len() < work.len() {
            self.groups.resize_with(work.len(), GroupObservations::default);
        }
        let aggregation = |(group, work): (&mut GroupObservations, &[GroupWork; PLACES])| {
            group.record(work);
            if let Some(lost_ns) = group.reload_ns(slice_ns) {
                let row = lost_ns / MAX_LOSS / slice_ns as f64;
                group.limit = (row.ceil() as u32).max(group.limit / MAX_FALL).clamp(MIN_LIMIT, most);
            } else if group.limit == 0 {
                group.limit = INITIAL_LIMIT;
            }
            let limit = if probes { group.limit.saturating_mul(PROBE_FACTOR).max(INITIAL_LIMIT) } else { group.limit };
            let limit = limit.clamp(MIN_LIMIT, most);
            // The bonus is the vruntime of `limit` slices at the default weight, so that agg_bonus does not end a row
            // before agg_limit does.
            let bonus = Duration::from_nanos(slice_ns.saturating_mul(u64::from(limit)));
            Aggregation { bonus: bonus.min(crate::MAX_BONUS), limit }
        };
        self.groups.iter_mut().zip(work).map(aggregation).collect()
    }

    /// Discards the observations of group number `group`: the number is reused for another group.
    pub fn forget(&mut self, group: usize) {
        if let Some(observations) = self.groups.get_mut(group) {
            *observations = GroupObservations::default();
        }
    }

    /// Returns the row length found for a group, without the lengthening of probes.
    #[must_use]
    pub fn limit(&self, group: usize) -> Option<u32> {
        self.groups.get(group).map(|group| group.limit)
    }

    /// Returns the maximum row length for which the bound on waiting stays within the permitted wait: the inverse of
    /// the bound.
    fn longest_row(&self, slice_ns: u64, fibers: usize) -> u32 {
        let others = fibers.saturating_sub(1).max(1) as f64;
        let each = self.settings.longest_wait.as_nanos() as f64 / others;
        let lead = (each - 7.0 * slice_ns as f64) / 3.0;
        ((lead / slice_ns as f64).max(0.0) as u32).clamp(MIN_LIMIT, MAX_LIMIT)
    }
}

impl GroupObservations {
    fn record(&mut self, work: &[GroupWork; PLACES]) {
        for ((operations, ns), more) in self.by_place.iter_mut().zip(work) {
            let new = more.operations as f64;
            let kept = (1.0 - new / RENEWAL_OPERATIONS).max(MIN_RETENTION);
            *operations = kept * *operations + new;
            *ns = kept * *ns + more.run_ns as f64;
        }
    }

    /// Returns the nanoseconds that a row loses while its working set is loaded; `None` while there are too few
    /// observations.
    fn reload_ns(&self, slice_ns: u64) -> Option<f64> {
        let cost = |(operations, ns): (f64, f64)| (operations >= MIN_OPERATIONS).then(|| ns / operations);
        let costs: Vec<(usize, f64)> =
            self.by_place.iter().enumerate().filter_map(|(place, sums)| Some((place, cost(*sums)?))).collect();
        // The late slices are the last two places with enough operations, if at least six places have enough.
        let [.., (before, _), (last, _)] = costs[..] else { return None };
        if costs.len() < 6 {
            return None;
        }
        let (operations, ns) = [before, last]
            .into_iter()
            .fold((0.0, 0.0), |sum, place| (sum.0 + self.by_place[place].0, sum.1 + self.by_place[place].1));
        let late = ns / operations;
        // Places after the last one that is clearly more expensive count as lossless: the noise of many slices would add
        // up.
        let loading = costs.iter().rposition(|(place, cost)| *place < before && *cost > LOADING_RATIO * late);
        let lost = costs[..loading.map_or(0, |at| at + 1)].iter();
        let lost = lost.map(|(place, cost)| (1.0 - late / cost) * slices_at_place(*place, u64::MAX) as f64);
        let lost = lost.sum::<f64>().max(0.0);
        Some(lost * slice_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 50_000;

    /// Simulates rows of a group that loads for `reload_ns`: an operation costs 1 us, and twice that during loading.
    fn rows(reload_ns: f64, rows: u64, length: u32) -> [GroupWork; PLACES] {
        let mut work = [GroupWork::default(); PLACES];
        let mut missing = reload_ns;
        for place in 0..length as usize {
            // During loading, half of the time is lost.
            let lost = missing.min(SLICE as f64 / 2.0);
            missing -= lost;
            let seen = &mut work[crate::auto::places::place_of_slice(place as u64)];
            seen.operations += rows * ((SLICE as f64 - lost) / 1000.0) as u64;
            seen.run_ns += rows * SLICE;
        }
        work
    }

    /// Returns the final limit, and the number of intervals until the limit stays within a quarter of it.
    fn converges(tuner: &mut Tuner, reload_ns: f64) -> (u32, usize) {
        let mut limits = Vec::new();
        let mut limit = tuner.limit(0).unwrap_or(16);
        for _ in 0..60 {
            let aggregation = tuner.interval(&[rows(reload_ns, 5, limit + 1)], SLICE, 16)[0];
            limit = aggregation.limit;
            limits.push(tuner.limit(0).unwrap());
        }
        let last = *limits.last().unwrap();
        let within =
            |limit: &u32| f64::from(*limit) >= 0.75 * f64::from(last) && f64::from(*limit) <= 1.25 * f64::from(last);
        let after = limits.iter().rposition(|limit| !within(limit)).map_or(0, |at| at + 1);
        (last, after)
    }

    #[test]
    fn rows_are_as_long_as_what_has_to_be_loaded_asks_for() {
        let mut tuner = Tuner::new(TunerSettings::default());
        // Each row loses 60 us: rows of 2 ms lose 3%.
        let (limit, after) = converges(&mut tuner, 60_000.0);
        assert!((32..=48).contains(&limit) && after < 10, "{limit} after {after}");
        // Another phase: no loading.
        let (limit, after) = converges(&mut tuner, 0.0);
        assert!(limit <= 2 && after < 20, "{limit} after {after}");
        // Back to the first phase.
        let (limit, after) = converges(&mut tuner, 60_000.0);
        assert!((32..=48).contains(&limit) && after < 20, "{limit} after {after}");
    }

    /// Regression: one interval without observed loading made rows of one slice until the next probe.
    #[test]
    fn one_odd_interval_does_not_make_rows_short() {
        let mut tuner = Tuner::new(TunerSettings::default());
        let (limit, _) = converges(&mut tuner, 300_000.0);
        assert!(limit >= 160, "{limit}");
        let odd = tuner.interval(&[rows(0.0, 50, limit + 1)], SLICE, 16)[0];
        assert!(odd.limit >= limit / MAX_FALL, "{odd:?}");
        let (again, after) = converges(&mut tuner, 300_000.0);
        assert!(again >= 160 && after <= 8, "{again} after {after}");
    }

    #[test]
    fn rows_are_bounded_by_the_wait_that_is_allowed() {
        let settings = TunerSettings { longest_wait: Duration::from_millis(10), ..TunerSettings::default() };
        let mut tuner = Tuner::new(settings);
        for _ in 0..40 {
            let aggregation = tuner.interval(&[rows(500_000.0, 5, 16)], SLICE, 16)[0];
            let wait = 15.0 * (3.0 * aggregation.bonus.as_secs_f64() + 7.0 * SLICE as f64 / 1e9);
            assert!(wait <= 0.0101, "{aggregation:?}");
        }
        let tight = TunerSettings { longest_wait: Duration::from_micros(1), ..TunerSettings::default() };
        let limits = Tuner::new(tight).interval(&[rows(500_000.0, 5, 16)], SLICE, 16);
        assert_eq!(limits[0].limit, 1);
    }

    #[test]
    fn a_group_that_did_nothing_is_left_as_it_was() {
        let mut tuner = Tuner::new(TunerSettings::default());
        let idle = [GroupWork::default(); PLACES];
        assert_eq!(tuner.interval(&[idle], SLICE, 16)[0].limit, INITIAL_LIMIT);
        assert!(tuner.interval(&[], SLICE, 16).is_empty());
    }
}
