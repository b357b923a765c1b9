//! Which page is evicted when a frame is needed: S3-FIFO.
//!
//! Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, section 4. Pages enter a small queue (a
//! tenth of the frames) on probation. At its end a page that has been used again moves to the main queue, any other
//! page is evicted. The main queue is a clock: at its end a used page is put back with one use less, an unused one is
//! evicted. A page that comes back soon after its eviction from probation enters the main queue directly. So one pass
//! of a scan, however long, moves through the small queue only, and the proven pages stay.
//!
//! Differences from the paper:
//! * The ghost queue lies in the absent entries of the page table, as eviction numbers. It reaches back half
//!   as far as the paper's: 5% fewer misses on the page uses of TPC-C (`tests/larger.rs`).
//! * A miss counts as the first use, because the reader that caused it touches the page once it is there.
//! * Inner pages of trees enter the main queue, with all their uses: a leaf that stays without its parent saves
//!   nothing.
//! * A page that should be evicted but is dirty waits in a third queue, `washing`, until it is written. That queue is
//!   short: when it was not, clean pages were evicted in place of dirty ones, and TPC-C in a pool of a third of the
//!   database had seven times the misses.
//! * Queues are sharded by frame number; a page takes a frame of its own shard when there is one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::BufferPool;
use super::frame::{Frame, MAX_USES};
use crate::base::ids::PageId;
use crate::page::header::{KIND, Kind};

/// Uses that take a page from probation to the main queue: the miss itself, and another.
pub(super) const PROVEN_USES: u8 = 2;

/// A page that comes back within `frames / GHOST_PART` evictions counts as proven.
pub(super) const GHOST_PART: usize = 2;

/// One shard's frames. Each frame is in exactly one of the queues, or never used yet, or in the hands of
/// the thread that took it out.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Frames without a page.
    pub(super) free: Vec<u32>,
    /// Pages on probation, oldest first.
    small: VecDeque<u32>,
    /// Proven pages.
    main: VecDeque<u32>,
    /// Pages that would have been evicted if they had not been dirty.
    pub(super) washing: VecDeque<u32>,
    /// Length of `small` above which victims come from it.
    small_target: usize,
}

/// How a page enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryQueue {
    Probation,
    Proven,
}

/// The result of an attempt to empty a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Evicted {
    Yes,
    Dirty,
    Busy,
}

impl Queues {
    pub(super) fn new(frames: usize) -> Queues {
        Queues { small_target: (frames / 10).max(1), ..Queues::default() }
    }

    /// A page has come into `frame`.
    pub(super) fn enter(&mut self, frame: u32, entry: EntryQueue) {
        match entry {
            EntryQueue::Probation => self.small.push_back(frame),
            EntryQueue::Proven => self.main.push_back(frame),
        }
    }

    /// The next frame whose page should be evicted, and the queue it was in; looks at up to `limit` frames.
    fn victim(&mut self, frames: &[Frame], limit: &mut usize) -> Option<(u32, EntryQueue)> {
        while *limit > 0 {
            *limit -= 1;
            if self.small.len() > self.small_target || self.main.is_empty() {
                let index = self.small.pop_front()?;
                let frame = &frames[index as usize];
                let uses = frame.uses.load(Ordering::Relaxed);
                if uses >= PROVEN_USES {
                    frame.uses.store(0, Ordering::Relaxed);
                    self.main.push_back(index);
                } else if uses > 0 && is_inner(frame) {
                    frame.uses.store(MAX_USES, Ordering::Relaxed);
                    self.main.push_back(index);
                } else {
                    return Some((index, EntryQueue::Probation));
                }
            } else {
                let index = self.main.pop_front()?;
                let frame = &frames[index as usize];
                let uses = frame.uses.load(Ordering::Relaxed);
                if uses == 0 {
                    return Some((index, EntryQueue::Proven));
                }
                frame.uses.store(uses - 1, Ordering::Relaxed);
                self.main.push_back(index);
            }
        }
        None
    }
}

/// Whether the page looks like an inner page. A hint: nothing is latched.
pub(super) fn is_inner(frame: &Frame) -> bool {
    frame.bytes().u8(KIND) == Kind::Inner as u8
}

impl BufferPool {
    /// Empties frames of a shard into its free list until it has `want`, `washing` has `wash`, or `limit` frames have
    /// been looked at. False without any progress: no page was evicted, queued for writing or aged.
    pub(super) fn evict_clean(&self, queues: &mut Queues, want: usize, wash: usize, mut limit: usize) -> bool {
        let frames = self.frames.as_slice();
        let mut moved = false;
        while queues.free.len() < want && queues.washing.len() < wash {
            let before = limit;
            let victim = queues.victim(frames, &mut limit);
            moved |= before - limit > 1;
            let Some((index, from)) = victim else { break };
            match self.try_evict(index, from) {
                Evicted::Yes => {
                    moved = true;
                    queues.free.push(index);
                }
                Evicted::Dirty => {
                    moved = true;
                    // Uses from now on keep the page in the pool.
                    frames[index as usize].uses.store(0, Ordering::Relaxed);
                    queues.washing.push_back(index);
                }
                Evicted::Busy => queues.enter(index, from),
            }
        }
        moved
    }

    /// Takes the page out of a frame that is in no queue, if it is clean and no thread holds its latch.
    pub(super) fn try_evict(&self, index: u32, from: EntryQueue) -> Evicted {
        let frame = &self.frames.as_slice()[index as usize];
        if frame.is_dirty() {
            return Evicted::Dirty;
        }
        if frame.writing.load(Ordering::Acquire) {
            return Evicted::Busy;
        }
        let Some(write) = frame.try_write() else { return Evicted::Busy };
        // Checked again, now that no other thread can change it.
        if frame.is_dirty() {
            write.release_unchanged();
            return Evicted::Dirty;
        }
        if frame.writing.load(Ordering::Acquire) {
            write.release_unchanged();
            return Evicted::Busy;
        }
        let id = frame.page_id();
        if !id.is_none() {
            let number = self.counters.evictions.fetch_add(1, Ordering::Relaxed) as u32;
            self.table.remove(id, index, (from == EntryQueue::Probation).then_some(number));
            frame.set_page_id(PageId::NONE);
        }
        // The version moves on: a reader that read here, or found this frame and has not begun, will notice.
        drop(write);
        Evicted::Yes
    }

    /// Takes a page that no tree has ever used out of the pool: its frame holds what a refused change left there, which
    /// must not be written. False if another thread holds its latch at the moment; the caller releases its latches
    /// before it tries again.
    pub(crate) fn discard(&self, id: PageId) -> bool {
        let Some(frame) = self.get(id) else { return true };
        let Some(write) = frame.try_write() else { return false };
        if frame.page_id() != id || frame.writing.load(Ordering::Acquire) {
            write.release_unchanged();
            return false;
        }
        frame.uses.store(0, Ordering::Relaxed);
        frame.recovery_lsn.store(0, Ordering::Release);
        self.take_out(frame);
        true
    }

    /// Takes the page out of a frame whose latch the caller holds. The frame stays in its queue; when it comes out
    /// without a page it becomes free.
    fn take_out(&self, frame: &Frame) {
        self.table.remove(frame.page_id(), self.index_of(frame), None);
        frame.set_page_id(PageId::NONE);
    }
}
