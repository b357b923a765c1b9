//! Online copy: reads the data file while transactions run. The copy bypasses the frames, and it includes the pages that
//! bulk loads write without log records.
//!
//! A page read from the file may be torn, because it is being written at that moment. The page keeps its frame until the
//! write has ended. So the copy finds the page in the pool or, if the frame has since been given to another page, intact in
//! the file.

use std::mem;

use super::BufferPool;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::page::header;

/// Maximum number of attempts for a page that is sound neither in the file nor in the pool.
const MAX_ATTEMPTS: usize = 32;

/// Pages written without the pool and the log since the oldest copy in progress began.
#[derive(Debug, Default)]
pub(super) struct DirectWrites {
    /// Number of copies in progress.
    copies: usize,
    /// First page and number of pages of each write, in the order of the writes.
    writes: Vec<(PageId, u32)>,
}

/// An online copy in progress. Direct writes are recorded for the copy until it is dropped.
#[derive(Debug)]
pub(crate) struct CopyReader<'p> {
    pool: &'p BufferPool,
    /// Number of direct writes that this copy has already read.
    seen: usize,
}

impl DirectWrites {
    /// Returns true if a copy is in progress.
    pub(super) fn is_copied(&self) -> bool {
        self.copies > 0
    }
}

impl BufferPool {
    /// Begins an online copy. Direct writes are recorded from now on.
    pub(crate) fn begin_copy(&self) -> CopyReader<'_> {
        let mut direct = self.direct.lock();
        direct.copies += 1;
        CopyReader { pool: self, seen: direct.writes.len() }
    }

    /// Writes sealed pages that were never in a frame, with consecutive numbers from `first` on. Makes the log durable to
    /// the LSNs of the pages first. The pages are not durable before [`BufferPool::sync_file`]. The caller holds no latch.
    ///
    /// # Errors
    /// Errors of making the log durable. A failed write closes the instance, because the space was already allocated.
    pub(crate) fn write_direct(&self, first: PageId, pages: &[u8]) -> Result<(), StorageError> {
        debug_assert!(pages.len().is_multiple_of(PAGE_SIZE));
        let newest = Self::newest_lsn(pages);
        if newest >= self.wal.durable() && !is_mutant(Mutant::StampLoadAtTail) {
            // Durable beyond the first byte of the newest record of these pages implies durable to the end of this record.
            self.wal.make_durable(Lsn(newest.0 + 1))?;
        }
        let proved = self.prove(first, pages)?;
        self.file.write_pages(proved).inspect_err(|e| self.poison.close(e, self.wal.durable()))?;
        self.note_direct(first, pages.len() / PAGE_SIZE);
        Ok(())
    }

    /// Reads a page from the file, without the pool and without any check.
    ///
    /// # Errors
    /// Fails if the page cannot be read.
    pub(crate) fn read_unproved(&self, id: PageId, bytes: &mut [u8; PAGE_SIZE]) -> Result<(), StorageError> {
        self.file.read_exact_at(bytes, id.offset())
    }

    /// Records a direct write for the copies in progress.
    fn note_direct(&self, first: PageId, pages: usize) {
        let mut direct = self.direct.lock();
        if direct.copies > 0 {
            direct.writes.push((first, pages as u32));
        }
    }

    /// Copies the page from its frame to `to` and seals the copy. Returns false if no frame has the page.
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
    /// Returns the number of pages in the file.
    pub(crate) fn pages(&self) -> u32 {
        self.pool.file_pages()
    }

    /// Reads pages with consecutive numbers from `first` on, each in a state that it had at some moment during the call.
    /// Pages that were never written are read as zeros. Pages that are damaged in the file and absent from the pool are
    /// added to `damaged` and returned as they are in the file.
    ///
    /// # Errors
    /// Fails if a read fails.
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

    /// Repeats the read of a page until it is sound. Returns false if it stays damaged.
    fn until_sound(&self, id: PageId, page: &mut [u8; PAGE_SIZE]) -> Result<bool, StorageError> {
        for _ in 0..MAX_ATTEMPTS {
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

    /// Returns the end of the log if this copy has read all direct writes. Otherwise returns the direct writes that the copy
    /// has not read.
    ///
    /// The log record that makes a load's pages part of a tree is appended after the load's last direct write. So a log
    /// truncated at its present end either lacks that record, or all pages of the load have already been returned by this
    /// function.
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
