//! Writing of dirty pages in place, in batches.
//!
//! 1. Copy each page under a shared latch. Record its LSN, its recovery LSN and the latch's version.
//! 2. Make the log durable up to the newest change in the copies (the write-ahead rule). Seal the copies and write them
//!    durably to [doublewrite slots](super::aside), from which a restart repairs pages that the crash has torn in place.
//! 3. Write the copies in place. Pages with consecutive numbers are written in one call.
//! 4. Add the smallest recovery LSN of the batch to the unsynced pages, and only then mark the pages clean. So
//!    [`BufferPool::oldest_recovery_lsn`] finds the LSN in at least one of the two places.
//!
//! A page that has changed since it was copied stays dirty from the LSN of the copy.

use crate::base::sync::plain::Ordering;

use super::BufferPool;
use super::aside::AllocatedSlots;
use super::file::{AsideCopy, MIN_SLOTS, SLOT_PAGES};
use super::stats::add;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::latch::Version;
use crate::page::header;

/// Maximum number of pages of a batch.
pub(super) const BATCH: usize = 128;
const _: () = assert!(MIN_SLOTS as usize * SLOT_PAGES >= 2 * BATCH);

/// Frames to write, and memory for the copies.
#[derive(Debug)]
pub(super) struct WriteBatch {
    /// Numbers of the frames to write. Writing empties the list.
    pub(super) frames: Vec<u32>,
    order: Vec<(PageId, u32)>,
    copies: Vec<PageCopy>,
    /// Content of the copies: `copies[i]` begins at byte `i * PAGE_SIZE`. Small batches touch only the beginning of this
    /// memory.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct PageCopy {
    frame: u32,
    id: PageId,
    lsn: Lsn,
    recovery: Lsn,
    version: Version,
}

impl WriteBatch {
    pub(super) fn new() -> WriteBatch {
        WriteBatch {
            frames: Vec::with_capacity(BATCH),
            order: Vec::with_capacity(BATCH),
            copies: Vec::with_capacity(BATCH),
            bytes: vec![0; BATCH * PAGE_SIZE],
        }
    }
}

impl BufferPool {
    /// Returns an empty batch. Give it back with [`BufferPool::keep`].
    pub(super) fn batch(&self) -> WriteBatch {
        self.batches.lock().pop().unwrap_or_else(WriteBatch::new)
    }

    /// Keeps the memory of a batch for reuse. The memory of all kept batches is at most an eighth of the pool's own memory.
    pub(super) fn keep(&self, mut batch: WriteBatch) {
        batch.frames.clear();
        let most = (self.frame_count() / (8 * BATCH)).min(4);
        let mut kept = self.batches.lock();
        if kept.len() < most {
            kept.push(batch);
        }
    }

    /// Writes the frames in `batch.frames` (at most [`BATCH`]) that are dirty and that no other thread is writing. Returns
    /// the number of pages written. The caller holds no latch and no lock: this function waits for the log.
    ///
    /// # Errors
    /// A failed write closes the instance. If the file cannot grow, or if there is no space for the copies, the pages stay
    /// dirty.
    pub(super) fn write_batch(&self, batch: &mut WriteBatch) -> Result<usize, StorageError> {
        self.copy_pages(batch);
        let result = if batch.copies.is_empty() { Ok(None) } else { self.write_copies(batch).map(Some) };
        if result.is_ok() {
            self.mark_clean(batch);
        }
        for copy in &batch.copies {
            self.frames.as_slice()[copy.frame as usize].writing.store(false, Ordering::Release);
        }
        // The slots are released here, after the pages were recorded as unsynced.
        result.map(|_| batch.copies.len())
    }

    /// Copies the pages (step 1).
    fn copy_pages(&self, batch: &mut WriteBatch) {
        let frames = self.frames.as_slice();
        batch.copies.clear();
        // Each page number is read once, because it may change and the sort needs stable keys.
        batch.order.clear();
        batch.order.extend(batch.frames.drain(..).map(|index| (frames[index as usize].page_id(), index)));
        batch.order.sort_unstable();
        debug_assert!(batch.order.len() <= BATCH);
        for (_, index) in batch.order.drain(..) {
            let frame = &frames[index as usize];
            if frame.writing.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (share, version) = frame.latch.lock_shared();
            let (id, recovery) = (frame.page_id(), frame.recovery_lsn.load(Ordering::Relaxed));
            let wanted = recovery != 0 && !id.is_none();
            if wanted {
                let at = batch.copies.len() * PAGE_SIZE;
                let copied = frame.bytes().copy_to(0, &mut batch.bytes[at..at + PAGE_SIZE]);
                debug_assert!(copied);
                let lsn = frame.bytes().lsn();
                debug_assert_eq!(frame.bytes().id(), id, "a page to be written has lost its number");
                batch.copies.push(PageCopy { frame: index, id, lsn, recovery: Lsn(recovery), version });
            }
            drop(share);
            if !wanted {
                frame.writing.store(false, Ordering::Release);
            }
        }
    }

    /// Makes the log and the doublewrite copies durable, and writes the pages in place (steps 2 and 3).
    fn write_copies(&self, batch: &mut WriteBatch) -> Result<AllocatedSlots<'_>, StorageError> {
        self.poison.check()?;
        let WriteBatch { copies, bytes, .. } = batch;
        let last = copies.iter().map(|c| c.id).max().unwrap_or_default();
        self.grow_to_hold(last)?;

        let (pages, _) = bytes[..copies.len() * PAGE_SIZE].as_chunks_mut::<PAGE_SIZE>();
        for page in pages.iter_mut() {
            header::seal(page);
        }
        if !is_mutant(Mutant::SkipWriteAhead) {
            // Durable beyond the first byte of the newest record in the copies implies durable to the end of this record.
            let newest = copies.iter().map(|copy| copy.lsn.0).max().unwrap_or(0);
            self.wal.make_durable(Lsn(newest + 1))?;
        }
        let taken = self.take_slots(copies.len())?;
        if !is_mutant(Mutant::SkipPageImage) {
            self.put_aside(&taken, copies, pages)?;
        }

        let mut from = 0;
        while from < copies.len() {
            let mut to = from + 1;
            while to < copies.len() && copies[to].id.0 == copies[to - 1].id.0 + 1 {
                to += 1;
            }
            let run = &bytes[from * PAGE_SIZE..to * PAGE_SIZE];
            let run = self.prove(copies[from].id, run)?;
            if let Err(error) = self.file.write_pages(run) {
                self.poison.close(&error, self.wal.durable());
                return Err(error);
            }
            add(&self.counters.write_calls, 1);
            from = to;
        }
        add(&self.counters.writes, copies.len());
        Ok(taken)
    }

    /// Writes doublewrite copies of the pages and makes them durable.
    fn put_aside(
        &self,
        taken: &AllocatedSlots<'_>,
        copies: &[PageCopy],
        pages: &[[u8; PAGE_SIZE]],
    ) -> Result<(), StorageError> {
        let all = copies.iter().zip(pages);
        let all: Vec<_> = all.map(|(copy, page)| AsideCopy { id: copy.id, recovery: copy.recovery, page }).collect();
        let written = all
            .chunks(SLOT_PAGES)
            .enumerate()
            .try_for_each(|(part, some)| self.file.write_aside(taken.slot(part), some));
        written.and_then(|()| self.file.sync_aside()).inspect_err(|error| {
            // Nothing has been written in place yet, so a lack of space is harmless.
            if !error.is_want_of_room() {
                self.poison.close(error, self.wal.durable());
            }
        })?;
        add(&self.counters.images, copies.len());
        Ok(())
    }

    /// Records the pages as unsynced and marks them clean (step 4).
    fn mark_clean(&self, batch: &WriteBatch) {
        let Some(oldest) = batch.copies.iter().map(|c| c.recovery).min() else { return };
        self.unsynced.lock().add(oldest, batch.copies.len());
        for copy in &batch.copies {
            let frame = &self.frames.as_slice()[copy.frame as usize];
            // Under a shared latch no other thread can mark the page dirty at the same time.
            let (share, version) = frame.latch.lock_shared();
            let unchanged = version == copy.version;
            // The new recovery LSN must be the start of a record, because restart reads from there. The start of the first
            // record whose change the copy lacks is unknown. Therefore the LSN of the copy is used: the start of the last
            // record whose change the copy contains.
            let recovery = if unchanged { 0 } else { copy.recovery.0.max(copy.lsn.0) };
            frame.recovery_lsn.store(recovery, Ordering::Release);
            drop(share);
        }
    }
}
