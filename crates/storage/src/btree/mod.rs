#![doc = include_str!("README.md")]

pub(crate) mod bulk;
mod clear;
pub(crate) mod compact;
pub(crate) mod content;
pub(crate) mod extent;
pub(crate) mod group;
pub(crate) mod merge;
pub(crate) mod ops;
pub(crate) mod overflow;
pub(crate) mod place;
pub(crate) mod purge;
pub(crate) mod ranges;
pub(crate) mod row_sections;
pub(crate) mod search;
pub(crate) mod space;
pub(crate) mod split;
#[cfg(all(test, not(shuttle)))]
mod tests;

use crate::base::error::StorageError;
use crate::base::ids::{IndexId, Lsn, PageId, SlotId};
use crate::buffer::BufferPool;
use crate::buffer::frame::FrameWrite;
use crate::log::{AppendError, Log, RecordBuf};
use crate::page::PageMut;
use crate::page::slotted::Format;

pub(crate) use crate::page::{MAX_KEY, MAX_RECORD, MAX_VALUE};

/// Upper limit on the number of levels of a tree. No tree has as many levels, so a longer descent means damaged pages.
pub(crate) const MAX_LEVELS: usize = 48;

/// Number of the page allocator's page.
pub(crate) const SPACE_PAGE: PageId = PageId(1);

/// A tree: its index and its root page. The number of the root page never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Index number, which the tree's pages and lock names contain.
    pub(crate) index: IndexId,
    /// Number of the root page.
    pub(crate) root: PageId,
}

/// Context of a structure modification: pool, log, and the transaction slot under which it is logged.
#[derive(Clone, Copy)]
pub(crate) struct StructureChange<'a> {
    pub(crate) pool: &'a BufferPool,
    pub(crate) log: &'a Log,
    pub(crate) slot: SlotId,
    /// True if the modification is part of an undo: it may then use the file and log space that is reserved for undo (see
    /// `space`).
    pub(crate) for_undo: bool,
}

impl<'a> StructureChange<'a> {
    /// Latches a page exclusively, if it is in memory and its latch is free.
    pub(crate) fn try_latch(self, id: PageId) -> Option<FrameWrite<'a>> {
        let write = self.pool.get(id)?.try_write()?;
        if write.frame().page_id() == id {
            return Some(write);
        }
        write.release_unchanged();
        None
    }

    /// Appends the log record of a structure modification. The caller has latched the pages of the modification.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub(crate) fn append(self, rec: &mut RecordBuf, after: Lsn) -> Result<Lsn, AppendError> {
        if self.for_undo {
            return self.log.append_undo(self.slot, rec, after);
        }
        self.log.append_redo_only(self.slot, rec, after)
    }

    /// Returns the number of pages at the end of the file that this modification must not use.
    fn reserved_pages(self) -> u64 {
        if self.for_undo { 0 } else { self.pool.reserved_pages() }
    }
}

impl Tree {
    /// Returns the error for a page that contradicts its tree.
    #[cold]
    pub(crate) fn damaged(&self, pool: &BufferPool, page: PageId, what: &str) -> StorageError {
        StorageError::CorruptPage {
            file: pool.file_name(),
            page,
            what: format!("{what} (index {}); run 'check --structure'", self.index),
        }
    }

    /// Creates an empty tree on a new root page. The record is redo-only: a tree without a committed catalog row is garbage.
    ///
    /// # Errors
    /// No space in the file or the log, or a failed read of the allocator's page.
    pub(crate) fn create(
        index: IndexId,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
    ) -> Result<Tree, StorageError> {
        loop {
            let grant = space::Grant::prepare(change, 1)?;
            let Some(mut taken) = grant.take(change) else { continue };
            let root = taken.page(0);
            rec.begin_system();
            let mut frame = taken.create(0);
            frame.mark_dirty(change.log.tail());
            let mut empty = split::draft(&frame);
            PageMut::of(&mut empty).format(&Format {
                id: root,
                index,
                level: 0,
                low: None,
                high: None,
                right: PageId::NONE,
                upper: PageId::NONE,
            });
            split::put_image(rec, root, &empty);
            taken.log(rec);
            let lsn = match change.log.append_redo_only(change.slot, rec, Lsn::ZERO) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop((frame, taken));
                    refused.make_room(change.log)?;
                    continue;
                }
            };
            split::publish(&mut frame, &empty, lsn);
            taken.finish(lsn);
            return Ok(Tree { index, root });
        }
    }
}
