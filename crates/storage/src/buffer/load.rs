//! Bringing a page into memory: the cold path of every access.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::BufferPool;
use super::frame::{Frame, MAX_USES};
use super::page_table::{Absent, Place};
use super::replace::{Entry, GHOST_PART, is_inner};
use super::room::FreeFrame;
use super::stats::add;
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::page::{PageRef, header, sound};

/// A waiter for a page that another is reading.
pub(super) type Waiter = (PageId, Arc<WaitToken>);

impl BufferPool {
    /// The page's frame, brought in if need be. By the time the caller looks it may have gone again, so
    /// he checks [`Frame::page_id`] after having begun to read, as with [`BufferPool::get`].
    ///
    /// # Errors
    /// As [`BufferPool::load`].
    #[inline]
    pub(crate) fn get_or_load(&self, id: PageId) -> Result<&Frame, StorageError> {
        loop {
            if let Some(frame) = self.get(id) {
                return Ok(frame);
            }
            self.load(id)?;
        }
    }

    /// Brings a page into memory, or waits until whoever does so has finished; the caller tries
    /// [`BufferPool::get`] again. He holds no latch: this may evict, write, read and wait.
    ///
    /// # Errors
    /// [`StorageError::CorruptPage`] if the page does not exist or is damaged, [`StorageError::Io`] if it
    /// cannot be read; errors of making room for it. A waiter reads for itself when the reader failed.
    #[cold]
    pub(crate) fn load(&self, id: PageId) -> Result<(), StorageError> {
        loop {
            match self.table.place(id) {
                Some(Place::Frame(_)) => return Ok(()),
                Some(Place::Loading) => {
                    self.wait_for_reader(id);
                    return Ok(());
                }
                Some(Place::Absent(seen)) if self.exists(id) => {
                    // The frame first: that may wait, and while a page is claimed nobody may.
                    let free = self.take_frame(self.shard_of_page(id))?;
                    if self.table.claim(id, seen) {
                        return self.read_claimed(id, seen, free);
                    }
                }
                _ => return Err(self.corrupt(id, "is referred to but does not exist".into())),
            }
        }
    }

    /// Whether the page lies within the file.
    pub(super) fn exists(&self, id: PageId) -> bool {
        !id.is_none() && id.0 < self.file_pages.load(Ordering::Acquire)
    }

    /// The error for a damaged page.
    pub(super) fn corrupt(&self, id: PageId, what: String) -> StorageError {
        StorageError::CorruptPage { file: self.file.show(), page: id, what }
    }

    /// What is wrong with a page whose checksum is right: its content, or that it tells of a record the log has not got.
    fn unsound(&self, bytes: &[u8; PAGE_SIZE], id: PageId) -> Option<String> {
        let (lsn, end) = (PageRef::of_bytes(bytes).lsn(), self.wal.end());
        if lsn >= end && lsn != Lsn::ZERO {
            return Some(format!("its LSN is {lsn}, yet the log ends at {end}"));
        }
        sound::flaw(bytes, id).map(|flaw| flaw.to_string())
    }

    fn read_claimed(&self, id: PageId, seen: Absent, free: FreeFrame<'_>) -> Result<(), StorageError> {
        let frame = free.frame();
        let index = free.index();
        // Only someone who found this frame while it held another page can be waiting for this latch; he
        // may see it held during the read, which is why rule 1 of the latches is not hurt.
        let mut write = frame.write();
        let read = self.file.read_exact_at(write.page_mut().bytes(), id.offset());
        let read = read.and_then(|()| {
            // SAFETY: the latch is held.
            let bytes: &[u8; PAGE_SIZE] = unsafe { write.page().stable() };
            let unsound = || if self.options.sound { self.unsound(bytes, id) } else { None };
            match header::damage(bytes, id, self.options.checksums).or_else(unsound) {
                None => Ok(()),
                Some(what) => Err(self.corrupt(id, what)),
            }
        });
        if read.is_ok() {
            add(&self.counters.reads, 1);
            let entry = self.settle(frame, id, seen);
            self.table.publish(id, index);
            drop(write);
            free.enter(entry);
        } else {
            drop(write);
            self.table.give_up(id, seen);
        }
        self.wake_waiters(id);
        read
    }

    /// Fills in the head of a frame, whose latch is held, for a page just read; says how it enters.
    pub(super) fn settle(&self, frame: &Frame, id: PageId, seen: Absent) -> Entry {
        frame.set_page_id(id);
        frame.recovery_lsn.store(0, Ordering::Relaxed);
        if is_inner(frame) {
            frame.uses.store(MAX_USES, Ordering::Relaxed);
            return Entry::Proven;
        }
        frame.uses.store(0, Ordering::Relaxed);
        let now = self.counters.evictions.load(Ordering::Relaxed) as u32;
        if seen.age(now).is_some_and(|age| (age as usize) < self.frame_count() / GHOST_PART) {
            add(&self.counters.ghost_hits, 1);
            return Entry::Proven;
        }
        Entry::Probation
    }

    #[cold]
    fn wait_for_reader(&self, id: PageId) {
        let token = Arc::new(WaitToken::new());
        {
            let mut waiters = self.waiters_for(id).lock();
            // The reader publishes before it takes this lock, so either it finds us or we find its page.
            if self.table.place(id) != Some(Place::Loading) {
                return;
            }
            waiters.push((id, token.clone()));
        }
        add(&self.counters.load_waits, 1);
        self.hook.block(&token, BlockReason::PageRead);
    }

    pub(super) fn wake_waiters(&self, id: PageId) {
        let mut waiters = self.waiters_for(id).lock();
        for (_, token) in waiters.extract_if(.., |(page, _)| *page == id) {
            self.hook.wake(&token);
        }
    }
}
