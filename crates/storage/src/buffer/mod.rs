//! The buffer pool.
#![doc = include_str!("README.md")]

pub(crate) mod ahead;
mod aside;
mod cleaner;
pub(crate) mod contention;
mod copying;
mod due;
mod durable;
mod evict;
pub(crate) mod file;
pub(crate) mod frame;
mod homes;
mod load;
mod page_table;
mod preload;
mod readers;
mod replacement;
mod room;
pub(crate) mod shortcuts;
mod stats;
mod truncation;
mod write;
mod writer_panic;

#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::base::clock::Clock;
use crate::base::sync::plain::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crossbeam::utils::CachePadded;

use self::aside::AsideRing;
use self::cleaner::Cleaner;
use self::contention::{CONTENDED_AT, LeafContention};
use self::copying::DirectWrites;
use self::due::PurgeBitmap;
use self::durable::UnsyncedPages;
use self::evict::Shard;
use self::file::{PageFile, WriteAhead};
use self::frame::{Frame, FrameWrite};
use self::homes::Homes;
use self::load::Waiter;
use self::page_table::{MAX_FRAMES, PageTable};
use self::readers::Readers;
use self::replacement::Replacement;
use self::shortcuts::Shortcuts;
use self::stats::Counters;
use self::write::{BATCH, WriteBatch};
use self::writer_panic::PoolRegistration;
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
pub(crate) use self::room::ReservedFrames;
pub(crate) use self::stats::PoolStats;

/// Returns the size of a frame in bytes, which is the distance between the headers of two adjacent pages in memory.
#[cfg(feature = "measure")]
pub(crate) const fn frame_bytes() -> usize {
    size_of::<Frame>()
}

/// Returns the offsets of the latch word and of the index number in a frame.
#[cfg(feature = "measure")]
pub(crate) const fn frame_layout() -> crate::base::holds::FrameLayout {
    frame::layout()
}

/// Minimum number of frames per shard. The cost of an additional shard with fewer frames exceeds its benefit.
const SHARD_FRAMES: usize = 2048;
const MAX_SHARDS: usize = 8;
const WAITER_SHARDS: usize = 16;
/// Pools with at least this many frames (16 MiB) request large pages from the operating system. Large pages save time and
/// take up to 2 MiB more per region.
pub(crate) const LARGE_FRAMES: usize = (16 << 20) / size_of::<Frame>();
/// Minimum number of frames of a pool.
pub(crate) const MIN_FRAMES: usize = 16;
/// Number of spare frames, in addition to the pool's own frames. Spare frames are used once the instance is closed to
/// commits, because dirty pages then keep their frames. If all other pages are dirty, this is the number of pages that can
/// be in memory for reads. The memory of spare frames is untouched until their first use.
pub(crate) const SPARE_FRAMES: usize = 16;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolOptions {
    /// Number of frames, at least [`MIN_FRAMES`]. Each frame takes 8,256 bytes of memory, and about 32 bytes more for
    /// shortcuts.
    pub(crate) frames: usize,
    /// Page latch kind.
    pub(crate) latches: LatchKind,
    /// Number of reads after which a latch is promoted, under [`LatchKind::Super`].
    pub(crate) promote_at: u16,
    /// Number of failed latches that make a leaf contended. See [`contention`].
    pub(crate) contended_at: u32,
    /// Number of reader words of a superlatch, at most [`MOST_WORDS`](crate::latch::MOST_WORDS).
    pub(crate) latch_words: usize,
    /// Verify checksums when pages are read. Pages are sealed with a checksum in any case.
    pub(crate) checksums: bool,
    /// Check the content of pages when they are read. See [`crate::page::sound`].
    pub(crate) sound: bool,
    /// Maximum number of pages of the data file. Each page takes 4 bytes of address space in the page table.
    pub(crate) max_pages: u32,
    /// Minimum number of pages by which the data file grows.
    pub(crate) grow_pages: u32,
    /// Page size of the memory that holds the pool.
    pub(crate) memory: PageSize,
    /// Assignment of frames to threads.
    pub(crate) homes: FrameHomes,
    /// Minimum number of frames per shard, if there are several shards.
    pub(crate) shard_frames: usize,
    pub(crate) home_chunk: usize,
    /// True if a simulation numbers the threads, so that a run can be repeated.
    pub(crate) simulated: bool,
    /// Clock of the waits for latches.
    pub(crate) clock: Clock,
}

impl PoolOptions {
    /// Creates the settings for a pool of `frames` frames.
    pub(crate) fn new(frames: usize) -> PoolOptions {
        PoolOptions {
            frames,
            latches: LatchKind::Optimistic,
            promote_at: PROMOTE_AT,
            contended_at: CONTENDED_AT,
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
            clock: Clock::machine(),
        }
    }
}

/// The buffer pool. See the module's documentation.
pub(crate) struct BufferPool {
    // The fields that a hit reads come first. None of these fields is written after opening.
    table: PageTable,
    /// Declared before `frames`, so that it is dropped before their addresses become invalid.
    _registration: PoolRegistration,
    frames: Arena<Frame>,
    shortcuts: Shortcuts,
    /// Pages that the purge service must visit.
    due: PurgeBitmap,
    /// Latch protocol of the readers of frames.
    latching: Latching,
    contention: LeafContention,
    points: Points,
    /// Number of free frames per shard below which the cleaner is woken, and number up to which the cleaner fills the free
    /// list.
    reserve_low: usize,
    reserve_high: usize,
    options: PoolOptions,
    file: Arc<dyn PageFile>,
    wal: Arc<dyn WriteAhead>,
    poison: Arc<Poison>,
    hook: Arc<dyn Hook>,
    cleaner_wake: OnceLock<Box<dyn Fn() + Send + Sync>>,

    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// Home shards of threads. `None` if all threads share the frames.
    homes: Option<Homes>,
    waiters: [CachePadded<Mutex<Vec<Waiter>>>; WAITER_SHARDS],
    readers: Readers,
    /// Number of the first frame that has never held a page. The frames from there on are in no queue and their memory is
    /// untouched.
    never_used: CachePadded<AtomicU32>,
    /// Number of spare frames in use.
    spares_used: AtomicU32,
    /// Shard at which the next reservation begins its search.
    next_shard: CachePadded<AtomicU32>,
    /// Number of pages in the data file.
    file_pages: AtomicU32,
    /// Number of the first page that was never used, set by the page allocator. Pages at or beyond it are not read.
    /// `u32::MAX` until the allocator's page has been read.
    pages_end: AtomicU32,
    /// LSN of the last record that lowered the end of the pages in use; 0 for none since the open.
    end_lowered_at: AtomicU64,
    /// During redo, the end of the log as the crash left it. A page with an LSN at or beyond this end contains lost changes.
    /// At other times `u64::MAX`.
    log_left: AtomicU64,
    /// Number of pages at the end of the data file that are reserved for undo.
    reserved_pages: AtomicU64,
    cleaner_called: AtomicBool,
    grow_lock: Mutex<()>,
    sync_lock: Mutex<()>,
    unsynced: Mutex<UnsyncedPages>,
    /// Doublewrite slots for copies of pages that are written in place.
    aside: AsideRing,
    direct: Mutex<DirectWrites>,
    batches: Mutex<Vec<WriteBatch>>,
    /// State of the cleaner. `None` while a step is in progress, because a step may wait for the log.
    cleaner: Mutex<Option<Cleaner>>,
    counters: Counters,
}

thread_local! {
    /// Number of pages that this thread found in a pool since the last [`take_hits`]. The counter is thread-local, so that
    /// no other thread writes to its cache line.
    static HITS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of pages that this thread found in a pool since its last call, and resets it.
#[inline]
pub(crate) fn take_hits() -> u64 {
    HITS.replace(0)
}

impl BufferPool {
    /// Opens a pool over `file`. Reads no page yet.
    ///
    /// # Errors
    /// Fails if the operating system refuses the address space or does not report the file's length.
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
        let due = PurgeBitmap::new(options.max_pages, PageSize::Usual).map_err(reserve)?;
        let pages = (file.len()? / PAGE_SIZE as u64).min(u64::from(options.max_pages));

        let aside = AsideRing::new(file.slots());
        let shards = (count / options.shard_frames).clamp(1, MAX_SHARDS);
        let per_shard = count / shards;
        let reserve_high = (per_shard / 32).clamp(2, 256);
        let addresses = frames.as_slice().as_ptr_range();
        let registration = PoolRegistration::new(addresses.start.addr()..addresses.end.addr(), &poison, &wal);
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
            latching: Latching::new(options.latches, options.promote_at, options.clock.clone()),
            contention: LeafContention::new(options.contended_at),
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
            end_lowered_at: AtomicU64::new(0),
            log_left: AtomicU64::new(u64::MAX),
            reserved_pages: AtomicU64::new(0),
            cleaner_called: AtomicBool::new(false),
            grow_lock: Mutex::default(),
            sync_lock: Mutex::default(),
            unsynced: Mutex::new(UnsyncedPages::new()),
            aside,
            direct: Mutex::default(),
            batches: Mutex::default(),
            cleaner: Mutex::new(Some(Cleaner::default())),
            counters: Counters::default(),
            _registration: registration,
        })
    }

    /// Returns the frame that holds the page, if there is one.
    ///
    /// The frame may receive another page before the caller begins to read. The caller therefore begins to read first
    /// ([`Frame::read`]), *then* compares [`Frame::page_id`] with `id`, and starts over if they differ.
    #[inline]
    pub(crate) fn get(&self, id: PageId) -> Option<&Frame> {
        let frame = self.frames.as_slice().get(self.table.frame_of(id));
        if frame.is_some() {
            HITS.set(HITS.get().wrapping_add(1));
        }
        frame
    }

    /// Like [`BufferPool::get`], for a caller that does not load an absent page. Does not count a hit.
    pub(crate) fn resident(&self, id: PageId) -> Option<&Frame> {
        self.frames.as_slice().get(self.table.frame_of(id))
    }

    /// Returns the latch protocol of the readers of frames.
    #[inline]
    pub(crate) fn latches(&self) -> &Latching {
        &self.latching
    }

    /// Returns the reports about contended leaves.
    pub(crate) fn contention(&self) -> &LeafContention {
        &self.contention
    }

    /// Returns the frame with this number. The frame may hold any page, or no page.
    ///
    /// # Panics
    /// Panics if there is no such frame.
    #[inline]
    pub(crate) fn frame(&self, number: u32) -> &Frame {
        &self.frames.as_slice()[number as usize]
    }

    /// Prefetches the data that [`BufferPool::get`] reads for this page.
    #[inline]
    pub(crate) fn prefetch_entry(&self, id: PageId) {
        self.table.prefetch(id);
    }

    /// Returns the hints for searches of trees in this pool.
    #[inline(always)]
    pub(crate) fn shortcuts(&self) -> &Shortcuts {
        &self.shortcuts
    }

    /// Records that the page has a ghost record or is nearly empty, so that the purge service visits it. The caller holds
    /// the page's latch.
    #[inline]
    pub(crate) fn note_due(&self, id: PageId) {
        self.due.set(id);
    }

    /// Like [`BufferPool::note_due`], if the latched page has ghost records.
    pub(crate) fn note_ghosts_of(&self, page: &FrameWrite<'_>) {
        if page.page().ghosts() > 0 {
            self.due.set(page.frame().page_id());
        }
    }

    /// Returns true if a page has become due for the purge service since the last round began.
    #[inline]
    pub(crate) fn has_due_pages(&self) -> bool {
        self.due.any()
    }

    /// Begins a round through the pages that are due for the purge service. Returns false if there are none.
    pub(crate) fn begin_purge_round(&self) -> bool {
        self.due.begin_round()
    }

    /// Removes `limit` of the due pages, or a few more, from page `from` on, and appends them to `out`. Returns the page
    /// at which to continue, or [`PageId::NONE`] at the end of the round.
    pub(crate) fn take_due_pages(&self, from: PageId, limit: usize, out: &mut Vec<PageId>) -> PageId {
        let next = self.due.take(from, self.file_pages(), limit, out);
        if next.0 >= self.file_pages() { PageId::NONE } else { next }
    }

    /// Returns the points at which threads that read pages allow a switch to other fibers.
    #[inline(always)]
    pub(crate) fn points(&self) -> &Points {
        &self.points
    }

    /// Returns the number of frames in the pool, without spare frames.
    pub(crate) fn frame_count(&self) -> usize {
        self.frames.as_slice().len() - SPARE_FRAMES
    }

    /// Returns the name and the address range of each memory region of the pool.
    pub(crate) fn regions(&self) -> [(&'static str, Range<usize>); 3] {
        [("frames", self.frames.range()), ("page_table", self.table.range()), ("shortcuts", self.shortcuts.range())]
    }

    /// Returns the values of the pool's counters since it was opened.
    pub(crate) fn stats(&self) -> PoolStats {
        self.counters.read()
    }

    /// Returns true if the instance is closed to commits.
    pub(crate) fn is_closed(&self) -> bool {
        self.poison.is_closed()
    }

    /// Returns the path of the data file, for messages.
    pub(crate) fn file_name(&self) -> String {
        self.file.show()
    }

    /// Sets the callback for a shortage of free frames. The callback wakes the thread that drives
    /// [`BufferPool::clean_step`]. It is called on miss paths, at most once between two steps. Only the first call of this
    /// function has an effect.
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

    /// Returns the frames that have held a page, without spare frames.
    fn used_frames(&self) -> &[Frame] {
        let used = self.never_used.load(Ordering::Acquire) as usize;
        &self.frames.as_slice()[..used.min(self.frame_count())]
    }

    fn shard_of_frame(&self, index: u32) -> &Mutex<Shard> {
        let shard = self.homes.as_ref().map_or(index as usize % self.shards.len(), |homes| homes.of_frame(index));
        &self.shards[shard]
    }

    /// Returns the home shard of the calling thread, or `usual()` if the pool has no home shards.
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
