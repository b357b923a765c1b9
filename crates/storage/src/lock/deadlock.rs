//! Deadlocks: the transaction that begins to wait looks for them; the youngest member of the cycle is aborted.
//!
//! Only a transaction that begins to wait can close a cycle of waits: a running transaction waits for nothing, and a
//! grant makes its owner run. So the requester, once queued, follows the waits-for edges from itself until no cycle
//! leads through it any more. If two begin to wait at the same time, the later one into the mutex sees the wait of the
//! earlier. The search visits the nearest owners first: in a long queue behind one holder each waiter waits for all
//! ahead of it, and if the holder in turn waits for the last of them, the cycle to break consists of these two, not of
//! the whole queue.
//!
//! A running transaction waits for nothing, unless its *task* (thread, fiber) is blocked in the wait of another
//! transaction: then it cannot end before that wait does, which is an edge like any other. Running again cannot break a
//! cycle with such an edge, because the task waits for itself. So the wait of that task ends, with an error of its own,
//! however old its transaction is.
//!
//! The search latches one bucket (or table queue) at a time, and the edges it sees may never have existed together. So
//! before a wait is ended the queues of all members of the cycle are latched together, in ascending order, tables
//! before buckets, and every edge is checked again: a waiter cannot leave while its queue is latched.

use std::ops::ControlFlow;

use super::LockTable;
use super::intent::TableQueue;
use super::queue::{self, Ask};
use super::sync::{MutexGuard, Ordering};
use super::table::Latched;
use super::wait::{Outcome, WaitsFor, Wakes};
use crate::base::error::LockHolder;
use crate::base::ids::{Age, SlotId};

/// What a search needs to remember; kept between searches so that it allocates nothing.
#[derive(Default)]
pub(super) struct Detector {
    /// By slot: whether the search has met the owner.
    met: Vec<bool>,
    /// Owners met, nearest first, each with the place in this list of the one that waits for it.
    reached: Vec<(SlotId, usize)>,
    /// The cycle found: each waits for the next, the last for the first.
    cycle: Vec<SlotId>,
}

/// The queues that a cycle's members wait in, all held.
#[derive(Default)]
struct Held<'a> {
    tables: Vec<(u32, MutexGuard<'a, TableQueue>)>,
    buckets: Vec<(usize, Latched<'a>)>,
}

impl LockTable {
    /// The age of the transaction that runs in a slot, or ran there last.
    pub(crate) fn age_in(&self, slot: SlotId) -> Age {
        Age(self.slot(slot).age.load(Ordering::Relaxed))
    }
}

impl LockTable {
    /// Breaks every deadlock that `requester`, just queued, is part of: for each cycle, ends the wait of one member.
    pub(super) fn resolve_deadlocks(&self, requester: SlotId) {
        let mut wakes = Wakes::default();
        {
            let mut detector = self.detector.lock();
            if self.closed.load(Ordering::Acquire) {
                self.withdraw(requester, Outcome::Closed, &mut wakes);
            }
            while detector.find_cycle(self, requester) {
                self.break_cycle(&detector.cycle, &mut wakes);
            }
        }
        self.deliver(wakes);
    }

    /// Ends all waits because the table is closed.
    pub(super) fn withdraw_all(&self) {
        let mut wakes = Wakes::default();
        {
            // An owner that queues later takes this mutex later, and sees `closed`.
            let _detector = self.detector.lock();
            for slot in 0..self.used.load(Ordering::Acquire) {
                self.withdraw(SlotId(slot as u16), Outcome::Closed, &mut wakes);
            }
        }
        self.deliver(wakes);
    }

    /// Ends the wait of `owner`, if it has not ended, because its thread or fiber no longer waits.
    pub(super) fn withdraw_one(&self, owner: SlotId) {
        let mut wakes = Wakes::default();
        self.withdraw(owner, Outcome::Closed, &mut wakes);
        self.deliver(wakes);
    }

    /// Ends the wait of `owner`, if it has not ended, because it has lasted too long; returns the owner that it waited
    /// for.
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
        self.withdraw(owner, Outcome::TimedOut, &mut wakes);
        self.deliver(wakes);
        holder
    }

    fn withdraw(&self, owner: SlotId, outcome: Outcome, wakes: &mut Wakes) {
        let mut held = self.hold([self.slot(owner).waits_for()].into_iter());
        self.withdraw_held(&mut held, owner, outcome, wakes);
    }

    fn withdraw_held(&self, held: &mut Held<'_>, owner: SlotId, outcome: Outcome, wakes: &mut Wakes) {
        match self.slot(owner).waits_for() {
            WaitsFor::Nothing => {}
            WaitsFor::Record(name) => {
                if let Some(list) = held.list(self.buckets.index_of(name))
                    && let Some(request) = queue::find_waiting(list, owner, name)
                {
                    queue::withdraw(list, request, outcome, wakes);
                }
            }
            WaitsFor::Table(table) => {
                if let Some(queue) = held.queue(table) {
                    queue.withdraw(self, table, owner, outcome, wakes);
                }
            }
        }
    }

    /// Ends the wait of the youngest member of `cycle` if the cycle still exists: of the youngest whose own task is
    /// blocked, if there is one.
    pub(super) fn break_cycle(&self, cycle: &[SlotId], wakes: &mut Wakes) {
        let mut held = self.hold(cycle.iter().map(|&owner| self.slot(owner).waits_for()));
        let edges = || cycle.iter().copied().zip(cycle.iter().copied().cycle().skip(1));
        if edges().all(|(owner, next)| held.waits(self, owner, next)) {
            let youngest = |&owner: &SlotId| (self.slot(owner).age.load(Ordering::Relaxed), owner);
            let runs = |owner: SlotId| self.slot(owner).waits_for() == WaitsFor::Nothing;
            let own = edges().filter(|(owner, _)| runs(*owner)).map(|(_, next)| next).max_by_key(youngest);
            if let Some(victim) = own {
                self.withdraw_held(&mut held, victim, Outcome::OwnTask, wakes);
            } else if let Some(victim) = cycle.iter().copied().max_by_key(youngest) {
                self.withdraw_held(&mut held, victim, Outcome::Deadlock, wakes);
            }
        }
    }

    fn hold(&self, waits: impl Iterator<Item = WaitsFor>) -> Held<'_> {
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
        Held {
            tables: tables.into_iter().map(|table| (table, self.tables.queue(table))).collect(),
            buckets: buckets.into_iter().map(|bucket| (bucket, self.buckets.at(bucket).latch())).collect(),
        }
    }

    /// Calls `found` with each owner that `owner` seems to wait for.
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
                    Ask::of(request).blockers(&list, found);
                }
            }
            WaitsFor::Table(table) => self.tables.queue(table).blockers_of(self, table, owner, found),
        }
    }
}

impl LockTable {
    /// The owner whose wait blocks the task of `owner`, which does not wait itself.
    fn waits_in_task_of(&self, owner: SlotId) -> Option<SlotId> {
        let used = self.used.load(Ordering::Acquire);
        (0..used).map(|slot| SlotId(slot as u16)).find(|&other| self.is_blocked_by_wait_of(owner, other))
    }

    /// Whether `owner`, which does not wait, is run by the task that is blocked in the wait of `other`.
    fn is_blocked_by_wait_of(&self, owner: SlotId, other: SlotId) -> bool {
        let task = self.slot(owner).task.load(Ordering::Relaxed);
        task != 0
            && other != owner
            && self.slot(other).task.load(Ordering::Relaxed) == task
            && self.slot(other).waits_for() != WaitsFor::Nothing
    }
}

impl Detector {
    /// Looks for a shortest cycle through `requester`.
    fn find_cycle(&mut self, locks: &LockTable, requester: SlotId) -> bool {
        self.met.clear();
        self.met.resize(locks.slots.len(), false);
        self.reached.clear();
        self.reached.push((requester, 0));
        let mut at = 0;
        while let Some(&(owner, _)) = self.reached.get(at) {
            let mut closed = false;
            locks.edges_of(owner, |other| {
                if other == requester {
                    closed = true;
                    return ControlFlow::Break(());
                }
                if !std::mem::replace(&mut self.met[usize::from(other.0)], true) {
                    self.reached.push((other, at));
                }
                ControlFlow::Continue(())
            });
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
            let (owner, waiter) = self.reached[at];
            self.cycle.push(owner);
            at = waiter;
        }
        self.cycle.push(self.reached[0].0);
        self.cycle.reverse();
    }
}

impl<'a> Held<'a> {
    fn list(&self, bucket: usize) -> Option<&Latched<'a>> {
        self.buckets.iter().find(|(at, _)| *at == bucket).map(|(_, list)| list)
    }

    fn queue(&mut self, table: u32) -> Option<&mut TableQueue> {
        self.tables.iter_mut().find(|(at, _)| *at == table).map(|(_, queue)| &mut **queue)
    }

    /// Whether `owner` waits for `other`, according to the queues that are latched.
    fn waits(&mut self, locks: &LockTable, owner: SlotId, other: SlotId) -> bool {
        let waits_for = locks.slot(owner).waits_for();
        if waits_for == WaitsFor::Nothing {
            // That `other` waits is proved by its own edge.
            return locks.is_blocked_by_wait_of(owner, other);
        }
        let mut waits = false;
        let found = |blocker: SlotId| {
            waits |= blocker == other;
            if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match waits_for {
            WaitsFor::Nothing => {}
            WaitsFor::Record(name) => {
                if let Some(list) = self.list(locks.buckets.index_of(name))
                    && let Some(request) = queue::find_waiting(list, owner, name)
                {
                    Ask::of(request).blockers(list, found);
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
