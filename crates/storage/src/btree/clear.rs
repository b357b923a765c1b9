//! Freeing of all pages of a tree, one system record at a time.
//!
//! The tree is emptied from its end. Each record removes the last leaf from its parent and puts the leaf in the free list. A
//! parent that loses its last child becomes an empty leaf itself. So after each record, and after a crash following any
//! record, the rest of the tree can be traversed from the root, and the work continues with the rest. Between the records
//! the tree violates its own rules (levels and fences do not fit). The caller therefore excludes all transactions, and has
//! recorded durably, for a restart, that the tree is to be emptied.

use super::ops::{self, PageChange};
use super::space::{PageFreeing, SPACE_PAGE};
use super::{MAX_LEVELS, StructureChange, Tree, split};
use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::base::sync::yield_now;
use crate::buffer::frame::FrameWrite;
use crate::log::RecordBuf;
use crate::page::header::{self, Kind};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef};

/// Shape of a page, for the traversal that empties a tree.
enum PageShape {
    /// A leaf, with its number of rows, ghosts included.
    Leaf(usize),
    /// An inner page, with the number of its last child.
    Inner(PageId),
    /// A page of another tree, or of no tree.
    Other,
}

impl Tree {
    /// Frees all pages except the root, which becomes an empty leaf. Does nothing if the root belongs to another tree or is
    /// free, as after a crash that follows [`Tree::give_root_back`].
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if the log accepts no more records. Pages freed before the error stay free.
    pub(crate) fn clear(&self, change: StructureChange<'_>, rec: &mut RecordBuf) -> Result<(), StorageError> {
        loop {
            match self.shape_of(change, self.root)? {
                PageShape::Other | PageShape::Leaf(0) => return Ok(()),
                PageShape::Leaf(_) => self.empty_root(change, rec)?,
                PageShape::Inner(child) => {
                    let (parent, leaf) = self.last_leaf(change, child)?;
                    self.take_leaf(change, rec, parent, leaf)?;
                }
            }
        }
    }

    /// Frees the root of an empty tree. Does nothing if the tree is not empty.
    ///
    /// # Errors
    /// As [`Tree::clear`].
    pub(crate) fn give_root_back(&self, change: StructureChange<'_>, rec: &mut RecordBuf) -> Result<(), StorageError> {
        loop {
            if !matches!(self.shape_of(change, self.root)?, PageShape::Leaf(0)) {
                return Ok(());
            }
            change.pool.get_or_load(SPACE_PAGE)?;
            let Some(mut root) = self.latch(change, self.root)? else { continue };
            rec.begin_system();
            let Some(free) = PageFreeing::log(change, self.root, rec) else {
                root.release_unchanged();
                continue;
            };
            root.mark_dirty(change.log.tail());
            let lsn = match change.append(rec, root.page().lsn()) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop((free, root));
                    refused.make_room(change.log)?;
                    continue;
                }
            };
            free.finish(&mut root, lsn);
            return Ok(());
        }
    }

    fn shape_of(&self, change: StructureChange<'_>, id: PageId) -> Result<PageShape, StorageError> {
        loop {
            let frame = change.pool.get_or_load(id)?;
            let read = frame.read(change.pool.latches());
            let page = read.page();
            let shape = match page.kind() {
                Some(Kind::Leaf) if page.index() == self.index => PageShape::Leaf(page.count()),
                Some(Kind::Inner) if page.index() == self.index => PageShape::Inner(page.child(page.count())),
                _ => PageShape::Other,
            };
            if frame.page_id() == id && read.is_valid() {
                return Ok(shape);
            }
        }
    }

    /// Returns the last leaf below `child`, the root's last child, and the leaf's parent, as (parent, leaf).
    fn last_leaf(&self, change: StructureChange<'_>, child: PageId) -> Result<(PageId, PageId), StorageError> {
        let (mut parent, mut at) = (self.root, child);
        for _ in 0..MAX_LEVELS {
            match self.shape_of(change, at)? {
                PageShape::Leaf(_) => return Ok((parent, at)),
                PageShape::Inner(child) => (parent, at) = (at, child),
                PageShape::Other => return Err(self.damaged(change.pool, at, "is not of the tree that leads to it")),
            }
        }
        Err(self.damaged(change.pool, at, "is deeper than any tree"))
    }

    /// Latches the page exclusively. Returns `None` if the page has left the pool, or if a reader holds its latch.
    fn latch<'a>(&self, change: StructureChange<'a>, id: PageId) -> Result<Option<FrameWrite<'a>>, StorageError> {
        change.pool.get_or_load(id)?;
        let latched = change.try_latch(id);
        if latched.is_none() {
            yield_now();
        }
        Ok(latched)
    }

    /// Removes the last leaf from its parent and frees the leaf. The function may do nothing and report no error: the caller
    /// checks the tree again.
    fn take_leaf(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        parent: PageId,
        leaf: PageId,
    ) -> Result<(), StorageError> {
        // Load all pages first: no latch is held while a page is read.
        for id in [leaf, SPACE_PAGE] {
            change.pool.get_or_load(id)?;
        }
        let Some(mut above) = self.latch(change, parent)? else { return Ok(()) };
        let Some(mut last) = change.try_latch(leaf) else {
            above.release_unchanged();
            return Ok(());
        };
        rec.begin_system();
        let count = above.page().count();
        let empty = (count == 0).then(|| self.empty_leaf(&above));
        let before = count.checked_sub(1).map(|position| (position, above.page().child(position)));
        match (&empty, before) {
            (Some(empty), _) => split::put_image(rec, parent, empty),
            (None, Some((position, left))) => ops::put_drop_child(rec, parent, position, left),
            (None, None) => unreachable!("a page without separators becomes an empty leaf"),
        }
        let Some(free) = PageFreeing::log(change, leaf, rec) else {
            last.release_unchanged();
            above.release_unchanged();
            return Ok(());
        };
        let tail = change.log.tail();
        above.mark_dirty(tail);
        last.mark_dirty(tail);
        let lsn = match change.append(rec, above.page().lsn().max(last.page().lsn())) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop((free, last, above));
                return refused.make_room(change.log);
            }
        };
        if let Some(empty) = &empty {
            split::publish(&mut above, empty, lsn);
        } else if let Some((position, left)) = before {
            let section = PageChange::DropChild { page: parent, position, child: left };
            let done = ops::apply(&section, &mut above.page_mut());
            debug_assert!(done);
            above.page_mut().set_lsn(lsn);
        }
        free.finish(&mut last, lsn);
        Ok(())
    }

    /// Removes all rows from a root that is a leaf.
    fn empty_root(&self, change: StructureChange<'_>, rec: &mut RecordBuf) -> Result<(), StorageError> {
        let Some(mut root) = self.latch(change, self.root)? else { return Ok(()) };
        rec.begin_system();
        let empty = self.empty_leaf(&root);
        split::put_image(rec, self.root, &empty);
        root.mark_dirty(change.log.tail());
        let lsn = match change.append(rec, root.page().lsn()) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(root);
                return refused.make_room(change.log);
            }
        };
        split::publish(&mut root, &empty, lsn);
        Ok(())
    }

    /// Returns the image of an empty leaf, to replace the content of a page.
    fn empty_leaf(&self, page: &FrameWrite<'_>) -> Box<PageBytes> {
        let mut empty = split::draft(page);
        let splits = PageRef::of(&empty).u32(header::SPLITS);
        let mut leaf = PageMut::of(&mut empty);
        leaf.bytes().fill(0);
        leaf.format(&Format {
            id: page.frame().page_id(),
            index: self.index,
            level: 0,
            low: None,
            high: None,
            right: PageId::NONE,
            upper: PageId::NONE,
        });
        leaf.put_u32(header::SPLITS, splits.wrapping_add(1));
        leaf.set_lsn(page.page().lsn());
        empty
    }
}
