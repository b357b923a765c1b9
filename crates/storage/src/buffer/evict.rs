//! Eviction: empties the frames that the [replacement policy](super::replacement) selects, if they are clean and not in use.

use crate::base::sync::plain::Ordering;
use std::ops::Range;
use std::time::Duration;

use super::BufferPool;
use super::frame::Frame;
use super::page_table::Residency;
use super::replacement::{Candidate, NotEvicted, Replacement, ResidentPages, Uses};
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{Lsn, PageId};
use crate::page::header::{KIND, Kind};

/// Frames of one shard, except frames that were never used. The policy holds the frames with a page, `free` the others.
#[derive(Debug)]
pub(super) struct Shard {
    /// Numbers of frames without a page.
    pub(super) free: Vec<u32>,
    pub(super) policy: Replacement,
}

impl ResidentPages for [Frame] {
    fn uses(&self, frame: u32) -> &Uses {
        &self[frame as usize].uses
    }

    fn is_inner(&self, frame: u32) -> bool {
        self[frame as usize].bytes().u8(KIND) == Kind::Inner as u8
    }
}

impl BufferPool {
    /// Evicts pages of a shard until its free list has `want` frames, the queue of dirty pages is full, or `looks` frames
    /// have been examined. Returns false if there was no progress: no page was evicted, queued for writing, or aged.
    pub(super) fn evict_clean(&self, shard: &mut Shard, want: usize, mut looks: usize) -> bool {
        let frames = self.frames.as_slice();
        let mut moved = false;
        while shard.free.len() < want {
            let before = looks;
            let victim = shard.policy.victim(frames, &mut looks);
            moved |= before - looks > 1;
            let Some(victim) = victim else { break };
            match self.try_evict(&victim) {
                Ok(()) => {
                    moved = true;
                    shard.free.push(victim.frame);
                }
                Err(why) => {
                    moved |= why == NotEvicted::Dirty;
                    shard.policy.put_back(frames, victim, why);
                }
            }
        }
        moved
    }

    /// Removes the page from a frame that is in no queue, if the page is clean and no thread holds its latch.
    pub(super) fn try_evict(&self, victim: &Candidate) -> Result<(), NotEvicted> {
        let frame = &self.frames.as_slice()[victim.frame as usize];
        if frame.is_dirty() && !self.poison.is_closed() {
            return Err(NotEvicted::Dirty);
        }
        if frame.writing.load(Ordering::Acquire) {
            return Err(NotEvicted::Busy);
        }
        let Some(write) = frame.try_write() else { return Err(NotEvicted::Busy) };
        // Checked again under the latch, so that no other thread can change the page.
        if frame.is_dirty() {
            // A writer marks a page as dirty before it appends the log record. The log of a closed instance rejects the
            // record, so such a page has no change at or after the marked LSN.
            let marked = frame.recovery_lsn.load(Ordering::Relaxed);
            if !self.poison.is_closed() || frame.bytes().lsn().0 >= marked || frame.bytes().lsn() == Lsn::ZERO {
                write.release_unchanged();
                return Err(NotEvicted::Dirty);
            }
            frame.recovery_lsn.store(0, Ordering::Release);
        }
        if frame.writing.load(Ordering::Acquire) {
            write.release_unchanged();
            return Err(NotEvicted::Busy);
        }
        let id = frame.page_id();
        if !id.is_none() {
            let number = self.counters.evictions.fetch_add(1, Ordering::Relaxed) as u32;
            self.table.remove(id, victim.frame, victim.leaves_ghost().then_some(number));
            frame.set_page_id(PageId::NONE);
        }
        // The release increments the latch's version. A thread that has read this page, or has found this frame and not
        // begun to read, detects the eviction by the new version.
        drop(write);
        Ok(())
    }

    /// Withholds a page that no tree contains. Until [`BufferPool::readmit`] the page is neither read nor in a frame. The
    /// content of its frame (for example after a refused change) is never written. Returns false if at this moment another
    /// thread reads the page or holds its latch, or if the page is being written. The caller then releases its latches and
    /// [pauses](BufferPool::pause) before the next attempt.
    #[must_use]
    pub(crate) fn withhold(&self, id: PageId) -> bool {
        if self.table.withhold(id) {
            return true;
        }
        let Some(frame) = self.get(id) else { return false };
        let Some(write) = frame.try_write() else { return false };
        if frame.page_id() != id || frame.writing.load(Ordering::Acquire) {
            write.release_unchanged();
            return false;
        }
        // The frame stays in its queue. It becomes free when it leaves the queue without a page.
        frame.uses.clear();
        frame.recovery_lsn.store(0, Ordering::Release);
        self.table.remove_and_withhold(id, self.index_of(frame));
        frame.set_page_id(PageId::NONE);
        true
    }

    /// Waits briefly for another thread that reads or writes a page. The read or write may be waiting for the log on a fiber
    /// of the calling thread, so this function yields through the hook. The caller holds no latch.
    pub(crate) fn pause(&self) {
        self.hook.block_for(&WaitToken::new(), BlockReason::Room, Duration::from_micros(20));
    }

    /// Makes withheld pages readable again.
    pub(crate) fn readmit(&self, pages: Range<u32>) {
        pages.for_each(|page| self.table.readmit(PageId(page)));
    }

    /// Returns true if the page is withheld.
    pub(crate) fn is_withheld(&self, id: PageId) -> bool {
        matches!(self.table.place(id), Some(Residency::Withheld(_)))
    }

    /// Records that pages below `end` are in use. Never lowers the end: pages beyond `end` that were in use stay readable
    /// until [`BufferPool::set_pages_end`], because a thread may still hold the number of a page that has just been moved.
    /// The caller holds the allocator's latch.
    pub(crate) fn raise_pages_end(&self, end: u32) {
        self.pages_end.fetch_max(end, Ordering::Release);
    }

    /// Sets the number of the first page that was never used. The caller holds the allocator's latch, or is the only thread.
    pub(crate) fn set_pages_end(&self, end: u32) {
        self.pages_end.store(end, Ordering::Release);
    }

    /// Sets the LSN of the last record that lowered the end of the pages in use. The caller latches the allocator's page.
    pub(crate) fn set_end_lowered_at(&self, lsn: Lsn) {
        self.end_lowered_at.store(lsn.0, Ordering::Release);
    }

    /// Returns the LSN of the last record that lowered the end of the pages in use; zero if there is none since the open. No
    /// later record is about a page beyond the end.
    pub(crate) fn end_lowered_at(&self) -> Lsn {
        Lsn(self.end_lowered_at.load(Ordering::Acquire))
    }
}
