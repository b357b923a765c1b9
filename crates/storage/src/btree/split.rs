//! Splits of pages, and growth of the root.
//!
//! A structure modification is one system record with a section per page, appended while all pages of the modification are
//! latched. After a crash the modification is present as a whole or not at all, and it is never undone (a nested top action
//! in one record).
//!
//! **The separator of two leaves is always the complete key of an existing row** (the first row that moves right). The gap
//! before that row has the name of this key before and after the split, first as the gap before a row, then as the gap
//! before the left leaf's high fence. So locks on gaps stay correct and need not be moved. The one exception is a leaf with
//! few rows if the new key follows them: the split then first checks that no transaction has locked the gap.

use super::ops::{self, PageChange};
use super::space::Grant;
use super::{StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PageId};
use crate::buffer::frame::FrameWrite;
use crate::log::RecordBuf;
use crate::page::header::{HIGH_LEN, LAST_INSERT, LOW_LEN, PREFIX_LEN, RUN};
use crate::page::layout::{RECORD_HEAD, SLOT};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef};

/// Number of consecutive ascending inserts after which a page is split at the insert position.
pub(super) const ASCENDING: u16 = 3;
/// Maximum number of rows of a leaf that is split after its last row, instead of between two rows, if the new row follows
/// the last row.
const FEW: usize = 3;

/// Result of a split.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SplitOutcome {
    /// The page was split.
    Split,
    /// The page need not be split any more: the record fits, or there are no two parts to divide.
    Nothing,
    /// The split would divide a gap that a transaction has locked. The caller waits as for an insert into the gap.
    GapLocked,
}

/// Reason for a split.
enum SplitReason<'a> {
    /// The page has no space for a record with the key and `value_len` more bytes.
    Room { value_len: usize, gap_is_free: &'a mut dyn FnMut(PageRef<'_>) -> bool },
    /// Writers contend for the leaf, for rows before and from slot `before` on.
    Contention { before: usize },
}

/// Returns a copy of a latched page, to be changed before another thread sees the change. The log may still refuse the
/// record, and in that case the page has to be unchanged.
pub(crate) fn draft(frame: &FrameWrite<'_>) -> Box<PageBytes> {
    PageBytes::boxed_of(frame.stable())
}

/// Adds the new content of a page to a record.
pub(crate) fn put_image(rec: &mut RecordBuf, id: PageId, draft: &PageBytes) {
    ops::put_image(rec, id, draft.as_bytes(), PageRef::of(draft));
}

/// Copies the draft to its page and sets the page's LSN to the LSN of the record.
pub(crate) fn publish(frame: &mut FrameWrite<'_>, draft: &PageBytes, lsn: Lsn) {
    let mut page = frame.page_mut();
    page.bytes().copy_from_slice(draft.as_bytes());
    page.set_lsn(lsn);
}

impl Tree {
    /// Splits the page of `key` at `level`, and the pages above it if necessary. Does nothing if a record of this size fits
    /// the page by now. The caller holds no latch.
    ///
    /// `gap_is_free` is called with the leaf latched. It returns true if the split may divide the gap at the leaf's end.
    ///
    /// # Errors
    /// No space, no frames, or a page that cannot be read.
    pub(crate) fn split(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        key: &[u8],
        level: u8,
        value_len: usize,
        gap_is_free: &mut dyn FnMut(PageRef<'_>) -> bool,
    ) -> Result<SplitOutcome, StorageError> {
        self.split_page(change, rec, key, level, &mut SplitReason::Room { value_len, gap_is_free })
    }

    /// Splits the contended leaf of `key` before the row in slot `before`: the rows that writers contend for lie on both
    /// sides (`buffer/contention.rs`). Does nothing if the leaf no longer has rows on both sides of this slot. The caller
    /// holds no latch.
    ///
    /// # Errors
    /// As [`Tree::split`].
    pub(crate) fn split_contended(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        key: &[u8],
        before: u16,
    ) -> Result<SplitOutcome, StorageError> {
        self.split_page(change, rec, key, 0, &mut SplitReason::Contention { before: before.into() })
    }

    fn split_page(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        key: &[u8],
        level: u8,
        reason: &mut SplitReason<'_>,
    ) -> Result<SplitOutcome, StorageError> {
        loop {
            let grant = Grant::prepare(change, 1)?;
            let (node, parent) = self.with_parent(change.pool, key, level)?;
            let is_done = match reason {
                SplitReason::Room { value_len, .. } => node.page().has_room(key.len(), *value_len),
                SplitReason::Contention { before } => !Cut::can_divide(node.page(), *before),
            };
            if !node.is_valid() {
                continue;
            }
            if is_done {
                return Ok(SplitOutcome::Nothing);
            }
            let Some(parent) = parent else {
                if let Some(root) = node.upgrade() {
                    self.grow(change, rec, root, grant)?;
                }
                continue;
            };
            let cut = match reason {
                SplitReason::Room { .. } => Cut::choose(node.page(), key),
                SplitReason::Contention { before } => Cut::before_row(node.page(), *before),
            };
            let parent_fits = parent.read.page().has_room(cut.separator.len(), 0);
            if !node.is_valid() || !parent.read.is_valid() {
                continue;
            }
            if !parent_fits {
                drop((node, parent, grant));
                // The parent needs space for the separator, which may be longer than `key`.
                let longer = cut.separator.len().saturating_sub(key.len());
                // The gaps of inner pages have no names.
                self.split(change, rec, key, level + 1, longer, &mut |_| true)?;
                continue;
            }
            let position = parent.position;
            let (Some(mut parent), Some(mut node)) = (parent.read.upgrade(), node.upgrade()) else { continue };
            if let SplitReason::Room { gap_is_free, .. } = reason
                && cut.divides_gap
                && !gap_is_free(node.page())
            {
                node.release_unchanged();
                parent.release_unchanged();
                return Ok(SplitOutcome::GapLocked);
            }
            if let Some((page, what)) = cut.wrong(&node, &parent, position) {
                node.release_unchanged();
                parent.release_unchanged();
                return Err(self.damaged(change.pool, page, &what));
            }
            let Some(mut taken) = grant.take(change) else { continue };
            let (left_id, right_id) = (node.frame().page_id(), taken.page(0));
            let mut right = taken.create(0);
            let tail = change.log.tail();
            for frame in [&mut parent, &mut node, &mut right] {
                frame.mark_dirty(tail);
            }
            let mut moved = draft(&right);
            cut.fill_right(node.page(), &mut PageMut::of(&mut moved), right_id);
            rec.begin_system();
            put_image(rec, right_id, &moved);
            ops::put_truncate(
                rec,
                left_id,
                cut.position,
                if level == 0 { right_id } else { PageId::NONE },
                &cut.separator,
            );
            ops::put_add_child(rec, parent.frame().page_id(), position, &cut.separator, left_id, right_id);
            taken.log(rec);
            let after = node.page().lsn().max(parent.page().lsn());
            let lsn = match change.append(rec, after) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop((right, node, parent, taken));
                    refused.make_room(change.log)?;
                    continue;
                }
            };
            for section in ops::PageChanges::new(rec.body()) {
                let frame = match section {
                    PageChange::Truncate { .. } => &mut node,
                    PageChange::AddChild { .. } => &mut parent,
                    _ => continue,
                };
                let done = ops::apply(&section, &mut frame.page_mut());
                debug_assert!(done, "a section built for this page fits it");
            }
            publish(&mut right, &moved, lsn);
            change.pool.note_ghosts_of(&right);
            for frame in [&mut parent, &mut node] {
                frame.page_mut().set_lsn(lsn);
            }
            taken.finish(lsn);
            if matches!(reason, SplitReason::Contention { .. }) {
                change.pool.contention().note_split([left_id, right_id], lsn);
            }
            return Ok(SplitOutcome::Split);
        }
    }

    /// Moves the root's content into a new child. The root becomes an inner page above the child. If pages or the log
    /// segment have to be prepared again, the function changes nothing, and the caller checks again.
    fn grow(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        mut root: FrameWrite<'_>,
        grant: Grant<'_>,
    ) -> Result<(), StorageError> {
        let Some(mut taken) = grant.take(change) else { return Ok(()) };
        let id = taken.page(0);
        let mut child = taken.create(0);
        let tail = change.log.tail();
        root.mark_dirty(tail);
        child.mark_dirty(tail);
        let level = root.page().level();
        let (mut below, mut above) = (draft(&root), draft(&root));
        PageMut::of(&mut below).put_u32(crate::page::header::ID, id.0);
        PageMut::of(&mut above).format(&Format {
            id: self.root,
            index: self.index,
            level: level + 1,
            low: None,
            high: None,
            right: PageId::NONE,
            upper: id,
        });
        rec.begin_system();
        put_image(rec, id, &below);
        put_image(rec, self.root, &above);
        taken.log(rec);
        let lsn = match change.append(rec, root.page().lsn()) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((child, root, taken));
                return refused.make_room(change.log);
            }
        };
        publish(&mut child, &below, lsn);
        change.pool.note_ghosts_of(&child);
        publish(&mut root, &above, lsn);
        taken.finish(lsn);
        Ok(())
    }
}

/// Position at which a page is cut in two.
struct Cut {
    /// Slots from this position on move to the right page. In an inner page, the slot at this position moves up to the
    /// parent.
    position: usize,
    separator: Vec<u8>,
    /// True if the separator is not the key of an existing row, so that it divides a gap.
    divides_gap: bool,
}

impl Cut {
    /// Chooses the position of the cut. The page may be changing: the caller validates.
    fn choose(page: PageRef<'_>, key: &[u8]) -> Cut {
        let count = page.count();
        let (at, _) = page.lower_bound(key);
        if page.is_leaf() && count <= 1 {
            return if at == 0 && count == 1 {
                Cut { position: 0, separator: page.key(0), divides_gap: false }
            } else {
                Cut { position: count, separator: key.to_vec(), divides_gap: true }
            };
        }
        if page.is_leaf() && count <= FEW && at == count && Self::fits_left(page, key) {
            // Each of these few rows takes a large part of the page. All rows stay, because otherwise half of the page would
            // be left empty.
            return Cut { position: count, separator: key.to_vec(), divides_gap: true };
        }
        let ascending = page.u16(RUN) >= ASCENDING && usize::from(page.u16(LAST_INSERT)) + 1 == at;
        let mut position = if ascending && at > 0 { at.min(count - 1) } else { Self::middle(page, count) };
        // The separator also becomes the right leaf's low fence, and a long separator takes more bytes than a few small rows
        // free.
        while page.is_leaf() && position + 1 < count && !Self::fits_right(page, position) {
            position += 1;
        }
        Cut { position, separator: page.key(position), divides_gap: false }
    }

    /// Returns the cut before the row in a slot of a leaf. The page may be changing: the caller validates.
    fn before_row(page: PageRef<'_>, position: usize) -> Cut {
        Cut { position, separator: page.key(position), divides_gap: false }
    }

    /// Returns true if a leaf has rows before `position` and from there on, and the latter fit a page of their own.
    fn can_divide(page: PageRef<'_>, position: usize) -> bool {
        page.is_leaf() && position > 0 && position < page.count() && Self::fits_right(page, position)
    }

    /// Checks the page before its rows move. Returns a flaw of the page ([`FrameWrite::flaw`]), or the fact that the page
    /// contradicts its parent (a page can be sound and be in the wrong place). Only splits and merges change the parent,
    /// after this check.
    fn wrong(&self, node: &FrameWrite<'_>, parent: &FrameWrite<'_>, position: usize) -> Option<(PageId, String)> {
        let id = node.frame().page_id();
        if let Some(flaw) = node.flaw() {
            return Some((id, flaw.to_string()));
        }
        let fits =
            parent.page().covers(&self.separator) && parent.page().lower_bound(&self.separator) == (position, false);
        (!fits || !node.page().covers(&self.separator)).then(|| (id, "is not the child that its parent says".into()))
    }

    /// Returns the number of bytes that a row takes in the page.
    fn size(page: PageRef<'_>, i: usize) -> usize {
        let slot = page.entry(i);
        SLOT + RECORD_HEAD + slot.key_len + slot.value_len
    }

    /// Returns true if all rows of a leaf fit together with `key` as its high fence.
    fn fits_left(page: PageRef<'_>, key: &[u8]) -> bool {
        key.len() <= page.free_bytes() + usize::from(page.u16(HIGH_LEN))
    }

    /// Returns true if the slots of a leaf from `position` on fit a page whose low fence is the first of the keys of these
    /// slots.
    fn fits_right(page: PageRef<'_>, position: usize) -> bool {
        // The bytes of the slots before `position` are free in the right page, and the prefix can only become longer.
        let freed: usize = (0..position).map(|i| Self::size(page, i)).sum();
        let separator = page.entry(position).key_len + usize::from(page.u16(PREFIX_LEN));
        separator <= freed + page.free_bytes() + usize::from(page.u16(LOW_LEN))
    }

    /// Returns the position of the slot that divides the page's bytes in half, at least 1 and at most the last slot.
    fn middle(page: PageRef<'_>, count: usize) -> usize {
        let total: usize = (0..count).map(|i| Self::size(page, i)).sum();
        let mut sum = 0;
        let half = (0..count).find(|i| {
            sum += Self::size(page, *i);
            sum * 2 >= total
        });
        half.unwrap_or(count / 2).clamp(1, count.max(2) - 1)
    }

    /// Formats the right page and copies the slots that move there.
    fn fill_right(&self, node: PageRef<'_>, right: &mut PageMut<'_>, id: PageId) {
        let high = node.high_fence();
        let leaf = node.is_leaf();
        right.format(&Format {
            id,
            index: node.index(),
            level: node.level(),
            low: Some(&self.separator),
            high: high.as_deref(),
            right: if leaf { node.right() } else { PageId::NONE },
            upper: if leaf { PageId::NONE } else { node.child(node.count()) },
        });
        let from = self.position + usize::from(!leaf);
        right.append_all(node, from..node.count());
        right.bump_splits();
        if leaf && usize::from(node.u16(LAST_INSERT)) >= self.position {
            // The run of ascending inserts continues in the right page.
            right.put_u16(LAST_INSERT, node.u16(LAST_INSERT) - self.position as u16);
            right.put_u16(RUN, node.u16(RUN));
        }
    }
}
