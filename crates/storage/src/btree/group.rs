//! Group search: finds up to sixteen keys at once, possibly in several trees. While the cache lines for one key are being
//! fetched from memory, the search works on the other keys.
//!
//! Most keys are found in the leaf to which a shortcut leads (`buffer/shortcuts.rs`). For the other keys the search starts
//! at the lowest inner level: the levels above consist of few pages, which are in the cache. All keys pass through the same
//! steps, so that the search waits only for memory.

use super::{MAX_LEVELS, Tree};
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::base::sites::site;
use crate::buffer::BufferPool;
use crate::buffer::frame::Frame;
use crate::buffer::shortcuts::ShortcutEntry;
use crate::latch::Version;
use crate::page::slotted::{LeafPlace, SlotRange};

/// Position of a key found by a group descent. It is a hint, valid while the version of the frame is unchanged, in a leaf
/// that need not be the leaf of the key.
///
/// A group descent reads each page under a separate version, and does not check that the parent still refers to the page (a
/// single descent does). Between two pages a split or a merge may have moved a key, and the position is then in another leaf
/// of the tree. Such an error costs only a descent: a position is only remembered, and a statement that uses the position
/// compares it with the key on the page, under the same version (`table/locate.rs`). Only one leaf of a tree contains
/// exactly this key, or the gap to which a missing key belongs: a page that leaves its tree is emptied before its latch is
/// released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHint<'p> {
    pub(crate) frame: &'p Frame,
    pub(crate) leaf: PageId,
    pub(crate) version: Version,
    pub(crate) position: usize,
    pub(crate) exact: bool,
    /// True if the leaf, read under the version, has exactly the key, so that no further comparison is needed.
    pub(crate) proven: bool,
}

/// Query of a group descent: tree, key, and the part of the row to prefetch.
pub(crate) type KeyQuery<'k> = (Tree, &'k [u8], RowPart);

/// First bytes of a row, to be prefetched, and the access that follows.
///
/// A row that the caller will write is requested for writing at once. After a request for reading, the write would need a
/// second request for each line that another core has written, and these requests would not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPart {
    bytes: u16,
    is_written: bool,
}

impl RowPart {
    /// The first `bytes` bytes, to be read.
    #[inline]
    pub(crate) fn to_read(bytes: usize) -> RowPart {
        RowPart { bytes: bytes.min(PAGE_SIZE) as u16, is_written: false }
    }

    /// The first `bytes` bytes, to be read, of a row that will be written.
    #[inline]
    pub(crate) fn to_write(bytes: usize) -> RowPart {
        RowPart { is_written: true, ..RowPart::to_read(bytes) }
    }
}

/// Maximum number of keys of one group descent.
pub(crate) const GROUP: usize = 16;

impl Tree {
    /// Finds up to [`GROUP`] keys in step. Prefetches the first bytes of each row and returns the row's position. Skips a
    /// key if a page on its path is not in the pool.
    #[inline(never)]
    pub(crate) fn find_group<'p>(
        pool: &'p BufferPool,
        keys: &[KeyQuery<'_>],
        found: &mut [Option<KeyHint<'p>>; GROUP],
    ) {
        if cfg!(any(miri, race_free)) {
            // This function reads pages while they change. Its results are hints, which callers do not need.
            return;
        }
        debug_assert!(keys.len() <= GROUP);
        let keys = &keys[..keys.len().min(GROUP)];
        let mut spots = [ShortcutEntry::NONE; GROUP];
        for (spot, (tree, key, _)) in spots.iter_mut().zip(keys) {
            *spot = pool.shortcuts().entry_of(tree.index, key);
        }
        // Usually shortcuts lead to all keys, and there is no descent.
        let mut above = None;
        for (i, (tree, key, _)) in keys.iter().enumerate() {
            found[i] = KeyHint::of_shortcut(pool, spots[i]);
            if found[i].is_none() {
                above.get_or_insert_with(Descents::none).add(i, tree.lowest_inner(pool, key));
            }
        }
        pool.points().at(&site::GROUP_INNER);
        let mut places = [LeafPlace::NONE; GROUP];
        for ((hint, place), (_, key, _)) in found.iter_mut().zip(&mut places).zip(keys) {
            if let Some(hint) = hint {
                *place = hint.narrow(key);
            }
        }
        if let Some(above) = &mut above {
            above.each(keys, |page, (_, key, _)| page.narrow(key));
        }
        pool.points().at(&site::GROUP_INNER_SEGMENT);
        for (i, wanted) in keys.iter().enumerate() {
            let Some(hint) = &mut found[i] else { continue };
            if !hint.prove(places[i], wanted) {
                found[i] = None;
                let (tree, key, _) = wanted;
                let above = above.get_or_insert_with(Descents::none);
                above.add(i, tree.lowest_inner(pool, key));
                above.each_at(i, |page| page.narrow(key));
            }
        }
        match &mut above {
            Some(above) if !above.is_empty() => above.come_down(pool, keys, &spots, found),
            _ => pool.points().at(&site::GROUP_ROW),
        }
    }

    /// Like [`Tree::find_group`], but also loads pages that are not in the pool, if the pool has readers.
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

    /// Handles the keys of a group that were not found because pages are not in the pool: loads these pages in parallel,
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

    /// Returns the page just above the leaf of a key (correct in most cases), or the leaf itself if the leaf is the root.
    /// The first cache lines of the page are prefetched but not read.
    #[inline(never)]
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

impl<'p> KeyHint<'p> {
    /// Returns the leaf in which keys near a key were last found, according to a shortcut. The frame may hold another page
    /// at present, or the key may be in another leaf: [`KeyHint::prove`] decides. Prefetches the first cache lines of the
    /// leaf.
    #[inline(always)]
    fn of_shortcut(pool: &'p BufferPool, spot: ShortcutEntry) -> Option<KeyHint<'p>> {
        let leaf = pool.shortcuts().leaf(spot);
        if leaf.is_none() {
            return None;
        }
        let frame = pool.get(leaf)?;
        frame.prefetch_search();
        Some(KeyHint { frame, leaf, version: Version::NEVER, position: 0, exact: true, proven: false })
    }

    /// Reads the version and the hint keys of the leaf, and prefetches the slots to which they lead.
    #[inline(always)]
    fn narrow(&mut self, key: &[u8]) -> LeafPlace {
        self.version = self.frame.latch_version();
        let page = self.frame.bytes();
        let place = page.place_in_leaf(key);
        page.prefetch_prefix();
        place
    }

    /// Sets the position of the key. Returns false if this is no leaf of the key's tree, does not contain exactly the key,
    /// or has changed. Prefetches the row.
    #[inline(always)]
    fn prove(&mut self, place: LeafPlace, (tree, key, row): &KeyQuery<'_>) -> bool {
        let KeyHint { frame, leaf, version, .. } = *self;
        let page = frame.bytes();
        // Slots hold keys without the page's prefix, so a different key in another page may look the same.
        if !is_leaf_of(frame, leaf, tree) || !page.shares_prefix(key) {
            return false;
        }
        // Only an exact match proves that this is the leaf of the key.
        let Some(position) = page.find_at(place, key) else { return false };
        (self.position, self.proven) = (position, true);
        ask_for_row(frame, version, (position, true), *row)
    }
}

/// Returns true if the frame holds this page, and the page is a leaf of the tree.
#[inline(always)]
fn is_leaf_of(frame: &Frame, id: PageId, tree: &Tree) -> bool {
    let page = frame.bytes();
    // A frame that has lost its page still contains the old bytes: only the page number shows that it holds the page.
    frame.page_id() == id && page.is_leaf() && page.index() == tree.index && !frame.is_unproved()
}

/// Prefetches a part of the row in a slot, for a write only if the slot has the key. Returns false if the leaf has changed since
/// `version`.
#[inline(always)]
fn ask_for_row(frame: &Frame, version: Version, (position, exact): (usize, bool), row: RowPart) -> bool {
    let page = frame.bytes();
    let slot = page.slot(position);
    if !frame.is_still(version) {
        return false;
    }
    if exact && row.is_written {
        // Most changes concern the beginning of the row.
        frame.prefetch_change(slot.value_at());
    }
    page.prefetch_bytes(slot.offset, slot.value_at() - slot.offset + slot.value_len.min(row.bytes.into()));
    frame.touch();
    true
}

/// Descents of the keys of a group to which no shortcut has led, with the current page of each descent.
struct Descents<'p> {
    at: [Option<Hint<'p>>; GROUP],
    /// Bitmap of the keys that have a descent.
    open: u32,
}

impl<'p> Descents<'p> {
    #[inline(always)]
    fn none() -> Descents<'p> {
        Descents { at: [const { None }; GROUP], open: 0 }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Adds the descent of key `i`, unless a page on its path is missing.
    #[inline(always)]
    fn add(&mut self, i: usize, page: Option<Hint<'p>>) {
        self.open |= u32::from(page.is_some()) << i;
        self.at[i] = page;
    }

    /// Calls `f` with the current page of key `i`.
    #[inline(always)]
    fn each_at(&mut self, i: usize, mut f: impl FnMut(&mut Hint<'p>)) {
        if let Some(page) = &mut self.at[i] {
            f(page);
        }
    }

    /// Calls `f` with the current page of each key.
    #[inline(always)]
    fn each<'k>(&mut self, keys: &[KeyQuery<'k>], mut f: impl FnMut(&mut Hint<'p>, &KeyQuery<'k>)) {
        let mut open = self.open;
        while open != 0 {
            let i = open.trailing_zeros() as usize;
            open &= open - 1;
            self.each_at(i, |page| f(page, &keys[i]));
        }
    }

    /// Continues the descents from the lowest inner pages, whose slots were prefetched, to the leaves and the positions of
    /// the keys.
    #[inline(never)]
    fn come_down(
        &mut self,
        pool: &'p BufferPool,
        keys: &[KeyQuery<'_>],
        spots: &[ShortcutEntry; GROUP],
        found: &mut [Option<KeyHint<'p>>; GROUP],
    ) {
        // First prefetch the page table entries of the children, then the children: the page table, too, is larger than the
        // L1 and L2 caches.
        let mut children = [PageId::NONE; GROUP];
        for (i, (page, (_, key, _))) in self.at.iter_mut().zip(keys).enumerate() {
            let Some(inner) = page else { continue };
            if inner.frame.bytes().level() > 0 {
                children[i] = inner.child(key);
                if children[i].is_none() {
                    *page = None;
                } else {
                    pool.prefetch_entry(children[i]);
                }
            }
        }
        pool.points().at(&site::GROUP_ENTRY);
        for (page, child) in self.at.iter_mut().zip(children) {
            if !child.is_none() {
                *page = Hint::enter(pool, child);
            }
        }
        pool.points().at(&site::GROUP_LEAF);
        self.each(keys, |page, (_, key, _)| page.narrow(key));
        pool.points().at(&site::GROUP_SEGMENT);
        for (i, (page, wanted)) in self.at.iter().zip(keys).enumerate() {
            let Some(leaf) = page else { continue };
            found[i] = leaf.hint(wanted);
            if leaf.id != wanted.0.root && found[i].is_some_and(|found| found.exact) {
                pool.shortcuts().learn(wanted.0.index, spots[i], leaf.id, leaf.frame.bytes().count());
            }
        }
        pool.points().at(&site::GROUP_ROW);
    }
}

/// A frame that recently held a page on the path of a descent.
#[derive(Clone, Copy)]
struct Hint<'p> {
    frame: &'p Frame,
    id: PageId,
    /// Version under which the page is read.
    version: Version,
    /// Result of the search under this version.
    narrowed: SlotRange,
}

impl<'p> Hint<'p> {
    fn new(frame: &'p Frame, id: PageId) -> Hint<'p> {
        Hint { frame, id, version: Version::NEVER, narrowed: SlotRange::NONE }
    }

    /// Reads the hint keys, and prefetches the slots to which they lead.
    #[inline(never)]
    fn narrow(&mut self, key: &[u8]) {
        self.version = self.frame.latch_version();
        self.narrowed = self.frame.bytes().narrow(key);
    }

    /// Returns the key's position if this is a leaf of its tree and has not changed. Prefetches the row.
    fn hint(&self, (tree, key, row): &KeyQuery<'_>) -> Option<KeyHint<'p>> {
        let Hint { frame, id, version, narrowed } = *self;
        if !is_leaf_of(frame, id, tree) {
            return None;
        }
        let (position, exact) = frame.bytes().finish(narrowed, key);
        let is_found = ask_for_row(frame, version, (position, exact), *row);
        // A descent does not compare the page's prefix.
        is_found.then_some(KeyHint { frame, leaf: id, version, position, exact, proven: false })
    }

    /// Returns the number of the child that covers a key, if the page is an inner page of the key's path and has not
    /// changed.
    #[inline]
    fn child(&self, key: &[u8]) -> PageId {
        let page = self.frame.bytes();
        let (position, exact) = page.finish(self.narrowed, key);
        let id = page.child(position + usize::from(exact));
        let stands = page.level() > 0 && self.frame.page_id() == self.id && self.frame.is_still(self.version);
        if stands { id } else { PageId::NONE }
    }

    /// Returns a hint for this page, and prefetches its first cache lines.
    #[inline]
    fn enter(pool: &'p BufferPool, id: PageId) -> Option<Hint<'p>> {
        let frame = pool.get(id)?;
        frame.prefetch_search();
        Some(Hint::new(frame, id))
    }
}
