//! Cutting the file: the pages behind those in use go back to the system.

use crate::base::sync::MutexGuard;
use crate::base::sync::plain::Ordering;

use super::BufferPool;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};

/// A cut that is being made: the file does not grow meanwhile.
pub(crate) struct FileCut<'p> {
    pool: &'p BufferPool,
    _grows_not: MutexGuard<'p, ()>,
}

impl BufferPool {
    /// Begins to cut the file. The caller holds no latch.
    pub(crate) fn begin_cut(&self) -> FileCut<'_> {
        FileCut { pool: self, _grows_not: self.grow_lock.lock() }
    }
}

impl FileCut<'_> {
    /// Counts the pages behind `end`, and behind those kept for undo, as not there any more. The caller has latched the
    /// allocator, whose end that is. False if one of them is in the pool, or a copy of the file is being made.
    #[must_use]
    pub(crate) fn lower(&self, end: u32) -> bool {
        let pool = self.pool;
        // A copy that begins from here on sees the shorter file.
        let direct = pool.direct.lock();
        let pages = u64::from(end) + pool.kept_pages();
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

    /// Cuts the file.
    ///
    /// # Errors
    /// The file is longer than it needs to be then. A failed sync closes the instance.
    pub(crate) fn finish(self) -> Result<(), StorageError> {
        let pages = self.pool.file_pages.load(Ordering::Acquire);
        self.pool.file.cut_to(u64::from(pages) * PAGE_SIZE as u64)?;
        self.pool.sync_file()
    }
}
