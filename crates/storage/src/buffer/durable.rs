//! Durability of the data file: pages that are written but not synced, and the LSN at which a restart has to begin.

use crate::base::sync::plain::Ordering;

use super::BufferPool;
use super::stats::add;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};

/// LSN bounds of pages that were written to the file but may not be durable yet.
#[derive(Debug)]
pub(super) struct UnsyncedPages {
    /// Smallest recovery LSN of pages written since the last sync began.
    written: Lsn,
    /// Smallest recovery LSN of the pages that the current sync covers. `MAX` if no sync is in progress. A failed sync
    /// leaves the value unchanged.
    syncing: Lsn,
    /// Number of pages in `written`.
    pages: usize,
}

impl UnsyncedPages {
    pub(super) fn new() -> UnsyncedPages {
        UnsyncedPages { written: Lsn::MAX, syncing: Lsn::MAX, pages: 0 }
    }

    pub(super) fn add(&mut self, oldest: Lsn, pages: usize) {
        self.written = self.written.min(oldest);
        self.pages += pages;
    }

    pub(super) fn oldest(&self) -> Lsn {
        self.written.min(self.syncing)
    }
}

impl BufferPool {
    /// Makes every page written so far durable. Does nothing if no page was written since the last sync.
    ///
    /// # Errors
    /// A failed sync closes the instance and is never repeated.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        let _one_at_a_time = self.sync_lock.lock();
        self.poison.check()?;
        // The position must be read before `unsynced`, so that `unsynced` includes the pages of all batches that have ended.
        let ended = self.aside.ended();
        {
            let mut unsynced = self.unsynced.lock();
            if unsynced.oldest() == Lsn::MAX {
                self.aside.free_before(ended);
                return Ok(());
            }
            unsynced.syncing = unsynced.oldest();
            unsynced.written = Lsn::MAX;
            unsynced.pages = 0;
        }
        let synced = if is_mutant(Mutant::SkipDataSync) { Ok(()) } else { self.file.sync() };
        if let Err(error) = synced {
            self.poison.close(&error, self.wal.durable());
            return Err(error);
        }
        add(&self.counters.syncs, 1);
        self.unsynced.lock().syncing = Lsn::MAX;
        self.aside.free_before(ended);
        Ok(())
    }

    /// Syncs the file, even if the pool has written no page.
    ///
    /// # Errors
    /// A failed sync closes the instance.
    pub(crate) fn sync_file(&self) -> Result<(), StorageError> {
        // Syncs are serialised: the system reports a failure only once. The thread that receives it closes the instance
        // before another thread could mistake its own successful sync for proof of durability.
        let _one_at_a_time = self.sync_lock.lock();
        self.poison.check()?;
        self.file.sync().inspect_err(|e| self.poison.close(e, self.wal.durable()))
    }

    /// Returns a lower bound of the LSNs of all changes that are not durable in the data file. `None` if all changes are
    /// durable.
    ///
    /// Changes made during this call may be missed. The caller therefore reads the log's tail first and takes the minimum of
    /// the tail and the result. Reads every frame: intended for checkpoints.
    pub(crate) fn oldest_recovery_lsn(&self) -> Option<Lsn> {
        let mut oldest = Lsn::MAX;
        self.for_each_dirty(|_, lsn| oldest = oldest.min(lsn));
        // The unsynced pages are read after the frames: a page that is written in the meantime is recorded here before it is
        // marked clean.
        oldest = oldest.min(self.unsynced.lock().oldest());
        (oldest != Lsn::MAX).then_some(oldest)
    }

    /// Like [`BufferPool::oldest_recovery_lsn`], but ignores pages that are written and not synced: the bound after a sync
    /// now.
    pub(crate) fn oldest_dirty_lsn(&self) -> Option<Lsn> {
        let mut oldest = Lsn::MAX;
        self.for_each_dirty(|_, lsn| oldest = oldest.min(lsn));
        (oldest != Lsn::MAX).then_some(oldest)
    }

    /// Calls `f` with each dirty page and its recovery LSN. Pages that are written but not synced are not included, so
    /// restart must not skip a page because it is not listed.
    pub(crate) fn for_each_dirty(&self, mut f: impl FnMut(PageId, Lsn)) {
        for frame in self.used_frames() {
            if let Some(lsn) = Self::recovery_lsn(frame) {
                f(frame.page_id(), lsn);
            }
        }
    }

    /// Extends the file so that it contains page `id`. The file grows in steps. Called when pages are allocated, so that the
    /// transaction that needs the space gets the error if there is no space.
    ///
    /// # Errors
    /// [`StorageError::NoSpace`]. The file remains usable as before.
    pub(crate) fn grow_to_hold(&self, id: PageId) -> Result<(), StorageError> {
        if id.0 < self.file_pages.load(Ordering::Acquire) {
            return Ok(());
        }
        if id.0 >= self.options.max_pages {
            return Err(StorageError::NoSpace { file: self.file.show() });
        }
        let _one_at_a_time = self.grow_lock.lock();
        let pages = self.file_pages.load(Ordering::Acquire);
        if id.0 < pages {
            return Ok(());
        }
        let step = self.options.grow_pages.max(1).max(pages / 16);
        let least = u64::from(id.0) + 1;
        let wanted = least.max((u64::from(pages) + u64::from(step)).min(u64::from(self.options.max_pages)));
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        // There may be space for the page even if there is none for a whole step.
        let grown = match self.file.extend_to(bytes(wanted)) {
            Ok(()) => wanted,
            Err(StorageError::NoSpace { .. }) => {
                self.file.extend_to(bytes(least))?;
                least
            }
            Err(error) => return Err(error),
        };
        self.file_pages.store(grown as u32, Ordering::Release);
        Ok(())
    }

    /// Returns the number of pages in the file.
    pub(crate) fn file_pages(&self) -> u32 {
        self.file_pages.load(Ordering::Acquire)
    }
    /// Extends the file so that it contains all pages below `end`. See [`BufferPool::grow_to_hold`].
    ///
    /// # Errors
    /// [`StorageError::NoSpace`].
    pub(crate) fn ensure_file(&self, end: u64) -> Result<(), StorageError> {
        match u32::try_from(end.saturating_sub(1)) {
            Ok(last) => self.grow_to_hold(PageId(last)),
            Err(_) => Err(StorageError::NoSpace { file: self.file.show() }),
        }
    }

    /// Closes the instance because a page could not be changed as a whole. Called while the page is latched: no thread writes
    /// a page afterwards.
    #[cold]
    pub(crate) fn give_up_changes(&self, cause: &StorageError) {
        self.poison.mark_inconsistent(&cause.as_cause(), self.wal.durable());
    }

    /// Returns true if the file contains all pages below `end`.
    pub(crate) fn file_holds(&self, end: u64) -> bool {
        u64::from(self.file_pages()) >= end
    }

    /// Reserves `pages` more pages at the end of the file for undo. Returns the total number of reserved pages.
    pub(crate) fn reserve_pages(&self, pages: u64) -> u64 {
        self.reserved_pages.fetch_add(pages, Ordering::SeqCst) + pages
    }

    /// Releases `pages` of the pages reserved by [`BufferPool::reserve_pages`].
    pub(crate) fn release_pages(&self, pages: u64) {
        self.reserved_pages.fetch_sub(pages, Ordering::SeqCst);
    }

    /// Returns the number of pages at the end of the file that are reserved for undo.
    #[inline]
    pub(crate) fn reserved_pages(&self) -> u64 {
        self.reserved_pages.load(Ordering::SeqCst)
    }
}
