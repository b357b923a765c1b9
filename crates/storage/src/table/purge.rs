//! The purge of one page: removes ghosts that no transaction needs, and merges a nearly empty page.

use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::btree::Tree;
use crate::btree::merge::{MergeLimits, Merger};
use crate::lock::{LockRefusal, TableMode};
use crate::page::PageRef;
use crate::txn::transaction::Txn;

/// Result of a request for a table's IS lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableShare {
    /// The lock is held until this transaction ends. No other transaction has locked the whole table.
    Granted,
    /// Another transaction has locked the whole table, or waits for a lock on the whole table.
    Refused,
    /// The table was dropped.
    Gone,
}

/// Result of the purge of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PagePurge {
    /// Number of ghosts removed.
    pub(crate) ghosts: usize,
    /// True if the page, or a page above it, was merged with a neighbour.
    pub(crate) merged: bool,
    /// True if the page must be examined again: a transaction needs its ghosts, or an obstacle prevented the purge.
    pub(crate) is_due: bool,
}

impl Txn<'_> {
    /// Requests a table's IS lock, without waiting. The request is refused if a transaction has locked the whole table.
    ///
    /// A transaction that has locked the whole table writes its rows without row locks, so the ghosts that it needs
    /// cannot be distinguished from ghosts that no transaction needs.
    pub(crate) fn try_share(&mut self, table: u32) -> TableShare {
        match self.slot.state().owner.try_intent(table, TableMode::IS) {
            Ok(true) => TableShare::Granted,
            Err(LockRefusal::Dropped) => TableShare::Gone,
            Ok(false) | Err(_) => TableShare::Refused,
        }
    }

    /// Removes the ghosts to which no lock refers from leaf `id`, which covers `key`, and merges the leaf if it is
    /// nearly empty. The transaction holds the table's IS lock.
    ///
    /// # Errors
    /// An error if a page cannot be read, or the log has no space.
    pub(crate) fn purge_page(
        &mut self,
        tree: Tree,
        (id, key): (PageId, &[u8]),
        limits: MergeLimits,
    ) -> Result<PagePurge, StorageError> {
        let engine = self.engine;
        let state = self.slot.state();
        let change = engine.structure_change(state.id);
        let mut referenced = |key: &[u8]| engine.locks.is_referenced(engine.locks.names.of(tree.index, key));
        let mut purge = PagePurge::default();
        let leaf = tree.leaf(&engine.pool, key)?;
        if leaf.frame().page_id() != id || !leaf.is_valid() {
            // Either the key now belongs to another page, which is also due, or the leaf is being changed.
            purge.is_due = leaf.frame().page_id() == id;
            return Ok(purge);
        }
        if leaf.page().ghosts() > 0 {
            // Checked without the latch, so the result is only a guess. The check avoids latching pages whose ghosts
            // are all still needed.
            if !has_free_ghost(tree, leaf.page(), &mut state.key, &mut referenced) {
                purge.is_due = true;
                return Ok(purge);
            }
            let Some(mut leaf) = leaf.upgrade() else {
                purge.is_due = true;
                return Ok(purge);
            };
            purge.ghosts = tree.purge(change, &mut state.rec, &mut leaf, &mut referenced)?;
            purge.is_due = leaf.page().ghosts() > 0;
            if purge.ghosts == 0 {
                leaf.release_unchanged();
            }
        } else {
            drop(leaf);
        }
        let rec = &mut state.rec;
        let merge = tree.merge(&mut Merger { change, rec, limits, waits: false, referenced: &mut referenced }, key)?;
        purge.merged = merge.merged;
        purge.is_due |= merge.is_due;
        Ok(purge)
    }
}

/// Returns true if a page has a ghost to which no lock refers. The page may be changed by other threads during the
/// check.
fn has_free_ghost(tree: Tree, page: PageRef<'_>, key: &mut Vec<u8>, referenced: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    (0..page.count()).any(|i| {
        key.clear();
        page.slot(i).is_ghost() && page.append_key(i, key) && !referenced(tree.lock_key(key))
    })
}
