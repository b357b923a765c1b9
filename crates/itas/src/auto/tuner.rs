//! How long siblings should run in a row: found from what operations cost by their place in the row.
//!
//! After a change of group the first slices are slower: the working set has to be loaded. What is lost is
//! `R = sum over the slices i of slice * (1 - c_inf / c_i)`, where `c_i` is the time of an operation in the `i`-th slice of a
//! row and `c_inf` in the late ones. A row of length `T` loses the share `R / T`, so a row of `R / 3%` loses 3% and a longer
//! one gains little; where nothing has to be loaded, rows are short. No counter of the processor is needed, and no search: the
//! costs are seen in every row, and now and then a row is let run four times as long, to see whether `c_inf` is what it was.
//! (The paper leaves the adjustment of `agg_bonus` to future work.)

use std::time::Duration;

use super::places::slices;
use super::{GroupWork, PLACES};
use crate::group::Aggregation;

/// Share of a row that may be lost on loading.
const LOST: f64 = 0.03;
/// How much of what was seen before still counts after another interval, at least.
const KEPT: f64 = 0.3;
/// Operations of a place that replace all that was seen of it. Where fewer come, more of the old counts; where none come,
/// because rows are short, what was seen in longer ones stays: without it the next length would be a guess.
const RENEWED: f64 = 40.0;
/// Operations at a place before its cost is believed.
const ENOUGH: f64 = 20.0;
/// How much dearer operations of slices are that still load.
const DEARER: f64 = 1.04;
/// Of so many intervals one lets rows be longer.
const PROBE_EVERY: u32 = 8;
/// How much longer.
const PROBE: u32 = 4;
/// A limit falls to no less than this part of itself in an interval, and rises at once. What an interval shows is noisy, and the
/// two mistakes are not alike: rows that are too long gain nothing, short ones load in each slice.
const FALL: u32 = 3;
/// Slices of a row while nothing is known, and at least of a row that probes.
const FIRST: u32 = 32;
/// Limits between which a group's is set.
const LEAST: u32 = 1;
const MOST: u32 = 4096;

/// What bounds the tuner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunerSettings {
    /// How often parameters are set anew, at least 1 ms.
    pub interval: Duration,
    /// How long a fiber may wait for its turn at most, by the bound: it limits rows. (Where it is shorter than what the
    /// fibers of a core need for a slice each, rows are of one slice.)
    pub longest_wait: Duration,
}

impl Default for TunerSettings {
    /// Every 10 ms, waits of up to a second.
    fn default() -> TunerSettings {
        TunerSettings { interval: Duration::from_millis(10), longest_wait: Duration::from_secs(1) }
    }
}

/// A group, as far as it is known.
#[derive(Clone, Debug, Default)]
struct Known {
    /// By place in the row: operations and nanoseconds, the older the less.
    seen: [(f64, f64); PLACES],
    limit: u32,
}

/// See the module. It has no clock and no threads.
#[derive(Debug)]
pub struct Tuner {
    settings: TunerSettings,
    groups: Vec<Known>,
    intervals: u32,
}

impl Tuner {
    /// A tuner that knows nothing yet.
    #[must_use]
    pub fn new(settings: TunerSettings) -> Tuner {
        Tuner { settings, groups: Vec::new(), intervals: 0 }
    }

    /// Takes in what the fibers of each group did in an interval, by place in the row, where cores have slices of
    /// `slice_ns` and up to `fibers` fibers each; gives the parameters of the groups until the next interval.
    pub fn interval(&mut self, work: &[[GroupWork; PLACES]], slice_ns: u64, fibers: usize) -> Vec<Aggregation> {
        self.intervals += 1;
        let probes = self.intervals.is_multiple_of(PROBE_EVERY);
        let most = self.longest_row(slice_ns, fibers);
        if self.groups.len() < work.len() {
            self.groups.resize_with(work.len(), Known::default);
        }
        let aggregation = |(known, work): (&mut Known, &[GroupWork; PLACES])| {
            known.take_in(work);
            if let Some(lost_ns) = known.reload_ns(slice_ns) {
                let row = lost_ns / LOST / slice_ns as f64;
                known.limit = (row.ceil() as u32).max(known.limit / FALL).clamp(LEAST, most);
            } else if known.limit == 0 {
                known.limit = FIRST;
            }
            let limit = if probes { known.limit.saturating_mul(PROBE).max(FIRST) } else { known.limit };
            let limit = limit.clamp(LEAST, most);
            // The lead that goes with so many slices; agg_bonus does not bound them further.
            let bonus = Duration::from_nanos(slice_ns.saturating_mul(u64::from(limit)));
            Aggregation { bonus: bonus.min(crate::MAX_BONUS), limit }
        };
        self.groups.iter_mut().zip(work).map(aggregation).collect()
    }

    /// Forgets what was seen of a group: another one has its number from now on.
    pub fn forget(&mut self, group: usize) {
        if let Some(known) = self.groups.get_mut(group) {
            *known = Known::default();
        }
    }

    /// The limit that was found for a group, without probes.
    #[must_use]
    pub fn limit(&self, group: usize) -> Option<u32> {
        self.groups.get(group).map(|known| known.limit)
    }

    /// Slices in a row with which the bound is what the user allows: the inverse of the bound.
    fn longest_row(&self, slice_ns: u64, fibers: usize) -> u32 {
        let others = fibers.saturating_sub(1).max(1) as f64;
        let each = self.settings.longest_wait.as_nanos() as f64 / others;
        let lead = (each - 7.0 * slice_ns as f64) / 3.0;
        ((lead / slice_ns as f64).max(0.0) as u32).clamp(LEAST, MOST)
    }
}

impl Known {
    fn take_in(&mut self, work: &[GroupWork; PLACES]) {
        for ((operations, ns), more) in self.seen.iter_mut().zip(work) {
            let new = more.operations as f64;
            let kept = (1.0 - new / RENEWED).max(KEPT);
            *operations = kept * *operations + new;
            *ns = kept * *ns + more.run_ns as f64;
        }
    }

    /// Nanoseconds that a row loses because its working set has to be loaded; none while too little was seen.
    fn reload_ns(&self, slice_ns: u64) -> Option<f64> {
        let cost = |(operations, ns): (f64, f64)| (operations >= ENOUGH).then(|| ns / operations);
        let known: Vec<(usize, f64)> =
            self.seen.iter().enumerate().filter_map(|(place, seen)| Some((place, cost(*seen)?))).collect();
        // Late slices: the last two places that were seen often enough, of at least six.
        let [.., (before, _), (last, _)] = known[..] else { return None };
        if known.len() < 6 {
            return None;
        }
        let (operations, ns) = [before, last]
            .into_iter()
            .fold((0.0, 0.0), |sum, place| (sum.0 + self.seen[place].0, sum.1 + self.seen[place].1));
        let late = ns / operations;
        // What comes after the last place that is clearly dearer loses nothing: the noise of many slices would add up.
        let loading = known.iter().rposition(|(place, cost)| *place < before && *cost > DEARER * late);
        let lost = known[..loading.map_or(0, |at| at + 1)].iter();
        let lost = lost.map(|(place, cost)| (1.0 - late / cost) * slices(*place, u64::MAX) as f64);
        let lost = lost.sum::<f64>().max(0.0);
        Some(lost * slice_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 50_000;

    /// Rows of a group that has to load for `reload_ns`: operations cost 1 us, twice that until it has loaded.
    fn rows(reload_ns: f64, rows: u64, length: u32) -> [GroupWork; PLACES] {
        let mut work = [GroupWork::default(); PLACES];
        let mut missing = reload_ns;
        for place in 0..length as usize {
            // While it loads half of the time is lost.
            let lost = missing.min(SLICE as f64 / 2.0);
            missing -= lost;
            let seen = &mut work[crate::auto::places::place(place as u64)];
            seen.operations += rows * ((SLICE as f64 - lost) / 1000.0) as u64;
            seen.run_ns += rows * SLICE;
        }
        work
    }

    /// Intervals until the limit is within a quarter of what it becomes.
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
        // 60 us are lost in each row: rows of 2 ms lose 3%.
        let (limit, after) = converges(&mut tuner, 60_000.0);
        assert!((32..=48).contains(&limit) && after < 10, "{limit} after {after}");
        // Another phase: nothing has to be loaded.
        let (limit, after) = converges(&mut tuner, 0.0);
        assert!(limit <= 2 && after < 20, "{limit} after {after}");
        // And back.
        let (limit, after) = converges(&mut tuner, 60_000.0);
        assert!((32..=48).contains(&limit) && after < 20, "{limit} after {after}");
    }

    /// One interval in which loading was not seen made rows of one slice until the next probe.
    #[test]
    fn one_odd_interval_does_not_make_rows_short() {
        let mut tuner = Tuner::new(TunerSettings::default());
        let (limit, _) = converges(&mut tuner, 300_000.0);
        assert!(limit >= 160, "{limit}");
        let odd = tuner.interval(&[rows(0.0, 50, limit + 1)], SLICE, 16)[0];
        assert!(odd.limit >= limit / FALL, "{odd:?}");
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
        assert_eq!(tuner.interval(&[idle], SLICE, 16)[0].limit, FIRST);
        assert!(tuner.interval(&[], SLICE, 16).is_empty());
    }
}
