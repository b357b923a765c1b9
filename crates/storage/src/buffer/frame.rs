//! Frames: the places of pages in memory.

#![allow(unsafe_code)]

use crate::base::sync::plain::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::cell::UnsafeCell;
#[cfg(not(any(loom, shuttle)))]
use std::mem::offset_of;

use super::replacement::Uses;
use crate::base::arena::ZeroValid;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::latch::{Latch, Latching, ReadGuard, Version};
use crate::page::layout::{HINTS, SLOTS};
use crate::page::sound::{self, Flaw};
use crate::page::{PageMut, PageRef};

/// A page in memory and the pool's data about it.
///
/// The pool's data shares a cache line with the page's first fields, those that a search reads first: it reads the
/// latch there anyway. Together they are 129 lines, an odd number, so that page headers spread over all cache sets;
/// 8 KiB apart they would meet in a few of them.
///
/// | field | which thread may change it |
/// | --- | --- |
/// | `latch` | any |
/// | `page`, `page_id`, `recovery_lsn` | the latch's exclusive holder (the cleaner clears `recovery_lsn` under a share); `page` also the reader that has taken a frame without a page out of circulation |
/// | `uses` | any, at any time: a hint for replacement |
/// | `unproved` | the latch's exclusive holder |
/// | `writing` | the thread that swapped it from false, until it stores false: one write of a page at a time |
#[repr(C, align(64))]
pub(crate) struct Frame {
    pub(super) latch: Latch,
    page_id: AtomicU32,
    /// See [`super::replacement`].
    pub(super) uses: Uses,
    /// A copy of the page is on its way to the disk. Such a frame keeps its page.
    pub(super) writing: AtomicBool,
    /// What has still to be looked at since the page was read from the file: [`CONTENT`], [`PLACE`].
    unproved: AtomicU8,
    /// LSN at or before the first change that is not on disk; 0 when the page is clean.
    pub(super) recovery_lsn: AtomicU64,
    page: UnsafeCell<[u64; PAGE_SIZE / 8]>,
}

/// The page was brought in without a look at its content: only its checksum was compared.
const CONTENT: u8 = 1;
/// No descent has compared the page with the one above (`btree/place.rs`).
const PLACE: u8 = 2;

/// Hints and slots begin cache lines.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    (offset_of!(Frame, page) + HINTS).is_multiple_of(64) && (offset_of!(Frame, page) + SLOTS).is_multiple_of(64)
);

// SAFETY: `page` is written only under the exclusive latch. Readers either hold a share or are
// optimistic: they read through `PageRef`, which makes no assumption about the bytes, and validate.
unsafe impl Sync for Frame {}
// SAFETY: nothing in a frame belongs to a thread.
unsafe impl Send for Frame {}

// SAFETY: a frame is atomics, a latch (an atomic) and bytes.
unsafe impl ZeroValid for Frame {}

impl Frame {
    /// The page that lies here, or none.
    #[inline]
    pub(crate) fn page_id(&self) -> PageId {
        PageId(self.page_id.load(Ordering::Relaxed))
    }

    /// Gives the frame to a page. The caller holds the exclusive latch.
    pub(super) fn set_page_id(&self, id: PageId) {
        self.page_id.store(id.0, Ordering::Relaxed);
    }

    /// Notes that the page was read from the file, and whether its content was looked at. The caller holds the exclusive
    /// latch.
    pub(super) fn set_read(&self, is_checked: bool) {
        self.unproved.store(PLACE | if is_checked { 0 } else { CONTENT }, Ordering::Relaxed);
    }

    /// Notes that the page was made in memory. The caller holds the exclusive latch.
    pub(super) fn set_made(&self) {
        self.unproved.store(0, Ordering::Relaxed);
    }

    /// Whether it is still unknown if the page lies where it should: a search must not rely on it.
    #[inline(always)]
    pub(crate) fn is_unproved(&self) -> bool {
        self.unproved.load(Ordering::Relaxed) & PLACE != 0
    }

    /// Begins to read.
    #[inline]
    pub(crate) fn read(&self, latching: &Latching) -> FrameRead<'_> {
        FrameRead { frame: self, guard: ReadGuard::new(&self.latch, latching) }
    }

    /// Waits for the exclusive latch.
    pub(crate) fn write(&self) -> FrameWrite<'_> {
        self.latch.lock_exclusive();
        FrameWrite::new(self)
    }

    /// The exclusive latch, if it is free.
    pub(crate) fn try_write(&self) -> Option<FrameWrite<'_>> {
        self.latch.try_lock_exclusive().then(|| FrameWrite::new(self))
    }

    /// The exclusive latch, if nothing has been written since `version`.
    #[inline]
    pub(crate) fn write_at(&self, version: Version) -> Option<FrameWrite<'_>> {
        self.latch.upgrade(version).then(|| FrameWrite::new(self))
    }

    /// As [`Frame::write_at`], but gives up when there are readers too: for callers that hold other latches.
    #[inline]
    pub(crate) fn try_write_at(&self, version: Version) -> Option<FrameWrite<'_>> {
        self.latch.try_upgrade(version).then(|| FrameWrite::new(self))
    }

    /// Counts a use for the replacement policy.
    #[inline]
    pub(crate) fn touch(&self) {
        self.uses.touch();
    }

    /// The bytes as an optimistic reader sees them.
    #[inline]
    pub(crate) fn bytes(&self) -> PageRef<'_> {
        // SAFETY: the pointer is to this frame's page, which lives as long as `self`.
        unsafe { PageRef::new(self.page.get().cast()) }
    }

    /// The bytes of a frame that holds no page, to be filled while no latch is held.
    ///
    /// # Safety
    /// The frame has no page, is in no queue, and the caller alone has taken it out of circulation: only then may no
    /// other thread write here. Optimistic readers that found the frame's former page may still read; its version has
    /// changed with the eviction, so they discard what they see.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the contract, as a cell's content")]
    pub(super) unsafe fn unowned_bytes(&self) -> &mut [u8; PAGE_SIZE] {
        debug_assert!(self.page_id().is_none(), "{self:?} is read into and has a page");
        // SAFETY: the pointer is to this frame's page, which lives as long as `self` and has `PAGE_SIZE` bytes; the
        // caller promises to be the only writer.
        unsafe { &mut *self.page.get().cast() }
    }

    /// The version, to read under; see [`crate::latch`].
    #[inline]
    pub(crate) fn latch_version(&self) -> Version {
        self.latch.optimistic()
    }

    /// Asks for the lines that a search looks at first: latch and header, hints, the first slots.
    #[inline]
    pub(crate) fn prefetch_head(&self) {
        self.prefetch_search();
        self.bytes().prefetch(SLOTS);
    }

    /// As [`Frame::prefetch_head`], for a caller that prefetches the right part of the slots itself.
    #[inline]
    pub(crate) fn prefetch_search(&self) {
        crate::base::prefetch::prefetch_read(std::ptr::from_ref(self).cast());
        self.bytes().prefetch(HINTS);
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

    /// Whether the page has changes that are not on disk.
    pub(crate) fn is_dirty(&self) -> bool {
        self.recovery_lsn.load(Ordering::Relaxed) != 0
    }
}

/// A reader of a frame.
#[derive(Debug)]
pub(crate) struct FrameRead<'a> {
    frame: &'a Frame,
    guard: ReadGuard<'a>,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").field("page", &self.page_id()).field("latch", &self.latch).finish_non_exhaustive()
    }
}

impl<'a> FrameRead<'a> {
    /// The frame.
    #[inline]
    pub(crate) fn frame(&self) -> &'a Frame {
        self.frame
    }

    /// The bytes; torn unless the guard is valid afterwards.
    #[inline]
    pub(crate) fn page(&self) -> PageRef<'a> {
        self.frame.bytes()
    }

    /// Whether all that was read so far was stable.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// The version noted.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.guard.version()
    }

    /// Exchanges reading for writing, if nothing has changed meanwhile.
    #[inline]
    pub(crate) fn upgrade(self) -> Option<FrameWrite<'a>> {
        let frame = self.frame;
        self.guard.upgrade().then(|| FrameWrite::new(frame))
    }
}

/// The one writer of a frame.
#[derive(Debug)]
pub(crate) struct FrameWrite<'a> {
    frame: &'a Frame,
    /// The thread was unwinding when the latch was taken: the panic did not interrupt this change.
    unwinding: bool,
}

impl<'a> FrameWrite<'a> {
    /// The exclusive latch has just been taken.
    #[inline]
    fn new(frame: &'a Frame) -> FrameWrite<'a> {
        FrameWrite { frame, unwinding: std::thread::panicking() }
    }

    /// The frame.
    #[inline]
    pub(crate) fn frame(&self) -> &'a Frame {
        self.frame
    }

    /// The bytes, stable while the guard lives.
    #[inline]
    pub(crate) fn page(&self) -> PageRef<'_> {
        self.frame.bytes()
    }

    /// The bytes as a slice.
    pub(crate) fn stable(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: the exclusive latch is held.
        unsafe { self.page().stable() }
    }

    /// What is wrong with the page: all of it is looked at if it was brought in without that. What reads and writes have to
    /// rely on has otherwise been proved when the page was read, made or repaired, and changes keep it, but for the order of
    /// keys: a page that lies in the wrong place of a damaged tree takes keys that do not belong there.
    pub(crate) fn flaw(&self) -> Option<Flaw> {
        let look = || sound::flaw(self.stable(), self.frame.page_id());
        let unproved = self.frame.unproved.load(Ordering::Relaxed);
        if unproved & CONTENT == 0 {
            let disorder = sound::disorder(self.stable());
            debug_assert!(disorder.is_some() || look().is_none(), "page {} was sound", self.frame.page_id());
            return disorder;
        }
        let flaw = look();
        if flaw.is_none() {
            self.frame.unproved.store(unproved & !CONTENT, Ordering::Relaxed);
        }
        flaw
    }

    /// Notes that the page lies where it should.
    pub(crate) fn note_proved(&self) {
        let unproved = self.frame.unproved.load(Ordering::Relaxed);
        self.frame.unproved.store(unproved & !PLACE, Ordering::Relaxed);
    }

    /// The bytes, to change. Mark the page dirty first.
    #[inline]
    pub(crate) fn page_mut(&mut self) -> PageMut<'_> {
        // SAFETY: the exclusive latch is held by this guard, of which there is one; `&mut self` keeps
        // a second `PageMut` away. Optimistic readers go through `PageRef`, whose reads are volatile.
        unsafe { PageMut::new(self.frame.page.get().cast()) }
    }

    /// Notes that the page differs from the disk by changes at or after `lsn`. Call it before the
    /// change's log record is appended, with a lower bound of the record's LSN (the log's tail), so that
    /// a checkpoint that sees the record also sees the page.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, lsn: Lsn) {
        if self.frame.recovery_lsn.load(Ordering::Relaxed) == 0 {
            self.frame.recovery_lsn.store(lsn.0.max(1), Ordering::Release);
        }
    }

    /// As [`FrameWrite::mark_dirty`], looking at the log's tail (which all workers write) only if the page is clean.
    #[inline]
    pub(crate) fn mark_dirty_at(&mut self, tail: impl FnOnce() -> Lsn) {
        if self.frame.recovery_lsn.load(Ordering::Relaxed) == 0 && !is_mutant(Mutant::SkipDirtyMark) {
            self.mark_dirty(tail());
        }
    }

    /// Releases a page; returns the version under which it was left.
    #[inline]
    pub(crate) fn release(self) -> Version {
        let version = self.frame.latch.unlock_exclusive();
        std::mem::forget(self);
        version
    }

    /// Releases a page that was not changed: optimistic readers need not notice.
    pub(crate) fn release_unchanged(self) {
        self.frame.latch.unlock_unchanged();
        std::mem::forget(self);
    }
}

impl Drop for FrameWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            super::halfway::left(self.frame.page_id(), std::ptr::from_ref(self.frame).addr());
        }
        self.frame.latch.unlock_exclusive();
    }
}
