//! The background cleaner, which works in bounded steps, and the function that writes all dirty pages.
//!
//! The cleaner has three goals. Every step works on each goal, so that no goal waits until the others have nothing to do:
//! * *Room*: keep frames free, so that a miss finds a free frame and does not write. If the number of free frames of a shard
//!   falls below its low mark, all shards are filled to the high mark: the pages that the replacement policy selects are
//!   evicted, after the dirty ones among them have been written. Frames that have never been used count as free.
//! * *Memory*: obtain memory from the operating system for the frames that will be used for the first time next. A worker
//!   whose database grows then does not wait while the system zeroes pages.
//! * *Log*: write the pages whose oldest unwritten change is older than the caller's limit, oldest first, and sync the file,
//!   so that the log can be truncated up to this limit. A page that another thread or the goal *room* has already written is
//!   not written again.
//!
//! If the database fits in memory and the log is short enough, only the goal *memory* has work.

use crate::base::sync::plain::Ordering;
use std::cmp::Reverse;
use std::time::Duration;

use super::BufferPool;
use super::homes::Homes;
use super::room::MIN_EVICTABLE;
use super::write::BATCH;
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::Lsn;

/// Number of frames of one shard that one step of the cleaner examines.
const EXAMINED_FRAMES: usize = 1024;
/// Memory is obtained in advance for new frames: their number is the number of used frames divided by this, up to a limit.
const AHEAD_PART: usize = 8;
const AHEAD_MAX: usize = 8192;
/// Maximum number of frames for which one step obtains memory.
const AHEAD_STEP: usize = 256;
/// Number of oldest pages that are sorted by position in the file: large enough to find pages with consecutive numbers,
/// small enough to let the log be truncated early.
const WINDOW: usize = 2048;
/// Minimum time between two plans of the goal *log*, in nanoseconds, unless the goal has advanced far.
const PLAN_EVERY_NS: u64 = 200_000_000;
/// Cost of examining one frame, in nanoseconds. The scans of all frames may take a tenth of the running time.
const LOOK_NS: u64 = 100;
/// Time after which written pages are synced even without a request, in nanoseconds, so that the changes of an idle database
/// become durable.
const SYNC_AFTER_NS: u64 = 30_000_000_000;

/// Target of the cleaner's goal *log*, set by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CleanGoal {
    /// LSN below which all changes are to reach the disk, at most the log's tail. `Lsn::ZERO` if nothing is to be written.
    pub(crate) write_before: Lsn,
    /// Advance of the goal, in bytes of log, after which the oldest pages are searched again regardless of the time.
    pub(crate) step: u64,
}

/// Result of a step of the cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum CleanStep {
    /// There is no work, or no work that can be done at the moment. The caller should wait a little.
    Idle,
    /// The step did work. More work may be left.
    Worked {
        /// Number of pages written for the goal *room* (or evicted after that, if more) and for the goal *log*.
        pages: usize,
    },
}

/// The cleaner's state between steps.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// Recovery LSNs and frames to write for the goal *log*, in reverse order: the next frame to write is last.
    plan: Vec<(Lsn, u32)>,
    /// Time at which the current plan was made, in nanoseconds.
    planned_at: Option<u64>,
    planned_for: Lsn,
    /// True if a page of the plan still has changes below the goal: another thread was writing the page, or the page changed
    /// while it was being written.
    left: bool,
    /// Lower bound of the recovery LSNs of dirty pages. Pages that become dirty later have larger recovery LSNs.
    none_below: Lsn,
    /// Time at which unsynced pages were first observed, in nanoseconds.
    unsynced_since: Option<u64>,
    /// Number of the first frame whose memory has not been obtained.
    populated: usize,
}

/// A step in progress. It takes the cleaner's state out of the pool, so that no mutex is locked while the step waits for the
/// log.
struct Turn<'p> {
    pool: &'p BufferPool,
    cleaner: Cleaner,
}

impl Turn<'_> {
    /// Begins a step. Returns `None` if another step is in progress.
    fn take(pool: &BufferPool) -> Option<Turn<'_>> {
        let cleaner = pool.cleaner.lock().take()?;
        Some(Turn { pool, cleaner })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.pool.cleaner.lock() = Some(std::mem::take(&mut self.cleaner));
    }
}

impl BufferPool {
    /// Performs one step: writes at most one batch of pages for each goal, and syncs the file if that is due. The caller
    /// holds no latch. Does nothing if another thread or fiber is performing a step.
    ///
    /// # Errors
    /// A failed write or sync closes the instance. [`StorageError::NoSpace`] leaves the pages dirty.
    pub(crate) fn clean_step(&self, now_ns: u64, goal: CleanGoal) -> Result<CleanStep, StorageError> {
        let Some(mut turn) = Turn::take(self) else { return Ok(CleanStep::Idle) };
        let cleaner = &mut turn.cleaner;
        self.poison.check()?;
        self.cleaner_called.store(false, Ordering::Release);
        let room = self.make_room();
        let populated = self.populate_ahead(cleaner);
        let wants_log = goal.write_before > cleaner.none_below || !cleaner.plan.is_empty();
        let written = if wants_log { self.write_oldest(cleaner, now_ns, goal)? } else { 0 };
        let synced = self.sync_if_due(cleaner, now_ns, goal.write_before)?;
        let room = room?;
        if room.is_some() || populated || written > 0 || synced {
            return Ok(CleanStep::Worked { pages: room.unwrap_or(0) + written });
        }
        Ok(CleanStep::Idle)
    }

    /// Works on the goal *room*. Returns the number of pages written or evicted, or `None` if there was no work or no
    /// progress.
    fn make_room(&self) -> Result<Option<usize>, StorageError> {
        let enough = self.unused_frames() >= self.reserve_low * self.shards.len()
            || self.shards.iter().all(|shard| shard.lock().free.len() >= self.reserve_low);
        if enough {
            return Ok(None);
        }
        let (mut short, mut moved) = (false, false);
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.policy.evictable() >= MIN_EVICTABLE {
                moved |= self.evict_clean(&mut shard, self.reserve_high, EXAMINED_FRAMES);
            }
            short |= shard.free.len() < self.reserve_high;
        }
        let pages = if short { self.write_victims(0, BATCH)? } else { 0 };
        // If other threads hold all pages, nothing can be done now.
        Ok((moved || pages > 0).then_some(pages))
    }

    /// Works on the goal *memory*. Returns true if memory was requested. Too few frames without memory do not justify a
    /// call.
    fn populate_ahead(&self, cleaner: &mut Cleaner) -> bool {
        if self.homes.as_ref().is_some_and(Homes::are_on_several_nodes) {
            // The thread that takes a frame for a page must touch it first, so that the frame's memory is on the node of
            // this thread.
            return false;
        }
        let used = self.used_frames().len();
        let ahead = used + (used / AHEAD_PART).min(AHEAD_MAX);
        let from = cleaner.populated.max(used);
        let to = from + AHEAD_STEP;
        if to > ahead.min(self.frame_count()) {
            return false;
        }
        // If the system does not support this, or has no memory left, the call is not repeated.
        cleaner.populated = if self.frames.populate(from..to) { to } else { self.frame_count() };
        true
    }

    /// Works on the goal *log*: writes the next batch of the plan. Makes a new plan if the old one is finished.
    fn write_oldest(&self, cleaner: &mut Cleaner, now_ns: u64, goal: CleanGoal) -> Result<usize, StorageError> {
        let before = goal.write_before;
        if cleaner.plan.is_empty() {
            // Callers let the goal follow the log's tail. A scan of every frame for each few new pages would keep a core
            // busy and produce small batches.
            let moved = before.0.saturating_sub(cleaner.planned_for.0) >= goal.step;
            let pause = if moved { self.look_pause_ns() } else { PLAN_EVERY_NS };
            if cleaner.planned_at.is_some_and(|then| now_ns.saturating_sub(then) < pause) {
                return Ok(0);
            }
            self.plan(&mut cleaner.plan, before);
            (cleaner.planned_at, cleaner.planned_for, cleaner.left) = (Some(now_ns), before, false);
        }
        let planned_for = cleaner.planned_for;
        // If another thread has already written the pages of a batch, the next batch is tried.
        let mut written = 0;
        while written == 0 && !cleaner.plan.is_empty() {
            let rest = cleaner.plan.len().saturating_sub(BATCH);
            let mut batch = self.batch();
            let frames = self.frames.as_slice();
            let lacks = |frame: &u32| Self::recovery_lsn(&frames[*frame as usize]).is_some_and(|lsn| lsn < planned_for);
            batch.frames.extend(cleaner.plan[rest..].iter().map(|(_, frame)| *frame).filter(lacks));
            let result = self.write_batch(&mut batch);
            self.keep(batch);
            written = result?;
            for (_, frame) in cleaner.plan.drain(rest..) {
                let lsn = Self::recovery_lsn(&self.frames.as_slice()[frame as usize]);
                cleaner.left |= lsn.is_some_and(|lsn| lsn < cleaner.planned_for);
            }
        }
        if cleaner.plan.is_empty() && !cleaner.left {
            cleaner.none_below = cleaner.planned_for;
        }
        Ok(written)
    }

    /// Returns the minimum time between two scans of all frames, in nanoseconds. It keeps the cost of the scans low.
    pub(crate) fn look_pause_ns(&self) -> u64 {
        (self.used_frames().len() as u64 * 10 * LOOK_NS).min(PLAN_EVERY_NS)
    }

    /// Fills `plan` with the dirty pages that have changes below `before`.
    fn plan(&self, plan: &mut Vec<(Lsn, u32)>, before: Lsn) {
        for (index, frame) in self.used_frames().iter().enumerate() {
            if let Some(lsn) = Self::recovery_lsn(frame)
                && lsn < before
            {
                plan.push((lsn, index as u32));
            }
        }
        plan.sort_unstable_by(|a, b| b.cmp(a));
        for window in plan.rchunks_mut(WINDOW) {
            // The sort caches its keys, because a page number may change during the sort.
            window.sort_by_cached_key(|(_, index)| Reverse(self.frames.as_slice()[*index as usize].page_id()));
        }
    }

    /// Syncs the file if the goal *log* has nothing left to write, if half of the doublewrite slots wait for a sync, or if
    /// `SYNC_AFTER_NS` has passed. Returns true if it has synced the file.
    fn sync_if_due(&self, cleaner: &mut Cleaner, now_ns: u64, before: Lsn) -> Result<bool, StorageError> {
        let oldest = self.unsynced.lock().oldest();
        if oldest == Lsn::MAX {
            cleaner.unsynced_since = None;
            return Ok(false);
        }
        let since = *cleaner.unsynced_since.get_or_insert(now_ns);
        let meets_goal = oldest >= before || !cleaner.plan.is_empty();
        if meets_goal && now_ns.saturating_sub(since) < SYNC_AFTER_NS && !self.aside.wants_sync() {
            return Ok(false);
        }
        self.sync()?;
        cleaner.unsynced_since = None;
        Ok(true)
    }

    /// Writes every page that is dirty now and syncs the file. On return, all changes made before the call are durable.
    /// Other threads may change pages during the call. The caller holds no latch.
    ///
    /// # Errors
    /// As [`BufferPool::clean_step`].
    pub(crate) fn flush_all(&self) -> Result<(), StorageError> {
        let frames = self.frames.as_slice();
        let mut todo: Vec<(Lsn, u32)> = Vec::new();
        for (index, frame) in self.used_frames().iter().enumerate() {
            if let Some(lsn) = Self::recovery_lsn(frame) {
                todo.push((lsn, index as u32));
            }
        }
        todo.sort_by_cached_key(|(_, index)| frames[*index as usize].page_id());

        let token = WaitToken::new();
        while !todo.is_empty() {
            let mut written = 0;
            for some in todo.chunks(BATCH) {
                let mut batch = self.batch();
                batch.frames.extend(some.iter().map(|(_, index)| *index));
                let result = self.write_batch(&mut batch);
                self.keep(batch);
                written += result?;
            }
            // If the oldest unwritten change of a page differs from before, this thread or another has written the page.
            todo.retain(|(lsn, index)| Self::recovery_lsn(&frames[*index as usize]) == Some(*lsn));
            if written == 0 && !todo.is_empty() {
                self.hook.block_for(&token, BlockReason::Room, Duration::from_millis(1));
            }
        }
        self.sync()
    }
}
