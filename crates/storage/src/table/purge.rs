//! One page of the purge service: ghosts that no transaction needs go, and a page that is nearly empty merges.

use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::btree::Tree;
use crate::btree::merge::{MergeLimits, Merger};
use crate::lock::{LockRefusal, TableMode};
use crate::page::PageRef;
use crate::txn::transaction::Txn;

/// The result of trying to share a table with the transactions that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableShare {
    /// No transaction has the whole table, until this one ends.
    Granted,
    /// One has it, or waits for it.
    Refused,
    /// The table was dropped.
    Gone,
}

/// What was done to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PagePurge {
    /// Ghosts removed.
    pub(crate) ghosts: usize,
    /// It has merged with a neighbour, or pages above it have.
    pub(crate) merged: bool,
    /// It has ghosts that a transaction needs, or something was in the way: it has to be looked at again.
    pub(crate) is_due: bool,
}

impl Txn<'_> {
    /// Shares a table with the transactions that use it, if none has locked it as a whole. Never waits.
    ///
    /// A transaction that has locked the whole table writes its rows without locking them, so its ghosts cannot be told
    /// from those that no transaction needs.
    pub(crate) fn try_share(&mut self, table: u32) -> TableShare {
        match self.slot.state().owner.try_intent(table, TableMode::IS) {
            Ok(true) => TableShare::Granted,
            Err(LockRefusal::Gone) => TableShare::Gone,
            Ok(false) | Err(_) => TableShare::Refused,
        }
    }

    /// Removes the ghosts of leaf `id`, in which `key` lies, that no lock refers to, and merges it if it is nearly empty.
    /// The transaction shares the table.
    ///
    /// # Errors
    /// A page that cannot be read, or a log that takes no more.
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
            // Its rows have moved to another page, which is due as well, or it is changing.
            purge.is_due = leaf.frame().page_id() == id;
            return Ok(purge);
        }
        if leaf.page().ghosts() > 0 {
            // Without the latch this is a guess, which keeps pages alone whose ghosts are all needed.
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

/// Whether a page, which may be changing, has a ghost that no lock refers to.
fn has_free_ghost(tree: Tree, page: PageRef<'_>, key: &mut Vec<u8>, referenced: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    (0..page.count()).any(|i| {
        key.clear();
        page.slot(i).is_ghost() && page.append_key(i, key) && !referenced(tree.lock_key(key))
    })
}
