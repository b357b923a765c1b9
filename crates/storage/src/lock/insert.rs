//! Inserts: check that a key may be inserted into a gap.
//!
//! A request to insert leaves no trace if it is granted at once: the new key's own X lock, taken under the same page latch,
//! protects the key from then on. A request that has to wait is queued on the name of the next larger key like any other
//! request. It stays in the queue, granted, until the transaction ends. So readers whose ranges include the new key queue
//! behind the request, and cannot lock the gap again before the inserter continues. These readers lose nothing, because they
//! would have to wait for the new key itself.

use super::LockRefusal;
use super::mode::{GapMode, KeyMode, RecordMode};
use super::name::{LockName, Prefix};
use super::owner::{Attempt, IfBlocked, LockOwner, Pending};
use super::queue::LockRequestView;
use super::wait::WaitsFor;
use crate::base::mutant::{Mutant, is_mutant};

/// Result of the check for an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum InsertCheck {
    /// No other transaction has read the position of the new key. The caller locks the new key in mode X.
    Granted,
    /// No other transaction has read the position of the new key, but the inserter, or a settled epoch of its family, has read
    /// the gap from this prefix on. The
    /// new key splits the gap, so the caller locks the key in mode X *and* its gap, with this prefix.
    OwnGap(Prefix),
    /// Other transactions have read the position of the new key. The caller releases the page, calls
    /// [`LockOwner::wait_insert`], then starts again.
    Blocked,
}

impl LockOwner {
    /// Checks that a key with the prefix `key` may be inserted in `table` below `next`, the name of the next larger key (or
    /// of the supremum). Never waits, and leaves no request behind. The caller holds an exclusive latch on the page for the
    /// new key. It latched the page before it determined the next key, and keeps the latch until the new key is inserted and
    /// locked.
    #[inline]
    pub(crate) fn check_insert(&self, table: u32, next: LockName, key: Prefix) -> InsertCheck {
        if self.locks.buckets.of(next).is_empty_now() || is_mutant(Mutant::SkipGapCheck) {
            InsertCheck::Granted
        } else {
            self.check_insert_slow(table, next, key)
        }
    }

    #[inline(never)]
    fn check_insert_slow(&self, table: u32, next: LockName, key: Prefix) -> InsertCheck {
        let list = self.locks.buckets.of(next).latch();
        if self.insert_view(table, next, key).is_blocked(&list) {
            return InsertCheck::Blocked;
        }
        self.family_gap(&list, table, next, key).map_or(InsertCheck::Granted, InsertCheck::OwnGap)
    }

    fn insert_view(&self, table: u32, next: LockName, key: Prefix) -> LockRequestView<'_> {
        let claim = GapMode { mode: RecordMode::INSERT, low: key };
        let slots = &self.locks.slots;
        LockRequestView { slots, owner: self.slot, table, name: next, claim, converting: false, queued: None }
    }

    /// Waits until a key with the prefix `key` may be inserted below `next`. The caller holds no latch. After the wait the
    /// caller searches the position again and repeats [`LockOwner::check_insert`].
    pub(crate) fn wait_insert(&mut self, table: u32, next: LockName, key: Prefix) -> Result<(), LockRefusal> {
        match self.attempt_insert(table, next, key, IfBlocked::Queue)? {
            Attempt::Done(()) | Attempt::Blocked => Ok(()),
            Attempt::Queued => self.finish_wait().map(|_| ()),
        }
    }

    pub(super) fn attempt_insert(
        &mut self,
        table: u32,
        next: LockName,
        key: Prefix,
        blocked: IfBlocked,
    ) -> Result<Attempt<()>, LockRefusal> {
        if self.covers(table, KeyMode::X, true) {
            return Ok(Attempt::Done(()));
        }
        let claim = GapMode { mode: RecordMode::INSERT, low: key };
        self.arena.reserve();
        let list = self.locks.buckets.of(next).latch();
        if !self.insert_view(table, next, key).is_blocked(&list) {
            return Ok(Attempt::Done(()));
        }
        if blocked == IfBlocked::GiveUp {
            return Ok(Attempt::Blocked);
        }
        let Some(request) = self.arena.take() else {
            return Err(LockRefusal::TooManyLocks { limit: self.locks.options.records_per_owner });
        };
        request.name.set(next);
        request.table.set(table);
        request.held.set(RecordMode::NONE);
        request.epoch.set(self.epoch);
        request.set_wanted(claim);
        list.push_waiter(request);
        self.pending = Some(Pending::New(request.position));
        self.locks.slot(self.slot).start_wait(WaitsFor::Record(next));
        Ok(Attempt::Queued)
    }
}
