//! The allocator on page 1: which pages are free.
//!
//! Page 1 holds the number of the first page never used and the head of the list of free pages; each free
//! page names the next. Taking and giving back are parts of the system record that also links the page
//! into (or out of) its tree, so a crash never loses or doubles a page. Beside these two it has ranges of pages that no
//! tree has ([`ranges`](super::ranges)): those that bulk loads own, and free ones, which are taken after the free list.
//!
//! A change of structure first *prepares*: with no latch held it loads the free pages it may take, makes the file long
//! enough if they are too few, and sets frames aside. Then, with its tree pages latched, it *takes* the pages,
//! which cannot fail for want of room. Page 1 is latched last and never held while waiting for another page.
//!
//! # Room for undo
//!
//! A full disk must not stop a rollback. Nearly all of undo needs no page: undoing an insert leaves a ghost, undoing a
//! delete revives the transaction's own ghost, an overwrite is overwritten. But the bytes of a row that was made
//! shorter may go to other rows, and to grow back the row may have to split its leaf. So before a row is made shorter,
//! the transaction *keeps* pages: the file is made long enough for them, and changes that are not undo leave them alone
//! until the transaction ends. (InnoDB, too, has an amount of free pages that only rollback may take, a share of the
//! file and not counted by transaction; Shore-MT keeps the bytes in the page, which needs a field there and a check of
//! it in every insert.)
//!
//! The rule: `pages in the file >= first page never used + pages kept`. A transaction that keeps pages first adds to
//! the number and then makes the file long enough for the current first page never used. A change that takes pages
//! reads the number with page 1 latched. So either it sees the pages being kept and leaves them, or it has taken its
//! pages before, and the keeping transaction sees that. Undo takes the pages that its own transaction has kept; the
//! number falls when the transaction ends, so meanwhile it is too large and never too small. The free list may have
//! pages as well; they are not counted. At restart nothing is kept, and nothing needs to be: the file still has the
//! room that was kept in it, and only undo takes pages.

pub(crate) use super::SPACE_PAGE;
use super::ops::{self, PageChange};
use super::ranges::Ranges;
use super::{MAX_KEY, StructureChange};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::sync::yield_now;
use crate::buffer::frame::FrameWrite;
use crate::buffer::{BufferPool, Reserved};
use crate::log::RecordBuf;
use crate::page::PageRef;
use crate::page::header::Kind;

/// First page that the allocator hands out.
pub(crate) const FIRST_PAGE: u32 = 2;
/// Most pages of one change.
const MOST: usize = 4;

/// The allocator's state, read from its page.
pub(super) fn state(page: PageRef<'_>) -> (u32, PageId) {
    (page.u32(ops::space::END), PageId(page.u32(ops::space::FREE)))
}

/// The allocator's next state, which the caller logs: no other function changes the page while the database runs.
pub(super) struct Change {
    pub(super) end: u32,
    pub(super) free: PageId,
    /// The ranges, if they change.
    pub(super) ranges: Option<Ranges>,
}

impl Change {
    /// Adds the state to the record.
    pub(super) fn log(&self, rec: &mut RecordBuf) {
        ops::put_space(rec, SPACE_PAGE, self.end, self.free);
        if let Some(ranges) = &self.ranges {
            ops::put_ranges(rec, SPACE_PAGE, &ranges.encode());
        }
    }

    /// Makes the state that of the page, under the record's LSN, and releases the page.
    pub(super) fn finish(&self, pool: &BufferPool, mut space: FrameWrite<'_>, lsn: Lsn) {
        pool.raise_pages_end(self.end);
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

/// The allocator's page, exclusively, if it is in memory: the caller may hold other latches.
pub(super) fn latch_space(change: StructureChange<'_>) -> Option<FrameWrite<'_>> {
    let space = change.pool.get(SPACE_PAGE)?.write();
    if space.frame().page_id() == SPACE_PAGE {
        return Some(space);
    }
    space.release_unchanged();
    None
}

/// The kind of a page that the free list names.
enum Listed {
    Free {
        next: PageId,
    },
    /// A page of a tree: the list is damaged.
    Used,
    /// Not in memory, or latched: on a damaged file perhaps by the calling thread.
    Unseen,
}

/// Looks at a page of the free list, and waits for nothing.
fn listed(change: StructureChange<'_>, id: PageId) -> Listed {
    let Some(write) = change.try_latch(id) else { return Listed::Unseen };
    let page = write.page();
    let listed = match page.kind() {
        Some(Kind::Free) => Listed::Free { next: page.right() },
        _ if is_of_tree(page) => Listed::Used,
        _ => Listed::Unseen,
    };
    write.release_unchanged();
    listed
}

/// Most pages that growing one row back may take: its leaf is split until there is room, which takes two splits at most
/// where rows take half a page each, and now and then a split above.
const PAGES_PER_ROW: u64 = 4;
/// Levels above which keys are so long that an inner page has few of them: each split of a leaf may split all pages above.
const LOW: u64 = 4;
/// And once for all rows of a transaction: a split that goes on up to the root, which grows.
const PAGES_ABOVE: u64 = 8;
/// Log that the split of a page takes at most.
const SPLIT_RECORD: u64 = (PAGE_SIZE + 2 * MAX_KEY) as u64 + 512;

/// The room that a transaction keeps in the file, so that its undo succeeds.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pages: u64,
    /// Rows that may be made shorter.
    rows: u64,
    /// Pages kept for the newest of them.
    row_pages: u64,
    used: UsedRoom,
}

/// Rows that were made shorter, and the pages that are kept for them.
#[derive(Clone, Copy, Debug, Default)]
struct UsedRoom {
    rows: u64,
    pages: u64,
}

impl Kept {
    /// Whether one more row may be made shorter.
    #[inline]
    pub(crate) fn covers_one(&self) -> bool {
        self.rows > 0
    }

    /// Notes that a row has been made shorter; returns the bytes of log that its undo may take besides the usual.
    pub(crate) fn use_one(&mut self) -> u64 {
        self.rows -= 1;
        self.used = UsedRoom { rows: self.used.rows + 1, pages: self.used.pages + self.row_pages };
        self.row_pages * SPLIT_RECORD
    }

    /// Gives up the room of rows whose shortening was undone; returns the bytes of log that were kept for that.
    #[cold]
    pub(crate) fn give_back(&mut self, pool: &BufferPool, rows: u64) -> u64 {
        let rows = rows.min(self.used.rows);
        // As many as each has on average: mostly all are of one tree.
        let fewer = if rows > 0 { self.used.pages * rows / self.used.rows } else { 0 };
        pool.release_pages(fewer);
        self.pages -= fewer;
        self.used = UsedRoom { rows: self.used.rows - rows, pages: self.used.pages - fewer };
        fewer * SPLIT_RECORD
    }

    /// Keeps enough room for one more row of a tree of this many levels. No latch may be held.
    ///
    /// # Errors
    /// No space on the device; nothing more is kept then.
    pub(crate) fn keep(&mut self, change: StructureChange<'_>, levels: u64) -> Result<(), StorageError> {
        let per_row = if levels > LOW { 2 * (levels + 1) } else { PAGES_PER_ROW };
        let more = per_row + if self.pages == 0 { PAGES_ABOVE } else { 0 };
        let kept = change.pool.keep_pages(more);
        let ensured = first_unused(change).and_then(|end| change.pool.ensure_file(end + kept));
        if let Err(error) = ensured {
            change.pool.release_pages(more);
            return Err(error);
        }
        self.pages += more;
        self.row_pages = per_row;
        self.rows += 1;
        Ok(())
    }

    /// Gives up all kept room: the transaction has ended.
    #[inline]
    pub(crate) fn release(&mut self, pool: &BufferPool) {
        if self.pages > 0 {
            pool.release_pages(self.pages);
            *self = Kept::default();
        }
    }
}

/// Takes the pages from the first one never used on out of the pool: what frames hold of them must not be written any
/// more. No latch may be held. False if another thread is using one of them at the moment.
///
/// # Errors
/// The allocator's page cannot be read.
pub(crate) fn forget_unused(pool: &BufferPool) -> Result<bool, StorageError> {
    /// Pages looked at with the allocator latched.
    const PIECE: u32 = 4096;
    let mut above = pool.file_pages();
    loop {
        let space = pool.get_or_load(SPACE_PAGE)?.write();
        if space.frame().page_id() != SPACE_PAGE {
            space.release_unchanged();
            continue;
        }
        let (end, _) = state(space.page());
        // From here on their content in the file is not that of their frames.
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

/// Cuts the file behind the pages in use, and those that are kept for undo. The caller has had the pages behind forgotten,
/// and a checkpoint taken since, so that a restart reads no record about them. False if one is in the pool again, or a copy
/// of the file is being made: nothing has happened then. No latch may be held.
///
/// # Errors
/// The allocator's page cannot be read, or the file not be cut.
pub(crate) fn cut_file(pool: &BufferPool) -> Result<bool, StorageError> {
    loop {
        pool.get_or_load(SPACE_PAGE)?;
        let cut = pool.begin_cut();
        let Some(space) = pool.get(SPACE_PAGE).and_then(|frame| frame.try_write()) else {
            drop(cut);
            yield_now();
            continue;
        };
        if space.frame().page_id() != SPACE_PAGE {
            space.release_unchanged();
            continue;
        }
        // No page is taken while this is latched.
        let may_be_cut = cut.lower(state(space.page()).0);
        space.release_unchanged();
        if may_be_cut {
            cut.finish()?;
        }
        return Ok(may_be_cut);
    }
}

/// The number of the first page never used.
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

/// Which of `n` pages from `end` on, none of which was ever used, is in memory as a page of a tree: then the allocator
/// is wrong. To hand out such a page would overwrite it, or wait for ever for a latch that this thread holds.
pub(super) fn first_used(change: StructureChange<'_>, end: u32, n: usize) -> Option<PageId> {
    (0..n as u32)
        .map(|i| PageId(end.saturating_add(i)))
        .find(|id| change.pool.get(*id).is_some_and(|frame| frame.page_id() == *id && is_of_tree(frame.bytes())))
}

/// The pages of free ranges that are taken next, at most `n`.
fn from_ranges(page: PageRef<'_>, n: usize) -> Vec<u32> {
    if ops::space::range_count(page) == 0 {
        return Vec::new();
    }
    let mut ranges = Ranges::read(page);
    (0..n).map_while(|_| ranges.take_one()).collect()
}

/// The error for an allocator that calls a page unused although a tree uses it.
pub(super) fn called_unused(change: StructureChange<'_>, page: PageId) -> StorageError {
    damaged(change, format!("says that page {page} was never used, but it is"))
}

fn damaged(change: StructureChange<'_>, what: String) -> StorageError {
    StorageError::CorruptPage { file: change.pool.file_name(), page: SPACE_PAGE, what }
}

/// Whether a tree uses a page. A page that was being made when the log refused the change has no LSN: it was never
/// used.
fn is_of_tree(page: PageRef<'_>) -> bool {
    matches!(page.kind(), Some(Kind::Leaf | Kind::Inner)) && page.lsn() != Lsn::ZERO
}

/// Room for a few pages: space in the file and frames in the pool.
pub(crate) struct Grant<'a> {
    frames: Reserved<'a>,
    n: usize,
}

impl<'a> Grant<'a> {
    /// Makes sure that `n` pages can be taken. No latch may be held.
    ///
    /// # Errors
    /// No space on the device, no frames, a free page that cannot be read.
    pub(crate) fn prepare(change: StructureChange<'a>, n: usize) -> Result<Grant<'a>, StorageError> {
        debug_assert!(n <= MOST);
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
                    // It has been taken out of the list meanwhile.
                    Err(StorageError::CorruptPage { .. }) if !space.is_still(version) => break,
                    loaded => _ = loaded?,
                }
                match listed(change, free) {
                    Listed::Free { next } => (free, found) = (next, found + 1),
                    // No thread has taken it meanwhile: it was never free.
                    Listed::Used if space.is_still(version) => {
                        return Err(damaged(change, format!("says that page {free} is free, but it is in use")));
                    }
                    // It has just been taken, or has left the pool again: the thread that takes pages will see.
                    Listed::Used | Listed::Unseen => break,
                }
            }
            if found + ranged.len() < n {
                let least = u64::from(end) + n as u64 + change.kept();
                // Other threads may take pages meanwhile: be generous where there is space.
                match change.pool.ensure_file(least + 15 * n as u64) {
                    Err(StorageError::NoSpace { .. }) if change.pool.file_holds(least) => {}
                    ensured => ensured?,
                }
            }
            return Ok(Grant { frames: change.pool.reserve(n)?, n });
        }
    }

    /// Takes the pages; the allocator stays latched until [`Taken::finish`].
    ///
    /// `None` when other threads have used up what was prepared: release all latches and prepare again.
    pub(crate) fn take(self, change: StructureChange<'a>) -> Option<Taken<'a>> {
        let space = latch_space(change)?;
        let (in_use, mut free) = state(space.page());
        let mut end = in_use;
        let ranged = from_ranges(space.page(), self.n);
        if first_used(change, end, self.n).is_some() || ranged.iter().any(|page| first_used(change, *page, 1).is_some())
        {
            // The next thread that prepares will report it.
            space.release_unchanged();
            return None;
        }
        let mut ids = [PageId::NONE; MOST];
        let mut ranges = (ops::space::range_count(space.page()) > 0).then(|| Ranges::read(space.page()));
        let mut taken_from_ranges = false;
        for id in ids.iter_mut().take(self.n) {
            if let Listed::Free { next } = listed(change, free) {
                *id = free;
                free = next;
            } else if let Some(page) = ranges.as_mut().and_then(Ranges::take_one) {
                *id = PageId(page);
                taken_from_ranges = true;
            } else {
                *id = PageId(end);
                // In a damaged allocator whose free list was long enough no thread has asked for room yet.
                end = end.saturating_add(1);
            }
        }
        // Only a page beyond the old end needs room. Another transaction may have counted pages that it keeps, and not yet
        // made the file longer.
        if end > in_use && !change.pool.file_holds(u64::from(end) + change.kept()) {
            space.release_unchanged();
            return None;
        }
        Some(Taken {
            change,
            space,
            frames: self.frames,
            ids,
            next: Change { end, free, ranges: ranges.filter(|_| taken_from_ranges) },
        })
    }
}

/// Pages taken for a change of structure that is being built.
pub(crate) struct Taken<'a> {
    change: StructureChange<'a>,
    space: FrameWrite<'a>,
    frames: Reserved<'a>,
    ids: [PageId; MOST],
    next: Change,
}

impl<'a> Taken<'a> {
    /// The number of page `i`.
    pub(crate) fn page(&self, i: usize) -> PageId {
        self.ids[i]
    }

    /// A latched frame for page `i`.
    pub(crate) fn create(&mut self, i: usize) -> FrameWrite<'a> {
        let id = self.ids[i];
        match self.change.pool.get(id) {
            // A page of the free list that is in memory keeps its frame.
            Some(frame) => {
                let write = frame.write();
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

    /// Adds the allocator's new state to the record.
    pub(crate) fn log(&mut self, rec: &mut RecordBuf) {
        self.next.log(rec);
        self.space.mark_dirty(self.change.log.tail());
    }

    /// Makes the new state that of the page, under the record's LSN, and releases it.
    pub(crate) fn finish(self, lsn: Lsn) {
        self.next.finish(self.change.pool, self.space, lsn);
    }
}

/// Gives one page back as part of a change: adds the sections, and returns what [`FreeOne::finish`] needs.
pub(crate) struct FreeOne<'a> {
    pool: &'a BufferPool,
    space: FrameWrite<'a>,
    page: PageId,
    /// The page that follows it in the free list.
    behind: PageId,
    next: Change,
}

impl<'a> FreeOne<'a> {
    /// Latches the allocator and adds the return of `page` to the record.
    ///
    /// `None` if the allocator's page has left the pool: release all latches, load it, begin again.
    pub(crate) fn log(change: StructureChange<'a>, page: PageId, rec: &mut RecordBuf) -> Option<FreeOne<'a>> {
        let mut space = latch_space(change)?;
        let (end, behind) = state(space.page());
        space.mark_dirty(change.log.tail());
        let next = Change { end, free: page, ranges: None };
        next.log(rec);
        ops::put_free(rec, page, behind);
        Some(FreeOne { pool: change.pool, space, page, behind, next })
    }

    /// Makes the change under the record's LSN. `freed` is the page itself, latched.
    pub(crate) fn finish(self, freed: &mut FrameWrite<'_>, lsn: Lsn) {
        let mut page = freed.page_mut();
        let applied = ops::apply(&PageChange::Free { page: self.page, next: self.behind }, &mut page);
        debug_assert!(applied);
        page.set_lsn(lsn);
        self.next.finish(self.pool, self.space, lsn);
    }
}
