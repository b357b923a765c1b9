//! Control threads of a run: one runs the windows of the chooser, one the intervals of the tuner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;

use super::watchdog::MonitoredCore;
use crate::auto::{AutoSettings, Chooser, GroupWork, Mode, ModePolicy, ModeWord, PLACES, Tuner, TunerSettings};
use crate::group::{GroupId, Groups, nanos};
use crate::placement::PlacementWord;

/// Maximum number of groups whose work is measured.
const MAX_MEASURED_GROUPS: usize = 1024;

/// State of the automatic choice, kept from run to run.
#[derive(Debug)]
pub(crate) struct Automatic {
    pub(super) chooser: Chooser,
    mode: Arc<ModeWord>,
    window: Duration,
}

impl Automatic {
    pub(super) fn new(settings: AutoSettings) -> Automatic {
        Automatic {
            chooser: Chooser::new(&Mode::ALL, settings.windows_between_trials),
            mode: Arc::new(ModeWord::new(Mode::Fair)),
            window: settings.window,
        }
    }

    /// Returns the policy that the cores use.
    pub(super) fn policy(&self) -> ModePolicy {
        ModePolicy(Arc::clone(&self.mode))
    }

    /// Runs windows of the chooser until the run is over. After a change of mode, the window starts a quarter of its
    /// length later: meanwhile work moves and the caches fill.
    pub(super) fn control(
        &mut self,
        cores: &Mutex<Vec<Option<MonitoredCore>>>,
        placement: &PlacementWord,
        over: &Receiver<()>,
    ) {
        let mut before = None;
        loop {
            let mode = self.chooser.mode();
            self.mode.set(mode);
            placement.set(mode.placement());
            let settling_time = if before.replace(mode) == Some(mode) { Duration::ZERO } else { self.window / 4 };
            if !wait_unless_over(over, settling_time) {
                return;
            }
            let (began, done) = (Instant::now(), sum_work(cores, MAX_MEASURED_GROUPS));
            if !wait_unless_over(over, self.window) {
                return;
            }
            let work: Vec<GroupWork> =
                difference(&sum_work(cores, MAX_MEASURED_GROUPS), &done).iter().map(sum_places).collect();
            self.chooser.window(nanos(began.elapsed()), &work);
        }
    }
}

/// Waits for `time`; returns false if the run is over before that.
fn wait_unless_over(over: &Receiver<()>, time: Duration) -> bool {
    time.is_zero() || matches!(over.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// Returns the work of the first `groups` groups so far, by place in the row, summed over all cores.
fn sum_work(cores: &Mutex<Vec<Option<MonitoredCore>>>, groups: usize) -> Vec<[GroupWork; PLACES]> {
    let mut sum = vec![[GroupWork::default(); PLACES]; groups];
    cores.lock().iter().flatten().for_each(|core| core.public_state.add_work(&mut sum));
    sum
}

/// Returns the work between two measurements. For a group without an earlier measurement, this is all of its work.
fn difference(now: &[[GroupWork; PLACES]], before: &[[GroupWork; PLACES]]) -> Vec<[GroupWork; PLACES]> {
    let mut work = now.to_vec();
    for (now, before) in work.iter_mut().flatten().zip(before.iter().flatten()) {
        now.operations = now.operations.saturating_sub(before.operations);
        now.run_ns = now.run_ns.saturating_sub(before.run_ns);
    }
    work
}

fn sum_places(places: &[GroupWork; PLACES]) -> GroupWork {
    places.iter().fold(GroupWork::default(), |sum, place| GroupWork {
        operations: sum.operations + place.operations,
        run_ns: sum.run_ns + place.run_ns,
    })
}

/// State of the tuner, kept from run to run.
#[derive(Debug)]
pub(crate) struct Tuning {
    tuner: Tuner,
    interval: Duration,
    /// Groups whose work the tuner has measured, indexed by number.
    groups: Vec<Option<GroupId>>,
}

impl Tuning {
    pub(super) fn new(settings: TunerSettings) -> Tuning {
        Tuning { tuner: Tuner::new(settings), interval: settings.interval, groups: Vec::new() }
    }

    /// Returns the row length that the tuner has found for a group.
    pub(super) fn limit(&self, group: GroupId) -> Option<u32> {
        let is_known = self.groups.get(group.index()) == Some(&Some(group));
        if is_known { self.tuner.limit(group.index()) } else { None }
    }

    /// Discards the measurements of removed groups whose numbers are in use by other groups now, including their work
    /// in this interval.
    fn forget_replaced_groups(&mut self, known: &[GroupId], work: &mut [[GroupWork; PLACES]]) {
        self.groups.resize(work.len().max(self.groups.len()), None);
        for group in known {
            let Some(place) = self.groups.get_mut(group.index()) else { continue };
            if place.replace(*group).is_some_and(|before| before != *group) {
                self.tuner.forget(group.index());
                work[group.index()] = [GroupWork::default(); PLACES];
            }
        }
    }

    /// Sets the aggregation parameters of all groups after every interval, until the run is over.
    pub(super) fn control(
        &mut self,
        cores: &Mutex<Vec<Option<MonitoredCore>>>,
        groups: &Groups,
        slice_ns: u64,
        over: &Receiver<()>,
    ) {
        let mut done: Vec<[GroupWork; PLACES]> = Vec::new();
        while wait_unless_over(over, self.interval) {
            let known = groups.ids();
            let count = known.iter().map(|id| id.index() + 1).max().unwrap_or(0).min(MAX_MEASURED_GROUPS);
            let now = sum_work(cores, count);
            let mut work = difference(&now, &done);
            done = now;
            self.forget_replaced_groups(&known, &mut work);
            let fibers = cores.lock().iter().flatten().map(|core| core.public_state.live()).max().unwrap_or(0);
            let found = self.tuner.interval(&work, slice_ns, fibers);
            for group in known {
                if let Some(aggregation) = found.get(group.index()) {
                    // The update fails for a group that was removed meanwhile; such a group is skipped.
                    let _ = groups.set_aggregation(group, *aggregation);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Aggregation;

    #[test]
    fn a_group_inherits_no_limit_with_its_number() {
        let groups = Groups::new();
        let mut tuning = Tuning::new(TunerSettings::default());
        let busy = || vec![[GroupWork { operations: 1_000, run_ns: 1_000_000 }; PLACES]];
        let first = groups.add("first", 1, Aggregation::default()).unwrap();
        let mut work = busy();
        tuning.forget_replaced_groups(&[first], &mut work);
        assert_eq!(work[0][0].operations, 1_000);
        tuning.tuner.interval(&work, 50_000, 16);
        assert!(tuning.limit(first).is_some_and(|limit| limit > 0));

        groups.remove(first).unwrap();
        let second = groups.add("second", 1, Aggregation::default()).unwrap();
        assert_eq!((second.index(), tuning.limit(second)), (first.index(), None));
        let mut work = busy();
        tuning.forget_replaced_groups(&[second], &mut work);
        assert_eq!(work[0][0].operations, 0, "what the first did in this interval");
        assert_eq!((tuning.limit(first), tuning.limit(second)), (None, Some(0)));
    }
}
