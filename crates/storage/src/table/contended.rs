//! Contended leaves of a table: pauses after a failed latch, reports of failed latches, and the splits that follow from them.

use super::index::Index;
use crate::base::sync::plain::Ordering;
use crate::btree::split::SplitOutcome;
use crate::latch::Version;
use crate::txn::positions::LeafSpot;
use crate::txn::transaction::Txn;

/// Contention for the leaves of a table: see [`Database::contention`](crate::Database::contention).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableContention {
    /// Name of the table.
    pub table: String,
    /// Number of writes that found their leaf latched or changed by another writer since they had found their row. They
    /// searched again.
    pub leaves_contended: u64,
    /// Number of leaves that were split because writers of different rows contended for them.
    pub splits_for_contention: u64,
}

impl Txn<'_> {
    /// Pauses because another writer has changed the leaf after this writer found its place. No latch is held.
    pub(super) fn retreat(&mut self) {
        let state = self.slot.state();
        state.retreat.pause(state.sequence);
    }

    /// Reports that the leaf of a row could not be latched at the position of its read. Splits the leaf if writers of
    /// different rows contend for it. No latch is held.
    #[cold]
    pub(super) fn note_contention(&mut self, index: &Index, key: &[u8], spot: LeafSpot) {
        if spot.version == Version::NEVER {
            return;
        }
        let engine = self.engine;
        let counters = index.contention();
        counters.contended.fetch_add(1, Ordering::Relaxed);
        let page = engine.pool.frame(spot.frame).page_id();
        if page.is_none() {
            // The leaf was evicted: it is not contended.
            return;
        }
        let Some(before) = engine.pool.contention().report(page, spot.version, spot.position) else { return };
        let state = self.slot.state();
        let change = engine.structure_change(state.id);
        // The statement does not need the split. An error that persists also fails the statement, which reports it.
        if let Ok(SplitOutcome::Split) = index.tree().split_contended(change, &mut state.rec, key, before) {
            counters.splits.fetch_add(1, Ordering::Relaxed);
        }
    }
}
