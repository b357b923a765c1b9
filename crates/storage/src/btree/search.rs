//! Finding the leaf of a key, alone or for a group of keys at once.
//!
//! A descent notes the version of each page, reads the child's number, notes the child's version and validates the
//! parent: from then on the parent may change. Under `plain` latches the same code holds shares, so a page is left only
//! after the next one is held (latch coupling).
//!
//! Under a cooperative scheduler (and with optimistic latches), a descent prefetches the lines it will read next and
//! stops at a point while they come: the head of a page (header and hints), the segment of its slots, the row. A point
//! lies inside an optimistic read section, which is validated after it as it would have been anyway: the page above
//! after the version of the page below has been noted, the leaf by the caller.
//!
//! A page that is not in memory ends the descent: the thread releases all latches, loads the page, and begins the
//! descent again. So no latch is ever held during I/O.

use super::{MAX_LEVELS, Tree};
use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::base::sites::{PointSite, site};
use crate::buffer::BufferPool;
use crate::buffer::frame::{Frame, FrameRead};
use crate::buffer::shortcuts::ShortcutEntry;
use crate::latch::Version;
use crate::page::PageRef;
use crate::page::header::Kind;
use crate::page::slotted::Narrowed;

/// A leaf and the place of a key in it, valid while the guard is.
#[derive(Debug)]
pub(crate) struct LeafAt<'p> {
    pub(crate) read: FrameRead<'p>,
    /// First slot whose key is not below the one looked for.
    pub(crate) position: usize,
    /// Whether that slot has exactly the key (it may be a ghost).
    pub(crate) exact: bool,
}

/// Why a descent did not arrive.
enum Stop {
    /// Something changed on the way.
    Again,
    /// A page is not in memory.
    Miss(PageId),
    /// A page is not what it should be, although nothing changed.
    Damaged(PageId, &'static str),
}

impl Stop {
    /// Cold, as the functions below, so that the code between two points fits the L1 instruction cache.
    #[cold]
    fn again() -> Stop {
        Stop::Again
    }

    #[cold]
    fn miss(id: PageId) -> Stop {
        Stop::Miss(id)
    }

    /// A page is damaged only if it is still in the frame: the frame may have got another page meanwhile.
    #[cold]
    fn damaged(id: PageId, read: &FrameRead<'_>, what: &'static str) -> Stop {
        if read.is_valid() { Stop::Damaged(id, what) } else { Stop::Again }
    }
}

/// An inner page on the way, and the position of the child that was followed.
pub(crate) struct Step<'p> {
    pub(crate) read: FrameRead<'p>,
    pub(crate) position: usize,
}

impl Tree {
    /// The leaf of `key` and its place there. The caller validates the guard before it relies on them.
    ///
    /// # Errors
    /// When a page cannot be read or is damaged.
    #[inline]
    pub(crate) fn find<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<LeafAt<'p>, StorageError> {
        if pool.points().in_descents() {
            return self.find_stepping(pool, key);
        }
        let read = self.leaf(pool, key)?;
        let (position, exact) = read.page().lower_bound(key);
        Ok(LeafAt { read, position, exact })
    }

    /// The place of `key` in this frame, if that holds the leaf of the key: for a caller that found the leaf before. To be
    /// validated as what [`Tree::find`] returns.
    pub(crate) fn find_in<'p>(&self, pool: &'p BufferPool, frame: u32, key: &[u8]) -> Option<LeafAt<'p>> {
        let read = pool.frame(frame).read(pool.latches());
        let page = read.page();
        // A frame that has lost its page still shows it. A page that leaves its tree is emptied before it is unlatched, so
        // a leaf that covers the key is its leaf.
        let is_its_leaf =
            !read.frame().page_id().is_none() && page.index() == self.index && page.is_leaf() && page.covers(key);
        if !is_its_leaf {
            return None;
        }
        let (position, exact) = page.lower_bound(key);
        Some(LeafAt { read, position, exact })
    }

    /// As [`Tree::find`], prefetching lines and stopping at points.
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

    /// The leaf that covers `key`.
    #[inline]
    pub(crate) fn leaf<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Result<FrameRead<'p>, StorageError> {
        self.retrying(pool, || self.descend::<false>(pool, |page, _| page.child_position(key), 0).map(|(leaf, _)| leaf))
    }

    /// The leaf that covers the keys just below `key` (`None`: the last leaf), for going backwards.
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

    /// The page of `key` at `level`, and its parent unless it is the root.
    pub(crate) fn with_parent<'p>(
        &self,
        pool: &'p BufferPool,
        key: &[u8],
        level: u8,
    ) -> Result<(FrameRead<'p>, Option<Step<'p>>), StorageError> {
        self.retrying(pool, || self.descend::<false>(pool, |page, _| page.child_position(key), level))
    }

    #[inline]
    fn retrying<T>(&self, pool: &BufferPool, attempt: impl Fn() -> Result<T, Stop>) -> Result<T, StorageError> {
        loop {
            match attempt() {
                Ok(found) => return Ok(found),
                Err(Stop::Again) => std::hint::spin_loop(),
                Err(stop) => self.resolve(pool, stop)?,
            }
        }
    }

    #[cold]
    fn resolve(&self, pool: &BufferPool, stop: Stop) -> Result<(), StorageError> {
        match stop {
            Stop::Again => Ok(()),
            Stop::Miss(page) => pool.load(page),
            Stop::Damaged(page, what) => Err(self.damaged(pool, page, what)),
        }
    }

    /// `STEPS`: prefetches lines and stops at points. `child_of` gets a page and whether it is the root.
    #[inline]
    fn descend<'p, const STEPS: bool>(
        &self,
        pool: &'p BufferPool,
        child_of: impl Fn(PageRef<'_>, bool) -> usize,
        level: u8,
    ) -> Result<(FrameRead<'p>, Option<Step<'p>>), Stop> {
        let mut id = self.root;
        let mut read = self.enter(pool, pool.get(id).ok_or_else(|| Stop::miss(id))?, id)?;
        let mut parent: Option<Step<'p>> = None;
        let mut expected = None;
        for _ in 0..MAX_LEVELS {
            let page = read.page();
            let at = page.level();
            if expected.is_some_and(|level| level != at) {
                return Err(Stop::damaged(id, &read, "lies at the wrong level"));
            }
            if at <= level {
                if !read.is_valid() {
                    return Err(Stop::again());
                }
                if at < level || page.index() != self.index {
                    return Err(Stop::damaged(id, &read, "belongs to another place"));
                }
                read.frame().touch();
                return Ok((read, parent));
            }
            let position = child_of(page, parent.is_none());
            let child = page.child(position);
            if !read.is_valid() {
                return Err(Stop::again());
            }
            if child.is_none() || page.kind() != Some(Kind::Inner) || page.index() != self.index {
                return Err(Stop::damaged(id, &read, "is no inner page"));
            }
            if STEPS && at == 1 {
                pool.prefetch_entry(child);
                pool.points().at(&site::LEAF_ENTRY);
            }
            let frame = pool.get(child).ok_or_else(|| Stop::miss(child))?;
            if STEPS {
                frame.prefetch_head();
                pool.points().at(if at == 1 { &site::LEAF_HEAD } else { &site::INNER_HEAD });
            }
            let next = self.enter(pool, frame, child)?;
            if !read.is_valid() {
                return Err(Stop::again());
            }
            read.frame().touch();
            expected = at.checked_sub(1);
            parent = Some(Step { read, position });
            read = next;
            id = child;
        }
        Err(Stop::Damaged(id, "lies too deep"))
    }

    #[inline]
    fn enter<'p>(&self, pool: &'p BufferPool, frame: &'p Frame, id: PageId) -> Result<FrameRead<'p>, Stop> {
        let read = frame.read(pool.latches());
        // The frame may have been given to another page since the translation was read.
        if frame.page_id() != id { Err(Stop::again()) } else { Ok(read) }
    }
}

/// Where a descent stops after it has prefetched the slots of an inner page.
#[inline]
fn segment(is_root: bool) -> &'static PointSite {
    if is_root { &site::ROOT_SEGMENT } else { &site::INNER_SEGMENT }
}

/// Shared by all levels, so that the code of a descent between two points fits the L1 instruction cache.
#[inline(never)]
fn narrow_ahead(page: PageRef<'_>, key: &[u8]) -> Narrowed {
    page.narrow(key)
}

/// Where a key was found by a group descent: a hint, good while the frame's version stays, of a leaf that need not be
/// the key's.
///
/// A group descent reads each page under a version of its own, and does not check whether the page above still led
/// there (a single descent does). Between two pages a split or a merge may have moved a key, and then the place is one
/// of another leaf of the tree. That costs a descent and nothing else: a place is only remembered, and a statement that
/// uses it compares it with the key on the page, under the same version (`table/locate.rs`). Only one leaf of a tree
/// has exactly this key, or the gap that a missing key belongs into: a page that leaves its tree is emptied before its
/// latch is released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHint<'p> {
    pub(crate) frame: &'p Frame,
    pub(crate) version: Version,
    pub(crate) position: usize,
    pub(crate) exact: bool,
    /// The leaf, read under the version, has exactly the key: no need to compare it once more.
    pub(crate) proven: bool,
}

/// A key of a group descent: its tree, itself, and how many bytes of its row are wanted.
pub(crate) type KeyQuery<'k> = (Tree, &'k [u8], usize);

/// Most keys of one group descent.
pub(crate) const GROUP: usize = 16;

impl Tree {
    /// Finds up to [`GROUP`] keys, perhaps of several trees, in step, from the leaf that a shortcut leads to or from
    /// the lowest inner level on: while the lines that one key needs next are on their way from memory, the search
    /// works on the other keys. Prefetches the first bytes of each row and says where it is. The levels above are few
    /// pages, and in the cache. A key whose page is not in the pool is left out.
    #[inline(never)]
    pub(crate) fn find_group<'p>(
        pool: &'p BufferPool,
        keys: &[KeyQuery<'_>],
        found: &mut [Option<KeyHint<'p>>; GROUP],
    ) {
        if cfg!(any(miri, race_free)) {
            // It reads pages while they change. Its results are hints, which callers can do without.
            return;
        }
        debug_assert!(keys.len() <= GROUP);
        let mut spots = [ShortcutEntry::NONE; GROUP];
        for (spot, (tree, key, _)) in spots.iter_mut().zip(keys) {
            *spot = pool.shortcuts().spot(tree.index, key);
        }
        let mut at: [Option<Hint<'p>>; GROUP] = [None; GROUP];
        for ((hint, spot), (tree, key, _)) in at.iter_mut().zip(spots).zip(keys) {
            *hint = Hint::by_shortcut(pool, spot).or_else(|| tree.lowest_inner(pool, key));
        }
        pool.points().at(&site::GROUP_INNER);
        narrow(&mut at, keys);
        pool.points().at(&site::GROUP_INNER_SEGMENT);
        // First where the children lie, then the children: the page table, too, is larger than the L1 and L2 caches.
        let mut children = [PageId::NONE; GROUP];
        let mut open = false;
        for (i, (hint, wanted)) in at.iter_mut().zip(keys).enumerate() {
            let Some(inner) = hint else { continue };
            let (tree, key, _) = wanted;
            if inner.by_shortcut {
                found[i] = inner.settle(wanted);
                if found[i].is_some() {
                    *hint = None;
                    continue;
                }
                *hint = tree.lowest_inner(pool, key);
                if let Some(instead) = hint {
                    instead.narrow(key);
                }
            }
            let Some(inner) = hint else { continue };
            open = true;
            if inner.frame.bytes().level() > 0 {
                children[i] = inner.child(key);
                if children[i].is_none() {
                    *hint = None;
                } else {
                    pool.prefetch_entry(children[i]);
                }
            }
        }
        if !open {
            // Shortcuts led to all of them.
            pool.points().at(&site::GROUP_ROW);
            return;
        }
        pool.points().at(&site::GROUP_ENTRY);
        for (hint, child) in at.iter_mut().zip(children) {
            if !child.is_none() {
                *hint = Hint::enter(pool, child);
            }
        }
        pool.points().at(&site::GROUP_LEAF);
        narrow(&mut at, keys);
        pool.points().at(&site::GROUP_SEGMENT);
        for (i, (hint, wanted)) in at.iter().zip(keys).enumerate() {
            let Some(leaf) = hint else { continue };
            found[i] = leaf.settle(wanted);
            if leaf.id != wanted.0.root && found[i].is_some_and(|found| found.exact) {
                pool.shortcuts().learn(wanted.0.index, spots[i], leaf.id, leaf.frame.bytes().count());
            }
        }
        pool.points().at(&site::GROUP_ROW);
    }
}

impl Tree {
    /// As [`Tree::find_group`]; has pages read that are not in the pool, if the pool has readers for that.
    pub(crate) fn find_or_fetch_group<'p>(
        pool: &'p BufferPool,
        keys: &[KeyQuery<'_>],
        found: &mut [Option<KeyHint<'p>>; GROUP],
    ) {
        Tree::find_group(pool, keys, found);
        let found = &mut found[..keys.len()];
        if pool.reads_in_parallel() && found.iter().any(Option::is_none) {
            Tree::fetch_group(pool, keys, found);
        }
    }

    /// For keys of a group that were not found because pages are not in the pool: has these read, all at the same time,
    /// level by level, and then finds the keys. For pools with readers: a device serves many reads in the time of one.
    #[cold]
    #[inline(never)]
    fn fetch_group<'p>(pool: &'p BufferPool, keys: &[KeyQuery<'_>], found: &mut [Option<KeyHint<'p>>]) {
        let mut missing = Vec::with_capacity(keys.len());
        let mut any = false;
        for _ in 0..MAX_LEVELS {
            missing.clear();
            for ((tree, key, _), found) in keys.iter().zip(&*found) {
                if found.is_none()
                    && let Some(page) = tree.missing_page(pool, key)
                    && !missing.contains(&page)
                {
                    missing.push(page);
                }
            }
            if missing.is_empty() || !pool.load_group(&missing) {
                break;
            }
            any = true;
        }
        if any {
            let mut again = [None; GROUP];
            Tree::find_group(pool, keys, &mut again);
            found.copy_from_slice(&again[..keys.len()]);
        }
    }

    /// The first page on the way to the leaf of a key that is not in the pool.
    fn missing_page(&self, pool: &BufferPool, key: &[u8]) -> Option<PageId> {
        match self.descend::<false>(pool, |page, _| page.child_position(key), 0) {
            Err(Stop::Miss(page)) => Some(page),
            _ => None,
        }
    }

    /// The page just above the leaf of a key, most probably; the leaf itself if it is the root. Its first lines are
    /// prefetched but not read.
    #[inline]
    fn lowest_inner<'p>(&self, pool: &'p BufferPool, key: &[u8]) -> Option<Hint<'p>> {
        let mut hint = Hint::new(pool.get(self.root)?, self.root);
        let mut level = hint.frame.bytes().level();
        while level > 1 {
            hint.version = hint.frame.latch_version();
            hint.narrowed = hint.frame.bytes().narrow_near(key);
            hint = Hint::enter(pool, hint.child(key))?;
            level -= 1;
        }
        Some(hint)
    }
}

/// A frame in which a page was a moment ago.
#[derive(Clone, Copy)]
struct Hint<'p> {
    frame: &'p Frame,
    id: PageId,
    /// The version under which it is read.
    version: Version,
    /// What was found under the version.
    narrowed: Narrowed,
    /// A shortcut led here: the frame may hold another page by now, or the key may lie in another leaf.
    by_shortcut: bool,
}

impl<'p> Hint<'p> {
    fn new(frame: &'p Frame, id: PageId) -> Hint<'p> {
        Hint { frame, id, version: Version::NEVER, narrowed: Narrowed::NONE, by_shortcut: false }
    }

    /// The leaf in which a key near this one was found last. Its first lines are prefetched.
    #[inline]
    fn by_shortcut(pool: &'p BufferPool, spot: ShortcutEntry) -> Option<Hint<'p>> {
        let id = pool.shortcuts().leaf(spot);
        if id.is_none() {
            return None;
        }
        let frame = pool.get(id)?;
        frame.prefetch_search();
        Some(Hint { by_shortcut: true, ..Hint::new(frame, id) })
    }

    /// Reads the hint keys, and prefetches the slots that they lead to.
    #[inline]
    fn narrow(&mut self, key: &[u8]) {
        self.version = self.frame.latch_version();
        let page = self.frame.bytes();
        self.narrowed = page.narrow(key);
        if self.by_shortcut {
            page.prefetch_prefix();
        }
    }

    /// The key's place, if this is a leaf of its tree and has not changed; its row is prefetched.
    #[inline]
    fn settle(&self, (tree, key, row_bytes): &KeyQuery<'_>) -> Option<KeyHint<'p>> {
        let Hint { frame, id, version, .. } = *self;
        let page = frame.bytes();
        // A frame that has lost its page still shows it: only its number tells that it holds the page.
        if frame.page_id() != id || !page.is_leaf() || page.index() != tree.index {
            return None;
        }
        // Slots hold keys without the page's prefix, so in another page a different key looks the same.
        if self.by_shortcut && !page.shares_prefix(key) {
            return None;
        }
        let (position, exact) = page.finish(self.narrowed, key);
        if self.by_shortcut && !exact {
            // Only exactly this key proves that this is its leaf.
            return None;
        }
        let slot = page.slot(position);
        page.prefetch_bytes(slot.offset, slot.value_at() - slot.offset + slot.value_len.min(*row_bytes));
        if !frame.is_still(version) {
            return None;
        }
        frame.touch();
        // A descent has not compared the page's prefix.
        Some(KeyHint { frame, version, position, exact, proven: self.by_shortcut && exact })
    }

    /// The number of the child in which a key lies, if this is its inner page and has not changed.
    #[inline]
    fn child(&self, key: &[u8]) -> PageId {
        let page = self.frame.bytes();
        let (position, exact) = page.finish(self.narrowed, key);
        let id = page.child(position + usize::from(exact));
        let stands = page.level() > 0 && self.frame.page_id() == self.id && self.frame.is_still(self.version);
        if stands { id } else { PageId::NONE }
    }

    /// The child of this number, whose first lines are prefetched.
    #[inline]
    fn enter(pool: &'p BufferPool, id: PageId) -> Option<Hint<'p>> {
        let frame = pool.get(id)?;
        frame.prefetch_search();
        Some(Hint::new(frame, id))
    }
}

/// Reads the hint keys of pages, and prefetches the slots that they lead to.
#[inline]
fn narrow(hints: &mut [Option<Hint<'_>>; GROUP], keys: &[KeyQuery<'_>]) {
    for (hint, (_, key, _)) in hints.iter_mut().zip(keys) {
        if let Some(hint) = hint {
            hint.narrow(key);
        }
    }
}
