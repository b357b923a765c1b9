//! The buffer pool.
#![doc = include_str!("README.md")]

pub(crate) mod ahead;
mod aside;
mod cleaner;
mod copying;
mod cut;
mod due;
mod durable;
mod evict;
pub(crate) mod file;
pub(crate) mod frame;
mod halfway;
mod homes;
mod load;
mod page_table;
mod preload;
mod readers;
mod replacement;
mod room;
pub(crate) mod shortcuts;
mod stats;
mod write;

#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::base::sync::plain::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crossbeam::utils::CachePadded;

use self::aside::AsideRing;
use self::cleaner::Cleaner;
use self::copying::DirectWrites;
use self::due::DuePages;
use self::durable::Unsynced;
use self::evict::Shard;
use self::file::{PageFile, WriteAhead};
use self::frame::{Frame, FrameWrite};
use self::halfway::Noted;
use self::homes::Homes;
use self::load::Waiter;
use self::page_table::{MAX_FRAMES, PageTable};
use self::readers::Readers;
use self::replacement::Replacement;
use self::shortcuts::Shortcuts;
use self::stats::Counters;
use self::write::{BATCH, WriteBatch};
use crate::base::arena::{Arena, PageSize};
use crate::base::config::{FrameHomes, LatchKind};
use crate::base::error::StorageError;
use crate::base::hook::{Hook, thread_number};
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::base::point::Points;
use crate::base::poison::Poison;
use crate::base::sync::Mutex;
use crate::io::topology::Nodes;
use crate::latch::{Latching, PROMOTE_AT};

pub(crate) use self::cleaner::{CleanGoal, CleanStep};
pub(crate) use self::copying::CopyReader;
pub(crate) use self::room::Reserved;
pub(crate) use self::stats::PoolStats;

/// Bytes of a frame: how far apart headers are.
#[cfg(feature = "measure")]
pub(crate) const fn frame_bytes() -> usize {
    size_of::<Frame>()
}

/// With at least this many frames per shard another shard is worth its cost.
const SHARD_FRAMES: usize = 2048;
const MAX_SHARDS: usize = 8;
const WAITER_SHARDS: usize = 16;
/// Pools of at least this many frames, those of 16 MiB, ask the system for large pages, which save time and take up to 2 MiB
/// more a region.
pub(crate) const LARGE_FRAMES: usize = (16 << 20) / size_of::<Frame>();
/// Least number of frames of a pool.
pub(crate) const MIN_FRAMES: usize = 16;
/// Frames beside the pool's own that are used once the instance is closed to commits, for then dirty pages keep theirs. As
/// many pages are read at a time, if all others are dirty. Their memory is untouched until then.
pub(crate) const SPARE_FRAMES: usize = 16;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolOptions {
    /// Frames, each of 8,256 bytes of memory, and about 32 for shortcuts; at least [`MIN_FRAMES`].
    pub(crate) frames: usize,
    /// How readers exclude writers.
    pub(crate) latches: LatchKind,
    /// Reads that promote a latch, under [`LatchKind::Super`].
    pub(crate) promote_at: u16,
    /// Reader words that a superlatch has, at most [`MOST_WORDS`](crate::latch::MOST_WORDS).
    pub(crate) latch_words: usize,
    /// Whether pages are checked when they are read. They are sealed in any case.
    pub(crate) checksums: bool,
    /// Whether the content of pages is checked when they are read: see [`crate::page::sound`].
    pub(crate) sound: bool,
    /// Pages the file may ever have: 4 bytes of address space each.
    pub(crate) max_pages: u32,
    /// Pages by which the file grows at least.
    pub(crate) grow_pages: u32,
    /// Pages of the memory that it lies in.
    pub(crate) memory: PageSize,
    /// Which frames a thread gives to pages.
    pub(crate) homes: FrameHomes,
    /// Frames of a shard at least, where there are several; and of a chunk of those that homes take.
    pub(crate) shard_frames: usize,
    pub(crate) home_chunk: usize,
    /// Whether a simulation numbers the threads, so that a run can be repeated.
    pub(crate) simulated: bool,
}

impl PoolOptions {
    /// Settings for a pool of `frames` frames.
    pub(crate) fn new(frames: usize) -> PoolOptions {
        PoolOptions {
            frames,
            latches: LatchKind::Optimistic,
            promote_at: PROMOTE_AT,
            latch_words: 2,
            checksums: true,
            sound: false,
            max_pages: if cfg!(miri) { 1 << 16 } else { 1 << 28 },
            grow_pages: 256,
            memory: PageSize::Usual,
            homes: FrameHomes::Shared,
            shard_frames: SHARD_FRAMES,
            home_chunk: homes::CHUNK,
            simulated: false,
        }
    }
}

/// Pages in memory. See the module's documentation.
pub(crate) struct BufferPool {
    // The fields that a hit reads come first; none of them is written after opening.
    table: PageTable,
    /// Before the frames, so that it is dropped before their addresses become invalid.
    _noted: Noted,
    frames: Arena<Frame>,
    shortcuts: Shortcuts,
    /// Pages that the purge service has to look at.
    due: DuePages,
    /// How readers of frames keep writers away.
    latching: Latching,
    points: Points,
    /// Free frames per shard below which the cleaner is called, and up to which it fills.
    reserve_low: usize,
    reserve_high: usize,
    options: PoolOptions,
    file: Arc<dyn PageFile>,
    wal: Arc<dyn WriteAhead>,
    poison: Arc<Poison>,
    hook: Arc<dyn Hook>,
    cleaner_wake: OnceLock<Box<dyn Fn() + Send + Sync>>,

    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Homes of threads among the shards; none where frames are everybody's.
    homes: Option<Homes>,
    waiters: [CachePadded<Mutex<Vec<Waiter>>>; WAITER_SHARDS],
    readers: Readers,
    /// Frames from this one on have never had a page; they are in no queue and their memory is untouched.
    never_used: CachePadded<AtomicU32>,
    /// Spare frames that are in use.
    spares_used: AtomicU32,
    /// Shard that the next reservation begins with.
    next_shard: CachePadded<AtomicU32>,
    /// Pages in the file.
    file_pages: AtomicU32,
    /// First page that was never used, as the allocator says: no page is read from there on. `u32::MAX` before the
    /// allocator was read.
    pages_end: AtomicU32,
    /// During redo the end of the log as the crash has left it: a page from there on is of a future that is lost. Else
    /// `u64::MAX`.
    log_left: AtomicU64,
    /// Pages at the file's end that only undo may take.
    kept_pages: AtomicU64,
    cleaner_called: AtomicBool,
    grow_lock: Mutex<()>,
    sync_lock: Mutex<()>,
    unsynced: Mutex<Unsynced>,
    /// Slots for copies of pages that are written in place.
    aside: AsideRing,
    direct: Mutex<DirectWrites>,
    batches: Mutex<Vec<WriteBatch>>,
    /// The cleaner's state; `None` while a step is under way, which may wait for the log.
    cleaner: Mutex<Option<Cleaner>>,
    counters: Counters,
}

thread_local! {
    /// Pages that this thread found in a pool since [`take_hits`]: counted where no other thread writes.
    static HITS: Cell<u64> = const { Cell::new(0) };
}

/// Pages that this thread found in a pool since it last asked.
#[inline]
pub(crate) fn take_hits() -> u64 {
    HITS.replace(0)
}

impl BufferPool {
    /// A pool over `file`; reads nothing yet.
    ///
    /// # Errors
    /// When the system refuses the address space or the file's length.
    pub(crate) fn open(
        file: Arc<dyn PageFile>,
        options: PoolOptions,
        wal: Arc<dyn WriteAhead>,
        poison: Arc<Poison>,
        hook: Arc<dyn Hook>,
    ) -> Result<BufferPool, StorageError> {
        if options.latches == LatchKind::Super {
            crate::latch::provide_words(options.latch_words);
        }
        let count = options.frames.clamp(MIN_FRAMES, MAX_FRAMES - SPARE_FRAMES);
        let reserve = |e| StorageError::io("reserving memory", "buffer pool", 0, e);
        let frames = Arena::<Frame>::new(count + SPARE_FRAMES, options.memory).map_err(reserve)?;
        let table = PageTable::new(options.max_pages, options.memory).map_err(reserve)?;
        let shortcuts = Shortcuts::new(count, options.memory).map_err(reserve)?;
        let due = DuePages::new(options.max_pages, PageSize::Usual).map_err(reserve)?;
        let pages = (file.len()? / PAGE_SIZE as u64).min(u64::from(options.max_pages));

        let aside = AsideRing::new(file.slots());
        let shards = (count / options.shard_frames).clamp(1, MAX_SHARDS);
        let per_shard = count / shards;
        let reserve_high = (per_shard / 32).clamp(2, 256);
        let addresses = frames.as_slice().as_ptr_range();
        let noted = Noted::new(addresses.start.addr()..addresses.end.addr(), &poison, &wal);
        let dirty_most = (per_shard / 8).clamp(1, 2 * BATCH / shards);
        let nodes = || if options.simulated { Nodes::one() } else { Nodes::of_this_machine() };
        let homes = (options.homes == FrameHomes::PerThread)
            .then(|| Homes::new(count + SPARE_FRAMES, options.home_chunk, shards, nodes()));
        let shard = || Shard { free: Vec::new(), policy: Replacement::new(per_shard, count, dirty_most) };
        Ok(BufferPool {
            table,
            frames,
            shortcuts,
            due,
            latching: Latching::new(options.latches, options.promote_at),
            points: Points::new(&hook, options.latches),
            reserve_low: reserve_high / 2,
            reserve_high,
            options,
            file,
            wal,
            poison,
            hook,
            cleaner_wake: OnceLock::new(),
            shards: (0..shards).map(|_| CachePadded::new(Mutex::new(shard()))).collect(),
            homes,
            waiters: Default::default(),
            readers: Readers::default(),
            never_used: CachePadded::default(),
            spares_used: AtomicU32::new(0),
            next_shard: CachePadded::default(),
            file_pages: AtomicU32::new(pages as u32),
            pages_end: AtomicU32::new(u32::MAX),
            log_left: AtomicU64::new(u64::MAX),
            kept_pages: AtomicU64::new(0),
            cleaner_called: AtomicBool::new(false),
            grow_lock: Mutex::default(),
            sync_lock: Mutex::default(),
            unsynced: Mutex::new(Unsynced::new()),
            aside,
            direct: Mutex::default(),
            batches: Mutex::default(),
            cleaner: Mutex::new(Some(Cleaner::default())),
            counters: Counters::default(),
            _noted: noted,
        })
    }

    /// The frame that holds the page, if one does.
    ///
    /// Between this and the caller's beginning to read the frame may get another page. So: begin to read
    /// ([`Frame::read`]), *then* compare [`Frame::page_id`] with `id`, and start over if they differ.
    #[inline]
    pub(crate) fn get(&self, id: PageId) -> Option<&Frame> {
        let frame = self.frames.as_slice().get(self.table.frame_of(id));
        if frame.is_some() {
            HITS.set(HITS.get().wrapping_add(1));
        }
        frame
    }

    /// As [`BufferPool::get`], for a caller that does not want the page, if it is not there.
    pub(crate) fn resident(&self, id: PageId) -> Option<&Frame> {
        self.frames.as_slice().get(self.table.frame_of(id))
    }

    /// How readers exclude writers.
    #[inline]
    pub(crate) fn latches(&self) -> &Latching {
        &self.latching
    }

    /// The frame of this number, whatever page it holds now.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    pub(crate) fn frame(&self, number: u32) -> &Frame {
        &self.frames.as_slice()[number as usize]
    }

    /// Asks the processor for what [`BufferPool::get`] will look at.
    #[inline]
    pub(crate) fn prefetch_entry(&self, id: PageId) {
        self.table.prefetch(id);
    }

    /// Hints for searches of trees in this pool.
    #[inline(always)]
    pub(crate) fn shortcuts(&self) -> &Shortcuts {
        &self.shortcuts
    }

    /// Notes that the page has a ghost, or is nearly empty: the purge service will look at it. The caller holds its latch.
    #[inline]
    pub(crate) fn note_due(&self, id: PageId) {
        self.due.set(id);
    }

    /// As [`BufferPool::note_due`], if the latched page has ghosts.
    pub(crate) fn note_ghosts_of(&self, page: &FrameWrite<'_>) {
        if page.page().ghosts() > 0 {
            self.due.set(page.frame().page_id());
        }
    }

    /// Whether a page has become due since the last round began.
    #[inline]
    pub(crate) fn has_due_pages(&self) -> bool {
        self.due.any()
    }

    /// Begins a round through the pages that await the purge service; false if there are none.
    pub(crate) fn begin_purge_round(&self) -> bool {
        self.due.begin_round()
    }

    /// Takes some of those pages, from `from` on, `limit` or a few more; returns where to go on, [`PageId::NONE`] at
    /// the end of the round.
    pub(crate) fn take_due_pages(&self, from: PageId, limit: usize, out: &mut Vec<PageId>) -> PageId {
        let next = self.due.take(from, self.file_pages(), limit, out);
        if next.0 >= self.file_pages() { PageId::NONE } else { next }
    }

    /// Where threads that read pages let other fibers run.
    #[inline(always)]
    pub(crate) fn points(&self) -> &Points {
        &self.points
    }

    /// Frames in the pool, spare ones apart.
    pub(crate) fn frame_count(&self) -> usize {
        self.frames.as_slice().len() - SPARE_FRAMES
    }

    /// The memory that it lies in: what each part is, and its addresses.
    pub(crate) fn regions(&self) -> [(&'static str, Range<usize>); 3] {
        [("frames", self.frames.range()), ("page_table", self.table.range()), ("shortcuts", self.shortcuts.range())]
    }

    /// What the pool has done so far.
    pub(crate) fn stats(&self) -> PoolStats {
        self.counters.read()
    }

    /// Whether the instance is closed to commits.
    pub(crate) fn is_closed(&self) -> bool {
        self.poison.is_closed()
    }

    /// The file's path, for messages.
    pub(crate) fn file_name(&self) -> String {
        self.file.show()
    }

    /// Sets what to call when free frames run low: it wakes the thread that drives [`BufferPool::clean_step`]. Called
    /// on miss paths, at most once until the next step. Can be set once.
    pub(crate) fn on_cleaner_wanted(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.cleaner_wake.set(wake);
    }

    fn call_cleaner(&self) {
        if let Some(wake) = self.cleaner_wake.get()
            && !self.cleaner_called.load(Ordering::Relaxed)
            && !self.cleaner_called.swap(true, Ordering::AcqRel)
        {
            wake();
        }
    }

    /// Frames that have had a page.
    fn used_frames(&self) -> &[Frame] {
        let used = self.never_used.load(Ordering::Acquire) as usize;
        &self.frames.as_slice()[..used.min(self.frame_count())]
    }

    fn shard_of_frame(&self, index: u32) -> &Mutex<Shard> {
        let shard = self.homes.as_ref().map_or(index as usize % self.shards.len(), |homes| homes.of_frame(index));
        &self.shards[shard]
    }

    /// The shard whose frames the calling thread takes for a page, where that would otherwise be `usual`.
    fn home_or(&self, usual: impl FnOnce() -> usize) -> usize {
        self.homes.as_ref().map_or_else(usual, |homes| {
            homes.of_this_thread(if self.options.simulated { self.hook.task() } else { thread_number() })
        })
    }

    fn shard_of_page(&self, id: PageId) -> usize {
        id.0 as usize % self.shards.len()
    }

    fn waiters_for(&self, id: PageId) -> &Mutex<Vec<Waiter>> {
        &self.waiters[id.0 as usize % WAITER_SHARDS]
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool")
            .field("file", &self.file.show())
            .field("frames", &self.frame_count())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
