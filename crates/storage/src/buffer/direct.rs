//! Access past the frames: the file itself, for bulk loads, and frames by number, for remembered places.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use super::BufferPool;
use super::frame::{Frame, FrameWrite};
use crate::base::config::LatchKind;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::latch::Version;

impl BufferPool {
    /// How readers exclude writers.
    #[inline]
    pub(crate) fn latches(&self) -> LatchKind {
        self.kind
    }

    /// The frame of this number, whatever page it holds now.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    pub(crate) fn frame(&self, number: u32) -> &Frame {
        &self.frames.as_slice()[number as usize]
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

    /// Writes sealed pages that were never in a frame, from page `first` on. Not durable before
    /// [`BufferPool::sync_file`].
    ///
    /// # Errors
    /// A failed write closes the instance, because the space was there.
    pub(crate) fn write_direct(&self, first: PageId, pages: &[u8]) -> Result<(), StorageError> {
        debug_assert!(pages.len().is_multiple_of(PAGE_SIZE));
        self.file.write_all_at(pages, first.offset()).inspect_err(|e| self.poison.close(e, self.wal.durable()))?;
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

    /// Whether the instance is closed to commits.
    pub(crate) fn is_closed(&self) -> bool {
        self.poison.is_closed()
    }

    /// The file's path, for messages.
    pub(crate) fn file_name(&self) -> String {
        self.file.show()
    }
}

impl Frame {
    /// The version, to read under; see [`crate::latch`].
    #[inline]
    pub(crate) fn latch_version(&self) -> Version {
        self.latch.optimistic()
    }

    /// Asks for the lines that a search looks at first: the latch, the page's header, its hints.
    #[inline]
    pub(crate) fn prefetch_head(&self) {
        crate::base::prefetch::prefetch_read(std::ptr::from_ref(self).cast());
        let page = self.bytes();
        page.prefetch(0);
        page.prefetch(64);
        page.prefetch(128);
    }

    /// As [`Frame::prefetch_head`], for a caller that prefetches the right part of the slots itself.
    #[inline]
    pub(crate) fn prefetch_search(&self) {
        crate::base::prefetch::prefetch_read(std::ptr::from_ref(self).cast());
        let page = self.bytes();
        page.prefetch(0);
        page.prefetch(64);
    }

    /// Asks for what an insert at slot `i` of a page whose heap begins at `heap` will look at and write.
    #[inline]
    pub(crate) fn prefetch_insert(&self, i: usize, heap: usize) {
        self.prefetch_search();
        self.bytes().prefetch_room_at(i, heap);
    }

    /// Whether nothing has been written since the version was noted.
    #[inline]
    pub(crate) fn is_still(&self, version: Version) -> bool {
        self.latch.validate(version)
    }
}

impl FrameWrite<'_> {
    /// The bytes as a slice.
    pub(crate) fn stable(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: the exclusive latch is held.
        unsafe { self.page().stable() }
    }
}
