//! Merging pages that have become nearly empty with a neighbour, on every level; roots that shrink.
//!
//! A merge moves all that the right one of two neighbours under one parent holds into the left one, takes the right one
//! out of the parent and gives it back. Inner pages merge as leaves do, so that a tree through which rows only pass
//! (growing keys, deleted at the other end) keeps no page for ever. A root with one child takes the child's content.

use super::ops::{self, PageChange};
use super::space::{FreeOne, SPACE_PAGE};
use super::split::ASCENDING;
use super::{MAX_LEVELS, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId, TxnId};
use crate::buffer::frame::{Frame, FrameWrite};
use crate::latch::{Latching, Version};
use crate::log::{RecordBuf, RecordKind, Unlogged};
use crate::page::header::Kind;
use crate::page::layout::{RECORD_HEAD, SLOT};
use crate::page::slotted::{Format, is_high_bound, is_low_bound};
use crate::page::{PageBytes, PageMut, PageRef, header};

/// Bytes of a page of a tree for slots, records and fences.
const ROOM: usize = PAGE_SIZE - header::SLOTS;

/// How full pages are that merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergeLimits {
    /// A page with at least so many bytes in use stays as it is.
    pub(crate) below: usize,
    /// Two pages merge when together they fill no more than this. If one of them is empty they merge wherever they fit.
    pub(crate) upto: usize,
    /// Whether a page that is full enough takes in a neighbour that is not, which was looked at when this page had more.
    pub(crate) takes_in: TakesIn,
}

/// Which neighbours a page that is full enough takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakesIn {
    None,
    /// Those in memory: to read one costs more than a merge frees.
    InMemory,
    All,
}

impl MergeLimits {
    /// For a statement on its way: only what is nearly empty, and enough room stays for inserts.
    pub(crate) const PASSING: MergeLimits =
        MergeLimits { below: PAGE_SIZE / 5, upto: PAGE_SIZE * 7 / 10, takes_in: TakesIn::None };
    /// For the purge service: of two neighbours of which one is less than half full, together more than nine tenths of a
    /// page stay in use.
    pub(crate) const THOROUGH: MergeLimits =
        MergeLimits { below: ROOM / 2, upto: ROOM * 9 / 10, takes_in: TakesIn::InMemory };
    /// For compaction: the same of all neighbours.
    pub(crate) const COMPACT: MergeLimits = MergeLimits { takes_in: TakesIn::All, ..MergeLimits::THOROUGH };

    /// Whether a page, which may be changing, is to merge with a neighbour.
    fn is_small(&self, page: PageRef<'_>) -> bool {
        // One that ascending inserts fill would be split again.
        let fills = page.is_leaf() && page.insert_run() >= ASCENDING;
        page.count() == 0 || page.used_bytes() < self.below && !fills
    }
}

/// What became of the pages of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeResult {
    /// Some have merged.
    pub(crate) merged: bool,
    /// More may be merged by a later attempt: another thread, a lock or a full log was in the way.
    pub(crate) is_due: bool,
}

/// How an attempt to merge a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergeOutcome {
    /// It is one page with a neighbour now.
    Merged,
    /// It is full enough, or ascending inserts fill it, or its neighbours are too full, or it is the root.
    Stays,
    /// It is its parent's only child: the parent has to merge first.
    OnlyChild,
    /// Another thread or a lock was in the way: a later attempt may succeed.
    Obstructed,
}

/// What a merge needs besides its tree.
pub(crate) struct Merger<'m, 'a> {
    pub(crate) change: StructureChange<'a>,
    pub(crate) rec: &'m mut RecordBuf,
    pub(crate) limits: MergeLimits,
    /// Whether it waits for the log where that has no room; if not, that is an obstacle.
    pub(crate) waits: bool,
    /// Whether a lock refers to a key. Called with leaves latched.
    pub(crate) referenced: &'m mut dyn FnMut(&[u8]) -> bool,
}

impl Merger<'_, '_> {
    /// Makes room for a record that the log has refused, if that is to be waited for.
    fn make_room(&self, refused: Unlogged) -> Result<(), StorageError> {
        match refused {
            Unlogged::NoRoom { .. } if !self.waits => Ok(()),
            refused => refused.make_room(self.change.log),
        }
    }
}

/// Two neighbours under one parent.
struct Pair {
    /// The separator between them.
    position: usize,
    left: PageId,
    right: PageId,
}

impl Pair {
    /// Whether the page is an inner page with the two at this place.
    fn is_below(&self, page: PageRef<'_>) -> bool {
        let at = self.position;
        let has = |position: usize, child: PageId| page.child(position) == child;
        page.kind() == Some(Kind::Inner) && at < page.count() && has(at, self.left) && has(at + 1, self.right)
    }

    /// The latch version at which the frame holds this parent with the two below it; `None` if it no longer does.
    fn version_above(&self, frame: &Frame, parent: PageId, latches: &Latching) -> Option<Version> {
        let read = frame.read(latches);
        (frame.page_id() == parent && self.is_below(read.page()) && read.is_valid()).then(|| read.version())
    }
}

impl Tree {
    /// Merges the leaf of `key` with a neighbour if that is due, as often as it is due, and the pages above it that have
    /// become nearly empty thereby. Gives up at the first obstacle. No latch may be held.
    ///
    /// # Errors
    /// A page that cannot be read, or a log that takes no more.
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
        // Also one that an earlier merge left so, because the log had no room then.
        for _ in 0..MOST {
            if !self.has_lonely_root(merger.change)? {
                break;
            }
            self.collapse(merger)?;
        }
        Ok(result)
    }

    /// Whether the root is an inner page with one child.
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
        // The neighbour on the right first. The left one of two pages stays.
        let pairs = [at, at.wrapping_sub(1)].map(|position| {
            (position < count).then(|| Pair { position, left: child(position), right: child(position + 1) })
        });
        if !node.is_valid() || !parent.read.is_valid() {
            return Ok(MergeOutcome::Obstructed);
        }
        if !is_small && limits.takes_in == TakesIn::None {
            return Ok(MergeOutcome::Stays);
        }
        if count == 0 {
            return Ok(MergeOutcome::OnlyChild);
        }
        let above = parent.read.frame();
        let parent_id = above.page_id();
        // Under plain latches both are held, and loading may wait.
        drop((node, parent));
        let mut outcome = MergeOutcome::Stays;
        for pair in pairs.into_iter().flatten() {
            let other = if pair.position == at { pair.right } else { pair.left };
            if !is_small && limits.takes_in == TakesIn::InMemory && pool.get(other).is_none() {
                continue;
            }
            // Since the pair was read the first one may have waited, and the children have changed.
            let Some(version) = pair.version_above(above, parent_id, pool.latches()) else {
                return Ok(MergeOutcome::Obstructed);
            };
            for id in [pair.left, pair.right, SPACE_PAGE] {
                match pool.get_or_load(id) {
                    // It has moved meanwhile.
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
                // The name of a fence is in use, say: the other neighbour has another.
                MergeOutcome::Obstructed => outcome = MergeOutcome::Obstructed,
                merged => return Ok(merged),
            }
        }
        Ok(outcome)
    }

    /// What `look` says of the root.
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

    /// Merges two pages at `level` under a latched parent, if they fit.
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
        let astray = || {
            let children = [(pair.position, left.page()), (pair.position + 1, right.page())];
            self.astray(change.pool, parent.page(), &children)
        };
        // An inner page may store a bound in place of its fence.
        let separator = parent.page().key(pair.position);
        if let Some(page) = self.no_neighbours(&left, &right, level, &separator).or_else(astray) {
            let damaged = self.damaged(change.pool, page, "is no neighbour of the page beside it");
            leave(left, right, parent);
            return Err(damaged);
        }
        let fence = if level == 0 { right.page().low_fence().unwrap_or_default() } else { separator };
        // An empty page merges wherever it fits at all; otherwise some room stays, so that the next insert does not
        // split.
        let empty = left.page().count() == 0 || right.page().count() == 0;
        let upto = if empty { ROOM } else { merger.limits.upto };
        if merged_bytes(left.page(), right.page(), &fence) > upto {
            leave(left, right, parent);
            return Ok(MergeOutcome::Stays);
        }
        // The fence of two leaves is the name of a gap: it stays in use as the key of the first row, or not at all.
        let keeps_name = level > 0 || (right.page().count() > 0 && right.page().key(0) == fence);
        if !keeps_name && (merger.referenced)(self.lock_key(&fence)) {
            leave(left, right, parent);
            return Ok(MergeOutcome::Obstructed);
        }
        let beside = if level > 0 { right.page().child(0) } else { PageId::NONE };
        let mut merged = PageBytes::boxed();
        join(left.page(), right.page(), &fence, &mut PageMut::of(&mut merged));
        merger.rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
        let tail = change.log.tail();
        for frame in [&mut parent, &mut left, &mut right] {
            frame.mark_dirty(tail);
        }
        ops::put_image(merger.rec, pair.left, merged.as_bytes(), PageRef::of(&merged));
        ops::put_drop_child(merger.rec, parent.frame().page_id(), pair.position, pair.left);
        let Some(free) = FreeOne::log(change, pair.right, merger.rec) else { return Ok(MergeOutcome::Obstructed) };
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
            // The leaf on its left had another parent before, and may merge with it now.
            change.pool.note_due(beside);
        }
        let (position, child) = (pair.position, pair.left);
        let done = ops::apply(&PageChange::DropChild { page: self.root, position, child }, &mut parent.page_mut());
        debug_assert!(done);
        parent.page_mut().set_lsn(lsn);
        free.finish(&mut right, lsn);
        Ok(MergeOutcome::Merged)
    }

    /// Which of two neighbours under one parent is damaged: they must be pages of this tree, on this level, with a fence in
    /// common.
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

    /// Takes the content of a root's only child into the root. Gives up at the first obstacle.
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
        if let Some(page) = self.astray(change.pool, root.page(), &[(0, child.page())]) {
            child.release_unchanged();
            root.release_unchanged();
            return Err(self.damaged(change.pool, page, "does not lie where the page above it says"));
        }
        merger.rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
        let tail = change.log.tail();
        root.mark_dirty(tail);
        child.mark_dirty(tail);
        let after = root.page().lsn().max(child.page().lsn());
        let mut image = PageBytes::boxed_of(child.stable());
        PageMut::of(&mut image).put_u32(header::ID, self.root.0);
        ops::put_image(merger.rec, self.root, image.as_bytes(), PageRef::of(&image));
        let Some(free) = FreeOne::log(change, only, merger.rec) else { return Ok(()) };
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

/// Bytes that the content and fences of both would take on one page: its keys share another prefix than theirs did, mostly
/// a shorter one (a longer one where a bound stands in place of the fence in the middle); and that fence becomes the key of
/// the left one's last child.
fn merged_bytes(left: PageRef<'_>, right: PageRef<'_>, fence: &[u8]) -> usize {
    let (low, high) = (left.low_fence(), right.high_fence());
    let prefix = match (&low, &high) {
        (Some(low), Some(high)) => low.iter().zip(high).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let rests = |page: PageRef<'_>| {
        // The bytes in use, were all its keys whole.
        let whole = page.used_bytes() + page.count() * usize::from(page.u16(header::PREFIX_LEN));
        whole.saturating_sub(page.count() * prefix)
    };
    let separator = if left.is_leaf() { 0 } else { (SLOT + RECORD_HEAD + fence.len()).saturating_sub(prefix) };
    // The fence in the middle is one of neither.
    let middle = usize::from(left.u16(header::HIGH_LEN)) + usize::from(right.u16(header::LOW_LEN));
    (rests(left) + rests(right) + separator).saturating_sub(middle)
}

/// Fills a page with the content of two neighbours, whose common fence is `fence`.
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
