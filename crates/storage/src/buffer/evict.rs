//! Emptying frames: what the [replacement policy](super::replacement) names goes, if it is clean and not in use.

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

/// One shard's frames but those never used: in the policy's hands with a page, else free.
#[derive(Debug)]
pub(super) struct Shard {
    /// Frames without a page.
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
    /// Empties frames of a shard into its free list until it has `want`, as many pages as may wait to be written do, or
    /// `looks` frames have been looked at. False without any progress: no page was evicted, queued for writing or aged.
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

    /// Takes the page out of a frame that is in no queue, if it is clean and no thread holds its latch.
    pub(super) fn try_evict(&self, victim: &Candidate) -> Result<(), NotEvicted> {
        let frame = &self.frames.as_slice()[victim.frame as usize];
        if frame.is_dirty() && !self.poison.is_closed() {
            return Err(NotEvicted::Dirty);
        }
        if frame.writing.load(Ordering::Acquire) {
            return Err(NotEvicted::Busy);
        }
        let Some(write) = frame.try_write() else { return Err(NotEvicted::Busy) };
        // Checked again, now that no other thread can change it.
        if frame.is_dirty() {
            // A writer marks a page before the log takes its record. Of a closed instance it takes none, and such a page has
            // no change from there on.
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
        // The version moves on: a reader that read here, or found this frame and has not begun, will notice.
        drop(write);
        Ok(())
    }

    /// Withholds a page that no tree uses: until [`BufferPool::readmit`] it is neither read nor in a frame. What its frame
    /// holds, as after a refused change, is never written. False if another thread reads it or holds its latch at the
    /// moment, or it is being read or written; the caller releases its latches and [pauses](BufferPool::pause) before it
    /// tries again.
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
        // The frame stays in its queue; when it comes out without a page it becomes free.
        frame.uses.clear();
        frame.recovery_lsn.store(0, Ordering::Release);
        self.table.remove_and_withhold(id, self.index_of(frame));
        frame.set_page_id(PageId::NONE);
        true
    }

    /// Waits a little for a page that another thread reads or writes. That thread may itself be waiting for the log, on
    /// a fiber of this thread, so this gives way through the hook. No latch may be held.
    pub(crate) fn pause(&self) {
        self.hook.block_for(&WaitToken::new(), BlockReason::Room, Duration::from_micros(20));
    }

    /// Lets pages be read that were withheld.
    pub(crate) fn readmit(&self, pages: Range<u32>) {
        pages.for_each(|page| self.table.readmit(PageId(page)));
    }

    /// Whether the page is withheld.
    pub(crate) fn is_withheld(&self, id: PageId) -> bool {
        matches!(self.table.place(id), Some(Residency::Withheld(_)))
    }

    /// Notes that pages below `end` are in use. Pages from there on that were stay readable until
    /// [`BufferPool::set_pages_end`]: a thread may hold the number of a page that has just been moved. The caller holds the
    /// allocator's latch.
    pub(crate) fn raise_pages_end(&self, end: u32) {
        self.pages_end.fetch_max(end, Ordering::Release);
    }

    /// Notes the first page that was never used. The caller holds the allocator's latch, or is the only thread.
    pub(crate) fn set_pages_end(&self, end: u32) {
        self.pages_end.store(end, Ordering::Release);
    }
}
