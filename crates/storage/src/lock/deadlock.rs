//! Deadlock detection: a transaction that begins to wait searches for cycles of waits, and the youngest member of a cycle is
//! aborted.
//!
//! Only a transaction that begins to wait can close a cycle of waits: a running transaction waits for nothing, and a grant
//! makes its owner run. So the requester, once queued, follows the waits-for edges from itself until no cycle leads through
//! it any more. If two transactions begin to wait at the same time, the transaction that locks the detector's mutex later
//! sees the wait of the other. The search visits the nearest owners first. In a long queue behind one holder, each waiter
//! waits for all requests ahead of it. If the holder in turn waits for the last of these waiters, the cycle to break
//! consists of these two owners and not of the whole queue.
//!
//! A running transaction waits for nothing, unless its *task* (thread or fiber) is blocked in the wait of another
//! transaction. It then cannot end before the other transaction's wait ends, which is an edge like any other. An abort with
//! a retry cannot break a cycle with such an edge, because the task waits for itself. So the wait of this task ends with an
//! error of its own, whatever the age of its transaction.
//!
//! For the search a family (`family`) is one owner: whoever waits for one of its locks waits for every wait of the family, and
//! waits inside a family are no edges.
//!
//! The search latches one bucket (or table queue) at a time, so the edges that it sees may never have existed at the same
//! time. Before a wait is ended, the queues of all members of the cycle are therefore latched together, in ascending order,
//! tables before buckets, and every edge is verified: a waiter cannot leave while its queue is latched.

use std::ops::ControlFlow;

use super::LockTable;
use super::family::are_kin;
use super::intent::TableQueue;
use super::queue::{self, LockRequestView};
use super::sync::{MutexGuard, Ordering};
use super::table::LatchedBucket;
use super::wait::{WaitOutcome, WaitsFor, Wakes};
use crate::base::error::LockHolder;
use crate::base::ids::{Age, SlotId};

/// State of the deadlock search, kept between searches to avoid allocations.
#[derive(Default)]
pub(super) struct Detector {
    /// True for each slot whose owner the search has visited.
    visited: Vec<bool>,
    /// Visited owners, nearest first, each with the index in this list of the owner that waits for it.
    frontier: Vec<(SlotId, usize)>,
    /// The cycle that the search found: each owner waits for the next owner, and the last owner for the first.
    cycle: Vec<SlotId>,
}

/// The latched queues in which the members of a cycle wait.
#[derive(Default)]
struct LatchedQueues<'a> {
    tables: Vec<(u32, MutexGuard<'a, TableQueue>)>,
    buckets: Vec<(usize, LatchedBucket<'a>)>,
}

impl LockTable {
    /// Returns the age of the transaction that runs in a slot, or that ran in the slot last.
    pub(crate) fn age_in(&self, slot: SlotId) -> Age {
        Age(self.slot(slot).age.load(Ordering::Relaxed))
    }
}

impl LockTable {
    /// Breaks every deadlock that includes `requester`, which was just queued: ends the wait of one member of each cycle.
    pub(super) fn resolve_deadlocks(&self, requester: SlotId) {
        let mut wakes = Wakes::default();
        {
            let mut detector = self.detector.lock();
            if self.closed.load(Ordering::Acquire) {
                self.withdraw(requester, WaitOutcome::Closed, &mut wakes);
            }
            while detector.find_cycle(self, requester) {
                self.break_cycle(&detector.cycle, &mut wakes);
            }
        }
        self.deliver(wakes);
    }

    /// Ends all waits because the lock table is closed.
    pub(super) fn withdraw_all(&self) {
        let mut wakes = Wakes::default();
        {
            // An owner that queues later locks this mutex later, and then sees `closed`.
            let _detector = self.detector.lock();
            for slot in 0..self.used.load(Ordering::Acquire) {
                self.withdraw(SlotId(slot as u16), WaitOutcome::Closed, &mut wakes);
            }
        }
        self.deliver(wakes);
    }

    /// Ends the wait of `owner`, unless it has already ended. Called if the owner's thread or fiber has been unwound.
    pub(super) fn withdraw_one(&self, owner: SlotId) {
        let mut wakes = Wakes::default();
        self.withdraw(owner, WaitOutcome::Closed, &mut wakes);
        self.deliver(wakes);
    }

    /// Ends the wait of `owner`, unless it has already ended. Called if the wait exceeded the time limit. Returns the owner
    /// that `owner` waited for.
    #[cold]
    pub(super) fn withdraw_late(&self, owner: SlotId) -> Option<LockHolder> {
        let mut holder = None;
        self.edges_of(owner, |other| {
            let slot = self.slot(other);
            holder = Some(LockHolder {
                age: Age(slot.age.load(Ordering::Relaxed)),
                waits: slot.waits_for() != WaitsFor::Nothing,
                task: slot.task.load(Ordering::Relaxed),
            });
            ControlFlow::Break(())
        });
        let mut wakes = Wakes::default();
        self.withdraw(owner, WaitOutcome::TimedOut, &mut wakes);
        self.deliver(wakes);
        holder
    }

    pub(super) fn withdraw(&self, owner: SlotId, outcome: WaitOutcome, wakes: &mut Wakes) {
        let mut latched = self.latch_queues([self.slot(owner).waits_for()].into_iter());
        self.withdraw_latched(&mut latched, owner, outcome, wakes);
    }

    /// Returns true if `owner` waits for an owner of another family.
    #[cold]
    pub(super) fn waits_for_stranger(&self, owner: SlotId) -> bool {
        let mut found = false;
        self.edges_of(owner, |other| {
            found |= !are_kin(&self.slots, owner, other);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    fn withdraw_latched(
        &self,
        latched: &mut LatchedQueues<'_>,
        owner: SlotId,
        outcome: WaitOutcome,
        wakes: &mut Wakes,
    ) {
        match self.slot(owner).waits_for() {
            WaitsFor::Nothing => {}
            WaitsFor::Record(name) => {
                if let Some(list) = latched.list(self.buckets.index_of(name))
                    && let Some(request) = queue::find_waiting(list, owner, name)
                {
                    queue::withdraw(&self.slots, list, request, outcome, wakes);
                }
            }
            WaitsFor::Table(table) => {
                if let Some(queue) = latched.queue(table) {
                    queue.withdraw(self, table, owner, outcome, wakes);
                }
            }
        }
    }

    /// Ends the wait of one member of `cycle` if the cycle still exists. If the cycle contains members whose own task is
    /// blocked, the victim is the youngest of these members; otherwise it is the youngest member.
    pub(super) fn break_cycle(&self, cycle: &[SlotId], wakes: &mut Wakes) {
        let mut latched = self.latch_queues(cycle.iter().map(|&owner| self.slot(owner).waits_for()));
        let edges = || cycle.iter().copied().zip(cycle.iter().copied().cycle().skip(1));
        if edges().all(|(owner, next)| latched.waits(self, owner, next)) {
            let youngest = |&owner: &SlotId| (self.slot(owner).age.load(Ordering::Relaxed), owner);
            let runs = |owner: SlotId| self.slot(owner).waits_for() == WaitsFor::Nothing;
            let own = edges().filter(|(owner, _)| runs(*owner)).map(|(_, next)| next).max_by_key(youngest);
            if let Some(victim) = own {
                self.withdraw_latched(&mut latched, victim, WaitOutcome::OwnTask, wakes);
            } else if let Some(victim) = cycle.iter().copied().max_by_key(youngest) {
                self.withdraw_latched(&mut latched, victim, WaitOutcome::Deadlock, wakes);
            }
        }
    }

    fn latch_queues(&self, waits: impl Iterator<Item = WaitsFor>) -> LatchedQueues<'_> {
        let (mut tables, mut buckets) = (Vec::new(), Vec::new());
        for wait in waits {
            match wait {
                WaitsFor::Nothing => {}
                WaitsFor::Record(name) => buckets.push(self.buckets.index_of(name)),
                WaitsFor::Table(table) => tables.push(table),
            }
        }
        tables.sort_unstable();
        tables.dedup();
        buckets.sort_unstable();
        buckets.dedup();
        LatchedQueues {
            tables: tables.into_iter().map(|table| (table, self.tables.queue(table))).collect(),
            buckets: buckets.into_iter().map(|bucket| (bucket, self.buckets.at(bucket).latch())).collect(),
        }
    }

    /// Calls `found` with each owner that `owner` appears to wait for, according to reads without latches.
    fn edges_of(&self, owner: SlotId, mut found: impl FnMut(SlotId) -> ControlFlow<()>) {
        match self.slot(owner).waits_for() {
            WaitsFor::Nothing => {
                if let Some(other) = self.waits_in_task_of(owner) {
                    let _ = found(other);
                }
            }
            WaitsFor::Record(name) => {
                let list = self.buckets.of(name).latch();
                if let Some(request) = queue::find_waiting(&list, owner, name) {
                    LockRequestView::of(&self.slots, request).blockers(&list, found);
                }
            }
            WaitsFor::Table(table) => self.tables.queue(table).blockers_of(self, table, owner, found),
        }
    }
}

impl LockTable {
    /// Returns the owner whose wait blocks the task of `owner`. `None` if the task is not blocked. `owner` itself does not
    /// wait.
    fn waits_in_task_of(&self, owner: SlotId) -> Option<SlotId> {
        let used = self.used.load(Ordering::Acquire);
        (0..used).map(|slot| SlotId(slot as u16)).find(|&other| self.is_blocked_by_wait_of(owner, other))
    }

    /// Returns true if `owner`, which does not wait, runs in the task that is blocked in the wait of `other`.
    fn is_blocked_by_wait_of(&self, owner: SlotId, other: SlotId) -> bool {
        let task = self.slot(owner).task.load(Ordering::Relaxed);
        task != 0
            && other != owner
            && self.slot(other).task.load(Ordering::Relaxed) == task
            && self.slot(other).waits_for() != WaitsFor::Nothing
    }
}

impl Detector {
    /// Searches for a shortest cycle through `requester`. Returns true if there is one.
    fn find_cycle(&mut self, locks: &LockTable, requester: SlotId) -> bool {
        self.visited.clear();
        self.visited.resize(locks.slots.len(), false);
        self.frontier.clear();
        self.frontier.push((requester, 0));
        let mut at = 0;
        while let Some(&(owner, _)) = self.frontier.get(at) {
            let mut closed = false;
            locks.edges_of(owner, |other| {
                if are_kin(&locks.slots, owner, other) {
                    return ControlFlow::Continue(());
                }
                if other == requester || are_kin(&locks.slots, other, requester) {
                    closed = true;
                    return ControlFlow::Break(());
                }
                if !std::mem::replace(&mut self.visited[usize::from(other.0)], true) {
                    self.frontier.push((other, at));
                }
                ControlFlow::Continue(())
            });
            // Whoever waits for an owner waits for all waits of the owner's family. Those of the requester's family were
            // searched when they began.
            for kin in locks.waiting_kin_of(owner).filter(|_| at != 0) {
                if !std::mem::replace(&mut self.visited[usize::from(kin.0)], true) {
                    self.frontier.push((kin, self.frontier[at].1));
                }
            }
            if closed {
                self.trace_back(at);
                return true;
            }
            at += 1;
        }
        false
    }

    fn trace_back(&mut self, mut at: usize) {
        self.cycle.clear();
        while at != 0 {
            let (owner, waiter) = self.frontier[at];
            self.cycle.push(owner);
            at = waiter;
        }
        self.cycle.push(self.frontier[0].0);
        self.cycle.reverse();
    }
}

impl<'a> LatchedQueues<'a> {
    fn list(&self, bucket: usize) -> Option<&LatchedBucket<'a>> {
        self.buckets.iter().find(|(at, _)| *at == bucket).map(|(_, list)| list)
    }

    fn queue(&mut self, table: u32) -> Option<&mut TableQueue> {
        self.tables.iter_mut().find(|(at, _)| *at == table).map(|(_, queue)| &mut **queue)
    }

    /// Returns true if `owner` waits for `other`, according to the latched queues.
    fn waits(&mut self, locks: &LockTable, owner: SlotId, other: SlotId) -> bool {
        let waits_for = locks.slot(owner).waits_for();
        if waits_for == WaitsFor::Nothing {
            // The edge of `other` in the cycle verifies the wait of `other`.
            return locks.is_blocked_by_wait_of(owner, other);
        }
        let mut waits = false;
        let found = |blocker: SlotId| {
            waits |= blocker == other || are_kin(&locks.slots, blocker, other);
            if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match waits_for {
            WaitsFor::Nothing => {}
            WaitsFor::Record(name) => {
                if let Some(list) = self.list(locks.buckets.index_of(name))
                    && let Some(request) = queue::find_waiting(list, owner, name)
                {
                    LockRequestView::of(&locks.slots, request).blockers(list, found);
                }
            }
            WaitsFor::Table(table) => {
                if let Some(queue) = self.queue(table) {
                    queue.blockers_of(locks, table, owner, found);
                }
            }
        }
        waits
    }
}
