//! Escalation: many record locks of one owner in one table become one table lock.
//!
//! At `escalate_at` record locks the next request tries to lock the table, S if the owner only reads records there
//! (with IX that makes SIX), X otherwise; then the record locks that the table lock covers are released. It never
//! waits: if somebody is in the way, the owner goes on with record locks and tries again `escalate_at` locks later.
//! Waiting here would turn a statement that only ever needed records into one that deadlocks on tables.

use super::mode::{Claim, KeyMode, TableMode};
use super::owner::{Attempt, IfBlocked, LockOwner};
use super::sync::Ordering;

impl LockOwner {
    /// Whether the owner's locks on `table` make a record lock on `key`, and on the gap below it if `gap`,
    /// unnecessary.
    #[inline]
    pub(crate) fn covers(&self, table: u32, key: KeyMode, gap: bool) -> bool {
        let allows = |mode: TableMode| match mode {
            TableMode::X => true,
            // A gap lock only keeps inserts by others out, and so does a table lock of this strength.
            TableMode::S | TableMode::SIX => key <= KeyMode::S,
            _ => false,
        };
        debug_assert!(gap || key != KeyMode::None);
        allows(self.mode(table))
    }

    /// Whether the owner may write any record of `table` without a lock that names it: what it has deleted there is
    /// named by no lock either.
    pub(crate) fn writes_unnamed(&self, table: u32) -> bool {
        self.covers(table, KeyMode::X, true)
    }

    /// The same for a claim; escalates if it is time.
    #[inline]
    pub(super) fn is_covered(&mut self, table: u32, claim: Claim) -> bool {
        let usage = self.usage(table);
        if usage.records < usage.limit {
            return false;
        }
        self.at_limit(table, claim)
    }

    #[cold]
    fn at_limit(&mut self, table: u32, claim: Claim) -> bool {
        if self.covers(table, claim.mode.key(), true) {
            return true;
        }
        let usage = self.usage(table);
        if usage.records >= usage.escalate_at {
            self.escalate(table);
        }
        self.covers(table, claim.mode.key(), true)
    }

    fn escalate(&mut self, table: u32) {
        let writes =
            self.arena.iter().any(|r| !r.is_free() && r.table.get() == table && r.held.get().key() >= KeyMode::U);
        let mode = if writes { TableMode::X } else { TableMode::S };
        // Whoever has announced nothing in the table has its record locks seen by nobody who locks it whole.
        if self.mode(table) != TableMode::None
            && matches!(self.attempt_table(table, mode, IfBlocked::GiveUp), Attempt::Done(_))
        {
            self.release_covered(table);
            self.shared().counters.escalations.increment();
            self.locks.tables.counters[table as usize].escalations.fetch_add(1, Ordering::Relaxed);
        }
        let step = self.locks.options.escalate_at;
        let usage = self.usage(table);
        usage.escalate_at = usage.records + step;
        self.refresh_limit(table);
    }

    /// Releases the record locks of `table` that the table lock makes unnecessary.
    fn release_covered(&mut self, table: u32) {
        let all: Vec<u32> = self
            .arena
            .iter()
            .filter(|r| !r.is_free() && r.table.get() == table && !r.held.get().is_insert())
            .filter(|r| self.covers(table, r.held.get().key(), true))
            .map(|r| r.position)
            .collect();
        for position in all {
            self.release_at(position);
        }
    }
}
