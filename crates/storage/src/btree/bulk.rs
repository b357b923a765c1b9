//! Building a tree from sorted rows: pages are filled one after the other and written past the pool.
//!
//! Only the taking of the pages is logged and, at the end, the new content of the root. The pages are on disk (synced)
//! before the root's record is appended, so a crash leaves either the empty tree or the full one. A load that is broken
//! off gives its pages back, unless a crash broke it off.

use std::ops::Range;

use super::ops;
use super::space::{self, SPACE_PAGE};
use super::{MAX_KEY, MAX_ROW, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId, TxnId};
use crate::base::sync::yield_now;
use crate::buffer::frame::FrameWrite;
use crate::log::{RecordBuf, RecordKind};
use crate::page::header::{SLOTS, seal};
use crate::page::layout::{RECORD_HEAD, SLOT};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef};

/// Pages taken from the allocator and written at a time.
const EXTENT: usize = 64;
/// Inner pages are filled up to here, so that the first splits below do not split them at once.
const INNER_FILL: usize = (PAGE_SIZE - SLOTS) * 9 / 10;

/// Why rows cannot be loaded.
#[derive(Debug)]
pub(crate) enum BulkError {
    /// The key is not above the one before.
    Order,
    /// A key of this many bytes, longer than a page can take.
    LongKey(usize),
    /// A row of this many bytes, longer than a page can take.
    LongRow(usize),
    /// The tree already has rows.
    NotEmpty,
    /// An error of the layers below.
    Storage(StorageError),
}

impl From<StorageError> for BulkError {
    fn from(error: StorageError) -> BulkError {
        BulkError::Storage(error)
    }
}

/// Pages in a row, being filled.
struct Extent {
    first: u32,
    used: usize,
    bytes: Vec<u8>,
}

impl Extent {
    /// Takes fresh pages from the end of the file.
    fn take(change: StructureChange<'_>, rec: &mut RecordBuf) -> Result<Extent, StorageError> {
        loop {
            let wanted = space::first_unused(change)? + EXTENT as u64;
            change.pool.ensure_file(wanted + change.pool.kept_pages())?;
            let Some(mut write) = space::latch_space(change) else { continue };
            let (first, free) = space::state(write.page());
            let end = first.saturating_add(EXTENT as u32);
            if !change.pool.file_holds(u64::from(end) + change.pool.kept_pages()) {
                write.release_unchanged();
                continue;
            }
            if let Some(page) = space::first_used(change, first, EXTENT) {
                write.release_unchanged();
                return Err(space::called_unused(change, page));
            }
            // They are written past the pool, where a refused change may have left a page of the same number.
            if !(first..end).all(|page| change.pool.discard(PageId(page))) {
                write.release_unchanged();
                yield_now();
                continue;
            }
            rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
            ops::put_space(rec, SPACE_PAGE, end, free);
            write.mark_dirty(change.log.tail());
            let lsn = match change.log.append_redo_only(change.slot, rec, write.page().lsn()) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(write);
                    refused.make_room(change.log)?;
                    continue;
                }
            };
            let mut page = write.page_mut();
            page.put_u32(ops::space::END, end);
            page.set_lsn(lsn);
            return Ok(Extent { first, used: 0, bytes: Vec::with_capacity(EXTENT * PAGE_SIZE) });
        }
    }
}

/// Pages that were taken for a tree and are not part of it yet. Dropped before they are, it gives them back, which is
/// logged page by page and costs about as much as filling them.
struct Owned<'a> {
    change: StructureChange<'a>,
    ranges: Vec<Range<u32>>,
}

impl Owned<'_> {
    fn add(&mut self, extent: &Extent) {
        let (first, end) = (extent.first, extent.first + EXTENT as u32);
        match self.ranges.last_mut() {
            Some(last) if last.end == first => last.end = end,
            _ => self.ranges.push(first..end),
        }
    }

    /// Gives back the pages of the last range from `from` on.
    fn give_back(&mut self, rec: &mut RecordBuf, from: u32) -> Result<(), StorageError> {
        let Some(last) = self.ranges.last_mut() else { return Ok(()) };
        while last.end > from.max(last.start) {
            space::give_back(self.change, rec, PageId(last.end - 1))?;
            last.end -= 1;
        }
        Ok(())
    }

    /// The pages are part of the tree now.
    fn keep(&mut self) {
        self.ranges.clear();
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        let mut rec = RecordBuf::new();
        // A panic of the engine's own closes the instance as well.
        while !self.ranges.is_empty() && !self.change.pool.is_closed() {
            if self.give_back(&mut rec, 0).is_err() {
                // The log takes no more records, say. The remaining pages are lost space, and no other harm.
                return;
            }
            self.ranges.pop();
        }
    }
}

/// A page being filled, of any level: rows, or separators with children.
struct Open {
    id: PageId,
    low: Option<Vec<u8>>,
    /// Keys and values one after the other.
    bytes: Vec<u8>,
    /// Ends of each key and value in `bytes`; a child's number in place of a value.
    rows: Vec<(u32, u32, u32)>,
    used: usize,
    /// An inner page's last child so far.
    upper: PageId,
}

impl Open {
    fn new(id: PageId, low: Option<Vec<u8>>) -> Open {
        let used = low.as_ref().map_or(0, Vec::len);
        Open { id, low, bytes: Vec::new(), rows: Vec::new(), used, upper: PageId::NONE }
    }

    fn add(&mut self, key: &[u8], word: u32, value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.rows.push((key_end, self.bytes.len() as u32, word));
        self.used += SLOT + RECORD_HEAD + key.len() + value.len();
    }

    fn restart(&mut self, id: PageId, low: Option<Vec<u8>>) {
        self.bytes.clear();
        self.rows.clear();
        self.used = low.as_ref().map_or(0, Vec::len);
        self.low = low;
        self.id = id;
        self.upper = PageId::NONE;
    }

    fn build(&self, tree: Tree, level: u8, high: Option<&[u8]>, right: PageId, lsn: Lsn, to: &mut PageMut<'_>) {
        to.bytes().fill(0);
        to.format(&Format {
            id: self.id,
            index: tree.index,
            level,
            low: self.low.as_deref(),
            high,
            right,
            upper: self.upper,
        });
        to.set_lsn(lsn);
        let mut from = 0;
        for (i, (key_end, end, word)) in self.rows.iter().enumerate() {
            let (key_end, end) = (*key_end as usize, *end as usize);
            to.insert(i, &self.bytes[from..key_end], *word, &self.bytes[key_end..end], 0);
            from = end;
        }
        to.share_more();
    }
}

/// A tree whose pages are written but whose root is not in its place.
pub(crate) struct BuiltTree<'a> {
    tree: Tree,
    /// Rows in it.
    pub(crate) rows: u64,
    /// The root's future content; `None` for a tree without rows.
    root: Option<Box<PageBytes>>,
    owned: Owned<'a>,
}

/// Syncs the written pages and makes them the trees' content, all in one record: a crash leaves all of the trees or
/// none.
///
/// # Errors
/// See [`BulkError`]; the trees are empty then.
pub(crate) fn install(
    change: StructureChange<'_>,
    rec: &mut RecordBuf,
    trees: &mut [BuiltTree<'_>],
) -> Result<(), BulkError> {
    let (trees, owned): (Vec<_>, Vec<_>) = trees.iter_mut().map(|t| ((t.tree, &t.root), &mut t.owned)).unzip();
    let roots: Vec<(PageId, &PageBytes)> =
        trees.into_iter().filter_map(|(tree, root)| Some((tree.root, &**root.as_ref()?))).collect();
    if roots.is_empty() {
        return Ok(());
    }
    change.pool.sync_file()?;
    loop {
        let mut latched = latch_roots(change, &roots)?;
        if latched.iter().any(|root| root.page().count() != 0 || !root.page().is_leaf()) {
            latched.into_iter().for_each(FrameWrite::release_unchanged);
            return Err(BulkError::NotEmpty);
        }
        rec.begin(RecordKind::System as u8, TxnId(0), Lsn::ZERO);
        let (tail, mut after) = (change.log.tail(), Lsn::ZERO);
        for (root, (id, bytes)) in latched.iter_mut().zip(&roots) {
            ops::put_image(rec, *id, bytes.as_bytes(), PageRef::of(bytes));
            after = after.max(root.page().lsn());
            root.mark_dirty(tail);
        }
        let lsn = match change.log.append_redo_only(change.slot, rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(latched);
                refused.make_room(change.log)?;
                continue;
            }
        };
        owned.into_iter().for_each(Owned::keep);
        for (root, (_, bytes)) in latched.iter_mut().zip(&roots) {
            root.page_mut().bytes().copy_from_slice(bytes.as_bytes());
            root.page_mut().set_lsn(lsn);
        }
        return Ok(());
    }
}

/// Latches the roots, all of them.
fn latch_roots<'a>(
    change: StructureChange<'a>,
    roots: &[(PageId, &PageBytes)],
) -> Result<Vec<FrameWrite<'a>>, StorageError> {
    loop {
        // First loads all roots, then latches all: no latch is held during I/O.
        for (id, _) in roots {
            change.pool.get_or_load(*id)?;
        }
        let mut latched = Vec::with_capacity(roots.len());
        latched.extend(roots.iter().map_while(|(id, _)| change.try_latch(*id)));
        if latched.len() == roots.len() {
            return Ok(latched);
        }
        latched.into_iter().for_each(FrameWrite::release_unchanged);
        std::hint::spin_loop();
    }
}

/// Builds one tree.
pub(crate) struct Builder<'a> {
    tree: Tree,
    change: StructureChange<'a>,
    rec: RecordBuf,
    leaf: Open,
    inner: Vec<Open>,
    extent: Extent,
    owned: Owned<'a>,
    last_key: Vec<u8>,
    rows: u64,
    scratch: Box<PageBytes>,
    /// LSN that the new pages carry: that of the log when the load began.
    lsn: Lsn,
}

impl std::fmt::Debug for Builder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("tree", &self.tree).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<'a> Builder<'a> {
    /// Begins to load an empty tree.
    ///
    /// # Errors
    /// [`BulkError::NotEmpty`]; no space.
    pub(crate) fn new(tree: Tree, change: StructureChange<'a>) -> Result<Builder<'a>, BulkError> {
        let root = change.pool.get_or_load(tree.root)?.read(change.pool.latches());
        let empty = root.page().is_leaf() && root.page().count() == 0;
        if !root.is_valid() || !empty {
            return Err(BulkError::NotEmpty);
        }
        drop(root);
        let mut rec = RecordBuf::new();
        let mut extent = Extent::take(change, &mut rec)?;
        let first = PageId(extent.first);
        extent.used = 1;
        let mut owned = Owned { change, ranges: Vec::new() };
        owned.add(&extent);
        Ok(Builder {
            tree,
            change,
            rec,
            leaf: Open::new(first, None),
            inner: Vec::new(),
            extent,
            owned,
            last_key: Vec::new(),
            rows: 0,
            scratch: PageBytes::boxed(),
            lsn: change.log.tail(),
        })
    }

    /// Adds a row; keys must ascend.
    ///
    /// # Errors
    /// See [`BulkError`].
    pub(crate) fn push(&mut self, key: &[u8], row: &[u8]) -> Result<(), BulkError> {
        if self.rows > 0 && key <= self.last_key.as_slice() {
            return Err(BulkError::Order);
        }
        if key.len() > MAX_KEY {
            return Err(BulkError::LongKey(key.len()));
        }
        if row.len() > MAX_ROW {
            return Err(BulkError::LongRow(row.len()));
        }
        let need = SLOT + RECORD_HEAD + key.len() + row.len();
        // A fence above the key must fit as well: the shortest one is at most one byte longer than the key.
        if self.leaf.used + need + key.len() + 1 > PAGE_SIZE - SLOTS && !self.leaf.rows.is_empty() {
            let whole = self.leaf.used + key.len() <= PAGE_SIZE - SLOTS;
            let shared = key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
            self.close_leaf(Some(if whole { key } else { &key[..=shared] }))?;
        }
        self.leaf.add(key, 0, row);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.rows += 1;
        Ok(())
    }

    /// Writes the remaining pages. The tree is still empty until [`install`] has put the root in its place.
    ///
    /// # Errors
    /// See [`BulkError`].
    pub(crate) fn seal(mut self) -> Result<BuiltTree<'a>, BulkError> {
        let (tree, rows) = (self.tree, self.rows);
        if rows == 0 {
            self.extent.used = 0;
            self.write_extent()?;
            return Ok(BuiltTree { tree, rows, root: None, owned: self.owned });
        }
        self.close_leaf(None)?;
        let mut level = 0;
        while level + 1 < self.inner.len() {
            self.close_inner(level, None)?;
            level += 1;
        }
        let Some(mut top) = self.inner.pop() else {
            return Ok(BuiltTree { tree, rows, root: None, owned: self.owned });
        };
        self.write_extent()?;
        top.id = tree.root;
        let mut root = PageBytes::boxed();
        top.build(tree, self.inner.len() as u8 + 1, None, PageId::NONE, self.lsn, &mut PageMut::of(&mut root));
        Ok(BuiltTree { tree, rows, root: Some(root), owned: self.owned })
    }

    /// The number of the next page.
    fn next_page(&mut self) -> Result<PageId, StorageError> {
        if self.extent.used == EXTENT {
            return Ok(PageId(u32::MAX));
        }
        let id = self.extent.first + self.extent.used as u32;
        self.extent.used += 1;
        Ok(PageId(id))
    }

    fn close_leaf(&mut self, next: Option<&[u8]>) -> Result<(), BulkError> {
        let right = if next.is_some() { self.claim_page()? } else { PageId::NONE };
        let (id, low) = (self.leaf.id, self.leaf.low.take());
        self.leaf.low = low.clone();
        self.leaf.build(self.tree, 0, next, right, self.lsn, &mut PageMut::of(&mut self.scratch));
        self.write_page(id)?;
        self.add_child(0, low, id)?;
        if let Some(next) = next {
            self.leaf.restart(right, Some(next.to_vec()));
        }
        Ok(())
    }

    /// Adds a child whose keys begin at `low` to the inner page open at `level`.
    fn add_child(&mut self, level: usize, low: Option<Vec<u8>>, child: PageId) -> Result<(), BulkError> {
        if self.inner.len() == level {
            self.inner.push(Open::new(PageId::NONE, None));
        }
        let open = &mut self.inner[level];
        if open.upper.is_none() {
            open.upper = child;
            return Ok(());
        }
        // Every child but the very first has a low fence: that was some page's high fence before.
        let separator = low.unwrap_or_default();
        if open.used + SLOT + RECORD_HEAD + 2 * separator.len() > INNER_FILL {
            self.close_inner(level, Some(&separator))?;
            self.inner[level].upper = child;
            return Ok(());
        }
        let before = std::mem::replace(&mut open.upper, child);
        open.add(&separator, before.0, &[]);
        Ok(())
    }

    fn close_inner(&mut self, level: usize, next: Option<&[u8]>) -> Result<(), BulkError> {
        let id = self.claim_page()?;
        let mut open = std::mem::replace(&mut self.inner[level], Open::new(PageId::NONE, next.map(<[u8]>::to_vec)));
        open.id = id;
        open.build(self.tree, level as u8 + 1, next, PageId::NONE, self.lsn, &mut PageMut::of(&mut self.scratch));
        self.write_page(id)?;
        self.add_child(level + 1, open.low.take(), id)
    }

    /// A page number; takes a new extent when the old one is used up.
    fn claim_page(&mut self) -> Result<PageId, StorageError> {
        let id = self.next_page()?;
        if id.0 != u32::MAX {
            return Ok(id);
        }
        let fresh = Extent::take(self.change, &mut self.rec)?;
        self.owned.add(&fresh);
        let full = std::mem::replace(&mut self.extent, fresh);
        // One page of the full extent may still be open: it is written on its own later.
        self.write_out(full)?;
        self.next_page()
    }

    fn write_page(&mut self, id: PageId) -> Result<(), StorageError> {
        seal(self.scratch.as_bytes_mut());
        let at = id.0.wrapping_sub(self.extent.first) as usize;
        if at >= EXTENT {
            return self.change.pool.write_direct(id, self.scratch.as_bytes());
        }
        let end = (at + 1) * PAGE_SIZE;
        if self.extent.bytes.len() < end {
            self.extent.bytes.resize(end, 0);
        }
        self.extent.bytes[end - PAGE_SIZE..end].copy_from_slice(self.scratch.as_bytes());
        Ok(())
    }

    fn write_extent(&mut self) -> Result<(), StorageError> {
        // The rest of the extent stays unused: pages of zeros that nothing refers to go to the free list.
        let empty = Extent { first: u32::MAX, used: EXTENT, bytes: Vec::new() };
        let last = std::mem::replace(&mut self.extent, empty);
        let from = last.first + last.used as u32;
        self.write_out(last)?;
        self.owned.give_back(&mut self.rec, from)
    }

    fn write_out(&self, extent: Extent) -> Result<(), StorageError> {
        if extent.bytes.is_empty() {
            return Ok(());
        }
        self.change.pool.write_direct(PageId(extent.first), &extent.bytes)
    }
}
