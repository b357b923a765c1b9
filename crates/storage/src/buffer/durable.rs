//! Which changes of the data file are known to be on the disk, and how far back a restart has to begin.

use crate::base::sync::plain::Ordering;

use super::BufferPool;
use super::stats::add;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};

/// Pages that were written to the file but may not be on the disk yet, by their oldest change.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// Written since the last sync began.
    written: Lsn,
    /// Written before it began; `MAX` when no sync is under way. After a failed one this stays.
    syncing: Lsn,
    /// Pages in `written`.
    pages: usize,
}

impl Unsynced {
    pub(super) fn new() -> Unsynced {
        Unsynced { written: Lsn::MAX, syncing: Lsn::MAX, pages: 0 }
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
    /// Returns when every page written before is on the disk; does nothing if no page was written.
    ///
    /// # Errors
    /// A failed sync closes the instance and is never tried again.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        let _one_at_a_time = self.sync_lock.lock();
        self.poison.check()?;
        // Before the look at the unsynced pages: those of ended batches are among them.
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

    /// Syncs the file, whatever the pool has written.
    ///
    /// # Errors
    /// A failed sync closes the instance.
    pub(crate) fn sync_file(&self) -> Result<(), StorageError> {
        // One sync at a time: the system reports a failure once, and the thread that gets it closes the instance before
        // another thread could take its own, successful, sync for proof.
        let _one_at_a_time = self.sync_lock.lock();
        self.poison.check()?;
        self.file.sync().inspect_err(|e| self.poison.close(e, self.wal.durable()))
    }

    /// A lower bound of the LSNs of all changes that are not on the disk; `None` if there are none.
    ///
    /// Changes made while this runs may be missed: the caller reads the log's tail first and takes the
    /// smaller of the two. Looks at every frame: for checkpoints.
    pub(crate) fn oldest_recovery_lsn(&self) -> Option<Lsn> {
        let mut oldest = Lsn::MAX;
        self.for_each_dirty(|_, lsn| oldest = oldest.min(lsn));
        // After the frames: a page that is written meanwhile is entered here before it is marked clean.
        oldest = oldest.min(self.unsynced.lock().oldest());
        (oldest != Lsn::MAX).then_some(oldest)
    }

    /// As [`BufferPool::oldest_recovery_lsn`], of pages that are not written yet: what a sync now would leave.
    pub(crate) fn oldest_dirty_lsn(&self) -> Option<Lsn> {
        let mut oldest = Lsn::MAX;
        self.for_each_dirty(|_, lsn| oldest = oldest.min(lsn));
        (oldest != Lsn::MAX).then_some(oldest)
    }

    /// Calls `f` with each dirty page and its recovery LSN. Pages that are written but not synced are not
    /// among them, so restart must not skip pages because they are not listed.
    pub(crate) fn for_each_dirty(&self, mut f: impl FnMut(PageId, Lsn)) {
        for frame in self.used_frames() {
            if let Some(lsn) = Self::recovery_lsn(frame) {
                f(frame.page_id(), lsn);
            }
        }
    }

    /// Makes sure that the file holds page `id`, growing it in steps. Called where pages are allocated, so that the
    /// transaction that needs the space gets the error if there is none.
    ///
    /// # Errors
    /// [`StorageError::NoSpace`]; the file is usable as before.
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
        // If there is no room for a whole step, there may be room for the page.
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

    /// Pages in the file.
    pub(crate) fn file_pages(&self) -> u32 {
        self.file_pages.load(Ordering::Acquire)
    }
    /// Makes sure the file holds the pages below `end`; see [`BufferPool::grow_to_hold`].
    ///
    /// # Errors
    /// No space.
    pub(crate) fn ensure_file(&self, end: u64) -> Result<(), StorageError> {
        match u32::try_from(end.saturating_sub(1)) {
            Ok(last) => self.grow_to_hold(PageId(last)),
            Err(_) => Err(StorageError::NoSpace { file: self.file.show() }),
        }
    }

    /// Whether the file holds the pages below `end`.
    pub(crate) fn file_holds(&self, end: u64) -> bool {
        u64::from(self.file_pages()) >= end
    }

    /// Keeps `pages` more pages at the file's end for undo; returns how many are kept in all.
    pub(crate) fn keep_pages(&self, pages: u64) -> u64 {
        self.kept_pages.fetch_add(pages, Ordering::SeqCst) + pages
    }

    /// Keeps them no more.
    pub(crate) fn release_pages(&self, pages: u64) {
        self.kept_pages.fetch_sub(pages, Ordering::SeqCst);
    }

    /// Pages at the file's end that are kept for undo.
    #[inline]
    pub(crate) fn kept_pages(&self) -> u64 {
        self.kept_pages.load(Ordering::SeqCst)
    }
}
