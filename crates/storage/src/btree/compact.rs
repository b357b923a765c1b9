//! Relocation of pages from the end of the file to free pages before it, one structure modification at a time.
//!
//! A step takes the last page in use out of use. If the page is free, it leaves the free list. If it belongs to a tree, it
//! moves to the first page of the free list, and its parent and the leaf on its left refer to the new number. The
//! allocator's end falls by one in the same record. So a crash after any step leaves a complete database with a lower end,
//! and the work can continue at any time.
//!
//! A step attempts its latches and never waits for one. A thread that allocates pages holds the allocator's latch and waits
//! for latches of free pages, so a wait for the allocator's latch with a free page latched would be a deadlock.
//!
//! Roots keep their numbers, because undo finds trees by the number of the root. The work ends if the last page is a root.

use std::collections::HashMap;

use super::ops::{self, PageChange};
use super::ranges::Ranges;
use super::space::{self, AllocatorState, SPACE_PAGE};
use super::{StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{IndexId, Lsn, PageId};
use crate::buffer::frame::FrameWrite;
use crate::log::RecordBuf;
use crate::page::header::{self, Kind};
use crate::page::{PageBytes, PageMut, PageRef};

/// Result of a compaction step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactStep {
    /// The last page in use was taken out of use.
    Shorter,
    /// Another thread prevented the step: retry.
    Again,
    /// The last page belongs to a tree of this index. The caller has to lock its table in shared mode before it calls
    /// [`Compactor::move_last`].
    OfTree(IndexId),
    /// The last page cannot move: no tree of the catalog contains it, or it is a root, or pages of its kind cannot be moved.
    Stays,
    /// There is no free page before the last one.
    Dense,
}

/// The last page in use, as found by a read without latches.
struct LastPage {
    page: PageId,
    free: PageId,
    /// True if the page is the last page of a free range.
    is_ranged: bool,
}

/// State of a compaction of the file, which proceeds step by step.
pub(crate) struct Compactor {
    /// Predecessor of each page of the free list, up to the page at which the traversal of the list stopped. Entries are
    /// guesses.
    before: HashMap<u32, u32>,
    is_walked: bool,
    /// Index of the last page, once the page is known to belong to a tree.
    index: IndexId,
}

impl Compactor {
    pub(crate) fn new() -> Compactor {
        Compactor { before: HashMap::new(), is_walked: false, index: IndexId(0) }
    }

    /// Takes the last page out of use if it is free. Otherwise returns its kind. The caller holds no latch.
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if the log accepts no more records.
    pub(crate) fn step(
        &mut self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
    ) -> Result<CompactStep, StorageError> {
        let Some(last) = last_page(change)? else { return Ok(CompactStep::Dense) };
        if last.is_ranged {
            return trim(change, rec);
        }
        if last.free.is_none() {
            return Ok(CompactStep::Dense);
        }
        let frame = match change.pool.get_or_load(last.page) {
            // The page was never written, or is damaged: a reader that follows a reference to the page gets the error.
            Err(StorageError::CorruptPage { .. }) => return Ok(CompactStep::Stays),
            frame => frame?,
        };
        let read = frame.read(change.pool.latches());
        let (kind, index) = (read.page().kind(), read.page().index());
        if frame.page_id() != last.page || !read.is_valid() {
            return Ok(CompactStep::Again);
        }
        drop(read);
        match kind {
            Some(Kind::Free) => self.unlink(change, rec, &last),
            Some(Kind::Leaf | Kind::Inner) => {
                self.index = index;
                Ok(CompactStep::OfTree(index))
            }
            _ => Ok(CompactStep::Stays),
        }
    }

    /// Removes the last page from the free list. The page is free.
    fn unlink(
        &mut self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        last: &LastPage,
    ) -> Result<CompactStep, StorageError> {
        let is_first = last.free == last.page;
        if !is_first && !self.is_walked {
            self.walk(change, last.free)?;
        }
        let before = match self.before.get(&last.page.0) {
            _ if is_first => None,
            // The recorded predecessor may have left the used part of the file since. Its frame still looks free, and still
            // refers to this page.
            Some(before) if *before < last.page.0 => Some(PageId(*before)),
            _ => {
                self.is_walked = false;
                return Ok(CompactStep::Again);
            }
        };
        for id in before.into_iter().chain([last.page, SPACE_PAGE]) {
            change.pool.get_or_load(id)?;
        }
        let mut link = None;
        if let Some(before) = before {
            match change.try_latch(before) {
                Some(page) if page.page().kind() == Some(Kind::Free) && page.page().right() == last.page => {
                    link = Some(page);
                }
                other => {
                    // The free list has changed.
                    if let Some(page) = other {
                        page.release_unchanged();
                    }
                    self.is_walked = false;
                    return Ok(CompactStep::Again);
                }
            }
        }
        let Some(page) = change.try_latch(last.page) else { return Ok(leave(link)) };
        let Some(mut space) = change.try_latch(SPACE_PAGE) else {
            page.release_unchanged();
            return Ok(leave(link));
        };
        let next = page.page().right();
        let (end, free) = space::state(space.page());
        if page.page().kind() != Some(Kind::Free) || end != last.page.0 + 1 || (free == last.page) != is_first {
            space.release_unchanged();
            page.release_unchanged();
            return Ok(leave(link));
        }
        let free = if is_first { next } else { free };
        rec.begin_system();
        let next_state = AllocatorState { end: last.page.0, free, ranges: None };
        next_state.log(rec);
        let mut after = space.page().lsn();
        space.mark_dirty(change.log.tail());
        if let Some(link) = &mut link {
            link.mark_dirty(change.log.tail());
            after = after.max(link.page().lsn());
            ops::put_link(rec, link.frame().page_id(), 0, next);
        }
        let lsn = match change.log.append_redo_only(change.slot, rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((space, page, link));
                refused.make_room(change.log)?;
                return Ok(CompactStep::Again);
            }
        };
        if let Some(link) = &mut link {
            link_to(link, 0, next, lsn);
        }
        next_state.finish(change.pool, space, lsn);
        page.release_unchanged();
        self.before.remove(&last.page.0);
        match before {
            Some(before) => self.before.insert(next.0, before.0),
            None => self.before.remove(&next.0),
        };
        Ok(CompactStep::Shorter)
    }

    /// Records the predecessor of each page in the free list. Stops silently if the list changes in the meantime, because
    /// the entries are guesses.
    fn walk(&mut self, change: StructureChange<'_>, first: PageId) -> Result<(), StorageError> {
        self.before.clear();
        self.is_walked = true;
        let mut at = first;
        for _ in 0..change.pool.file_pages() {
            let frame = change.pool.get_or_load(at)?;
            let read = frame.read(change.pool.latches());
            let (kind, next) = (read.page().kind(), read.page().right());
            if frame.page_id() != at || !read.is_valid() {
                continue;
            }
            if kind != Some(Kind::Free) || next.is_none() {
                break;
            }
            self.before.insert(next.0, at.0);
            at = next;
        }
        Ok(())
    }

    /// Moves the last page, which belongs to `tree`, to the first page of the free list. The caller holds a shared lock on
    /// the tree's table and no latch.
    ///
    /// # Errors
    /// As [`Compactor::step`].
    pub(crate) fn move_last(
        &mut self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        tree: Tree,
    ) -> Result<CompactStep, StorageError> {
        let Some(last) = last_page(change)? else { return Ok(CompactStep::Dense) };
        let frame = change.pool.get_or_load(last.page)?;
        let read = frame.read(change.pool.latches());
        let page = read.page();
        let (level, low, is_of_tree) = (page.level(), page.low_fence(), page.index() == tree.index);
        let first = (level > 0 && page.count() > 0).then(|| page.key(0));
        let is_page = matches!(page.kind(), Some(Kind::Leaf | Kind::Inner));
        if frame.page_id() != last.page || !read.is_valid() || !is_page || !is_of_tree {
            return Ok(CompactStep::Again);
        }
        drop(read);
        if last.page == tree.root {
            return Ok(CompactStep::Stays);
        }
        // An inner page may store a bound in place of its fence, and the page on its left may have the same bound.
        let key = first.or_else(|| low.clone()).unwrap_or_default();
        let (node, parent) = match tree.with_parent(change.pool, &key, level) {
            Err(StorageError::CorruptPage { .. }) => return Ok(CompactStep::Stays),
            found => found?,
        };
        let (found, version, at) = match &parent {
            Some(parent) => (node.frame().page_id(), parent.read.version(), parent.position),
            None => return Ok(CompactStep::Stays),
        };
        let Some(parent) = parent else { return Ok(CompactStep::Stays) };
        let above = parent.read.frame();
        let is_still = node.is_valid() && parent.read.is_valid();
        drop((node, parent));
        if !is_still {
            return Ok(CompactStep::Again);
        }
        if found != last.page {
            // No tree contains the page. It may be a remainder of an interrupted load.
            return Ok(CompactStep::Stays);
        }
        let left = match &low {
            Some(low) if level == 0 => Some(tree.leaf_before(change.pool, Some(low))?.frame().page_id()),
            _ => None,
        };
        for id in left.into_iter().chain([last.page, last.free, SPACE_PAGE]) {
            if !id.is_none() {
                change.pool.get_or_load(id)?;
            }
        }
        let Some(parent) = above.write_at(version) else { return Ok(CompactStep::Again) };
        let moving = PageMove { change, tree, last, at, level, left };
        moving.latched(rec, parent)
    }
}

/// A page of a tree that is about to move.
struct PageMove<'a> {
    change: StructureChange<'a>,
    tree: Tree,
    last: LastPage,
    /// Position of the page in its parent.
    at: usize,
    level: u8,
    /// The leaf on the left of the page.
    left: Option<PageId>,
}

impl<'a> PageMove<'a> {
    /// Completes the move of the page. The caller has latched the parent.
    fn latched(self, rec: &mut RecordBuf, mut parent: FrameWrite<'a>) -> Result<CompactStep, StorageError> {
        let PageMove { change, tree, last, at, level, left } = self;
        let Some(mut page) = change.try_latch(last.page) else { return Ok(leave(Some(parent))) };
        let mut before = None;
        if let Some(left) = left {
            let Some(leaf) = change.try_latch(left) else { return Ok(leave_all([page, parent])) };
            let follows = leaf.page().kind() == Some(Kind::Leaf)
                && leaf.page().index() == tree.index
                && leaf.page().right() == last.page;
            if !follows {
                return Ok(leave_all([leaf, page, parent]));
            }
            before = Some(leaf);
        }
        let target = (!last.free.is_none()).then(|| change.try_latch(last.free)).flatten();
        let Some(mut target) = target else { return Ok(leave_all(before.into_iter().chain([page, parent]))) };
        let Some(mut space) = change.try_latch(SPACE_PAGE) else {
            return Ok(leave_all(before.into_iter().chain([target, page, parent])));
        };
        let is_as_seen = space::state(space.page()) == (last.page.0 + 1, last.free)
            && target.page().kind() == Some(Kind::Free)
            && last.free < last.page
            && parent.page().child(at) == last.page
            && page.page().index() == tree.index
            && page.page().level() == level;
        if !is_as_seen || page.flaw().is_some() {
            return Ok(leave_all(before.into_iter().chain([space, target, page, parent])));
        }
        let next = target.page().right();
        let mut image = PageBytes::boxed_of(page.stable());
        PageMut::of(&mut image).put_u32(header::ID, last.free.0);
        PageMut::of(&mut image).bump_splits();
        rec.begin_system();
        ops::put_image(rec, last.free, image.as_bytes(), PageRef::of(&image));
        ops::put_link(rec, parent.frame().page_id(), at, last.free);
        if let Some(before) = &before {
            ops::put_link(rec, before.frame().page_id(), 0, last.free);
        }
        ops::put_free(rec, last.page, PageId::NONE);
        let next_state = AllocatorState { end: last.page.0, free: next, ranges: None };
        next_state.log(rec);
        let tail = change.log.tail();
        let mut after = Lsn::ZERO;
        for frame in [&mut parent, &mut page, &mut target, &mut space].into_iter().chain(before.as_mut()) {
            frame.mark_dirty(tail);
            after = after.max(frame.page().lsn());
        }
        let lsn = match change.log.append_redo_only(change.slot, rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((space, target, before, page, parent));
                refused.make_room(change.log)?;
                return Ok(CompactStep::Again);
            }
        };
        target.page_mut().bytes().copy_from_slice(image.as_bytes());
        target.page_mut().set_lsn(lsn);
        change.pool.note_ghosts_of(&target);
        link_to(&mut parent, at, last.free, lsn);
        if let Some(before) = &mut before {
            link_to(before, 0, last.free, lsn);
        }
        let freed = ops::apply(&PageChange::Free { page: last.page, next: PageId::NONE }, &mut page.page_mut());
        debug_assert!(freed);
        page.page_mut().set_lsn(lsn);
        next_state.finish(change.pool, space, lsn);
        Ok(CompactStep::Shorter)
    }
}

/// Returns the last page in use. `None` if only the allocator's page and the catalog's root are left.
fn last_page(change: StructureChange<'_>) -> Result<Option<LastPage>, StorageError> {
    loop {
        let space = change.pool.get_or_load(SPACE_PAGE)?;
        let read = space.read(change.pool.latches());
        let (end, free) = space::state(read.page());
        let is_ranged = ops::space::range_count(read.page()) > 0 && Ranges::read(read.page()).trim(end) < end;
        if space.page_id() == SPACE_PAGE && read.is_valid() {
            return Ok((end > space::FIRST_PAGE + 1).then(|| LastPage { page: PageId(end - 1), free, is_ranged }));
        }
    }
}

/// Takes the free range at the end of the pages in use out of use.
fn trim(change: StructureChange<'_>, rec: &mut RecordBuf) -> Result<CompactStep, StorageError> {
    change.pool.get_or_load(SPACE_PAGE)?;
    let Some(mut space) = space::latch_space(change) else { return Ok(CompactStep::Again) };
    let (end, free) = space::state(space.page());
    let mut ranges = Ranges::read(space.page());
    let shorter = ranges.trim(end);
    if shorter == end {
        return Ok(leave(Some(space)));
    }
    rec.begin_system();
    let next_state = AllocatorState { end: shorter, free, ranges: Some(ranges) };
    next_state.log(rec);
    space.mark_dirty(change.log.tail());
    match change.log.append_redo_only(change.slot, rec, space.page().lsn()) {
        Ok(lsn) => {
            next_state.finish(change.pool, space, lsn);
            Ok(CompactStep::Shorter)
        }
        Err(refused) => {
            drop(space);
            refused.make_room(change.log)?;
            Ok(CompactStep::Again)
        }
    }
}

fn leave(page: Option<FrameWrite<'_>>) -> CompactStep {
    leave_all(page)
}

fn leave_all<'a>(pages: impl IntoIterator<Item = FrameWrite<'a>>) -> CompactStep {
    pages.into_iter().for_each(FrameWrite::release_unchanged);
    CompactStep::Again
}

/// Changes a page so that it refers to page `to`, as the record at `lsn` states.
fn link_to(page: &mut FrameWrite<'_>, position: usize, to: PageId, lsn: Lsn) {
    let id = page.frame().page_id();
    let done = ops::apply(&PageChange::Link { page: id, position, to }, &mut page.page_mut());
    debug_assert!(done, "a section built for this page fits it");
    page.page_mut().set_lsn(lsn);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::space::PageFreeing;
    use super::*;
    use crate::base::ids::SlotId;
    use crate::io::MemDisk;
    use crate::{Database, Options};

    const SOUND: &str = "the disk is sound and has room";

    /// Puts a page at the head of the free list.
    fn free(change: StructureChange<'_>, id: PageId) {
        let mut rec = RecordBuf::new();
        let mut page = change.try_latch(id).expect("the page is in memory");
        rec.begin_system();
        page.mark_dirty(change.log.tail());
        let freed = PageFreeing::log(change, id, &mut rec).expect("the allocator's page is in memory");
        let lsn = change.log.append_redo_only(change.slot, &mut rec, page.page().lsn()).expect("the log has room");
        freed.finish(&mut page, lsn);
    }

    /// Returns the end of the pages in use, and the pages of the free list.
    fn list(change: StructureChange<'_>) -> (u32, Vec<u32>) {
        let space = change.pool.get_or_load(SPACE_PAGE).expect(SOUND).read(change.pool.latches());
        let (end, mut at) = space::state(space.page());
        let mut listed = Vec::new();
        while !at.is_none() && listed.len() < 100 {
            listed.push(at.0);
            at = change.pool.get_or_load(at).expect(SOUND).read(change.pool.latches()).page().right();
        }
        (end, listed)
    }

    /// Takes the last page in use out of use.
    fn shorten(compactor: &mut Compactor, change: StructureChange<'_>) {
        let steps = std::iter::repeat_with(|| compactor.step(change, &mut RecordBuf::new()).expect(SOUND));
        let ended = steps.take(10).find(|step| *step != CompactStep::Again);
        assert_eq!(ended, Some(CompactStep::Shorter));
    }

    #[test]
    fn a_page_out_of_use_is_not_taken_for_one_of_the_free_list() {
        let db: Database = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).expect(SOUND);
        let change = StructureChange { pool: &db.engine.pool, log: &db.engine.log, slot: SlotId(9), for_undo: false };
        let pages: Vec<PageId> = (900..904)
            .map(|index| Tree::create(IndexId(index), change, &mut RecordBuf::new()).expect(SOUND).root)
            .collect();
        let [first, second, third, fourth] = pages[..] else { panic!("{pages:?}") };
        assert_eq!(list(change), (fourth.0 + 1, vec![]));
        [second, fourth, third].into_iter().for_each(|page| free(change, page));
        let mut compactor = Compactor::new();
        shorten(&mut compactor, change);
        // The first page of the free list still refers to the second page after the second page has been taken out of use.
        shorten(&mut compactor, change);
        assert_eq!(list(change), (third.0, vec![second.0]));
        free(change, first);
        shorten(&mut compactor, change);
        assert_eq!(list(change), (second.0, vec![first.0]));
    }
}
