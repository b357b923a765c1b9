//! Scheduler of a core as the order of an executor. The order derives the state of each fiber from the sequence and the
//! times of the executor's calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sched_steps::Order;
use sched_steps::fiber::Waker;

use super::clock::now_ns;
use super::slice;
use super::trace::{Recorder, Slice};
use crate::auto::places::place_of_slice;
use crate::auto::{GroupWork, PLACES};
use crate::group::GroupId;
use crate::scheduler::{Scheduler, Stops};

/// Word in [`CorePublicState::groups`] of a slot that holds no fiber of a group.
const NO_GROUP: u64 = GroupId::NONE.word();

/// State of a core that all threads may read.
#[derive(Debug)]
pub(super) struct CorePublicState {
    /// Group of each slot's fiber, encoded as a word, indexed by slot.
    groups: Box<[AtomicU64]>,
    /// Work of the fibers on this core, indexed by group (the first [`MEASURED_GROUPS`]), then by the place of the
    /// slice in a row of the group.
    work: Box<[[WorkWords; PLACES]]>,
    /// Number of operations that the running fiber has completed since it was chosen.
    operations: AtomicU64,
}

/// Work of the fibers of one group on one core. Only the core's thread writes these words.
#[derive(Debug, Default)]
struct WorkWords {
    operations: AtomicU64,
    run_ns: AtomicU64,
}

/// Number of groups whose work is measured.
const MEASURED_GROUPS: usize = 1024;

impl CorePublicState {
    pub(super) fn new(slots: usize) -> CorePublicState {
        CorePublicState {
            groups: (0..slots).map(|_| AtomicU64::new(NO_GROUP)).collect(),
            work: (0..MEASURED_GROUPS).map(|_| Default::default()).collect(),
            operations: AtomicU64::new(0),
        }
    }

    /// Returns the group of the fiber in slot `slot`, if the slot holds a fiber of a group.
    pub(super) fn group_of(&self, slot: usize) -> Option<GroupId> {
        let word = self.groups.get(slot)?.load(Ordering::Relaxed);
        (word != NO_GROUP).then(|| GroupId::of_word(word))
    }

    /// Returns the number of fibers that have not ended.
    pub(super) fn live(&self) -> usize {
        self.groups.iter().filter(|group| group.load(Ordering::Relaxed) != NO_GROUP).count()
    }

    /// Counts an operation that the running fiber has completed.
    #[inline]
    pub(super) fn count_operation(&self) {
        add(&self.operations, 1);
    }

    /// Counts a run of `ns` nanoseconds by a fiber of `group`. `slice` is the number of the slice, from 1, in a row of
    /// the group.
    #[inline]
    fn count_run(&self, group: GroupId, slice: u64, ns: u64) {
        let operations = self.operations.load(Ordering::Relaxed);
        self.operations.store(0, Ordering::Relaxed);
        if let Some(places) = self.work.get(group.index()) {
            let words = &places[place_of_slice(slice.saturating_sub(1))];
            add(&words.operations, operations);
            add(&words.run_ns, ns);
        }
    }

    /// Adds the work of each group's fibers on this core so far to `sum`.
    pub(super) fn add_work(&self, sum: &mut [[GroupWork; PLACES]]) {
        for (sum, words) in sum.iter_mut().flatten().zip(self.work.iter().flatten()) {
            sum.operations += words.operations.load(Ordering::Relaxed);
            sum.run_ns += words.run_ns.load(Ordering::Relaxed);
        }
    }
}

/// Adds `more` to a word that only one thread writes.
#[inline]
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Scheduling state of a core, shared by the executor's order and the core's fibers.
pub(super) struct CoreState {
    pub(super) scheduler: Scheduler,
    /// Group of the fiber that is being spawned; `None` while the intake, which is not scheduled, is spawned.
    pub(super) spawning_group: Option<GroupId>,
    /// Slot of the intake, the fiber that spawns fibers for new work; it runs before all others.
    pub(super) intake: Option<usize>,
    intake_is_ready: bool,
    /// Waker of the intake while it waits for a fiber to end.
    pub(super) intake_waker: Option<Waker>,
    running: Option<usize>,
    /// Clock time at which the last fiber was preempted or ended. The next choice of a fiber uses this time instead of
    /// another reading of the clock.
    last_read_ns: Option<u64>,
    began_ns: u64,
    pub(super) public_state: Arc<CorePublicState>,
    pub(super) recorder: Recorder,
}

impl CoreState {
    pub(super) fn new(scheduler: Scheduler, public_state: Arc<CorePublicState>, recorder: Recorder) -> CoreState {
        CoreState {
            scheduler,
            spawning_group: None,
            intake: None,
            intake_is_ready: false,
            intake_waker: None,
            running: None,
            last_read_ns: None,
            began_ns: 0,
            public_state,
            recorder,
        }
    }

    fn stop(&mut self, fiber: usize, now: u64, stops: Stops) {
        self.running = None;
        self.last_read_ns = Some(now);
        if let Some(group) = self.scheduler.group_of(fiber as u32) {
            let slice = self.scheduler.slices_in_a_row();
            self.public_state.count_run(group, slice, now.saturating_sub(self.began_ns));
            self.recorder.record(Slice { group, fiber, began_ns: self.began_ns, ended_ns: now });
        }
        self.scheduler.stop(now, stops);
    }
}

/// Scheduling order of a worker's executor.
pub(super) struct WorkerOrder(pub(super) Rc<RefCell<CoreState>>);

impl Order for WorkerOrder {
    fn ready(&mut self, fiber: usize) {
        let mut state = self.0.borrow_mut();
        if state.intake.is_none() {
            state.intake = Some(fiber);
        }
        if state.intake == Some(fiber) {
            state.intake_is_ready = true;
        } else if state.running == Some(fiber) {
            state.stop(fiber, now_ns(), Stops::Preempted);
        } else if let Some(group) = state.spawning_group.take() {
            state.public_state.groups[fiber].store(group.word(), Ordering::Relaxed);
            // The group is known: it was entered when the work was submitted.
            if let Err(error) = state.scheduler.arrive(now_ns(), fiber as u32, group) {
                unreachable!("{error}");
            }
        } else {
            state.scheduler.wake(now_ns(), fiber as u32);
        }
    }

    fn next(&mut self) -> Option<usize> {
        let state = &mut *self.0.borrow_mut();
        let now = match (state.running, state.last_read_ns.take()) {
            (Some(fiber), _) => {
                let now = now_ns();
                state.stop(fiber, now, Stops::Blocked);
                state.last_read_ns = None;
                now
            }
            (None, Some(now)) => now,
            (None, None) => now_ns(),
        };
        if std::mem::take(&mut state.intake_is_ready) {
            slice::set_end(u64::MAX);
            return state.intake;
        }
        let fiber = state.scheduler.pick(now)?;
        state.began_ns = now;
        state.running = Some(fiber as usize);
        slice::set_end(now + state.scheduler.slice_ns());
        state.running
    }

    fn ended(&mut self, fiber: usize) {
        let mut state = self.0.borrow_mut();
        state.public_state.groups[fiber].store(NO_GROUP, Ordering::Relaxed);
        if state.intake != Some(fiber) {
            state.stop(fiber, now_ns(), Stops::Ended);
        }
        if let Some(intake) = state.intake_waker.take() {
            intake.wake();
        }
    }
}
