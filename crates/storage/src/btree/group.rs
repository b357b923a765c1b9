//! Finding the places of up to sixteen keys at once, perhaps of several trees: while the lines that one key needs next
//! are on their way from memory, the search works on the other keys.
//!
//! Most keys are found in the leaf to which a shortcut leads (`buffer/shortcuts.rs`). The others come down from the
//! lowest inner level: the levels above are few pages, and in the cache. All keys go through the same steps, and nothing
//! is waited for but the lines of memory.

use super::{MAX_LEVELS, Tree};
use crate::base::ids::PageId;
use crate::base::sites::site;
use crate::buffer::BufferPool;
use crate::buffer::frame::Frame;
use crate::buffer::shortcuts::ShortcutEntry;
use crate::latch::Version;
use crate::page::slotted::{LeafPlace, Narrowed};

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
    pub(crate) leaf: PageId,
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
    /// Finds up to [`GROUP`] keys in step. Prefetches the first bytes of each row and says where it is. A key whose page
    /// is not in the pool is left out.
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
        let keys = &keys[..keys.len().min(GROUP)];
        let mut spots = [ShortcutEntry::NONE; GROUP];
        for (spot, (tree, key, _)) in spots.iter_mut().zip(keys) {
            *spot = pool.shortcuts().spot(tree.index, key);
        }
        let mut near: [Option<NearLeaf<'p>>; GROUP] = [const { None }; GROUP];
        let mut above = Descents::none();
        for (i, (tree, key, _)) in keys.iter().enumerate() {
            near[i] = NearLeaf::of(pool, spots[i]);
            if near[i].is_none() {
                above.add(i, tree.lowest_inner(pool, key));
            }
        }
        pool.points().at(&site::GROUP_INNER);
        for (near, (_, key, _)) in near.iter_mut().zip(keys) {
            if let Some(near) = near {
                near.narrow(key);
            }
        }
        above.each(keys, |page, (_, key, _)| page.narrow(key));
        pool.points().at(&site::GROUP_INNER_SEGMENT);
        for (i, wanted) in keys.iter().enumerate() {
            let Some(near) = &near[i] else { continue };
            found[i] = near.hint(wanted);
            if found[i].is_none() {
                let (tree, key, _) = wanted;
                above.add(i, tree.lowest_inner(pool, key));
                above.each_at(i, |page| page.narrow(key));
            }
        }
        if above.is_empty() {
            // Shortcuts led to all of them.
            pool.points().at(&site::GROUP_ROW);
            return;
        }
        above.come_down(pool, keys, &spots, found);
    }

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

    /// The page just above the leaf of a key, most probably; the leaf itself if it is the root. Its first lines are
    /// prefetched but not read.
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

/// A leaf in which keys near a key were found last, by a shortcut: the frame may hold another page by now, or the key
/// may lie in another leaf.
#[derive(Clone, Copy)]
struct NearLeaf<'p> {
    frame: &'p Frame,
    id: PageId,
    /// The version under which it is read.
    version: Version,
    /// What was found under the version.
    place: LeafPlace,
}

impl<'p> NearLeaf<'p> {
    /// The leaf to which a shortcut leads. Its first lines are prefetched.
    #[inline(always)]
    fn of(pool: &'p BufferPool, spot: ShortcutEntry) -> Option<NearLeaf<'p>> {
        let id = pool.shortcuts().leaf(spot);
        if id.is_none() {
            return None;
        }
        let frame = pool.get(id)?;
        frame.prefetch_search();
        Some(NearLeaf { frame, id, version: Version::NEVER, place: LeafPlace::NONE })
    }

    /// Reads the hint keys, and prefetches the slots that they lead to.
    #[inline(always)]
    fn narrow(&mut self, key: &[u8]) {
        self.version = self.frame.latch_version();
        let page = self.frame.bytes();
        self.place = page.place_in_leaf(key);
        page.prefetch_prefix();
    }

    /// The key's place, if this is a leaf of its tree, has exactly the key, and has not changed; its row is prefetched.
    #[inline(always)]
    fn hint(&self, (tree, key, row_bytes): &KeyQuery<'_>) -> Option<KeyHint<'p>> {
        let NearLeaf { frame, id, version, place } = *self;
        let page = frame.bytes();
        // Slots hold keys without the page's prefix, so in another page a different key looks the same.
        if !is_leaf_of(frame, id, tree) || !page.shares_prefix(key) {
            return None;
        }
        // Only exactly this key proves that this is its leaf.
        let position = page.find_at(place, key)?;
        let is_found = ask_for_row(frame, version, position, *row_bytes);
        is_found.then_some(KeyHint { frame, leaf: id, version, position, exact: true, proven: true })
    }
}

/// Whether the frame holds this page, and that is a leaf of the tree.
#[inline(always)]
fn is_leaf_of(frame: &Frame, id: PageId, tree: &Tree) -> bool {
    let page = frame.bytes();
    // A frame that has lost its page still shows it: only its number tells that it holds the page.
    frame.page_id() == id && page.is_leaf() && page.index() == tree.index && !frame.is_unproved()
}

/// Prefetches the first bytes of the row in a slot; false if the leaf has changed since the version was noted.
#[inline(always)]
fn ask_for_row(frame: &Frame, version: Version, position: usize, row_bytes: usize) -> bool {
    let page = frame.bytes();
    let slot = page.slot(position);
    page.prefetch_bytes(slot.offset, slot.value_at() - slot.offset + slot.value_len.min(row_bytes));
    if !frame.is_still(version) {
        return false;
    }
    frame.touch();
    true
}

/// The keys of a group to which no shortcut has led: for each the page to which its descent has come.
struct Descents<'p> {
    at: [Option<Hint<'p>>; GROUP],
    /// A bit for each key that is among them.
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

    /// Begins the descent of key `i`, unless a page on its way is missing.
    #[inline(always)]
    fn add(&mut self, i: usize, page: Option<Hint<'p>>) {
        self.open |= u32::from(page.is_some()) << i;
        self.at[i] = page;
    }

    /// Calls `f` with the page of key `i`.
    #[inline(always)]
    fn each_at(&mut self, i: usize, mut f: impl FnMut(&mut Hint<'p>)) {
        if let Some(page) = &mut self.at[i] {
            f(page);
        }
    }

    /// Calls `f` with the page of each key.
    #[inline(always)]
    fn each<'k>(&mut self, keys: &[KeyQuery<'k>], mut f: impl FnMut(&mut Hint<'p>, &KeyQuery<'k>)) {
        let mut open = self.open;
        while open != 0 {
            let i = open.trailing_zeros() as usize;
            open &= open - 1;
            self.each_at(i, |page| f(page, &keys[i]));
        }
    }

    /// From the lowest inner pages, whose slots were asked for, down to the places of the keys.
    #[inline(never)]
    fn come_down(
        &mut self,
        pool: &'p BufferPool,
        keys: &[KeyQuery<'_>],
        spots: &[ShortcutEntry; GROUP],
        found: &mut [Option<KeyHint<'p>>; GROUP],
    ) {
        // First where the children lie, then the children: the page table, too, is larger than the L1 and L2 caches.
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

/// A frame in which a page was a moment ago.
#[derive(Clone, Copy)]
struct Hint<'p> {
    frame: &'p Frame,
    id: PageId,
    /// The version under which it is read.
    version: Version,
    /// What was found under the version.
    narrowed: Narrowed,
}

impl<'p> Hint<'p> {
    fn new(frame: &'p Frame, id: PageId) -> Hint<'p> {
        Hint { frame, id, version: Version::NEVER, narrowed: Narrowed::NONE }
    }

    /// Reads the hint keys, and prefetches the slots that they lead to.
    #[inline(never)]
    fn narrow(&mut self, key: &[u8]) {
        self.version = self.frame.latch_version();
        self.narrowed = self.frame.bytes().narrow(key);
    }

    /// The key's place, if this is a leaf of its tree and has not changed; its row is prefetched.
    fn hint(&self, (tree, key, row_bytes): &KeyQuery<'_>) -> Option<KeyHint<'p>> {
        let Hint { frame, id, version, narrowed } = *self;
        if !is_leaf_of(frame, id, tree) {
            return None;
        }
        let (position, exact) = frame.bytes().finish(narrowed, key);
        let is_found = ask_for_row(frame, version, position, *row_bytes);
        // A descent has not compared the page's prefix.
        is_found.then_some(KeyHint { frame, leaf: id, version, position, exact, proven: false })
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
