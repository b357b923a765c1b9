//! Epochs of the members of a family: begin, wounds, rollback, settlement. `family` has the rules.

use super::LockTable;
use super::family::{Kinship, are_kin, kinship};
use super::membership::{Membership, OpenEpoch};
use super::mode::{GapMode, KeyMode, RecordMode, TableMode};
use super::name::{LockName, Prefix};
use super::owner::LockOwner;
use super::queue::{self, LockRequestView};
use super::request::Request;
use super::sync::Ordering;
use super::table::LatchedBucket;
use super::wait::{WaitOutcome, WaitsFor, Wakes};
use crate::base::ids::SlotId;

/// A record lock that an epoch has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochLock {
    pub(crate) table: u32,
    /// Name of the record: hash of its index and key.
    pub(crate) name: u64,
    /// True if the epoch may write the record.
    pub(crate) is_exclusive: bool,
}

/// Number of record locks of a member in a table below which a table lock would save little.
const FEW_RECORDS: u32 = 256;

impl LockTable {
    fn membership(&self, owner: SlotId) -> &Membership {
        &self.slot(owner).membership
    }

    /// Makes `owner` the transaction of a family, which is named after its slot.
    pub(crate) fn found_family(&self, owner: SlotId) {
        self.membership(owner).family.store(u32::from(owner.0) + 1, Ordering::Relaxed);
    }

    /// Returns true if the epoch of `member` must be rolled back.
    #[inline]
    pub(crate) fn is_wounded(&self, member: SlotId) -> bool {
        self.membership(member).wounded.load(Ordering::SeqCst)
    }

    /// Iterates over all owners of the family of `owner`, without `owner` itself.
    pub(crate) fn kin_of(&self, owner: SlotId) -> impl Iterator<Item = SlotId> {
        let has_family = self.membership(owner).family.load(Ordering::Relaxed) != 0;
        let used = if has_family { self.used.load(Ordering::Acquire) } else { 0 };
        (0..used).map(|slot| SlotId(slot as u16)).filter(move |&other| are_kin(&self.slots, owner, other))
    }

    /// As [`LockTable::kin_of`], but only the owners that wait.
    pub(super) fn waiting_kin_of(&self, owner: SlotId) -> impl Iterator<Item = SlotId> {
        self.kin_of(owner).filter(|kin| self.slot(*kin).waits_for() != WaitsFor::Nothing)
    }

    /// Returns true if a table mode of another owner in the family of `owner` excludes `mode`.
    pub(super) fn kin_exclude(&self, table: u32, owner: SlotId, mode: TableMode) -> bool {
        self.kin_of(owner).any(|other| !self.slot(other).mode(table).compatible(mode))
    }

    /// Wounds the epoch of `member`, with the later epochs of its thread, and ends their waits.
    pub(crate) fn wound(&self, member: SlotId) {
        let membership = self.membership(member);
        let (thread, first) = (membership.thread.load(Ordering::Relaxed), membership.open.load(Ordering::SeqCst));
        if first == 0 {
            return;
        }
        let mut wakes = Wakes::default();
        // The epoch itself first: a later epoch of the thread that begins in the meantime sees its mark (`share_wound`).
        for other in std::iter::once(member).chain(self.kin_of(member)) {
            let membership = self.membership(other);
            if membership.thread.load(Ordering::Relaxed) == thread && membership.open.load(Ordering::SeqCst) >= first {
                membership.wounded.store(true, Ordering::SeqCst);
                self.withdraw(other, WaitOutcome::Wounded, &mut wakes);
            }
        }
        self.deliver(wakes);
    }

    /// Settles the epoch of `member`. Returns true if requests may wait for that: [`LockTable::grant_kin`] grants them.
    pub(crate) fn settle(&self, member: SlotId) -> bool {
        let membership = self.membership(member);
        membership.open.store(0, Ordering::SeqCst);
        membership.awaited.swap(false, Ordering::SeqCst)
    }

    /// Grants the requests of owners of the family of `member` that wait for a name. Called after an epoch was settled for
    /// which requests may wait.
    pub(crate) fn grant_kin(&self, member: SlotId) {
        let mut wakes = Wakes::default();
        for other in self.kin_of(member) {
            if let WaitsFor::Record(name) = self.slot(other).waits_for() {
                queue::grant(&self.slots, &self.buckets.of(name).latch(), name, &mut wakes);
            }
        }
        self.deliver(wakes);
    }
}

impl LockOwner {
    /// Makes the owner a member of the family of the owner `parent`, or moves the member to another thread. The owner holds no
    /// lock if it is no member yet; otherwise its epochs are settled.
    pub(crate) fn join(&mut self, parent: SlotId, thread: u32) {
        let membership = &self.shared().membership;
        membership.thread.store(thread, Ordering::Relaxed);
        membership.close();
        membership.family.store(u32::from(parent.0) + 1, Ordering::Relaxed);
    }

    /// Returns the thread that runs the owner's epochs.
    pub(crate) fn thread(&self) -> u32 {
        self.shared().membership.thread.load(Ordering::Relaxed)
    }

    /// As [`LockOwner::writes_unnamed`], for the other owners of the family.
    pub(crate) fn family_writes_unnamed(&self, table: u32) -> bool {
        // Only a lock for writing the whole table excludes this intention.
        self.locks.kin_exclude(table, self.slot, TableMode::IS)
    }

    /// Ends the owner's membership in its family. All other owners of the family have ended, or the owner holds no locks.
    #[inline]
    pub(super) fn leave_family(&mut self) {
        let membership = &self.shared().membership;
        if membership.family.load(Ordering::Relaxed) != 0 {
            membership.family.store(0, Ordering::Relaxed);
            self.forget_epochs();
        }
    }

    #[cold]
    fn forget_epochs(&mut self) {
        self.shared().membership.close();
        self.epoch = 0;
    }

    /// Returns true if the owner has had as many epochs as it can number.
    pub(crate) fn is_spent(&self) -> bool {
        self.epoch == u16::MAX
    }

    /// Begins the epoch with place `order` in its loop, which is not 0. The former epoch of this owner is settled.
    ///
    /// # Panics
    /// Panics if the owner is spent.
    pub(crate) fn begin_epoch(&mut self, order: u64) {
        assert!(!self.is_spent(), "an owner has at most {} epochs", u16::MAX);
        self.epoch += 1;
        let number = self.epoch;
        self.former.clear();
        let membership = &self.shared().membership;
        membership.wounded.store(false, Ordering::Relaxed);
        membership.open.store(OpenEpoch { order, number }.encoded(), Ordering::SeqCst);
    }

    /// Replaces record locks of settled epochs by a table lock of the family's transaction `head`, where the owner has so many
    /// in a table that escalation is due, or where the transaction has such a lock already. Called between two epochs. As any
    /// escalation, this never waits.
    pub(crate) fn escalate_settled(&mut self, head: SlotId, lock: impl Fn(u32, TableMode)) {
        if self.touched.iter().all(|table| self.records_in(*table) < FEW_RECORDS) {
            return;
        }
        for at in 0..self.touched.len() {
            let table = self.touched[at];
            let records = self.records_in(table);
            if records < FEW_RECORDS {
                continue;
            }
            if records >= self.usage(table).escalate_at {
                lock(table, self.escalation_mode(table));
                self.postpone_escalation(table);
            }
            let mode = self.locks.slot(head).mode(table);
            if mode.is_strong() {
                self.release_covered(table, mode);
                self.postpone_escalation(table);
            }
        }
    }

    /// Returns the number of record locks that the owner holds.
    pub(crate) fn records(&self) -> u32 {
        self.touched.iter().map(|table| self.records_in(*table)).sum()
    }

    fn records_in(&self, table: u32) -> u32 {
        let usage = self.tables.get(table as usize).or_else(|| self.sparse.get(&table));
        usage.map_or(0, |usage| usage.records)
    }

    /// Ends the epochs of the owner in a loop. The last one is settled, or rolled back and does not run again.
    pub(crate) fn end_epochs(&mut self) {
        self.shared().membership.close();
    }

    /// Returns true if the owner runs an epoch that is not settled.
    #[inline]
    pub(crate) fn is_in_epoch(&self) -> bool {
        self.epoch != 0
    }

    /// Returns the record locks that the epoch has taken.
    pub(crate) fn locks_of_epoch(&self) -> Vec<EpochLock> {
        let of_epoch = self.arena.iter().filter(|request| !request.is_free() && request.epoch.get() == self.epoch);
        let lock = |request: &Request| {
            let held = request.held.get();
            let is_exclusive = held.key() == KeyMode::X || held.is_insert();
            EpochLock { table: request.table.get(), name: request.name.get().0, is_exclusive }
        };
        of_epoch.map(lock).collect()
    }

    /// Releases the locks of the epoch, whose changes have been undone. Locks that the owner held before get their former
    /// mode. The epoch can run again.
    pub(crate) fn roll_back_epoch(&mut self) {
        if self.pending.is_some() {
            self.abandon_wait();
        }
        let of_epoch = |request: &&Request| !request.is_free() && request.epoch.get() == self.epoch;
        let positions: Vec<u32> = self.arena.iter().filter(of_epoch).map(|request| request.position).collect();
        let former = std::mem::take(&mut self.former);
        for position in positions {
            let request = self.arena.at(position);
            let held = request.holds();
            let before = former.iter().find(|former| former.position == position);
            let (lower, epoch) = match before {
                Some(before) => (before.held, before.epoch),
                None if held.mode.guards_gap() && held.mode.key() == KeyMode::X => {
                    (GapMode { mode: RecordMode::KEPT_GAP, low: held.low }, 0)
                }
                None => {
                    self.release_at(position);
                    continue;
                }
            };
            self.locks.release_shared(request, |list, wakes| {
                request.set_held(lower);
                request.epoch.set(epoch);
                queue::grant(&self.locks.slots, list, request.name.get(), wakes);
            });
        }
        self.former = former;
        self.former.clear();
        // A request of the family that has passed one of another transaction because of a released lock now waits behind it.
        for kin in self.locks.waiting_kin_of(self.slot) {
            self.locks.resolve_deadlocks(kin);
        }
        self.shared().membership.wounded.store(false, Ordering::SeqCst);
    }

    /// Called by an owner that has queued a request: wounds later epochs that hold the name, and makes sure that a settled
    /// epoch grants the request.
    ///
    /// An epoch that settles stores `open` and then reads `awaited`; this owner stores `awaited` and then reads `open`, all
    /// sequentially consistent. So one of the two sees the other, and grants the request.
    pub(super) fn await_family(&self) {
        let mut wakes = Wakes::default();
        if let WaitsFor::Record(name) = self.shared().waits_for() {
            self.await_record(name, &mut wakes);
        }
        self.share_wound();
        if self.locks.is_wounded(self.slot) {
            self.locks.withdraw(self.slot, WaitOutcome::Wounded, &mut wakes);
        }
        self.locks.deliver(wakes);
    }

    fn await_record(&self, name: LockName, wakes: &mut Wakes) {
        let bucket = self.locks.buckets.of(name);
        let mut later = Vec::new();
        {
            let list = bucket.latch();
            let Some(request) = queue::find_waiting(&list, self.slot, name) else { return };
            let view = LockRequestView::of(&self.locks.slots, request);
            for other in list.iter().filter(|other| other.owner != self.slot && other.is_for(view.table, name)) {
                let relation = |waiting| kinship(&self.locks.slots, self.slot, other, waiting);
                if relation(false) == Kinship::Earlier || (other.waiting.get() && relation(true) == Kinship::Earlier) {
                    self.locks.membership(other.owner).awaited.store(true, Ordering::SeqCst);
                }
                if other.holds().excludes(view.claim) && relation(false) == Kinship::Later {
                    later.push(other.owner);
                }
            }
        }
        for member in later {
            self.locks.wound(member);
        }
        queue::grant(&self.locks.slots, &bucket.latch(), name, wakes);
    }

    /// Marks the epoch of this owner as wounded, whose wait a wound has ended. The wound may be one that was meant for an
    /// earlier run of the epoch, which was rolled back between the mark and the end of the wait.
    pub(super) fn confirm_wound(&self) {
        self.shared().membership.wounded.store(true, Ordering::SeqCst);
    }

    /// Wounds this owner's epoch if an earlier epoch of its thread is wounded: only this thread can roll that one back. This
    /// epoch may have begun while the other was wounded, so that the wound has missed it.
    fn share_wound(&self) {
        let membership = |owner| self.locks.membership(owner);
        let (thread, own) = {
            let own = membership(self.slot);
            (own.thread.load(Ordering::Relaxed), own.open.load(Ordering::SeqCst))
        };
        let is_wounded = |kin: SlotId| {
            let kin = membership(kin);
            let open = kin.open.load(Ordering::SeqCst);
            kin.thread.load(Ordering::Relaxed) == thread
                && kin.wounded.load(Ordering::SeqCst)
                && open != 0
                && open < own
        };
        if self.locks.kin_of(self.slot).any(is_wounded) {
            membership(self.slot).wounded.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the lowest prefix at or below `key` from which the owner or a settled epoch of its family has locked the gap
    /// below `next`.
    pub(super) fn family_gap(
        &self,
        list: &LatchedBucket<'_>,
        table: u32,
        next: LockName,
        key: Prefix,
    ) -> Option<Prefix> {
        let guards = list.iter().filter(|r| r.is_for(table, next) && r.held.get().guards_gap() && r.low.get() <= key);
        let own = guards
            .filter(|r| r.owner == self.slot || kinship(&self.locks.slots, self.slot, r, false) == Kinship::Settled);
        own.map(|r| r.low.get()).min()
    }
}
