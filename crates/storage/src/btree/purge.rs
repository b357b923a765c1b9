//! Removing deleted rows, and leaves that have become nearly empty.
//!
//! A delete only marks a row: its key still separates two gaps for transactions that have locked one of them, and the
//! deleter may yet roll back. Once no lock refers to the key any more the ghost may go. The operations that come across
//! ghosts and such leaves do both: an insert that needs room, a scan that meets many.

use super::ops::{self, PageChange};
use super::space::{FreeOne, SPACE_PAGE};
use super::{MAX_KEY, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId, TxnId};
use crate::buffer::frame::FrameWrite;
use crate::log::{RecordBuf, RecordKind, Unlogged};
use crate::page::header::Kind;
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef, header};

/// A leaf emptier than this looks for a neighbour to merge with.
const MERGE_BELOW: usize = PAGE_SIZE / 5;
/// Two leaves merge when together they fill no more than this.
const MERGE_UPTO: usize = PAGE_SIZE * 7 / 10;

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
            if page.append_key(i, &mut key) && !referenced(&key) {
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

    /// Merges the leaf of `key` with a neighbour under the same parent if both are nearly empty. Tries
    /// once and gives up at the first obstacle; a later caller may succeed. No latch may be held.
    ///
    /// # Errors
    /// A page that cannot be read, or a log that takes no more.
    pub(crate) fn try_merge(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        key: &[u8],
        referenced: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        let (node, parent) = self.with_parent(change.pool, key, 0)?;
        let Some(parent) = parent else { return Ok(false) };
        let used = node.page().used_bytes();
        let (count, at) = (parent.read.page().count(), parent.position);
        if used >= MERGE_BELOW || count == 0 {
            return Ok(false);
        }
        // The left one of the two leaves stays.
        let position = if at < count { at } else { at - 1 };
        let (left_id, right_id) = (parent.read.page().child(position), parent.read.page().child(position + 1));
        if !node.is_valid() || !parent.read.is_valid() {
            return Ok(false);
        }
        let (above, version) = (parent.read.frame(), parent.read.version());
        // Under plain latches both are held, and loading may wait.
        drop((node, parent));
        for id in [left_id, right_id, SPACE_PAGE] {
            change.pool.get_or_load(id)?;
        }
        let Some(mut parent) = above.write_at(version) else { return Ok(false) };
        let (Some(left), Some(right)) = (change.try_latch(left_id), change.try_latch(right_id)) else {
            parent.release_unchanged();
            return Ok(false);
        };
        let (mut left, mut right) = (left, right);
        if let Some(page) = self.no_neighbours(&left, &right) {
            let damaged = self.damaged(change.pool, page, "is no neighbour of the leaf beside it");
            right.release_unchanged();
            left.release_unchanged();
            parent.release_unchanged();
            return Err(damaged);
        }
        let fence = right.page().low_fence().unwrap_or_default();
        let keeps_name = right.page().count() > 0 && right.page().key(0) == fence;
        // An empty page merges wherever it fits at all; otherwise some room stays, so that the next insert does not
        // split.
        let empty = left.page().count() == 0 || right.page().count() == 0;
        let upto = if empty { PAGE_SIZE - header::SLOTS } else { MERGE_UPTO };
        let fits = merged_bytes(left.page(), right.page()) <= upto;
        if !fits || (!keeps_name && referenced(&fence)) {
            right.release_unchanged();
            left.release_unchanged();
            parent.release_unchanged();
            return Ok(false);
        }
        let mut merged = PageBytes::boxed();
        merge(left.page(), right.page(), &mut PageMut::of(&mut merged));
        rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
        let tail = change.log.tail();
        for frame in [&mut parent, &mut left, &mut right] {
            frame.mark_dirty(tail);
        }
        ops::put_image(rec, left_id, merged.as_bytes(), PageRef::of(&merged));
        ops::put_drop_child(rec, parent.frame().page_id(), position, left_id);
        let Some(free) = FreeOne::log(change, right_id, rec) else { return Ok(false) };
        let after = parent.page().lsn().max(left.page().lsn()).max(right.page().lsn());
        let lsn = match change.log.append_redo_only(change.slot, rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((free, left, right, parent));
                refused.make_room(change.log)?;
                return Ok(false);
            }
        };
        left.page_mut().bytes().copy_from_slice(merged.as_bytes());
        left.page_mut().set_lsn(lsn);
        let done =
            ops::apply(&PageChange::DropChild { page: self.root, position, child: left_id }, &mut parent.page_mut());
        debug_assert!(done);
        parent.page_mut().set_lsn(lsn);
        free.finish(&mut right, lsn);
        let lonely = parent.page().count() == 0 && parent.frame().page_id() == self.root;
        drop((left, right, parent));
        if lonely {
            self.collapse(change, rec)?;
        }
        Ok(true)
    }

    /// Which of two neighbours under one parent is damaged: they must be leaves of this tree with a fence in common.
    fn no_neighbours(&self, left: &FrameWrite<'_>, right: &FrameWrite<'_>) -> Option<PageId> {
        let other = |page: PageRef<'_>| page.kind() != Some(Kind::Leaf) || page.index() != self.index;
        let strange = [left, right].into_iter().find(|frame| other(frame.page()) || frame.flaw().is_some());
        let apart = || (left.page().high_fence() != right.page().low_fence()).then_some(right);
        strange.or_else(apart).map(|frame| frame.frame().page_id())
    }

    /// Takes the content of a root's only child into the root.
    fn collapse(&self, change: StructureChange<'_>, rec: &mut RecordBuf) -> Result<(), StorageError> {
        let root = change.pool.get_or_load(self.root)?;
        let only = PageId(root.bytes().u32(header::UPPER));
        if !only.is_none() {
            change.pool.get_or_load(only)?;
        }
        let Some(mut root) = change.try_latch(self.root) else { return Ok(()) };
        if root.page().is_leaf() || root.page().count() > 0 || root.page().child(0) != only {
            root.release_unchanged();
            return Ok(());
        }
        let Some(mut child) = change.try_latch(only) else {
            root.release_unchanged();
            return Ok(());
        };
        rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
        let tail = change.log.tail();
        root.mark_dirty(tail);
        child.mark_dirty(tail);
        let after = root.page().lsn().max(child.page().lsn());
        let mut image = PageBytes::boxed_of(child.stable());
        PageMut::of(&mut image).put_u32(header::ID, self.root.0);
        ops::put_image(rec, self.root, image.as_bytes(), PageRef::of(&image));
        let Some(free) = FreeOne::log(change, only, rec) else { return Ok(()) };
        let lsn = match change.log.append_redo_only(change.slot, rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((free, child, root));
                return refused.make_room(change.log);
            }
        };
        root.page_mut().bytes().copy_from_slice(image.as_bytes());
        root.page_mut().set_lsn(lsn);
        free.finish(&mut child, lsn);
        Ok(())
    }
}

/// Bytes that the rows and fences of both would take on one page: its keys share a shorter prefix than theirs did.
fn merged_bytes(left: PageRef<'_>, right: PageRef<'_>) -> usize {
    let (low, high) = (left.low_fence(), right.high_fence());
    let prefix = match (&low, &high) {
        (Some(low), Some(high)) => low.iter().zip(high).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let longer = |page: PageRef<'_>| page.count() * (usize::from(page.u16(header::PREFIX_LEN)) - prefix);
    left.used_bytes() + right.used_bytes() + longer(left) + longer(right)
}

fn merge(left: PageRef<'_>, right: PageRef<'_>, to: &mut PageMut<'_>) {
    let (low, high) = (left.low_fence(), right.high_fence());
    to.format(&Format {
        id: left.id(),
        index: left.index(),
        level: 0,
        low: low.as_deref(),
        high: high.as_deref(),
        right: right.right(),
        upper: PageId::NONE,
    });
    to.append_all(left, 0..left.count());
    to.append_all(right, 0..right.count());
    to.put_u32(header::SPLITS, left.u32(header::SPLITS).wrapping_add(1));
}
