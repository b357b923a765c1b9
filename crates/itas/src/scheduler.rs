//! Scheduler of one core: the vruntimes of its fibers, the run queue, and the limits on the choices of the policy.
//!
//! The scheduler has no clock and no fibers: the caller passes the time, and reports each fiber that arrives or stops,
//! with the reason. The [runtime](crate::Runtime) drives one scheduler per worker thread; [virtual
//! time](crate::virtual_time) drives schedulers without threads.

use std::sync::Arc;
use std::time::Duration;

use crate::bound::Extremes;
use crate::group::{DEFAULT_WEIGHT, Group, GroupEntry, GroupError, GroupId, Groups, nanos};
use crate::mutant::{Mutant, is_mutant};
use crate::policy::{Choice, Fair, Policy, View};
use crate::publish::{Board, Role};
use crate::queue::{Candidate, RunQueue};
use crate::stats::CoreStatistics;

/// Maximum slice and maximum sleeper credit, in nanoseconds.
const MAX_SETTING_NS: u64 = 3_600_000_000_000;

/// Settings of a core's scheduler. They may be changed while the core runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSettings {
    /// Length of a time slice. Less than a nanosecond counts as one nanosecond, more than an hour as an hour.
    pub slice: Duration,
    /// Maximum distance below the smallest vruntime at which a fiber that wakes up is placed: sleepers are preferred by
    /// this amount. More than an hour counts as an hour.
    pub sleeper_credit: Duration,
    /// If true, slaves follow their masters for as long as `agg_bonus` permits, as in the paper, instead of for
    /// `agg_limit` slices.
    pub paper_slaves: bool,
}

impl Default for CoreSettings {
    /// Returns a slice and a credit of 50 us, with the bounded rule for slaves.
    fn default() -> CoreSettings {
        let slice = Duration::from_micros(50);
        CoreSettings { slice, sleeper_credit: slice, paper_slaves: false }
    }
}

/// Reason why a running fiber stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// The slice of the fiber is over, or the fiber yielded. It can continue.
    Preempted,
    /// The fiber waits for an event.
    Blocked,
    /// The fiber has ended; its slot is free.
    Ended,
}

/// State of the fiber in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FiberState {
    Free,
    Queued,
    Running,
    Blocked,
}

/// Slot of a core, for one fiber at a time.
#[derive(Debug)]
struct Slot {
    state: FiberState,
    group: GroupId,
    weight: u32,
    vruntime: u64,
    /// Remainder of the charged time that is less than one unit of `vruntime`, multiplied by the weight of the fiber.
    remainder: u64,
    /// Time at which the fiber became ready to run, in nanoseconds.
    ready_since: u64,
}

impl Slot {
    const FREE: Slot = Slot {
        state: FiberState::Free,
        group: GroupId::NONE,
        weight: DEFAULT_WEIGHT,
        vruntime: 0,
        remainder: 0,
        ready_since: 0,
    };
}

/// Scheduler of one core. See the module documentation.
pub struct Scheduler {
    core: usize,
    groups: Arc<Groups>,
    board: Arc<Board>,
    policy: Box<dyn Policy>,
    slice_ns: u64,
    credit_ns: u64,
    paper_slaves: bool,
    queue: RunQueue,
    slots: Vec<Slot>,
    /// Cached groups of this core's fibers, indexed by number.
    cached_groups: Vec<Option<Arc<Group>>>,
    live: u64,
    smallest: u64,
    running: Option<u32>,
    running_since: u64,
    /// Time at which the previous fiber stopped, or, if no fiber could run, the time at which a fiber became ready.
    /// Since then the core has been occupied by the choice of a fiber or by other work of the thread.
    free_since: u64,
    /// Latest time that a caller has passed, in nanoseconds.
    now_ns: u64,
    idle_since: Option<u64>,
    last: Option<GroupId>,
    /// Number of siblings chosen in a row: `agg_count` of the last fiber's group on this core.
    agg_count: u32,
    /// Number of consecutive choices of a fiber that did not have the highest priority.
    preferred: u32,
    /// Number of consecutive slices of the last fiber's group.
    aggregated: u64,
    extremes: Extremes,
    statistics: CoreStatistics,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("core", &self.core)
            .field("policy", &self.policy.name())
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Creates the scheduler of core number `core` of `board`.
    ///
    /// # Panics
    /// If the board has no such core.
    #[must_use]
    pub fn new(
        core: usize,
        groups: Arc<Groups>,
        board: Arc<Board>,
        policy: Box<dyn Policy>,
        settings: CoreSettings,
    ) -> Scheduler {
        assert!(core < board.cores(), "core {core} of {}", board.cores());
        let mut scheduler = Scheduler {
            core,
            groups,
            board,
            policy,
            slice_ns: 1,
            credit_ns: 0,
            paper_slaves: false,
            queue: RunQueue::new(),
            slots: Vec::new(),
            cached_groups: Vec::new(),
            live: 0,
            smallest: 0,
            running: None,
            running_since: 0,
            free_since: 0,
            now_ns: 0,
            idle_since: Some(0),
            last: None,
            agg_count: 0,
            preferred: 0,
            aggregated: 0,
            extremes: Extremes::new(),
            statistics: CoreStatistics::default(),
        };
        scheduler.set(settings);
        scheduler
    }

    /// Changes the settings. They apply from the next choice on.
    pub fn set(&mut self, settings: CoreSettings) {
        self.slice_ns = nanos(settings.slice).clamp(1, MAX_SETTING_NS);
        self.credit_ns = nanos(settings.sleeper_credit).min(MAX_SETTING_NS);
        self.paper_slaves = settings.paper_slaves;
        self.extremes.credit_ns = self.extremes.credit_ns.max(self.credit_ns);
        self.extremes.shortest_slice_ns = self.extremes.shortest_slice_ns.min(self.slice_ns);
        self.extremes.slice_ns = self.extremes.slice_ns.max(self.slice_ns);
    }

    /// Changes the policy. It applies from the next choice on. No group is published until the new policy publishes
    /// one.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
        self.board.publish(self.core, None);
    }

    /// Returns the slice length in nanoseconds.
    #[must_use]
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Returns the number of fibers that can run, without the running fiber.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of fibers that have not ended.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live as usize
    }

    /// Returns the number of consecutive slices of the last fiber's group, including the last slice.
    #[must_use]
    pub fn slices_in_a_row(&self) -> u64 {
        self.aggregated
    }

    /// Returns the group of the fiber that was chosen last.
    #[must_use]
    pub fn last_group(&self) -> Option<GroupId> {
        self.last
    }

    /// Returns the group of the fiber in slot `fiber`; `None` if the slot holds no fiber.
    #[must_use]
    pub fn group_of(&self, fiber: u32) -> Option<GroupId> {
        let slot = self.slots.get(fiber as usize)?;
        (slot.state != FiberState::Free).then_some(slot.group)
    }

    /// Adds a new fiber of `group`, which can run, in slot number `fiber`. The fiber starts above the smallest vruntime
    /// of the core, by the largest lead so far and a slice: see [the bound](crate#bound-on-waiting).
    ///
    /// # Errors
    /// The group is unknown.
    ///
    /// # Panics
    /// If the slot holds a fiber.
    pub fn arrive(&mut self, now_ns: u64, fiber: u32, group: GroupId) -> Result<(), GroupError> {
        let weight = self.look_up(group)?.weight;
        self.now_ns = self.now_ns.max(now_ns);
        if fiber as usize >= self.slots.len() {
            self.slots.resize_with(fiber as usize + 1, || Slot::FREE);
        }
        let slot = &mut self.slots[fiber as usize];
        assert!(slot.state == FiberState::Free, "slot {fiber} is taken");
        slot.group = group;
        slot.weight = weight;
        slot.remainder = 0;
        let debit = self.extremes.lead_ns + (self.slice_ns * u64::from(DEFAULT_WEIGHT)).div_ceil(u64::from(weight));
        slot.vruntime = self.smallest + if is_mutant(Mutant::StartAtSmallest) { 0 } else { debit };
        self.live += 1;
        self.extremes.fibers = self.extremes.fibers.max(self.live);
        self.extremes.heaviest = self.extremes.heaviest.max(weight);
        self.extremes.lightest = self.extremes.lightest.min(weight);
        self.enqueue(now_ns, fiber);
        Ok(())
    }

    /// Returns a reference to `group` that prevents the removal of the group.
    pub(crate) fn enter(&self, group: GroupId) -> Result<GroupEntry, GroupError> {
        self.groups.enter(group)
    }

    /// Moves the running fiber to `group`. Returns true if this changes its group; returns false if not, or if no fiber
    /// runs.
    ///
    /// # Errors
    /// The group is unknown.
    pub fn change_group(&mut self, group: GroupId) -> Result<bool, GroupError> {
        let weight = self.look_up(group)?.weight;
        let Some(fiber) = self.running else { return Ok(false) };
        let slot = &mut self.slots[fiber as usize];
        slot.remainder = slot.remainder.min(u64::from(weight) - 1);
        slot.weight = weight;
        self.extremes.heaviest = self.extremes.heaviest.max(weight);
        self.extremes.lightest = self.extremes.lightest.min(weight);
        Ok(std::mem::replace(&mut slot.group, group) != group)
    }

    /// Makes the fiber in slot `fiber` ready if it is blocked; otherwise does nothing.
    pub fn wake(&mut self, now_ns: u64, fiber: u32) {
        let earliest = self.smallest.saturating_sub(self.credit_ns);
        let Some(slot) = self.slots.get_mut(fiber as usize) else { return };
        if slot.state == FiberState::Blocked {
            slot.vruntime = if is_mutant(Mutant::KeepSleepers) { slot.vruntime } else { slot.vruntime.max(earliest) };
            self.enqueue(now_ns, fiber);
        }
    }

    /// Stops the running fiber. Does nothing if no fiber runs.
    #[inline]
    pub fn stop(&mut self, now_ns: u64, stops: Stops) {
        let Some(fiber) = self.running.take() else { return };
        let ran = now_ns.saturating_sub(self.running_since);
        let taken = now_ns.saturating_sub(self.free_since);
        self.free_since = now_ns;
        self.now_ns = self.now_ns.max(now_ns);
        let slot = &mut self.slots[fiber as usize];
        // If the operating system has preempted the core's thread, the fiber is not charged for the whole time.
        let charged = taken.min(2 * self.slice_ns);
        slot.vruntime += if slot.weight == DEFAULT_WEIGHT {
            charged
        } else {
            // The remainder is kept, so that runs shorter than one unit of vruntime are charged as well.
            let due = charged * u64::from(DEFAULT_WEIGHT) + slot.remainder;
            slot.remainder = due % u64::from(slot.weight);
            due / u64::from(slot.weight)
        };
        self.extremes.longest_ns = self.extremes.longest_ns.max(taken);
        self.statistics.group(slot.group.index()).ran(ran, self.slice_ns);
        match stops {
            Stops::Preempted => self.enqueue(now_ns, fiber),
            Stops::Blocked => slot.state = FiberState::Blocked,
            Stops::Ended => {
                slot.state = FiberState::Free;
                self.live -= 1;
            }
        }
    }

    /// Chooses the fiber to run now, by the policy, unless its choice could make another fiber wait too long. A fiber
    /// that does not have the highest priority runs only if two conditions hold: its vruntime is within the lead of its
    /// group, `min(agg_bonus, agg_limit * slice)`, and fewer than `agg_limit` such choices preceded in a row. (See [the
    /// bound](crate#bound-on-waiting).) Returns `None` if no fiber can run.
    #[inline]
    pub fn pick(&mut self, now_ns: u64) -> Option<u32> {
        debug_assert!(self.running.is_none(), "a core runs one fiber at a time");
        let Some(highest) = self.queue.highest() else {
            self.idle_since.get_or_insert(now_ns);
            self.board.publish(self.core, None);
            return None;
        };
        self.smallest = self.smallest.max(highest.vruntime);
        let choice = self.choose(highest);
        if let Role::Master = self.board.role(self.core) {
            self.board.publish(self.core, choice.publish);
        }
        let chosen = self.queue.take_from(choice.group)?;
        self.count(choice, chosen);
        let slot = &mut self.slots[chosen.fiber as usize];
        slot.state = FiberState::Running;
        let waited = now_ns.saturating_sub(slot.ready_since);
        self.statistics.group(chosen.group.index()).waited(waited);
        self.running = Some(chosen.fiber);
        self.running_since = now_ns;
        Some(chosen.fiber)
    }

    /// Returns the proven maximum of the time that a fiber of this core waited for its turn; the crate documentation
    /// states the bound. It covers all settings that the core ever had, and the fibers and slices since the last reset
    /// of the statistics.
    #[must_use]
    pub fn wait_bound(&self) -> Duration {
        self.extremes.wait_bound()
    }

    /// Returns the longest wait of a fiber in nanoseconds. It includes the current waits of fibers, up to the latest
    /// time passed by a caller.
    #[must_use]
    pub fn longest_wait_ns(&self) -> u64 {
        let queued = self.slots.iter().filter(|slot| slot.state == FiberState::Queued);
        let waiting = queued.map(|slot| self.now_ns.saturating_sub(slot.ready_since)).max().unwrap_or(0);
        self.statistics.longest_wait_ns().max(waiting)
    }

    /// Returns the ratio of the longest wait of a fiber to the bound; at most 1.
    #[must_use]
    pub fn longest_wait_to_bound(&self) -> f64 {
        let bound = self.wait_bound().as_nanos() as f64;
        if bound == 0.0 { 0.0 } else { self.longest_wait_ns() as f64 / bound }
    }

    /// Returns the statistics of the core.
    #[must_use]
    pub fn statistics(&self) -> &CoreStatistics {
        &self.statistics
    }

    /// Resets the statistics, and the longest slice and the maximum number of fibers on which the bound depends. For a
    /// fiber that waits now, only the wait from now on is counted.
    pub fn reset_statistics(&mut self, now_ns: u64) {
        self.statistics = CoreStatistics::default();
        self.extremes.fibers = self.live;
        self.extremes.longest_ns = 0;
        self.slots.iter_mut().for_each(|slot| slot.ready_since = now_ns);
        self.idle_since = self.idle_since.map(|_| now_ns);
        if self.running.is_some() {
            self.running_since = now_ns;
        }
        self.free_since = now_ns;
    }

    /// Returns the choice of the policy, or the fiber with the highest priority if that choice would violate the bound.
    #[inline]
    fn choose(&mut self, highest: Candidate) -> Choice {
        let (bonus_ns, limit) = self.last.map_or((0, 0), |group| self.aggregation(group));
        let role = self.board.role(self.core);
        let published = match role {
            Role::Master => None,
            Role::SlaveOf(master) => self.board.published(master),
        };
        let (last, agg_count) = (self.last, self.agg_count);
        let view = View { queue: &self.queue, highest, last, agg_count, bonus_ns, limit, role, published };
        let choice = self.policy.choose(&view);
        let fallback = Choice { group: highest.group, counts: false, publish: None };
        let Some(chosen) = self.queue.first_of(choice.group) else { return fallback };
        if chosen.fiber == highest.fiber {
            return choice;
        }
        let (lead_ns, limit) = self.lead(choice.group, role);
        self.extremes.lead_ns = self.extremes.lead_ns.max(lead_ns);
        let is_within = chosen.vruntime - highest.vruntime <= lead_ns || is_mutant(Mutant::NoLead);
        if self.preferred < limit && is_within {
            choice
        } else {
            self.statistics.overruled += 1;
            fallback
        }
    }

    /// Returns the lead of `group` (the maximum distance of a chosen fiber's vruntime above the smallest vruntime), and
    /// the maximum number of consecutive choices of fibers that do not have the highest priority.
    #[inline]
    fn lead(&self, group: GroupId, role: Role) -> (u64, u32) {
        let (bonus_ns, limit) = self.aggregation(group);
        if self.paper_slaves && role != Role::Master {
            (bonus_ns, u32::MAX)
        } else {
            (bonus_ns.min(self.slice_ns.saturating_mul(u64::from(limit))), limit)
        }
    }

    /// Updates the counters of switches, of preferred fibers and of siblings in a row after a choice.
    #[inline]
    fn count(&mut self, choice: Choice, chosen: Candidate) {
        let highest = self.queue.highest();
        let is_preferred = highest.is_some_and(|highest| highest.vruntime < chosen.vruntime);
        self.preferred = if is_preferred { self.preferred.saturating_add(1) } else { 0 };
        self.statistics.preferred += u64::from(is_preferred);
        self.agg_count = if choice.counts { self.agg_count.saturating_add(1) } else { 0 };
        if self.last == Some(chosen.group) {
            self.statistics.switches_within += 1;
            self.aggregated += 1;
        } else {
            self.statistics.switches_between += u64::from(self.last.is_some());
            self.statistics.aggregated(self.aggregated);
            self.aggregated = 1;
            self.last = Some(chosen.group);
        }
    }

    #[inline]
    fn enqueue(&mut self, now_ns: u64, fiber: u32) {
        // From here on the core is not idle, even if its thread is slow to choose a fiber: the time of the choice is
        // part of the next run.
        if let Some(since) = self.idle_since.take() {
            self.statistics.idle_ns += now_ns.saturating_sub(since);
            self.free_since = now_ns;
        }
        let slot = &mut self.slots[fiber as usize];
        slot.state = FiberState::Queued;
        slot.ready_since = now_ns;
        self.queue.push(Candidate { group: slot.group, fiber, vruntime: slot.vruntime });
    }

    /// Returns `agg_bonus` in nanoseconds and `agg_limit` of a group with fibers on this core.
    #[inline]
    fn aggregation(&self, group: GroupId) -> (u64, u32) {
        self.cached_groups.get(group.index()).and_then(Option::as_ref).map_or((0, 0), |group| group.aggregation())
    }

    fn look_up(&mut self, group: GroupId) -> Result<&Group, GroupError> {
        let at = group.index();
        let known = self.cached_groups.get(at).and_then(Option::as_ref);
        if known.is_none_or(|known| known.id != group) {
            let found = self.groups.get(group)?;
            if at >= self.cached_groups.len() {
                self.cached_groups.resize(at + 1, None);
            }
            self.cached_groups[at] = Some(found);
        }
        self.cached_groups[at].as_deref().ok_or(GroupError::Unknown(at))
    }
}

/// The default policy of a core is the fair policy.
impl Default for Box<dyn Policy> {
    fn default() -> Box<dyn Policy> {
        Box::new(Fair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Aggregation;

    /// Runs that are shorter than one unit of vruntime of a heavy group are charged.
    #[test]
    fn a_heavy_group_pays_for_short_runs() {
        let groups = Arc::new(Groups::new());
        let heavy = groups.add("heavy", 1000 * DEFAULT_WEIGHT, Aggregation::default()).unwrap();
        let board = Arc::new(Board::new(1));
        let mut core = Scheduler::new(0, groups, board, Box::new(Fair), CoreSettings::default());
        core.arrive(0, 0, heavy).unwrap();
        let begin = core.slots[0].vruntime;
        for run in 1..=10_000_u64 {
            core.pick(400 * (run - 1)).unwrap();
            core.stop(400 * run, Stops::Preempted);
        }
        assert_eq!(core.slots[0].vruntime - begin, 400 * 10_000 / 1000);
    }
}
