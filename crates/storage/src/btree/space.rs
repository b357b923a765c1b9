//! The page allocator, whose state is on page 1.
//!
//! Page 1 holds the number of the first page never used and the head of the list of free pages. Each free page contains the
//! number of the next free page. Allocating and freeing are parts of the system record that also links the page into its
//! tree (or unlinks it), so a crash never loses a page or allocates it twice. Page 1 also holds ranges of pages that no tree
//! contains ([`ranges`](super::ranges)): ranges owned by bulk loads, and free ranges, which are used after the free list.
//!
//! A structure modification first *prepares*: with no latch held it loads the free pages that it may take, extends the file
//! if there are too few of them, and reserves frames. Then, with its tree pages latched, it *takes* the pages, which cannot
//! fail for lack of space. Page 1 is latched last and is never held during a wait for another page.
//!
//! # Space for undo
//!
//! A full disk must not stop a rollback. Nearly all undo needs no page: undoing an insert leaves a ghost, undoing a delete
//! revives the transaction's own ghost, and an overwrite is overwritten. But when a row shrinks, its bytes may be used by
//! other rows, and to grow again the row may have to split its leaf. So before a row shrinks, the transaction *reserves*
//! pages (`ReservedSpace`): the file is extended for them, and modifications other than undo do not use them until the
//! transaction ends. (InnoDB, too, has a number of free pages that only rollback may use; it is a share of the file and not
//! counted per transaction. Shore-MT reserves the bytes in the page, which needs a field there and a check of it in every
//! insert.)
//!
//! The invariant is: `pages in the file >= first page never used + reserved pages`. A transaction that reserves pages first
//! increases the number of reserved pages, and then extends the file for the current first page never used. A modification
//! that takes pages reads the number of reserved pages with page 1 latched. So either the modification sees the reservation
//! and leaves the reserved pages, or it has taken its pages before, and the reserving transaction sees the new first page
//! never used. Undo uses the pages that its own transaction has reserved. The number decreases only when the transaction
//! ends, so until then it is too large and never too small. Pages in the free list are not counted. At restart no pages are
//! reserved, and no reservation is necessary: the file still has the space that was reserved in it, and only undo takes
//! pages.

pub(crate) use super::SPACE_PAGE;
use super::ops::{self, PageChange};
use super::ranges::Ranges;
use super::{MAX_KEY, StructureChange};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::sync::yield_now;
use crate::buffer::frame::FrameWrite;
use crate::buffer::{BufferPool, ReservedFrames};
use crate::log::RecordBuf;
use crate::page::PageRef;
use crate::page::header::Kind;

/// Number of the first page that the allocator assigns.
pub(crate) const FIRST_PAGE: u32 = 2;
/// Maximum number of pages that one modification allocates.
const MAX_PAGES_PER_CHANGE: usize = 4;

/// Reads the allocator's state from its page: the first page never used, and the head of the free list.
pub(super) fn state(page: PageRef<'_>) -> (u32, PageId) {
    (page.u32(ops::space::END), PageId(page.u32(ops::space::FREE)))
}

/// New state of the allocator, which the caller logs. No other code changes the page while the database runs.
pub(super) struct AllocatorState {
    pub(super) end: u32,
    pub(super) free: PageId,
    /// The new list of ranges. `None` if the ranges do not change.
    pub(super) ranges: Option<Ranges>,
}

impl AllocatorState {
    /// Adds the new state to the log record.
    pub(super) fn log(&self, rec: &mut RecordBuf) {
        ops::put_space(rec, SPACE_PAGE, self.end, self.free);
        if let Some(ranges) = &self.ranges {
            ops::put_ranges(rec, SPACE_PAGE, &ranges.encode());
        }
    }

    /// Writes the state to the allocator's page, sets the record's LSN, and releases the page.
    pub(super) fn finish(&self, pool: &BufferPool, mut space: FrameWrite<'_>, lsn: Lsn) {
        pool.raise_pages_end(self.end);
        if self.end < state(space.page()).0 {
            pool.set_end_lowered_at(lsn);
        }
        let mut page = space.page_mut();
        page.put_u32(ops::space::END, self.end);
        page.put_u32(ops::space::FREE, self.free.0);
        if let Some(ranges) = &self.ranges {
            let applied = ops::apply(&PageChange::Ranges { page: SPACE_PAGE, list: &ranges.encode() }, &mut page);
            debug_assert!(applied, "the list was made for the page");
        }
        page.set_lsn(lsn);
    }
}

/// Latches the allocator's page exclusively if it is in memory. The caller may hold other latches.
pub(super) fn latch_space(change: StructureChange<'_>) -> Option<FrameWrite<'_>> {
    let space = change.pool.get(SPACE_PAGE)?.write(change.pool.latches());
    if space.frame().page_id() == SPACE_PAGE {
        return Some(space);
    }
    space.release_unchanged();
    None
}

/// State of a page that the free list contains.
enum FreeListEntry {
    Free {
        next: PageId,
    },
    /// The page belongs to a tree: the list is damaged.
    Used,
    /// The page is not in memory, or it is latched (in a damaged file possibly by the calling thread).
    Unseen,
}

/// Checks a page of the free list without waiting.
fn free_list_entry(change: StructureChange<'_>, id: PageId) -> FreeListEntry {
    let Some(write) = change.try_latch(id) else { return FreeListEntry::Unseen };
    let page = write.page();
    let entry = match page.kind() {
        Some(Kind::Free) => FreeListEntry::Free { next: page.right() },
        _ if is_of_tree(page) => FreeListEntry::Used,
        _ => FreeListEntry::Unseen,
    };
    write.release_unchanged();
    entry
}

/// Maximum number of pages that undo may take to make one row grow: the row's leaf is split until there is space. This takes
/// at most two splits if rows take half a page each, and occasionally a split of an inner page.
const PAGES_PER_ROW: u64 = 4;
/// Number of levels above which a tree is assumed to have long keys, so that an inner page has few of them. In such a tree,
/// each split of a leaf may split all pages above it.
const LOW_TREE_LEVELS: u64 = 4;
/// Additional pages, reserved once for all rows of a transaction: for a split that propagates to the root and makes the tree
/// grow.
const PAGES_ABOVE: u64 = 8;
/// Maximum number of bytes of log that the split of a page takes.
const SPLIT_RECORD: u64 = (PAGE_SIZE + 2 * MAX_KEY) as u64 + 512;

/// Space in the file that a transaction reserves, so that its undo succeeds.
#[derive(Debug, Default)]
pub(crate) struct ReservedSpace {
    pages: u64,
    /// Number of rows that may still shrink with the reserved space.
    rows: u64,
    /// Number of pages reserved for the newest of the rows that may still shrink.
    row_pages: u64,
    used: UsedReservation,
}

/// Number of rows that shrank, and number of pages reserved for these rows.
#[derive(Clone, Copy, Debug, Default)]
struct UsedReservation {
    rows: u64,
    pages: u64,
}

impl ReservedSpace {
    /// Returns true if one more row may shrink.
    #[inline]
    pub(crate) fn covers_one(&self) -> bool {
        self.rows > 0
    }

    /// Records that a row shrank. Returns the number of bytes of log that the undo of this change may take in addition to
    /// the usual number.
    pub(crate) fn use_one(&mut self) -> u64 {
        self.rows -= 1;
        self.used = UsedReservation { rows: self.used.rows + 1, pages: self.used.pages + self.row_pages };
        self.row_pages * SPLIT_RECORD
    }

    /// Releases the space of `rows` rows whose shrinking was undone. Returns the number of bytes of log that were reserved
    /// for this undo.
    #[cold]
    pub(crate) fn give_back(&mut self, pool: &BufferPool, rows: u64) -> u64 {
        let rows = rows.min(self.used.rows);
        // The average number of pages per row: usually all rows are of one tree.
        let fewer = if rows > 0 { self.used.pages * rows / self.used.rows } else { 0 };
        pool.release_pages(fewer);
        self.pages -= fewer;
        self.used = UsedReservation { rows: self.used.rows - rows, pages: self.used.pages - fewer };
        fewer * SPLIT_RECORD
    }

    /// Reserves enough space for one more row of a tree with this number of levels. The caller holds no latch.
    ///
    /// # Errors
    /// No space on the device. No additional space is reserved in this case.
    pub(crate) fn reserve(&mut self, change: StructureChange<'_>, levels: u64) -> Result<(), StorageError> {
        let per_row = if levels > LOW_TREE_LEVELS { 2 * (levels + 1) } else { PAGES_PER_ROW };
        let more = per_row + if self.pages == 0 { PAGES_ABOVE } else { 0 };
        let reserved = change.pool.reserve_pages(more);
        let ensured = first_unused(change).and_then(|end| change.pool.ensure_file(end + reserved));
        if let Err(error) = ensured {
            change.pool.release_pages(more);
            return Err(error);
        }
        self.pages += more;
        self.row_pages = per_row;
        self.rows += 1;
        Ok(())
    }

    /// Releases all reserved space. Called after the transaction has ended.
    #[inline]
    pub(crate) fn release(&mut self, pool: &BufferPool) {
        if self.pages > 0 {
            pool.release_pages(self.pages);
            *self = ReservedSpace::default();
        }
    }
}

/// Removes the pages beyond the pages in use from the pool, because the content of their frames must not be written any
/// more. The caller holds no latch. Returns false if another thread is using one of these pages at the moment.
///
/// # Errors
/// Fails if the allocator's page cannot be read.
pub(crate) fn forget_unused(pool: &BufferPool) -> Result<bool, StorageError> {
    /// Number of pages processed during one hold of the allocator's latch.
    const PIECE: u32 = 4096;
    let mut above = pool.file_pages();
    loop {
        let space = pool.get_or_load(SPACE_PAGE)?.write(pool.latches());
        if space.frame().page_id() != SPACE_PAGE {
            space.release_unchanged();
            continue;
        }
        let (end, _) = state(space.page());
        // From here on, the content of these pages in the file may differ from the content of their frames.
        pool.set_pages_end(end);
        let from = above.saturating_sub(PIECE).max(end);
        let forgotten = (from..above).all(|page| pool.withhold(PageId(page)));
        space.release_unchanged();
        if !forgotten || from == end || above <= end {
            return Ok(forgotten);
        }
        above = from;
    }
}

/// Result of an attempt to truncate the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    Done,
    /// Another thread uses a page beyond the end at the moment, or an online copy of the file is in progress.
    InUse,
    /// A restart would read records about pages beyond the end, so a checkpoint has to be taken first.
    NeedsCheckpoint,
}

/// Truncates the file after the pages in use and the pages reserved for undo, unless a restart, whose redo begins at `redo`,
/// would read records about later pages. The caller has removed these pages from the pool ([`forget_unused`]). The caller
/// holds no latch.
///
/// # Errors
/// Fails if the allocator's page cannot be read, or if the file cannot be truncated.
pub(crate) fn truncate_file(pool: &BufferPool, redo: Lsn) -> Result<Truncation, StorageError> {
    loop {
        pool.get_or_load(SPACE_PAGE)?;
        let truncation = pool.begin_truncation();
        let Some(space) = pool.get(SPACE_PAGE).and_then(|frame| frame.try_write()) else {
            drop(truncation);
            yield_now();
            continue;
        };
        if space.frame().page_id() != SPACE_PAGE {
            space.release_unchanged();
            continue;
        }
        // No page can be allocated, and the end cannot be lowered, while the allocator's page is latched.
        let is_settled = redo > pool.end_lowered_at();
        let is_unused = is_settled && truncation.lower(state(space.page()).0);
        space.release_unchanged();
        if !is_settled {
            return Ok(Truncation::NeedsCheckpoint);
        }
        if !is_unused {
            return Ok(Truncation::InUse);
        }
        truncation.finish()?;
        return Ok(Truncation::Done);
    }
}

/// Returns the number of the first page never used.
pub(crate) fn first_unused(change: StructureChange<'_>) -> Result<u64, StorageError> {
    loop {
        let space = change.pool.get_or_load(SPACE_PAGE)?;
        let read = space.read(change.pool.latches());
        let (end, _) = state(read.page());
        if space.page_id() == SPACE_PAGE && read.is_valid() {
            return Ok(u64::from(end));
        }
    }
}

/// Finds a page, among the `n` never-used pages from `end` on, that is in memory as a page of a tree: the allocator's state
/// is then wrong. An assignment of such a page would overwrite the page, or wait forever for a latch that this thread holds.
pub(super) fn first_used(change: StructureChange<'_>, end: u32, n: usize) -> Option<PageId> {
    (0..n as u32)
        .map(|i| PageId(end.saturating_add(i)))
        .find(|id| change.pool.get(*id).is_some_and(|frame| frame.page_id() == *id && is_of_tree(frame.bytes())))
}

/// Returns the next pages to be taken from free ranges, at most `n` pages.
fn from_ranges(page: PageRef<'_>, n: usize) -> Vec<u32> {
    if ops::space::range_count(page) == 0 {
        return Vec::new();
    }
    let mut ranges = Ranges::read(page);
    (0..n).map_while(|_| ranges.take_one()).collect()
}

/// Returns the error for an allocator whose state says that a page was never used although a tree uses it.
pub(super) fn called_unused(change: StructureChange<'_>, page: PageId) -> StorageError {
    damaged(change, format!("says that page {page} was never used, but it is"))
}

fn damaged(change: StructureChange<'_>, what: String) -> StorageError {
    StorageError::CorruptPage { file: change.pool.file_name(), page: SPACE_PAGE, what }
}

/// Returns true if a tree uses the page. A page without an LSN was being created when the log refused the record: such a
/// page was never used.
fn is_of_tree(page: PageRef<'_>) -> bool {
    matches!(page.kind(), Some(Kind::Leaf | Kind::Inner)) && page.lsn() != Lsn::ZERO
}

/// Resources for the pages of a modification: space in the file and frames in the pool.
pub(crate) struct Grant<'a> {
    frames: ReservedFrames<'a>,
    n: usize,
}

impl<'a> Grant<'a> {
    /// Makes sure that the modification can take `n` pages. The caller holds no latch.
    ///
    /// # Errors
    /// No space on the device, no frames, or a free page that cannot be read.
    pub(crate) fn prepare(change: StructureChange<'a>, n: usize) -> Result<Grant<'a>, StorageError> {
        debug_assert!(n <= MAX_PAGES_PER_CHANGE);
        loop {
            let space = change.pool.get_or_load(SPACE_PAGE)?;
            let read = space.read(change.pool.latches());
            let (end, mut free) = state(read.page());
            let ranged = from_ranges(read.page(), n);
            let used = ranged.iter().find_map(|page| first_used(change, *page, 1));
            let used = used.or_else(|| first_used(change, end, n));
            if space.page_id() != SPACE_PAGE || !read.is_valid() {
                continue;
            }
            let version = read.version();
            drop(read);
            if let Some(page) = used {
                return Err(called_unused(change, page));
            }
            let mut found = 0;
            while found < n && !free.is_none() {
                match change.pool.get_or_load(free) {
                    // Another thread has taken the page out of the list.
                    Err(StorageError::CorruptPage { .. }) if !space.is_still(version) => break,
                    loaded => _ = loaded?,
                }
                match free_list_entry(change, free) {
                    FreeListEntry::Free { next } => (free, found) = (next, found + 1),
                    // No thread has taken the page from the list since its number was read, so a page in use was in the
                    // list.
                    FreeListEntry::Used if space.is_still(version) => {
                        return Err(damaged(change, format!("says that page {free} is free, but it is in use")));
                    }
                    // The page has just been taken, or has left the pool again. `take` will detect both cases.
                    FreeListEntry::Used | FreeListEntry::Unseen => break,
                }
            }
            if found + ranged.len() < n {
                let least = u64::from(end) + n as u64 + change.reserved_pages();
                // Other threads may take pages in the meantime, so the file is extended by more pages if there is space.
                match change.pool.ensure_file(least + 15 * n as u64) {
                    Err(StorageError::NoSpace { .. }) if change.pool.file_holds(least) => {}
                    ensured => ensured?,
                }
            }
            return Ok(Grant { frames: change.pool.reserve(n)?, n });
        }
    }

    /// Takes the pages. The allocator stays latched until [`AllocatedPages::finish`].
    ///
    /// Returns `None` if other threads have used up the prepared resources. The caller then releases all latches and
    /// prepares again.
    pub(crate) fn take(self, change: StructureChange<'a>) -> Option<AllocatedPages<'a>> {
        let space = latch_space(change)?;
        let (in_use, mut free) = state(space.page());
        let mut end = in_use;
        let ranged = from_ranges(space.page(), self.n);
        if first_used(change, end, self.n).is_some() || ranged.iter().any(|page| first_used(change, *page, 1).is_some())
        {
            // The next thread that prepares a modification will report the damage.
            space.release_unchanged();
            return None;
        }
        let mut ids = [PageId::NONE; MAX_PAGES_PER_CHANGE];
        let mut ranges = (ops::space::range_count(space.page()) > 0).then(|| Ranges::read(space.page()));
        let mut taken_from_ranges = false;
        for id in ids.iter_mut().take(self.n) {
            if let FreeListEntry::Free { next } = free_list_entry(change, free) {
                *id = free;
                free = next;
            } else if let Some(page) = ranges.as_mut().and_then(Ranges::take_one) {
                *id = PageId(page);
                taken_from_ranges = true;
            } else {
                *id = PageId(end);
                // In a damaged allocator whose free list was long enough, no thread has extended the file yet.
                end = end.saturating_add(1);
            }
        }
        // Only a page beyond the old end needs file space. Another transaction may have counted pages that it reserves, and
        // may not yet have extended the file.
        if end > in_use && !change.pool.file_holds(u64::from(end) + change.reserved_pages()) {
            space.release_unchanged();
            return None;
        }
        Some(AllocatedPages {
            change,
            space,
            frames: self.frames,
            ids,
            next: AllocatorState { end, free, ranges: ranges.filter(|_| taken_from_ranges) },
        })
    }
}

/// Pages allocated for a structure modification whose record is being built.
pub(crate) struct AllocatedPages<'a> {
    change: StructureChange<'a>,
    space: FrameWrite<'a>,
    frames: ReservedFrames<'a>,
    ids: [PageId; MAX_PAGES_PER_CHANGE],
    next: AllocatorState,
}

impl<'a> AllocatedPages<'a> {
    /// Returns the number of the allocated page with index `i`.
    pub(crate) fn page(&self, i: usize) -> PageId {
        self.ids[i]
    }

    /// Returns a latched frame for the allocated page with index `i`.
    pub(crate) fn create(&mut self, i: usize) -> FrameWrite<'a> {
        let id = self.ids[i];
        match self.change.pool.get(id) {
            // A page of the free list that is in memory keeps its frame.
            Some(frame) => {
                let write = frame.write(self.change.pool.latches());
                if frame.page_id() == id {
                    write
                } else {
                    drop(write);
                    self.frames.create(id)
                }
            }
            None => self.frames.create(id),
        }
    }

    /// Adds the allocator's new state to the log record.
    pub(crate) fn log(&mut self, rec: &mut RecordBuf) {
        self.next.log(rec);
        self.space.mark_dirty(self.change.log.tail());
    }

    /// Writes the allocator's new state to its page, sets the page's LSN, and releases the page's latch.
    pub(crate) fn finish(self, lsn: Lsn) {
        self.next.finish(self.change.pool, self.space, lsn);
    }
}

/// Frees one page as part of a modification. Created by [`PageFreeing::log`], completed by [`PageFreeing::finish`].
pub(crate) struct PageFreeing<'a> {
    pool: &'a BufferPool,
    space: FrameWrite<'a>,
    page: PageId,
    /// Page that follows this one in the free list.
    behind: PageId,
    next: AllocatorState,
}

impl<'a> PageFreeing<'a> {
    /// Latches the allocator's page and adds the freeing of `page` to the log record.
    ///
    /// Returns `None` if the allocator's page has left the pool. The caller then releases all latches, loads the page, and
    /// retries.
    pub(crate) fn log(change: StructureChange<'a>, page: PageId, rec: &mut RecordBuf) -> Option<PageFreeing<'a>> {
        let mut space = latch_space(change)?;
        let (end, behind) = state(space.page());
        space.mark_dirty(change.log.tail());
        let next = AllocatorState { end, free: page, ranges: None };
        next.log(rec);
        ops::put_free(rec, page, behind);
        Some(PageFreeing { pool: change.pool, space, page, behind, next })
    }

    /// Applies the change and sets the LSN of both pages to the record's LSN. `freed` is the latched page to be freed.
    pub(crate) fn finish(self, freed: &mut FrameWrite<'_>, lsn: Lsn) {
        let mut page = freed.page_mut();
        let applied = ops::apply(&PageChange::Free { page: self.page, next: self.behind }, &mut page);
        debug_assert!(applied);
        page.set_lsn(lsn);
        self.next.finish(self.pool, self.space, lsn);
    }
}
