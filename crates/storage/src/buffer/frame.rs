//! Frames: memory for pages, each with a latch and replacement data.

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
use crate::page::layout::{HINTS, LSN, SLOTS};
use crate::page::sound::{self, Flaw};
use crate::page::{PageMut, PageRef};

/// A page in memory and the pool's data about the page.
///
/// The pool's data shares a cache line with the first fields of the page. A search reads these fields first, and it reads
/// the latch at the same time. A frame takes 129 cache lines. Because this number is odd, the page headers spread over all
/// cache sets; at a distance of exactly 8 KiB they would compete for a few sets.
///
/// | field | which thread may change it |
/// | --- | --- |
/// | `latch` | any |
/// | `page`, `page_id`, `recovery_lsn` | the exclusive holder of the latch (the cleaner clears `recovery_lsn` under a shared latch); `page` also the thread that reads into a frame which has no page and is in no queue |
/// | `uses` | any, at any time: a hint for replacement |
/// | `unproved` | the exclusive holder of the latch |
/// | `writing` | the thread that swapped it from false, until it stores false: one write of a page at a time |
#[repr(C, align(64))]
pub(crate) struct Frame {
    pub(super) latch: Latch,
    page_id: AtomicU32,
    /// Use counter of the replacement policy. See [`super::replacement`].
    pub(super) uses: Uses,
    /// True while a copy of the page is being written to the disk. The page is not evicted during that time.
    pub(super) writing: AtomicBool,
    /// Checks still to be made since the page was read from the file: [`CONTENT`], [`PLACE`].
    unproved: AtomicU8,
    /// LSN at or before the page's first change that is not on disk; 0 if the page is clean.
    pub(super) recovery_lsn: AtomicU64,
    page: UnsafeCell<[u64; PAGE_SIZE / 8]>,
}

/// Returns the offsets of the latch word and of the index number in a frame.
#[cfg(feature = "measure")]
pub(super) const fn layout() -> crate::base::holds::FrameLayout {
    crate::base::holds::FrameLayout {
        latch: std::mem::offset_of!(Frame, latch) + Latch::WORD,
        index: std::mem::offset_of!(Frame, page) + crate::page::layout::INDEX,
    }
}

/// Flag: the content of the page has not been checked. Only the checksum was compared.
const CONTENT: u8 = 1;
/// Flag: no descent has compared the page with its parent (`btree/place.rs`).
const PLACE: u8 = 2;

/// Hints and slots begin at cache line boundaries.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    (offset_of!(Frame, page) + HINTS).is_multiple_of(64) && (offset_of!(Frame, page) + SLOTS).is_multiple_of(64)
);

// SAFETY: `page` is written only under the exclusive latch. Readers either hold a shared latch or are optimistic: they read
// through `PageRef`, which makes no assumption about the bytes, and validate the version afterwards.
unsafe impl Sync for Frame {}
// SAFETY: nothing in a frame is tied to a particular thread.
unsafe impl Send for Frame {}

// SAFETY: a frame consists of atomics, a latch (an atomic) and bytes. Zero is a valid value of each.
unsafe impl ZeroValid for Frame {}

impl Frame {
    /// Returns the number of the page in this frame, or `PageId::NONE`.
    #[inline]
    pub(crate) fn page_id(&self) -> PageId {
        PageId(self.page_id.load(Ordering::Relaxed))
    }

    /// Sets the number of the page in this frame. The caller holds the exclusive latch.
    pub(super) fn set_page_id(&self, id: PageId) {
        self.page_id.store(id.0, Ordering::Relaxed);
    }

    /// Marks the page as read from the file. `is_checked`: the content of the page has been checked. The caller holds the
    /// exclusive latch.
    pub(super) fn set_read(&self, is_checked: bool) {
        self.unproved.store(PLACE | if is_checked { 0 } else { CONTENT }, Ordering::Relaxed);
    }

    /// Marks the page as created in memory, which needs no check. The caller holds the exclusive latch.
    pub(super) fn set_made(&self) {
        self.unproved.store(0, Ordering::Relaxed);
    }

    /// Returns true if no descent has yet checked that the page is in its proper place in the tree. A search must not rely
    /// on such a page.
    #[inline(always)]
    pub(crate) fn is_unproved(&self) -> bool {
        self.unproved.load(Ordering::Relaxed) & PLACE != 0
    }

    /// Begins a read of the page.
    #[inline]
    pub(crate) fn read(&self, latching: &Latching) -> FrameRead<'_> {
        let guard = match ReadGuard::optimistic(&self.latch, latching) {
            Some(guard) => guard,
            None => self.read_slow(latching),
        };
        FrameRead { frame: self, guard }
    }

    /// Begins a read that needs a share, or that a writer delays.
    #[inline(never)]
    fn read_slow(&self, latching: &Latching) -> ReadGuard<'_> {
        ReadGuard::try_new(&self.latch, latching)
            .unwrap_or_else(|| self.during(latching, || ReadGuard::new(&self.latch, latching)))
    }

    /// Waits for the exclusive latch and takes it.
    pub(crate) fn write(&self, latching: &Latching) -> FrameWrite<'_> {
        if !self.latch.try_lock_exclusive() {
            self.during(latching, || self.latch.lock_exclusive());
        }
        FrameWrite::new(self)
    }

    /// Runs a wait for this frame's latch and counts it for the index of the page.
    fn during<T>(&self, latching: &Latching, wait: impl FnOnce() -> T) -> T {
        // A frame without a page may be filled by a thread that holds no latch.
        latching.waits().during(wait, || (!self.page_id().is_none()).then(|| self.bytes().index()))
    }

    /// Takes the exclusive latch if it is free.
    pub(crate) fn try_write(&self) -> Option<FrameWrite<'_>> {
        self.latch.try_lock_exclusive().then(|| FrameWrite::new(self))
    }

    /// Takes the exclusive latch if the frame has not been written since `version`.
    #[inline]
    pub(crate) fn write_at(&self, version: Version) -> Option<FrameWrite<'_>> {
        self.latch.upgrade(version).then(|| FrameWrite::new(self))
    }

    /// Like [`Frame::write_at`], but also fails if the latch has readers: for callers that hold other latches.
    #[inline]
    pub(crate) fn try_write_at(&self, version: Version) -> Option<FrameWrite<'_>> {
        self.latch.try_upgrade(version).then(|| FrameWrite::new(self))
    }

    /// Counts a use for the replacement policy.
    #[inline]
    pub(crate) fn touch(&self) {
        self.uses.touch();
    }

    /// Returns the content of the page for an optimistic reader.
    #[inline]
    pub(crate) fn bytes(&self) -> PageRef<'_> {
        // SAFETY: the pointer is to this frame's page, which lives as long as `self`.
        unsafe { PageRef::new(self.page.get().cast()) }
    }

    /// Returns the bytes of a frame that holds no page, to be filled without a latch.
    ///
    /// # Safety
    /// The frame has no page, is in no queue, and only the caller has taken it out of circulation, so no other thread writes
    /// here. Optimistic readers that found the frame's former page may still read. The eviction has changed the frame's
    /// version, so they discard the bytes they read.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the contract, as a cell's content")]
    pub(super) unsafe fn unowned_bytes(&self) -> &mut [u8; PAGE_SIZE] {
        debug_assert!(self.page_id().is_none(), "{self:?} is read into and has a page");
        // SAFETY: the pointer refers to this frame's page, which lives as long as `self` and has `PAGE_SIZE` bytes. The
        // caller guarantees that it is the only writer.
        unsafe { &mut *self.page.get().cast() }
    }

    /// Returns the current version of the latch, for an optimistic read, or [`Version::NEVER`] if a writer holds the latch. See
    /// [`crate::latch`].
    #[inline]
    pub(crate) fn latch_version(&self) -> Version {
        self.latch.try_optimistic().unwrap_or(Version::NEVER)
    }

    /// Prefetches the cache lines that a search reads first: latch and header, hints, the first slots.
    #[inline]
    pub(crate) fn prefetch_head(&self) {
        self.prefetch_search();
        self.bytes().prefetch(SLOTS);
    }

    /// Like [`Frame::prefetch_head`], but without the first slots: for a caller that prefetches the slots that it needs.
    #[inline]
    pub(crate) fn prefetch_search(&self) {
        crate::base::prefetch::prefetch_read(std::ptr::from_ref(self).cast());
        self.bytes().prefetch(HINTS);
    }

    /// Prefetches the cache lines that an insert at slot `i` reads and writes, in a page whose heap begins at `heap`.
    #[inline]
    pub(crate) fn prefetch_insert(&self, i: usize, heap: usize) {
        self.prefetch_search();
        self.bytes().prefetch_room_at(i, heap);
    }

    /// Prefetches for a write the cache lines that a change of the byte at `at` writes: of the latch, of the page's LSN and of
    /// this byte.
    #[inline]
    pub(crate) fn prefetch_change(&self, at: usize) {
        crate::base::prefetch::prefetch_write(std::ptr::from_ref(self).cast());
        self.bytes().prefetch_to_write(LSN);
        self.bytes().prefetch_to_write(at);
    }

    /// Returns true if the frame has not been written since `version`.
    #[inline]
    pub(crate) fn is_still(&self, version: Version) -> bool {
        self.latch.validate(version)
    }

    /// Returns true if the page has changes that are not on disk.
    pub(crate) fn is_dirty(&self) -> bool {
        self.recovery_lsn.load(Ordering::Relaxed) != 0
    }
}

/// Read access to a frame: a shared latch, or an optimistic read section.
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
    /// Returns the frame that is being read.
    #[inline]
    pub(crate) fn frame(&self) -> &'a Frame {
        self.frame
    }

    /// Returns the content of the page. The content may be torn unless the guard is still valid after the read.
    #[inline]
    pub(crate) fn page(&self) -> PageRef<'a> {
        self.frame.bytes()
    }

    /// Returns true if everything read so far was stable: the page has not changed since the read began.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Returns the version of the latch at which the read began.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.guard.version()
    }

    /// Converts the read into a write if the frame has not changed since the read began.
    #[inline]
    pub(crate) fn upgrade(self) -> Option<FrameWrite<'a>> {
        let frame = self.frame;
        self.guard.upgrade().then(|| FrameWrite::new(frame))
    }
}

/// Exclusive access to a frame: the guard of the exclusive latch.
#[derive(Debug)]
pub(crate) struct FrameWrite<'a> {
    frame: &'a Frame,
    /// True if the thread was already unwinding when it took the latch: the panic then did not interrupt a change of this
    /// page.
    unwinding: bool,
}

impl<'a> FrameWrite<'a> {
    /// Creates the guard. Called just after the exclusive latch was taken.
    #[inline]
    fn new(frame: &'a Frame) -> FrameWrite<'a> {
        FrameWrite { frame, unwinding: std::thread::panicking() }
    }

    /// Returns the latched frame.
    #[inline]
    pub(crate) fn frame(&self) -> &'a Frame {
        self.frame
    }

    /// Returns the content of the page, which is stable while the guard lives.
    #[inline]
    pub(crate) fn page(&self) -> PageRef<'_> {
        self.frame.bytes()
    }

    /// Returns the content of the page as a byte array.
    pub(crate) fn stable(&self) -> &[u8; PAGE_SIZE] {
        // SAFETY: the exclusive latch is held.
        unsafe { self.page().stable() }
    }

    /// Returns a flaw of the page, if there is one. If the content of the page has not been checked yet, all of it is
    /// checked. Otherwise the properties that reads and writes rely on were established when the page was read, created or
    /// repaired, and changes preserve them. The exception is the order of keys, which is always checked: a page in the wrong
    /// place of a damaged tree accepts keys that do not belong there.
    pub(crate) fn flaw(&self) -> Option<Flaw> {
        let look = || sound::find_defect(self.stable(), self.frame.page_id());
        let unproved = self.frame.unproved.load(Ordering::Relaxed);
        if unproved & CONTENT == 0 {
            let disorder = sound::find_key_order_defect(self.stable());
            debug_assert!(disorder.is_some() || look().is_none(), "page {} was sound", self.frame.page_id());
            return disorder;
        }
        let flaw = look();
        if flaw.is_none() {
            self.frame.unproved.store(unproved & !CONTENT, Ordering::Relaxed);
        }
        flaw
    }

    /// Records that the page was proved to be in its proper place in the tree.
    pub(crate) fn note_proved(&self) {
        let unproved = self.frame.unproved.load(Ordering::Relaxed);
        self.frame.unproved.store(unproved & !PLACE, Ordering::Relaxed);
    }

    /// Returns the content of the page for changes. The caller marks the page dirty first.
    #[inline]
    pub(crate) fn page_mut(&mut self) -> PageMut<'_> {
        // SAFETY: this guard holds the exclusive latch, and no other such guard exists. `&mut self` prevents a second
        // `PageMut`. Optimistic readers go through `PageRef`, whose reads are volatile.
        unsafe { PageMut::new(self.frame.page.get().cast()) }
    }

    /// Marks the page as dirty, with changes at or after `lsn`. Call this before the change's log record is appended, with a
    /// lower bound of the record's LSN (the log's tail), so that a checkpoint that includes the record also includes the
    /// page.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, lsn: Lsn) {
        if self.frame.recovery_lsn.load(Ordering::Relaxed) == 0 {
            self.frame.recovery_lsn.store(lsn.0.max(1), Ordering::Release);
        }
    }

    /// Like [`FrameWrite::mark_dirty`], but reads the log's tail (which all workers write) only if the page is clean.
    #[inline]
    pub(crate) fn mark_dirty_at(&mut self, tail: impl FnOnce() -> Lsn) {
        if self.frame.recovery_lsn.load(Ordering::Relaxed) == 0 && !is_mutant(Mutant::SkipDirtyMark) {
            self.mark_dirty(tail());
        }
    }

    /// Releases the latch. Returns the version that the frame has afterwards.
    #[inline]
    pub(crate) fn release(self) -> Version {
        let version = self.frame.latch.unlock_exclusive();
        std::mem::forget(self);
        version
    }

    /// Releases the latch of a page that was not changed. The version stays the same, so optimistic readers remain valid.
    pub(crate) fn release_unchanged(self) {
        self.frame.latch.unlock_unchanged();
        std::mem::forget(self);
    }
}

impl Drop for FrameWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            super::writer_panic::writer_unwound(self.frame.page_id(), std::ptr::from_ref(self.frame).addr());
        }
        self.frame.latch.unlock_exclusive();
    }
}
