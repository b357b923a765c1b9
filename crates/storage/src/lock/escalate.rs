//! Lock escalation: many record locks of one owner in one table are replaced by one table lock.
//!
//! At `escalate_at` record locks, the next request attempts to lock the table: in S if the owner only reads records of the
//! table (together with IX this results in SIX), otherwise in X. Then the record locks that the table lock covers are
//! released. Escalation never waits: if another owner's lock prevents the table lock, the owner continues with record locks
//! and tries again `escalate_at` record locks later. If escalation waited, a statement that needs only record locks could
//! deadlock on tables.
//!
//! Escalation visits all locks of the owner and releases many of them, which takes too long under a page latch. A request
//! that may be made under latches ([`LockOwner::try_acquire`]) therefore answers "would block" when escalation is due. Its
//! caller releases all latches and calls the waiting variant, which escalates and in most cases does not have to wait.

use super::mode::{GapMode, KeyMode, TableMode};
use super::owner::{Attempt, IfBlocked, LockOwner, TableCoverage};
use super::sync::Ordering;

impl LockOwner {
    /// Returns true if the owner's locks on `table` make a record lock on `key`, and on the gap below it if `gap` is true,
    /// unnecessary.
    #[inline]
    pub(crate) fn covers(&self, table: u32, key: KeyMode, gap: bool) -> bool {
        debug_assert!(gap || key != KeyMode::None);
        covers_records(self.mode(table), key)
    }

    /// Returns true if the owner may write any record of `table` without a record lock. The records that the owner has
    /// deleted in the table then have no record lock either.
    pub(crate) fn writes_unnamed(&self, table: u32) -> bool {
        self.covers(table, KeyMode::X, true)
    }

    /// Returns the relation of a claim to the owner's table lock: the table lock covers the claim, the claim needs a record
    /// lock, or the claim has to wait because escalation is due.
    #[inline]
    pub(super) fn table_coverage(&mut self, table: u32, claim: GapMode, blocked: IfBlocked) -> TableCoverage {
        let usage = self.usage(table);
        if usage.records < usage.limit {
            return TableCoverage::Needed;
        }
        self.at_limit(table, claim, blocked)
    }

    #[cold]
    fn at_limit(&mut self, table: u32, claim: GapMode, blocked: IfBlocked) -> TableCoverage {
        let key = claim.mode.key();
        if self.covers(table, key, true) {
            return TableCoverage::Covered;
        }
        let usage = self.usage(table);
        if usage.records >= usage.escalate_at {
            if blocked == IfBlocked::GiveUp {
                return TableCoverage::Due;
            }
            self.escalate(table);
        }
        if self.covers(table, key, true) { TableCoverage::Covered } else { TableCoverage::Needed }
    }

    /// Escalates if escalation is due. The caller holds no latch.
    pub(crate) fn escalate_if_due(&mut self, table: u32) {
        let usage = self.usage(table);
        if usage.records >= usage.escalate_at {
            self.escalate(table);
        }
    }

    fn escalate(&mut self, table: u32) {
        crate::base::latches::assert_none_held("the escalation of locks");
        let mode = self.escalation_mode(table);
        // An attempt to lock the whole table ignores an owner that has no intention on the table, and does not see the
        // record locks of such an owner.
        // The locks of an epoch must stay visible to the other epochs of its loop.
        if self.mode(table) != TableMode::None && !self.is_in_epoch() && self.try_escalate_to(table, mode) {
            self.release_covered(table, self.mode(table));
        }
        self.postpone_escalation(table);
    }

    /// Returns the weakest table mode that covers all record locks of the owner in `table`.
    pub(super) fn escalation_mode(&self, table: u32) -> TableMode {
        let writes =
            self.arena.iter().any(|r| !r.is_free() && r.table.get() == table && r.held.get().key() >= KeyMode::U);
        if writes { TableMode::X } else { TableMode::S }
    }

    /// Locks the whole `table` in `mode`, unless another owner's lock prevents it. Returns true if it is locked.
    pub(crate) fn try_escalate_to(&mut self, table: u32, mode: TableMode) -> bool {
        let is_locked = matches!(self.attempt_table(table, mode, IfBlocked::GiveUp), Attempt::Done(_));
        if is_locked {
            self.shared().counters.escalations.increment();
            self.locks.tables.of(table).counters.escalations.fetch_add(1, Ordering::Relaxed);
        }
        is_locked
    }

    /// Makes the next attempt to escalate due when the owner has as many more record locks in `table` as for the first one.
    pub(super) fn postpone_escalation(&mut self, table: u32) {
        let step = self.locks.options.escalate_at;
        let usage = self.usage(table);
        usage.escalate_at = usage.records + step;
        self.refresh_limit(table);
    }

    /// Releases the record locks in `table` that a lock on the table in `mode` makes unnecessary.
    pub(super) fn release_covered(&mut self, table: u32, mode: TableMode) {
        let all: Vec<u32> = self
            .arena
            .iter()
            .filter(|r| !r.is_free() && r.table.get() == table && !r.held.get().is_insert())
            .filter(|r| covers_records(mode, r.held.get().key()))
            .map(|r| r.position)
            .collect();
        for position in all {
            self.release_at(position);
        }
    }
}

/// Returns true if a table lock in `mode` makes a record lock on `key`, and on the gap below it, unnecessary.
#[inline]
fn covers_records(mode: TableMode, key: KeyMode) -> bool {
    match mode {
        TableMode::X => true,
        // A gap lock only excludes inserts by other owners, and S and SIX on the table exclude these inserts too.
        TableMode::S | TableMode::SIX => key <= KeyMode::S,
        _ => false,
    }
}
