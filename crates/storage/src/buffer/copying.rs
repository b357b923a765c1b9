//! The data file as a copy of the database reads it while work goes on: past the frames, and beside the pages that bulk
//! loads write past the log.
//!
//! A page of the file may be torn when it is read, because it is being written at that moment. Its frame keeps the page
//! until the write is over, so the copier finds it in the pool, or, when the frame has been given to another page
//! since, whole in the file.

use std::mem;

use super::BufferPool;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::page::header;

/// How often a page is retried that is neither sound in the file nor in the pool.
const LOOKS: usize = 32;

/// Pages written past pool and log since the oldest copy under way began.
#[derive(Debug, Default)]
pub(super) struct DirectWrites {
    /// Copies under way.
    copies: usize,
    /// First page and number of pages of each write, in order.
    writes: Vec<(PageId, u32)>,
}

/// A copy under way, for the pool: writes past the log are noted for it until it is dropped.
#[derive(Debug)]
pub(crate) struct CopyReader<'p> {
    pool: &'p BufferPool,
    /// Direct writes that this copy has read so far.
    seen: usize,
}

impl DirectWrites {
    /// Whether a copy is under way.
    pub(super) fn is_copied(&self) -> bool {
        self.copies > 0
    }
}

impl BufferPool {
    /// Begins to note direct writes.
    pub(crate) fn begin_copy(&self) -> CopyReader<'_> {
        let mut direct = self.direct.lock();
        direct.copies += 1;
        CopyReader { pool: self, seen: direct.writes.len() }
    }

    /// Writes sealed pages that were never in a frame, from page `first` on, once the log is durable to their LSNs. Not
    /// durable before [`BufferPool::sync_file`]. The caller holds no latch.
    ///
    /// # Errors
    /// Those of making the log durable. A failed write closes the instance, because the space was there.
    pub(crate) fn write_direct(&self, first: PageId, pages: &[u8]) -> Result<(), StorageError> {
        debug_assert!(pages.len().is_multiple_of(PAGE_SIZE));
        let newest = Self::newest_lsn(pages);
        if newest >= self.wal.durable() && !is_mutant(Mutant::StampLoadAtTail) {
            // Past the beginning of the newest record that the pages show means past its end.
            self.wal.make_durable(Lsn(newest.0 + 1))?;
        }
        let proved = self.prove(first, pages)?;
        self.file.write_pages(proved).inspect_err(|e| self.poison.close(e, self.wal.durable()))?;
        self.note_direct(first, pages.len() / PAGE_SIZE);
        Ok(())
    }

    /// Reads a page from the file, past the pool, without checking it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read_unproved(&self, id: PageId, bytes: &mut [u8; PAGE_SIZE]) -> Result<(), StorageError> {
        self.file.read_exact_at(bytes, id.offset())
    }

    /// Reports to copies under way that pages were written past the log.
    fn note_direct(&self, first: PageId, pages: usize) {
        let mut direct = self.direct.lock();
        if direct.copies > 0 {
            direct.writes.push((first, pages as u32));
        }
    }

    /// The page as its frame has it, sealed; false if no frame does.
    fn copy_frame(&self, id: PageId, to: &mut [u8; PAGE_SIZE]) -> bool {
        let Some(frame) = self.get(id) else { return false };
        let share = frame.latch.lock_shared();
        let there = frame.page_id() == id && frame.bytes().copy_to(0, to);
        drop(share);
        if there {
            header::seal(to);
        }
        there
    }
}

impl CopyReader<'_> {
    /// Pages of the file.
    pub(crate) fn pages(&self) -> u32 {
        self.pool.file_pages()
    }

    /// Reads pages from `first` on, each as it was at some moment since the call began. Pages of zeros were never
    /// written. Pages that are damaged in the file and absent from the pool are listed in `damaged` and read as they
    /// are.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read(&self, first: PageId, bytes: &mut [u8], damaged: &mut Vec<PageId>) -> Result<(), StorageError> {
        self.pool.file.read_exact_at(bytes, first.offset())?;
        let (pages, _) = bytes.as_chunks_mut::<PAGE_SIZE>();
        for (id, page) in (first.0..).map(PageId).zip(pages) {
            if !self.until_sound(id, page)? {
                damaged.push(id);
            }
        }
        Ok(())
    }

    /// Looks for the page until it is sound; false if it stays damaged.
    fn until_sound(&self, id: PageId, page: &mut [u8; PAGE_SIZE]) -> Result<bool, StorageError> {
        for _ in 0..LOOKS {
            if header::damage(page, id, true).is_none() || page.iter().all(|byte| *byte == 0) {
                return Ok(true);
            }
            if self.pool.copy_frame(id, page) {
                return Ok(true);
            }
            self.pool.file.read_exact_at(page, id.offset())?;
        }
        Ok(false)
    }

    /// The log's end, if this copy has read all direct writes; else those that it has not.
    ///
    /// The record that makes a load's pages part of a tree is appended after the load's last direct write. So a log
    /// that is cut at its present end either lacks that record, or all pages of the load have been reported.
    pub(crate) fn end_or_direct_writes(&mut self) -> Result<Lsn, Vec<(PageId, u32)>> {
        let direct = self.pool.direct.lock();
        let seen = mem::replace(&mut self.seen, direct.writes.len());
        match direct.writes.get(seen..) {
            None | Some([]) => Ok(self.pool.wal.end()),
            Some(fresh) => Err(fresh.to_vec()),
        }
    }
}

impl Drop for CopyReader<'_> {
    fn drop(&mut self) {
        let mut direct = self.pool.direct.lock();
        direct.copies -= 1;
        if direct.copies == 0 {
            direct.writes = Vec::new();
        }
    }
}
