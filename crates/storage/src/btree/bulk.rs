//! Bulk load: builds a tree from sorted rows. Pages are filled one after the other and written without the pool.
//!
//! The load logs only the allocation of the pages and, at the end, the new content of the root. The pages are durable
//! (synced) before the root's record is appended, so a crash leaves either the empty tree or the complete tree. A load that
//! is aborted frees its pages. If a crash interrupts the load, the next open frees them.
//!
//! A page carries the LSN of the record that allocated its extent: no log record about an earlier use of the page's number
//! is newer. The page is written once the log is durable to that LSN.

use std::ops::Range;

use super::content::has_rows;
use super::extent::{self, Extent, LoadExtents};
use super::ops;
use super::overflow;
use super::space::SPACE_PAGE;
use super::{MAX_KEY, MAX_RECORD, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::buffer::frame::FrameWrite;
use crate::log::RecordBuf;
use crate::page::header::{self, SLOTS, seal};
use crate::page::layout::{RECORD_HEAD, SLOT};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef};

/// Number of pages that are written with one call.
const CHUNK: usize = 64;
/// Fill limit of inner pages, in bytes. It leaves space for separators, so that the first splits below a page do not split
/// the page.
const INNER_FILL: usize = (PAGE_SIZE - SLOTS) * 9 / 10;

/// Reason for which rows cannot be loaded.
#[derive(Debug)]
pub(crate) enum BulkError {
    /// The key is not greater than the preceding key.
    Order,
    /// The key has this number of bytes, and a page cannot hold the key.
    LongKey(usize),
    /// The row has this number of bytes. The limit is the maximum length of a row, or the space of a slot of this tree.
    LongRow(usize),
    /// The tree already has rows.
    NotEmpty,
    /// Error of the layers below.
    Storage(StorageError),
}

impl From<StorageError> for BulkError {
    fn from(error: StorageError) -> BulkError {
        BulkError::Storage(error)
    }
}

/// Pages of one extent that are written with one call.
struct Chunk {
    pages: Range<u32>,
    bytes: Vec<u8>,
}

impl Chunk {
    /// Copies a page into the chunk. Returns false if the page does not belong to this chunk.
    fn put(&mut self, id: PageId, page: &[u8; PAGE_SIZE]) -> bool {
        if !self.pages.contains(&id.0) {
            return false;
        }
        let end = (id.0 - self.pages.start + 1) as usize * PAGE_SIZE;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[end - PAGE_SIZE..end].copy_from_slice(page);
        true
    }
}

/// A page of any level that is being filled: a leaf with rows, or an inner page with separators and children.
struct Open {
    id: PageId,
    low: Option<Vec<u8>>,
    /// Keys and values, concatenated.
    bytes: Vec<u8>,
    /// For each row, the end of its key and the end of its value in `bytes`, and a word: the slot's flags in a leaf, the
    /// number of the child in an inner page.
    rows: Vec<(u32, u32, u32)>,
    used: usize,
    /// Last child of an inner page so far.
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
            let (word, flags) = if level == 0 { (0, *word as u16) } else { (*word, 0) };
            to.insert(i, &self.bytes[from..key_end], word, &self.bytes[key_end..end], flags);
            from = end;
        }
        to.extend_skip();
    }
}

/// A tree whose pages are written but whose root is not installed.
pub(crate) struct BuiltTree<'a> {
    tree: Tree,
    /// Number of rows.
    pub(crate) rows: u64,
    /// New content of the root; `None` for a tree without rows.
    root: Option<Box<PageBytes>>,
    extents: LoadExtents<'a>,
}

/// Syncs the written pages and makes them the content of the trees, all in one record: a crash leaves all of the trees or
/// none. No transaction uses the trees. Each tree is still a single leaf, and no transaction needs the ghosts in this leaf.
///
/// # Errors
/// See [`BulkError`]. After an error the trees are empty.
pub(crate) fn install(
    change: StructureChange<'_>,
    rec: &mut RecordBuf,
    trees: &mut [BuiltTree<'_>],
) -> Result<(), BulkError> {
    let (trees, extents): (Vec<_>, Vec<_>) = trees.iter_mut().map(|t| ((t.tree, &t.root), &mut t.extents)).unzip();
    let roots: Vec<(PageId, &PageBytes)> =
        trees.into_iter().filter_map(|(tree, root)| Some((tree.root, &**root.as_ref()?))).collect();
    if roots.is_empty() {
        return Ok(());
    }
    change.pool.sync_file()?;
    loop {
        let mut latched = latch_roots(change, &roots)?;
        if latched.iter().any(|root| !root.page().is_leaf() || has_rows(root.page())) {
            latched.into_iter().for_each(FrameWrite::release_unchanged);
            return Err(BulkError::NotEmpty);
        }
        rec.begin_system();
        let (tail, mut after) = (change.log.tail(), Lsn::ZERO);
        let Some((space, next)) = extent::settle(change, &extents, rec) else {
            latched.into_iter().for_each(FrameWrite::release_unchanged);
            continue;
        };
        let mut images = Vec::with_capacity(roots.len());
        for (root, (id, bytes)) in latched.iter_mut().zip(&roots) {
            // Replacing the root's content removes its ghosts.
            let splits = root.page().u32(header::SPLITS).wrapping_add(1);
            let mut image = PageBytes::boxed_of(bytes.as_bytes());
            PageMut::of(&mut image).put_u32(header::SPLITS, splits);
            ops::put_image(rec, *id, image.as_bytes(), PageRef::of(&image));
            images.push(image);
            after = after.max(root.page().lsn());
            root.mark_dirty(tail);
        }
        let lsn = match change.log.append_redo_only(change.slot, rec, after) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((space, latched));
                refused.make_room(change.log)?;
                continue;
            }
        };
        next.finish(change.pool, space, lsn);
        extents.into_iter().for_each(LoadExtents::keep);
        for (root, image) in latched.iter_mut().zip(&images) {
            root.page_mut().bytes().copy_from_slice(image.as_bytes());
            root.page_mut().set_lsn(lsn);
        }
        return Ok(());
    }
}

/// Latches the roots of all trees of the load.
fn latch_roots<'a>(
    change: StructureChange<'a>,
    roots: &[(PageId, &PageBytes)],
) -> Result<Vec<FrameWrite<'a>>, StorageError> {
    loop {
        // Load all pages first and then latch: no latch is held during I/O.
        for id in roots.iter().map(|(id, _)| *id).chain([SPACE_PAGE]) {
            change.pool.get_or_load(id)?;
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

/// Builder of one tree.
pub(crate) struct Builder<'a> {
    tree: Tree,
    change: StructureChange<'a>,
    rec: RecordBuf,
    leaf: Open,
    inner: Vec<Open>,
    /// Page numbers that will be used next.
    extent: Extent,
    /// Pages to write together. Contains the page whose number was claimed last.
    chunk: Chunk,
    extents: LoadExtents<'a>,
    last_key: Vec<u8>,
    rows: u64,
    scratch: Box<PageBytes>,
}

impl std::fmt::Debug for Builder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("tree", &self.tree).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<'a> Builder<'a> {
    /// Begins to load a tree that has no rows.
    ///
    /// # Errors
    /// No space on the disk, or too many ranges.
    pub(crate) fn new(tree: Tree, change: StructureChange<'a>) -> Result<Builder<'a>, BulkError> {
        let mut rec = RecordBuf::new();
        let mut extents = LoadExtents::new(change);
        let mut extent = extents.take(&mut rec)?;
        let chunk = Chunk { pages: extent.first_pages(CHUNK), bytes: Vec::with_capacity(CHUNK * PAGE_SIZE) };
        let first = chunk.pages.start;
        extent.pages.start += 1;
        Ok(Builder {
            tree,
            change,
            rec,
            leaf: Open::new(PageId(first), None),
            inner: Vec::new(),
            extent,
            chunk,
            extents,
            last_key: Vec::new(),
            rows: 0,
            scratch: PageBytes::boxed(),
        })
    }

    /// Adds a row, or a reference to one if the flag for it is set. Keys must ascend.
    ///
    /// # Errors
    /// See [`BulkError`].
    pub(crate) fn push(&mut self, key: &[u8], row: &[u8], flags: u16) -> Result<(), BulkError> {
        if self.rows > 0 && key <= self.last_key.as_slice() {
            return Err(BulkError::Order);
        }
        if key.len() > MAX_KEY {
            return Err(BulkError::LongKey(key.len()));
        }
        // An overflow tree has short fences, so a chunk may be longer than other rows.
        let longest = if self.tree.is_overflow() { overflow::CHUNK } else { MAX_RECORD.saturating_sub(key.len()) };
        if row.len() > longest {
            return Err(BulkError::LongRow(row.len()));
        }
        let need = SLOT + RECORD_HEAD + key.len() + row.len();
        // A high fence must fit as well: the shortest possible fence is at most one byte longer than the key.
        if self.leaf.used + need + key.len() + 1 > PAGE_SIZE - SLOTS && !self.leaf.rows.is_empty() {
            let whole = self.leaf.used + key.len() <= PAGE_SIZE - SLOTS;
            let shared = key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
            self.close_leaf(Some(if whole { key } else { &key[..=shared] }))?;
        }
        self.leaf.add(key, flags.into(), row);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.rows += 1;
        Ok(())
    }

    /// Writes the remaining pages. The tree stays empty until [`install`] has installed the root.
    ///
    /// # Errors
    /// See [`BulkError`].
    pub(crate) fn seal(mut self) -> Result<BuiltTree<'a>, BulkError> {
        let (tree, rows) = (self.tree, self.rows);
        if rows == 0 {
            return Ok(BuiltTree { tree, rows, root: None, extents: self.extents });
        }
        self.close_leaf(None)?;
        let mut level = 0;
        while level + 1 < self.inner.len() {
            self.close_inner(level, None)?;
            level += 1;
        }
        let Some(mut top) = self.inner.pop() else {
            return Ok(BuiltTree { tree, rows, root: None, extents: self.extents });
        };
        self.write_chunk()?;
        self.extents.use_no_more(self.extent.pages.start);
        top.id = tree.root;
        let mut root = PageBytes::boxed();
        top.build(tree, self.inner.len() as u8 + 1, None, PageId::NONE, self.extent.lsn, &mut PageMut::of(&mut root));
        Ok(BuiltTree { tree, rows, root: Some(root), extents: self.extents })
    }

    fn close_leaf(&mut self, next: Option<&[u8]>) -> Result<(), BulkError> {
        let right = if next.is_some() { self.claim_page()? } else { PageId::NONE };
        let (id, low) = (self.leaf.id, self.leaf.low.take());
        self.leaf.low = low.clone();
        self.leaf.build(self.tree, 0, next, right, self.extent.lsn, &mut PageMut::of(&mut self.scratch));
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
        // Every child except the first of the level has a low fence, which is the high fence of the preceding page.
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
        open.build(
            self.tree,
            level as u8 + 1,
            next,
            PageId::NONE,
            self.extent.lsn,
            &mut PageMut::of(&mut self.scratch),
        );
        self.write_page(id)?;
        self.add_child(level + 1, open.low.take(), id)
    }

    /// Returns the next page number. Allocates a new extent when the current extent is used up.
    fn claim_page(&mut self) -> Result<PageId, StorageError> {
        if self.extent.pages.is_empty() {
            self.extent = self.extents.take(&mut self.rec)?;
        }
        let page = self.extent.pages.start;
        if !self.chunk.pages.contains(&page) {
            // One page of the full chunk may still be open. It is written separately later.
            self.write_chunk()?;
            self.chunk.pages = self.extent.first_pages(CHUNK);
        }
        self.extent.pages.start += 1;
        Ok(PageId(page))
    }

    fn write_page(&mut self, id: PageId) -> Result<(), StorageError> {
        if is_mutant(Mutant::StampLoadAtTail) {
            PageMut::of(&mut self.scratch).set_lsn(self.change.log.tail());
        }
        seal(self.scratch.as_bytes_mut());
        if self.chunk.put(id, self.scratch.as_bytes()) {
            return Ok(());
        }
        self.change.pool.write_direct(id, self.scratch.as_bytes())
    }

    fn write_chunk(&mut self) -> Result<(), StorageError> {
        if !self.chunk.bytes.is_empty() {
            self.change.pool.write_direct(PageId(self.chunk.pages.start), &self.chunk.bytes)?;
            self.chunk.bytes.clear();
        }
        Ok(())
    }
}
