//! Removal of deleted rows (ghosts).
//!
//! A delete only marks a row: the key still separates two gaps for transactions that have locked one of them, and the
//! deleter may still roll back. A ghost may be removed when no lock refers to its key any more. The purge service removes
//! ghosts (`db/purger.rs`), and so do operations that encounter them: an insert that needs space, and a scan that finds many
//! ghosts.

use super::ops;
use super::{MAX_KEY, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::buffer::frame::FrameWrite;
use crate::log::{AppendError, RecordBuf};

impl Tree {
    /// Removes the ghosts of a latched leaf to which no lock refers. Returns the number of removed ghosts; zero if the log
    /// has no segment ready.
    ///
    /// `referenced` is called while the leaf is latched: a transaction that locks a key later must first find it in this
    /// leaf.
    ///
    /// # Errors
    /// Fails if the log cannot accept the record. The leaf is unchanged in this case.
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
        rec.begin_system();
        ops::put_purge(rec, leaf.frame().page_id(), &gone);
        leaf.mark_dirty(change.log.tail());
        let lsn = match change.log.append_redo_only(change.slot, rec, leaf.page().lsn()) {
            Ok(lsn) => lsn,
            // The caller holds the leaf's latch, so this thread must not wait for a segment. Operations that need space
            // create the segment. A later purge removes the ghosts.
            Err(AppendError::NoRoom { .. }) => return Ok(0),
            Err(AppendError::Failed(error)) => return Err(error),
        };
        for section in ops::PageChanges::new(rec.body()) {
            let done = ops::apply(&section, &mut leaf.page_mut());
            debug_assert!(done);
        }
        leaf.page_mut().set_lsn(lsn);
        Ok(gone.len())
    }
}
