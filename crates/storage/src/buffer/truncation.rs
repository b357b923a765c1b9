//! Truncation of the data file: the pages after the last page in use are returned to the operating system.

use crate::base::sync::MutexGuard;
use crate::base::sync::plain::Ordering;

use super::BufferPool;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};

/// A truncation in progress. The data file does not grow while this value exists.
pub(crate) struct FileTruncation<'p> {
    pool: &'p BufferPool,
    _grow_lock: MutexGuard<'p, ()>,
}

impl BufferPool {
    /// Begins to truncate the data file. The caller holds no latch.
    pub(crate) fn begin_truncation(&self) -> FileTruncation<'_> {
        FileTruncation { pool: self, _grow_lock: self.grow_lock.lock() }
    }
}

impl FileTruncation<'_> {
    /// Lowers the number of pages in the file to `end`, plus the pages reserved for undo. The caller holds the latch of the
    /// page allocator, which supplies `end`. Returns false if a removed page is in the pool and cannot be withheld at the
    /// moment, or if an online copy of the file is in progress.
    #[must_use]
    pub(crate) fn lower(&self, end: u32) -> bool {
        let pool = self.pool;
        // A copy that begins after this lock is released sees the shorter file.
        let direct = pool.direct.lock();
        let pages = u64::from(end) + pool.reserved_pages();
        let has = pool.file_pages.load(Ordering::Acquire);
        let Ok(pages) = u32::try_from(pages) else { return true };
        if pages >= has {
            return true;
        }
        if direct.is_copied() || !(pages..has).all(|page| pool.withhold(PageId(page))) {
            return false;
        }
        pool.file_pages.store(pages, Ordering::Release);
        true
    }

    /// Truncates the file to the number of pages set by `lower`, and syncs it.
    ///
    /// # Errors
    /// After an error the file may be longer than necessary. A failed sync closes the instance.
    pub(crate) fn finish(self) -> Result<(), StorageError> {
        let pages = self.pool.file_pages.load(Ordering::Acquire);
        self.pool.file.cut_to(u64::from(pages) * PAGE_SIZE as u64)?;
        self.pool.sync_file()
    }
}
