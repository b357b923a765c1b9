//! Allocation and reservation of free frames.

use crate::base::sync::plain::Ordering;
use std::time::Duration;

use super::frame::{Frame, FrameWrite};
use super::homes::Homes;
use super::page_table::Residency;
use super::replacement::{Arrival, NotEvicted};
use super::stats::add;
use super::{BufferPool, SPARE_FRAMES};
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{Lsn, PageId};
use crate::base::latches::assert_none_held;
use crate::page::header;

/// Number of frames of one shard that a worker examines at a time in search of a clean one.
const EXAMINED_FRAMES: usize = 256;
/// Number of pages that a worker writes at once if it has to write.
const WRITE_PAGES: usize = 32;
/// Number of rounds without progress, with waits of up to 5 ms between them, after which the pool counts as exhausted.
const ROUNDS: u32 = 200;
/// Number of pages below which a shard is skipped in an eviction, except the first shard that is tried: more than one descent
/// reads. The pages of a descent would otherwise evict each other without end.
pub(super) const MIN_EVICTABLE: usize = 8;

/// A frame without a page, which only the owner of this value can use. Dropping it returns the frame to the free list.
#[derive(Debug)]
pub(super) struct FreeFrame<'a> {
    pool: &'a BufferPool,
    index: u32,
}

impl<'a> FreeFrame<'a> {
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn frame(&self) -> &'a Frame {
        &self.pool.frames.as_slice()[self.index as usize]
    }

    /// Adds the frame to the queues of the replacement policy. The frame now has a page, and the frame's latch is held.
    pub(super) fn enter(self, how: Arrival) {
        let (pool, frames) = (self.pool, self.pool.frames.as_slice());
        if pool.shard_of_frame(self.index).lock().policy.arrived(frames, self.index, how) {
            add(&pool.counters.ghost_hits, 1);
        }
        std::mem::forget(self);
    }
}

impl Drop for FreeFrame<'_> {
    fn drop(&mut self) {
        self.pool.shard_of_frame(self.index).lock().free.push(self.index);
    }
}

/// Frames taken out of circulation by [`BufferPool::reserve`]. Dropping it returns the frames that were not used.
#[derive(Debug)]
pub(crate) struct ReservedFrames<'a> {
    pool: &'a BufferPool,
    frames: Vec<FreeFrame<'a>>,
}

impl<'a> ReservedFrames<'a> {
    /// Returns the number of frames left.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Creates the page `id`, whose number is being allocated. The page is all zeros except for its number, and exclusively
    /// latched. Other threads can find the page as soon as the latch is released. The former content of the page is
    /// irrelevant. The caller formats the page, sets its LSN and marks it dirty.
    ///
    /// Waits for latches only: other threads may have found the former page with this number. If a thread is reading the
    /// former page at this moment, because of a stale reference, that thread finds at the end of its read that the page is
    /// in another frame.
    ///
    /// # Panics
    /// Panics if no frame is left, or if no page can have the number `id`.
    pub(crate) fn create(&mut self, id: PageId) -> FrameWrite<'a> {
        let pool = self.pool;
        loop {
            match pool.table.place(id) {
                None => panic!("page {id} cannot be created: the table ends before it"),
                Some(Residency::Frame(index)) => {
                    let write = pool.frames.as_slice()[index as usize].write(&pool.latching);
                    if write.frame().page_id() == id {
                        return begin(write, id);
                    }
                    write.release_unchanged();
                }
                Some(Residency::Absent(entry) | Residency::Loading(entry) | Residency::Withheld(entry)) => {
                    let free = self.frames.last().expect("a reservation of fewer pages than were created");
                    let write = free.frame().write(&pool.latching);
                    if !pool.table.install(id, entry, free.index()) {
                        write.release_unchanged();
                        continue;
                    }
                    let frame = write.frame();
                    frame.set_page_id(id);
                    frame.recovery_lsn.store(0, Ordering::Relaxed);
                    add(&pool.counters.creates, 1);
                    if let Some(free) = self.frames.pop() {
                        free.enter(Arrival::Created);
                    }
                    return begin(write, id);
                }
            }
        }
    }
}

fn begin(mut write: FrameWrite<'_>, id: PageId) -> FrameWrite<'_> {
    let mut page = write.page_mut();
    page.bytes().fill(0);
    page.put_u32(header::ID, id.0);
    write.frame().set_made();
    write
}

impl BufferPool {
    /// Takes `n` free frames out of circulation. The caller holds no latch: this function may evict, write and wait.
    ///
    /// # Errors
    /// Errors of writing dirty pages. [`StorageError::PoolExhausted`] if no frame became free for about a second.
    pub(crate) fn reserve(&self, n: usize) -> Result<ReservedFrames<'_>, StorageError> {
        let mut frames = Vec::with_capacity(n);
        for _ in 0..n {
            let hint = self.home_or(|| self.next_shard.fetch_add(1, Ordering::Relaxed) as usize);
            frames.push(self.take_frame(hint)?);
        }
        Ok(ReservedFrames { pool: self, frames })
    }

    /// Reserves one frame and creates a page in it. The caller holds no latch.
    ///
    /// # Errors
    /// As [`BufferPool::reserve`].
    pub(crate) fn create(&self, id: PageId) -> Result<FrameWrite<'_>, StorageError> {
        Ok(self.reserve(1)?.create(id))
    }

    /// Returns the free frame with this number, which the caller has taken out of circulation.
    pub(super) fn adopt(&self, index: u32) -> FreeFrame<'_> {
        FreeFrame { pool: self, index }
    }

    /// Takes a frame without a page, preferably from the shard `hint`. The caller holds no latch.
    pub(super) fn take_frame(&self, hint: usize) -> Result<FreeFrame<'_>, StorageError> {
        assert_none_held("a wait for room in the pool");
        let token = WaitToken::new();
        let mut stuck = 0;
        while stuck < ROUNDS {
            if let Some(free) = self.free_frame(hint) {
                return Ok(free);
            }
            if self.poison.is_closed() {
                return self.take_frame_to_read(hint);
            }
            let mut moved = false;
            if let Some(free) = self.evict_one(hint, &mut moved) {
                return Ok(free);
            }
            if self.write_victims(hint, WRITE_PAGES)? > 0 {
                add(&self.counters.writes_by_workers, 1);
            } else if !moved {
                // All pages are latched or being written by other threads, which finish without help from this thread.
                let limit = Duration::from_micros(20 << stuck.min(8));
                self.hook.block_for(&token, BlockReason::Room, limit);
                stuck += 1;
            }
        }
        Err(StorageError::PoolExhausted { frames: self.frame_count() })
    }

    /// Like [`BufferPool::take_frame`], for an instance that is closed to commits. Nothing is written any more, so pages
    /// with changes keep their frames. Clean pages are evicted while the whole pool has at least [`MIN_EVICTABLE`] of them.
    #[cold]
    fn take_frame_to_read(&self, hint: usize) -> Result<FreeFrame<'_>, StorageError> {
        self.shards.iter().for_each(|shard| shard.lock().policy.write_no_more());
        let token = WaitToken::new();
        let mut stuck = 0;
        while stuck < ROUNDS {
            if let Some(free) = self.spare_frame() {
                return Ok(free);
            }
            let mut moved = false;
            let evictable: usize = self.shards.iter().map(|shard| shard.lock().policy.evictable()).sum();
            if evictable >= MIN_EVICTABLE
                && let Some(free) = self.evict_one(hint, &mut moved)
            {
                return Ok(free);
            }
            if !moved {
                let limit = Duration::from_micros(20 << stuck.min(8));
                self.hook.block_for(&token, BlockReason::Room, limit);
                stuck += 1;
            }
        }
        Err(StorageError::PoolExhausted { frames: self.frame_count() })
    }

    /// Takes a spare frame that has never held a page. Returns `None` if all spare frames are in use.
    fn spare_frame(&self) -> Option<FreeFrame<'_>> {
        let used = self.spares_used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            ((used as usize) < SPARE_FRAMES).then_some(used + 1)
        });
        used.ok().map(|used| FreeFrame { pool: self, index: self.frame_count() as u32 + used })
    }

    /// Takes a frame that is already free or was never used. Returns `None` if there is none.
    pub(super) fn free_frame(&self, hint: usize) -> Option<FreeFrame<'_>> {
        let shard = &self.shards[hint % self.shards.len()];
        let mut shard = shard.lock();
        let popped = shard.free.pop();
        let left = shard.free.len();
        drop(shard);
        let unused = self.unused_frames();
        if left < self.reserve_low && unused < self.reserve_low * self.shards.len() {
            self.call_cleaner();
        }
        if let Some(index) = popped {
            return Some(FreeFrame { pool: self, index });
        }
        if let (Some(homes), true) = (&self.homes, unused > 0) {
            return self.new_chunk(homes, hint % self.shards.len());
        }
        if unused > 0 {
            let index = self.never_used.fetch_add(1, Ordering::AcqRel);
            if (index as usize) < self.frame_count() {
                return Some(FreeFrame { pool: self, index });
            }
            // Prevents an overflow of the counter. Only threads that race at this moment get here.
            self.never_used.store(self.frame_count() as u32, Ordering::Relaxed);
        }
        None
    }

    /// Takes a chunk of frames that have never held a page. Returns the first frame of the chunk and adds the others to the
    /// shard's free list.
    fn new_chunk(&self, homes: &Homes, shard: usize) -> Option<FreeFrame<'_>> {
        let all = self.frame_count() as u32;
        let first = self.never_used.fetch_add(homes.chunk() as u32, Ordering::AcqRel);
        if first >= all {
            // Prevents an overflow, as for a single frame.
            self.never_used.store(all, Ordering::Relaxed);
            return None;
        }
        homes.give(first, shard);
        let end = (first + homes.chunk() as u32).min(all);
        // The list is popped from its end, so that the lowest number is used first.
        self.shards[shard].lock().free.extend((first + 1..end).rev());
        Some(FreeFrame { pool: self, index: first })
    }

    /// Returns the number of frames that have never held a page.
    pub(super) fn unused_frames(&self) -> usize {
        self.frame_count().saturating_sub(self.never_used.load(Ordering::Relaxed) as usize)
    }

    /// Takes a frame by evicting a clean page, or takes a free frame of another shard. Begins with the shard `hint`, or with
    /// the shard that has the most pages if `hint` has fewer than [`MIN_EVICTABLE`]. Sets `moved` if there was any progress.
    pub(super) fn evict_one(&self, hint: usize, moved: &mut bool) -> Option<FreeFrame<'_>> {
        let shards = self.shards.len();
        let evictable = |shard: &usize| self.shards[*shard].lock().policy.evictable();
        let hint = hint % shards;
        let first = match evictable(&hint) {
            MIN_EVICTABLE.. => hint,
            _ => (0..shards).max_by_key(evictable).unwrap_or(hint),
        };
        for i in 0..shards {
            let mut shard = self.shards[(first + i) % shards].lock();
            if i == 0 || shard.policy.evictable() >= MIN_EVICTABLE {
                *moved |= self.evict_clean(&mut shard, 1, EXAMINED_FRAMES);
            }
            if let Some(index) = shard.free.pop() {
                return Some(FreeFrame { pool: self, index });
            }
        }
        None
    }

    /// Writes up to `n` pages that wait to be written before their eviction, and then evicts the pages that no thread has
    /// used in the meantime. Returns the number of pages written or the number evicted, whichever is larger.
    pub(super) fn write_victims(&self, hint: usize, n: usize) -> Result<usize, StorageError> {
        let frames = self.frames.as_slice();
        let mut victims = Vec::new();
        for i in 0..self.shards.len() {
            let mut shard = self.shards[(hint + i) % self.shards.len()].lock();
            while victims.len() < n {
                let Some(victim) = shard.policy.next_to_write() else { break };
                victims.push(victim);
            }
        }
        if victims.is_empty() {
            return Ok(0);
        }
        let mut batch = self.batch();
        batch.frames.extend(victims.iter().map(|victim| victim.frame));
        let result = self.write_batch(&mut batch);
        self.keep(batch);
        let mut freed = 0;
        for victim in victims {
            let evicted = if victim.is_wanted_again(frames) { Err(NotEvicted::Busy) } else { self.try_evict(&victim) };
            let mut shard = self.shard_of_frame(victim.frame).lock();
            match evicted {
                Ok(()) => {
                    freed += 1;
                    shard.free.push(victim.frame);
                }
                Err(why) => shard.policy.put_back(frames, victim, why),
            }
        }
        result.map(|written| written.max(freed))
    }

    /// Returns the number of `frame` in this pool.
    pub(crate) fn index_of(&self, frame: &Frame) -> u32 {
        let base = self.frames.as_slice().as_ptr().addr();
        ((std::ptr::from_ref(frame).addr() - base) / size_of::<Frame>()) as u32
    }

    /// Returns the LSN at which a restart would have to begin because of this frame. `None` if the frame is clean.
    pub(super) fn recovery_lsn(frame: &Frame) -> Option<Lsn> {
        match frame.recovery_lsn.load(Ordering::Acquire) {
            0 => None,
            lsn => Some(Lsn(lsn)),
        }
    }
}
