//! Removing deleted rows.
//!
//! A delete only marks a row: its key still separates two gaps for transactions that have locked one of them, and the
//! deleter may yet roll back. Once no lock refers to the key any more the ghost may go. The purge service removes them
//! (`db/purger.rs`), and the operations that come across them do: an insert that needs room, a scan that meets many.

use super::ops;
use super::{MAX_KEY, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, TxnId};
use crate::buffer::frame::FrameWrite;
use crate::log::{RecordBuf, RecordKind, Unlogged};

impl Tree {
    /// Removes the ghosts of a latched leaf that no lock refers to; returns how many. None if the log has no segment
    /// ready.
    ///
    /// `referenced` is called with the leaf latched: a transaction that locks a key later must first find it here.
    ///
    /// # Errors
    /// When the log cannot take the record; nothing was changed then.
    pub(crate) fn purge(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        leaf: &mut FrameWrite<'_>,
        referenced: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<usize, StorageError> {
        let page = leaf.page();
        let mut gone = Vec::with_capacity(page.ghosts());
        let mut key = Vec::with_capacity(MAX_KEY);
        for i in (0..page.count()).rev() {
            if !page.slot(i).is_ghost() {
                continue;
            }
            key.clear();
            if page.append_key(i, &mut key) && !referenced(self.lock_key(&key)) {
                gone.push(i as u16);
            }
        }
        if gone.is_empty() {
            return Ok(0);
        }
        rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
        ops::put_purge(rec, leaf.frame().page_id(), &gone);
        leaf.mark_dirty(change.log.tail());
        let lsn = match change.log.append_redo_only(change.slot, rec, leaf.page().lsn()) {
            Ok(lsn) => lsn,
            // The caller holds the leaf's latch. Operations that need room make the segment; the ghosts go another
            // time.
            Err(Unlogged::NoRoom { .. }) => return Ok(0),
            Err(Unlogged::Failed(error)) => return Err(error),
        };
        for section in ops::PageChanges::new(rec.body()) {
            let done = ops::apply(&section, &mut leaf.page_mut());
            debug_assert!(done);
        }
        leaf.page_mut().set_lsn(lsn);
        Ok(gone.len())
    }
}
