//! Merges of nearly empty pages with a neighbour, on every level; roots that shrink.
//!
//! A merge takes two neighbours under one parent, moves the whole content of the right page into the left page, removes the
//! right page from the parent and frees it. Inner pages are merged like leaves, so that a tree through which rows only pass
//! (growing keys, deleted at the other end) does not accumulate pages. A root with only one child takes over the child's
//! content.

use super::ops::{self, PageChange};
use super::space::{PageFreeing, SPACE_PAGE};
use super::split::ASCENDING;
use super::{MAX_LEVELS, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::buffer::frame::{Frame, FrameWrite};
use crate::latch::{Latching, Version};
use crate::log::{AppendError, RecordBuf};
use crate::page::header::Kind;
use crate::page::layout::{RECORD_HEAD, SLOT};
use crate::page::slotted::{Format, is_high_bound, is_low_bound};
use crate::page::{PageBytes, PageMut, PageRef, header};

/// Number of bytes of a tree page for slots, records and fences.
const ROOM: usize = PAGE_SIZE - header::SLOTS;

/// Fill limits that determine which pages are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergeLimits {
    /// Number of bytes in use from which on a page is not merged.
    pub(crate) below: usize,
    /// Maximum number of bytes in use of a merged page. If one of the two pages is empty, they are merged whenever they fit
    /// one page.
    pub(crate) max_merged_bytes: usize,
    /// Selects the small neighbours that a page above the limit `below` may absorb. At the last attempt for such a
    /// neighbour, this page had more content and the two did not fit one page.
    pub(crate) absorb: AbsorbPolicy,
}

/// Selection of the small neighbours that a page above the limit `below` absorbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbsorbPolicy {
    None,
    /// Neighbours in memory: a read of a neighbour would cost more than the merge saves.
    InMemory,
    All,
}

impl MergeLimits {
    /// Limits for a statement in progress: merges only nearly empty pages, and leaves enough space for inserts.
    pub(crate) const PASSING: MergeLimits =
        MergeLimits { below: PAGE_SIZE / 5, max_merged_bytes: PAGE_SIZE * 7 / 10, absorb: AbsorbPolicy::None };
    /// Limits for the purge service: merges two neighbours if one is less than half full and together they fill at most nine
    /// tenths of a page.
    pub(crate) const THOROUGH: MergeLimits =
        MergeLimits { below: ROOM / 2, max_merged_bytes: ROOM * 9 / 10, absorb: AbsorbPolicy::InMemory };
    /// Limits for compaction: the limits of the purge service, for all neighbours.
    pub(crate) const COMPACT: MergeLimits = MergeLimits { absorb: AbsorbPolicy::All, ..MergeLimits::THOROUGH };

    /// Returns true if a page should be merged with a neighbour. The page may be changing.
    fn is_small(&self, page: PageRef<'_>) -> bool {
        // Ascending inserts are filling this page, so a merged page would soon be split again.
        let fills = page.is_leaf() && page.insert_run() >= ASCENDING;
        page.count() == 0 || page.used_bytes() < self.below && !fills
    }
}

/// Result of a merge attempt for the pages on the path of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeResult {
    /// True if pages were merged.
    pub(crate) merged: bool,
    /// True if a later attempt may merge more pages: another thread, a lock or a full log prevented a merge.
    pub(crate) is_due: bool,
}

/// Result of an attempt to merge one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergeOutcome {
    /// The page and a neighbour are now one page.
    Merged,
    /// The page is not merged: it is full enough, or is being filled by ascending inserts, or its neighbours are too full,
    /// or it is the root.
    Stays,
    /// The page is its parent's only child: the parent has to be merged first.
    OnlyChild,
    /// Another thread or a lock prevented the merge. A later attempt may succeed.
    Obstructed,
}

/// Context of a merge: everything except the tree.
pub(crate) struct Merger<'m, 'a> {
    pub(crate) change: StructureChange<'a>,
    pub(crate) rec: &'m mut RecordBuf,
    pub(crate) limits: MergeLimits,
    /// If true, a merge waits for space in the log. If false, a merge ends when the log is full.
    pub(crate) waits: bool,
    /// Returns true if a lock refers to the key. This callback is called with leaves latched.
    pub(crate) referenced: &'m mut dyn FnMut(&[u8]) -> bool,
}

impl Merger<'_, '_> {
    /// Obtains log space for a record that the log has refused, if the merge may wait for it.
    fn make_room(&self, refused: AppendError) -> Result<(), StorageError> {
        match refused {
            AppendError::NoRoom { .. } if !self.waits => Ok(()),
            refused => refused.make_room(self.change.log),
        }
    }
}

/// Two neighbours under one parent, which may be merged.
struct Pair {
    /// Position in the parent of the separator between the two pages.
    position: usize,
    left: PageId,
    right: PageId,
}

impl Pair {
    /// Returns true if `page` is an inner page that has the two pages as children at this position.
    fn is_below(&self, page: PageRef<'_>) -> bool {
        let at = self.position;
        let has = |position: usize, child: PageId| page.child(position) == child;
        page.kind() == Some(Kind::Inner) && at < page.count() && has(at, self.left) && has(at + 1, self.right)
    }

    /// Returns the version at which the frame holds this parent with the two pages below it. `None` if it no longer does.
    fn version_above(&self, frame: &Frame, parent: PageId, latches: &Latching) -> Option<Version> {
        let read = frame.read(latches);
        (frame.page_id() == parent && self.is_below(read.page()) && read.is_valid()).then(|| read.version())
    }
}

impl Tree {
    /// Merges the leaf of `key` with a neighbour, repeatedly if necessary, and then pages above it that have become nearly
    /// empty. Gives up at the first obstacle. The caller holds no latch.
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if the log accepts no more records.
    pub(crate) fn merge(&self, merger: &mut Merger<'_, '_>, key: &[u8]) -> Result<MergeResult, StorageError> {
        const MOST: usize = 8;
        let mut result = MergeResult::default();
        for _ in 0..MOST {
            let mut again = false;
            for level in 0..MAX_LEVELS as u8 {
                match self.merge_page(merger, key, level)? {
                    MergeOutcome::Merged => (result.merged, again) = (true, true),
                    MergeOutcome::OnlyChild => {}
                    MergeOutcome::Stays => break,
                    MergeOutcome::Obstructed => {
                        result.is_due = true;
                        break;
                    }
                }
            }
            if !again || result.is_due {
                break;
            }
        }
        // This loop also collapses a root that an earlier merge left with one child because the log had no space.
        for _ in 0..MOST {
            if !self.has_lonely_root(merger.change)? {
                break;
            }
            self.collapse(merger)?;
        }
        Ok(result)
    }

    /// Returns true if the root is an inner page with one child.
    fn has_lonely_root(&self, change: StructureChange<'_>) -> Result<bool, StorageError> {
        self.root_is(change, |root| !root.is_leaf() && root.count() == 0)
    }

    /// Merges the page of `key` at `level` with a neighbour under the same parent, if that is due.
    ///
    /// # Errors
    /// As [`Tree::merge`].
    fn merge_page(&self, merger: &mut Merger<'_, '_>, key: &[u8], level: u8) -> Result<MergeOutcome, StorageError> {
        let (pool, limits) = (merger.change.pool, merger.limits);
        if level > 0 && self.root_is(merger.change, |root| root.level())? <= level {
            return Ok(MergeOutcome::Stays);
        }
        let (node, parent) = self.with_parent(pool, key, level)?;
        let Some(parent) = parent else { return Ok(MergeOutcome::Stays) };
        let is_small = limits.is_small(node.page());
        let (count, at) = (parent.read.page().count(), parent.position);
        let child = |position: usize| parent.read.page().child(position);
        // Try the right neighbour first. The left page of the pair remains.
        let pairs = [at, at.wrapping_sub(1)].map(|position| {
            (position < count).then(|| Pair { position, left: child(position), right: child(position + 1) })
        });
        if !node.is_valid() || !parent.read.is_valid() {
            return Ok(MergeOutcome::Obstructed);
        }
        if !is_small && limits.absorb == AbsorbPolicy::None {
            return Ok(MergeOutcome::Stays);
        }
        if count == 0 {
            return Ok(MergeOutcome::OnlyChild);
        }
        let above = parent.read.frame();
        let parent_id = above.page_id();
        // Under plain latches both guards hold latches, and loading a page may wait.
        drop((node, parent));
        let mut outcome = MergeOutcome::Stays;
        for pair in pairs.into_iter().flatten() {
            let other = if pair.position == at { pair.right } else { pair.left };
            if !is_small && limits.absorb == AbsorbPolicy::InMemory && pool.get(other).is_none() {
                continue;
            }
            // The attempt for the first pair may have waited since the pair was read, so the children may have changed.
            let Some(version) = pair.version_above(above, parent_id, pool.latches()) else {
                return Ok(MergeOutcome::Obstructed);
            };
            for id in [pair.left, pair.right, SPACE_PAGE] {
                match pool.get_or_load(id) {
                    // The page has moved since then.
                    Err(StorageError::CorruptPage { .. }) if !above.is_still(version) => {
                        return Ok(MergeOutcome::Obstructed);
                    }
                    loaded => _ = loaded?,
                }
            }
            let other_is_small =
                || pool.get(other).is_some_and(|frame| limits.is_small(frame.read(pool.latches()).page()));
            if !is_small && !other_is_small() {
                continue;
            }
            let Some(parent) = above.write_at(version) else { return Ok(MergeOutcome::Obstructed) };
            match self.merge_pair(merger, parent, &pair, level)? {
                MergeOutcome::Stays => {}
                // For example, a lock refers to the fence between the two pages. The pair with the other neighbour has
                // another fence.
                MergeOutcome::Obstructed => outcome = MergeOutcome::Obstructed,
                merged => return Ok(merged),
            }
        }
        Ok(outcome)
    }

    /// Returns the result of `look` on a consistent state of the root.
    fn root_is<T>(&self, change: StructureChange<'_>, look: impl Fn(PageRef<'_>) -> T) -> Result<T, StorageError> {
        loop {
            let root = change.pool.get_or_load(self.root)?;
            let read = root.read(change.pool.latches());
            let seen = look(read.page());
            if root.page_id() == self.root && read.is_valid() {
                return Ok(seen);
            }
        }
    }

    /// Merges two pages at `level` under a latched parent, if they fit one page.
    fn merge_pair<'a>(
        &self,
        merger: &mut Merger<'_, 'a>,
        mut parent: FrameWrite<'a>,
        pair: &Pair,
        level: u8,
    ) -> Result<MergeOutcome, StorageError> {
        let change = merger.change;
        let Some(mut left) = change.try_latch(pair.left) else {
            parent.release_unchanged();
            return Ok(MergeOutcome::Obstructed);
        };
        let Some(mut right) = change.try_latch(pair.right) else {
            left.release_unchanged();
            parent.release_unchanged();
            return Ok(MergeOutcome::Obstructed);
        };
        let leave = |left: FrameWrite<'a>, right: FrameWrite<'a>, parent: FrameWrite<'a>| {
            [right, left, parent].into_iter().for_each(FrameWrite::release_unchanged);
        };
        let misplaced = || {
            let children = [(pair.position, left.page()), (pair.position + 1, right.page())];
            self.find_misplaced(change.pool, parent.page(), &children)
        };
        // An inner page may store a bound in place of its fence.
        let separator = parent.page().key(pair.position);
        if let Some(page) = self.no_neighbours(&left, &right, level, &separator).or_else(misplaced) {
            let damaged = self.damaged(change.pool, page, "is no neighbour of the page beside it");
            leave(left, right, parent);
            return Err(damaged);
        }
        let fence = if level == 0 { right.page().low_fence().unwrap_or_default() } else { separator };
        // An empty page is merged if the result fits at all. Otherwise some space is left, so that the next insert does not
        // split the page.
        let empty = left.page().count() == 0 || right.page().count() == 0;
        let max_merged_bytes = if empty { ROOM } else { merger.limits.max_merged_bytes };
        if merged_bytes(left.page(), right.page(), &fence) > max_merged_bytes {
            leave(left, right, parent);
            return Ok(MergeOutcome::Stays);
        }
        let contention = change.pool.contention();
        if level == 0
            && !empty
            && [pair.left, pair.right].iter().any(|id| contention.is_kept_apart(*id, change.log.tail()))
        {
            leave(left, right, parent);
            return Ok(MergeOutcome::Stays);
        }
        // The fence between two leaves is the lock name of a gap. Either this key is also the first row's key and stays in
        // use as its name, or no lock may refer to it.
        let keeps_name = level > 0 || (right.page().count() > 0 && right.page().key(0) == fence);
        if !keeps_name && (merger.referenced)(self.lock_key(&fence)) {
            leave(left, right, parent);
            return Ok(MergeOutcome::Obstructed);
        }
        let beside = if level > 0 { right.page().child(0) } else { PageId::NONE };
        let mut merged = PageBytes::boxed();
        join(left.page(), right.page(), &fence, &mut PageMut::of(&mut merged));
        merger.rec.begin_system();
        let tail = change.log.tail();
        for frame in [&mut parent, &mut left, &mut right] {
            frame.mark_dirty(tail);
        }
        ops::put_image(merger.rec, pair.left, merged.as_bytes(), PageRef::of(&merged));
        ops::put_drop_child(merger.rec, parent.frame().page_id(), pair.position, pair.left);
        let Some(free) = PageFreeing::log(change, pair.right, merger.rec) else { return Ok(MergeOutcome::Obstructed) };
        let after = parent.page().lsn().max(left.page().lsn()).max(right.page().lsn());
        let lsn = match change.log.append_redo_only(change.slot, merger.rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((free, left, right, parent));
                merger.make_room(refused)?;
                return Ok(MergeOutcome::Obstructed);
            }
        };
        left.page_mut().bytes().copy_from_slice(merged.as_bytes());
        left.page_mut().set_lsn(lsn);
        change.pool.note_ghosts_of(&left);
        if level == 1 {
            // The first moved leaf and the leaf on its left had different parents before. They may be merged now.
            change.pool.note_due(beside);
        }
        let (position, child) = (pair.position, pair.left);
        let done = ops::apply(&PageChange::DropChild { page: self.root, position, child }, &mut parent.page_mut());
        debug_assert!(done);
        parent.page_mut().set_lsn(lsn);
        free.finish(&mut right, lsn);
        Ok(MergeOutcome::Merged)
    }

    /// Returns the damaged page of two neighbours under one parent. `None` if both are pages of this tree, on this level,
    /// with a common fence.
    fn no_neighbours(
        &self,
        left: &FrameWrite<'_>,
        right: &FrameWrite<'_>,
        level: u8,
        separator: &[u8],
    ) -> Option<PageId> {
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        let other =
            |page: PageRef<'_>| page.kind() != Some(kind) || page.index() != self.index || page.level() != level;
        let strange = [left, right].into_iter().find(|frame| other(frame.page()) || frame.flaw().is_some());
        let apart = || {
            let (low, high) = (right.page().low_fence(), left.page().high_fence());
            let fit = match level {
                0 => low.is_some() && high == low,
                _ => is_low_bound(low.as_deref(), Some(separator)) && is_high_bound(high.as_deref(), Some(separator)),
            };
            (!fit).then_some(right)
        };
        strange.or_else(apart).map(|frame| frame.frame().page_id())
    }

    /// Moves the content of a root's only child into the root. Gives up at the first obstacle.
    fn collapse(&self, merger: &mut Merger<'_, '_>) -> Result<(), StorageError> {
        let change = merger.change;
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
        if let Some(page) = self.find_misplaced(change.pool, root.page(), &[(0, child.page())]) {
            child.release_unchanged();
            root.release_unchanged();
            return Err(self.damaged(change.pool, page, "does not lie where the page above it says"));
        }
        merger.rec.begin_system();
        let tail = change.log.tail();
        root.mark_dirty(tail);
        child.mark_dirty(tail);
        let after = root.page().lsn().max(child.page().lsn());
        let mut image = PageBytes::boxed_of(child.stable());
        PageMut::of(&mut image).put_u32(header::ID, self.root.0);
        ops::put_image(merger.rec, self.root, image.as_bytes(), PageRef::of(&image));
        let Some(free) = PageFreeing::log(change, only, merger.rec) else { return Ok(()) };
        let lsn = match change.log.append_redo_only(change.slot, merger.rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((free, child, root));
                return merger.make_room(refused);
            }
        };
        root.page_mut().bytes().copy_from_slice(image.as_bytes());
        root.page_mut().set_lsn(lsn);
        change.pool.note_ghosts_of(&root);
        free.finish(&mut child, lsn);
        Ok(())
    }
}

/// Returns the number of bytes that the content and the fences of both pages would take on one page. The keys on the merged
/// page share another prefix than before, usually a shorter one (a longer one if a bound is stored in place of the middle
/// fence). In an inner page, the middle fence becomes the key of the left page's last child.
fn merged_bytes(left: PageRef<'_>, right: PageRef<'_>, fence: &[u8]) -> usize {
    let (low, high) = (left.low_fence(), right.high_fence());
    let prefix = match (&low, &high) {
        (Some(low), Some(high)) => low.iter().zip(high).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let rests = |page: PageRef<'_>| {
        // Number of bytes in use if all keys were stored in full.
        let whole = page.used_bytes() + page.count() * usize::from(page.u16(header::PREFIX_LEN));
        whole.saturating_sub(page.count() * prefix)
    };
    let separator = if left.is_leaf() { 0 } else { (SLOT + RECORD_HEAD + fence.len()).saturating_sub(prefix) };
    // The merged page does not store the middle fence, which both pages store.
    let middle = usize::from(left.u16(header::HIGH_LEN)) + usize::from(right.u16(header::LOW_LEN));
    (rests(left) + rests(right) + separator).saturating_sub(middle)
}

/// Fills a page with the content of two neighbours whose common fence is `fence`.
fn join(left: PageRef<'_>, right: PageRef<'_>, fence: &[u8], to: &mut PageMut<'_>) {
    let (low, high) = (left.low_fence(), right.high_fence());
    let leaf = left.is_leaf();
    to.format(&Format {
        id: left.id(),
        index: left.index(),
        level: left.level(),
        low: low.as_deref(),
        high: high.as_deref(),
        right: if leaf { right.right() } else { PageId::NONE },
        upper: if leaf { PageId::NONE } else { right.child(right.count()) },
    });
    to.append_all(left, 0..left.count());
    if !leaf {
        to.insert(left.count(), fence, left.child(left.count()).0, &[], 0);
    }
    to.append_all(right, 0..right.count());
    to.put_u32(header::SPLITS, left.u32(header::SPLITS).wrapping_add(1));
}
