//! Search for the leaf of a key: a descent from the root. For many keys at once see [`super::group`].
//!
//! A descent reads the version of a page, the child's number, and the child's version. Then it validates the parent; after
//! this check the parent may change. Under `plain` latches the same code holds shared latches, so a page is released only
//! after the next page is held (latch coupling).
//!
//! Under a cooperative scheduler (and with optimistic latches), a descent prefetches the cache lines that it will read next
//! and yields at a point until they arrive: the head of a page (header and hints), the segment of its slots, the row. Such a
//! point is inside an optimistic read section, which is validated in any case: the parent after the child's version was
//! read, the leaf by the caller.
//!
//! A page that is not in memory ends the descent: the thread releases all latches, loads the page, and restarts the descent.
//! So no latch is ever held during I/O.

use super::place::PlacementCheck;
use super::{MAX_LEVELS, Tree};
use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::base::sites::{PointSite, site};
use crate::buffer::BufferPool;
use crate::buffer::frame::{Frame, FrameRead};
use crate::page::PageRef;
use crate::page::header::Kind;
use crate::page::slotted::SlotRange;

/// A leaf and the position of a key in it. Both are valid while the guard `read` is valid.
#[derive(Debug)]
pub(crate) struct LeafAt<'p> {
    pub(crate) read: FrameRead<'p>,
    /// Position of the first slot whose key is not below the searched key.
    pub(crate) position: usize,
    /// True if the slot at `position` has exactly the searched key (the row may be a ghost).
    pub(crate) exact: bool,
}

/// Reason for which a descent ended early.
enum DescentEnd {
    /// A page changed during the descent. The descent must be restarted.
    Again,
    /// A page was proved to be in its proper place. The descent must be restarted.
    Proved,
    /// A page is not in memory. It must be loaded before the descent is restarted.
    Miss(PageId),
    /// A page does not fit the tree, although nothing changed: the page is damaged.
    Damaged(PageId, &'static str),
}

impl DescentEnd {
    /// Returns `DescentEnd::Again`. Cold, like the functions below, so that the code between two points fits the L1
    /// instruction cache.
    #[cold]
    fn again() -> DescentEnd {
        DescentEnd::Again
    }

    #[cold]
    fn miss(id: PageId) -> DescentEnd {
        DescentEnd::Miss(id)
    }

    /// Returns the error for a damaged page if the page is still in the frame. Otherwise the frame may have received another
    /// page, and the descent must be restarted.
    #[cold]
    fn damaged(id: PageId, read: &FrameRead<'_>, what: &'static str) -> DescentEnd {
        if read.is_valid() { DescentEnd::Damaged(id, what) } else { DescentEnd::Again }
    }
}

/// An inner page on the path of a descent, and the position of the child that the descent followed.
pub(crate) struct Step<'p> {
    pub(crate) read: FrameRead<'p>,
    pub(crate) position: usize,
}

impl Tree {
    /// Finds the leaf of `key` and the key's position in it. The caller validates the guard before it relies on the result.
    ///
    /// # Errors
    /// Fails if a page cannot be read or is damaged.
    #[inline]
    pub(crate) fn find<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<LeafAt<'p>, StorageError> {
        if pool.points().in_descents() {
            return self.find_stepping(pool, key);
        }
        let read = self.leaf(pool, key)?;
        let (position, exact) = read.page().lower_bound(key);
        Ok(LeafAt { read, position, exact })
    }

    /// Finds the position of `key` in leaf `id`, if the leaf is still in this frame and still covers the key. For a caller
    /// that found the leaf earlier. The caller validates the result like the result of [`Tree::find`].
    pub(crate) fn find_in<'p>(
        &self,
        pool: &'p BufferPool,
        (frame, id): (u32, PageId),
        key: &[u8],
    ) -> Option<LeafAt<'p>> {
        let read = pool.frame(frame).read(pool.latches());
        let page = read.page();
        // A page that leaves its tree is emptied before it is unlatched. So if this page still covers the key, it is the
        // leaf of the key. This would not follow for another page in the frame: a load interrupted by a crash leaves pages
        // that look like leaves of the tree. A frame that has lost its page still contains the old bytes: only the frame's
        // page number shows the loss.
        let same = read.frame().page_id() == id && !id.is_none() && !read.frame().is_unproved();
        let is_its_leaf = same && page.index() == self.index && page.is_leaf() && page.covers(key);
        if !is_its_leaf {
            return None;
        }
        let (position, exact) = page.lower_bound(key);
        Some(LeafAt { read, position, exact })
    }

    /// Like [`Tree::find`], but prefetches cache lines and yields at points.
    #[inline(never)]
    fn find_stepping<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<LeafAt<'p>, StorageError> {
        pool.points().at(&site::BEFORE_ROOT);
        let child = |page: PageRef<'_>, is_root: bool| {
            let narrowed = narrow_ahead(page, key);
            pool.points().at(segment(is_root));
            let (position, equal) = page.finish(narrowed, key);
            position + usize::from(equal)
        };
        let read = self.retrying(pool, || self.descend::<true>(pool, child, 0).map(|(leaf, _)| leaf))?;
        pool.points().at(&site::BEFORE_LEAF);
        let page = read.page();
        let narrowed = narrow_ahead(page, key);
        pool.points().at(&site::LEAF_SEGMENT);
        let (position, exact) = page.finish(narrowed, key);
        page.prefetch_row(position);
        if !exact {
            page.prefetch_room(position);
        }
        pool.points().at(&site::ROW);
        Ok(LeafAt { read, position, exact })
    }

    /// Finds the leaf that covers `key`.
    #[inline]
    pub(crate) fn leaf<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<FrameRead<'p>, StorageError> {
        self.retrying(pool, || self.descend::<false>(pool, |page, _| page.child_position(key), 0).map(|(leaf, _)| leaf))
    }

    /// Finds the leaf that covers the keys just below `key` (`None`: the last leaf), for backward scans.
    pub(crate) fn leaf_before<'p>(
        &self,
        pool: &'p BufferPool,
        key: Option<&[u8]>,
    ) -> Result<FrameRead<'p>, StorageError> {
        self.retrying(pool, || {
            let child = |page: PageRef<'_>, _| key.map_or_else(|| page.count(), |key| page.lower_bound(key).0);
            if pool.points().in_descents() {
                let near = key.unwrap_or(&[]);
                let stepping = |page: PageRef<'_>, is_root| {
                    narrow_ahead(page, near);
                    pool.points().at(segment(is_root));
                    child(page, is_root)
                };
                let leaf = self.descend::<true>(pool, stepping, 0)?.0;
                narrow_ahead(leaf.page(), near);
                pool.points().at(&site::LEAF_SEGMENT);
                return Ok(leaf);
            }
            self.descend::<false>(pool, child, 0).map(|(leaf, _)| leaf)
        })
    }

    /// Finds the page of `key` at `level`, and its parent unless the page is the root.
    pub(crate) fn with_parent<'p>(
        &self,
        pool: &'p BufferPool,
        key: &[u8],
        level: u8,
    ) -> Result<(FrameRead<'p>, Option<Step<'p>>), StorageError> {
        self.retrying(pool, || self.descend::<false>(pool, |page, _| page.child_position(key), level))
    }

    #[inline]
    fn retrying<T>(&self, pool: &BufferPool, attempt: impl Fn() -> Result<T, DescentEnd>) -> Result<T, StorageError> {
        let mut refused = PageId::NONE;
        loop {
            match attempt() {
                Ok(found) => return Ok(found),
                Err(DescentEnd::Again | DescentEnd::Proved) => std::hint::spin_loop(),
                Err(stop) => self.resolve(pool, stop, &mut refused)?,
            }
        }
    }

    /// Handles the end of a descent. `refused` is the page whose last load failed, because it did not exist or was damaged.
    #[cold]
    fn resolve(&self, pool: &BufferPool, stop: DescentEnd, refused: &mut PageId) -> Result<(), StorageError> {
        match stop {
            DescentEnd::Again | DescentEnd::Proved => Ok(()),
            DescentEnd::Miss(page) => match pool.load(page) {
                // The page may have moved since its parent was read, and the file may have been truncated. The next descent
                // then follows another pointer.
                Err(StorageError::CorruptPage { .. }) if *refused != page => {
                    *refused = page;
                    Ok(())
                }
                loaded => loaded,
            },
            DescentEnd::Damaged(page, what) => Err(self.damaged(pool, page, what)),
        }
    }

    /// Descends to `level`. If `STEPS` is true, prefetches cache lines and yields at points. `child_of` receives a page, and
    /// true if the page is the root, and returns the position of the child to follow.
    #[inline]
    fn descend<'p, const STEPS: bool>(
        &self,
        pool: &'p BufferPool,
        child_of: impl Fn(PageRef<'_>, bool) -> usize,
        level: u8,
    ) -> Result<(FrameRead<'p>, Option<Step<'p>>), DescentEnd> {
        let mut id = self.root;
        let mut read = self.enter(pool, pool.get(id).ok_or_else(|| DescentEnd::miss(id))?, id)?;
        let mut parent: Option<Step<'p>> = None;
        let mut expected = None;
        for _ in 0..MAX_LEVELS {
            let page = read.page();
            if read.frame().is_unproved() {
                return Err(self.prove_on_the_way(pool, id, read, parent.as_ref()));
            }
            let at = page.level();
            if expected.is_some_and(|level| level != at) {
                return Err(DescentEnd::damaged(id, &read, "lies at the wrong level"));
            }
            if at <= level {
                if !read.is_valid() {
                    return Err(DescentEnd::again());
                }
                if at < level || page.index() != self.index {
                    return Err(DescentEnd::damaged(id, &read, "belongs to another place"));
                }
                read.frame().touch();
                return Ok((read, parent));
            }
            let position = child_of(page, parent.is_none());
            let child = page.child(position);
            if !read.is_valid() {
                return Err(DescentEnd::again());
            }
            if child.is_none() || page.kind() != Some(Kind::Inner) || page.index() != self.index {
                return Err(DescentEnd::damaged(id, &read, "is no inner page"));
            }
            if STEPS && at == 1 {
                pool.prefetch_entry(child);
                pool.points().at(&site::LEAF_ENTRY);
            }
            let frame = pool.get(child).ok_or_else(|| DescentEnd::miss(child))?;
            if STEPS {
                frame.prefetch_head();
                pool.points().at(if at == 1 { &site::LEAF_HEAD } else { &site::INNER_HEAD });
            }
            let next = self.enter(pool, frame, child)?;
            if !read.is_valid() {
                return Err(DescentEnd::again());
            }
            read.frame().touch();
            expected = at.checked_sub(1);
            parent = Some(Step { read, position });
            read = next;
            id = child;
        }
        Err(DescentEnd::Damaged(id, "lies too deep"))
    }

    /// Returns the first page on the path to the leaf of a key that is not in the pool. Pages above it on the path have been
    /// proved.
    pub(super) fn missing_page(&self, pool: &BufferPool, key: &[u8]) -> Option<PageId> {
        loop {
            match self.descend::<false>(pool, |page, _| page.child_position(key), 0) {
                Err(DescentEnd::Miss(page)) => return Some(page),
                Err(DescentEnd::Proved) => {}
                _ => return None,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn prove_on_the_way(
        &self,
        pool: &BufferPool,
        id: PageId,
        read: FrameRead<'_>,
        parent: Option<&Step<'_>>,
    ) -> DescentEnd {
        // The frame may have received another page since the descent read it.
        match self.prove(pool, read, parent.map(|step| (&step.read, step.position))) {
            PlacementCheck::Proved => DescentEnd::Proved,
            PlacementCheck::Again => DescentEnd::Again,
            PlacementCheck::Wrong(what) => DescentEnd::Damaged(id, what),
        }
    }

    #[inline]
    fn enter<'p>(&self, pool: &'p BufferPool, frame: &'p Frame, id: PageId) -> Result<FrameRead<'p>, DescentEnd> {
        let read = frame.read(pool.latches());
        // The frame may have been given to another page since the page table was read.
        if frame.page_id() != id { Err(DescentEnd::again()) } else { Ok(read) }
    }
}

/// Returns the point at which a descent yields after it has prefetched the slots of an inner page.
#[inline]
fn segment(is_root: bool) -> &'static PointSite {
    if is_root { &site::ROOT_SEGMENT } else { &site::INNER_SEGMENT }
}

/// Narrows the slots to search. The function is shared by all levels, so that the code of a descent between two points fits
/// the L1 instruction cache.
#[inline(never)]
fn narrow_ahead(page: PageRef<'_>, key: &[u8]) -> SlotRange {
    page.narrow(key)
}
