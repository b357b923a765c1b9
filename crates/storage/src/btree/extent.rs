//! Extents: consecutive pages that a bulk load allocates, owns, and then transfers to its tree or frees.
//!
//! The allocator's page lists the ranges that loads own ([`ranges`](super::ranges)). The record that allocates an extent
//! adds it to the list. Until the end of the load the pages are *withheld* from the pool, which reads none of them: their
//! content in the file may be from an earlier load. A load that is aborted frees its pages with one record. Pages of a load
//! that a crash interrupted are freed by the next open ([`reclaim`]).

use std::ops::Range;

use super::StructureChange;
use super::ranges::Ranges;
use super::space::{self, AllocatorState, SPACE_PAGE};
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::buffer::frame::FrameWrite;
use crate::log::RecordBuf;

/// Minimum number of pages of an extent.
const MIN_PAGES: usize = 64;
/// Maximum number of pages of an extent. One record extends the used part of the file by at most this number of pages
/// (`recovery::redo` relies on this limit).
pub(crate) const MAX_PAGES: usize = 1 << 16;
/// Divisor of the load's size: the next extent has this fraction of the pages that the load already has, so that the number
/// of ranges grows with the logarithm of the load's size.
const GROWTH: usize = 4;

/// Consecutive pages that a load has just allocated.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) pages: Range<u32>,
    /// LSN of the record that allocated the pages.
    pub(super) lsn: Lsn,
}

impl Extent {
    /// Returns the first remaining pages of the extent, at most `most`.
    pub(super) fn first_pages(&self, most: usize) -> Range<u32> {
        self.pages.start..self.pages.end.min(self.pages.start.saturating_add(most as u32))
    }
}

/// Pages that were allocated for a tree and are not part of the tree yet. Dropping this before `LoadExtents::keep` frees
/// the pages.
pub(super) struct LoadExtents<'a> {
    change: StructureChange<'a>,
    ranges: Vec<Range<u32>>,
    /// First page of the load's last range that the load has not used.
    rest: u32,
}

impl<'a> LoadExtents<'a> {
    pub(super) fn new(change: StructureChange<'a>) -> LoadExtents<'a> {
        LoadExtents { change, ranges: Vec::new(), rest: 0 }
    }

    /// Allocates more pages for the load. Requests a flush of the log up to the record of the allocation, because the pages
    /// cannot be written before that record is durable.
    ///
    /// # Errors
    /// No space on the disk, or too many ranges.
    pub(super) fn take(&mut self, rec: &mut RecordBuf) -> Result<Extent, StorageError> {
        let change = self.change;
        let have: usize = self.ranges.iter().map(ExactSizeIterator::len).sum();
        let mut wanted = (have / GROWTH).clamp(MIN_PAGES, MAX_PAGES);
        loop {
            // The file grows only if no free range is large enough.
            if !has_free_range(change)? {
                let beyond = space::first_unused(change)? + wanted as u64;
                match change.pool.ensure_file(beyond + change.pool.reserved_pages()) {
                    Err(StorageError::NoSpace { .. }) if wanted > MIN_PAGES => {
                        wanted = MIN_PAGES;
                        continue;
                    }
                    ensured => ensured?,
                }
            }
            let Some(mut latched) = space::latch_space(change) else {
                change.pool.get_or_load(SPACE_PAGE)?;
                continue;
            };
            let (end, free) = space::state(latched.page());
            let mut ranges = Ranges::read(latched.page());
            let pages = ranges.largest(MIN_PAGES, wanted).unwrap_or(end..end.saturating_add(wanted as u32));
            let next_end = end.max(pages.end);
            if next_end > end && !change.pool.file_holds(u64::from(next_end) + change.pool.reserved_pages()) {
                latched.release_unchanged();
                continue;
            }
            if let Some(page) = space::first_used(change, pages.start, pages.len()) {
                latched.release_unchanged();
                return Err(space::called_unused(change, page));
            }
            if !ranges.own(pages.clone(), self.ranges.last()) {
                latched.release_unchanged();
                return Err(too_many(change));
            }
            if !withhold(change, &pages) {
                latched.release_unchanged();
                change.pool.pause();
                continue;
            }
            let ranges = (!is_mutant(Mutant::SkipLoadMark)).then_some(ranges);
            let next = AllocatorState { end: next_end, free, ranges };
            rec.begin_system();
            next.log(rec);
            latched.mark_dirty(change.log.tail());
            let lsn = match change.log.append_redo_only(change.slot, rec, latched.page().lsn()) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(latched);
                    refused.make_room(change.log)?;
                    continue;
                }
            };
            next.finish(change.pool, latched, lsn);
            change.log.request_flush(rec.end());
            self.rest = pages.end;
            match self.ranges.last_mut() {
                Some(last) if last.end == pages.start => last.end = pages.end,
                _ => self.ranges.push(pages.clone()),
            }
            return Ok(Extent { pages, lsn });
        }
    }

    /// Records that the load needs no page of its last range from `rest` on.
    pub(super) fn use_no_more(&mut self, rest: u32) {
        self.rest = rest;
    }

    /// Removes the load's pages from the list of ranges: they belong to the tree from the current record on.
    pub(super) fn settle(&self, ranges: &mut Ranges) {
        for (i, pages) in self.ranges.iter().enumerate() {
            let rest = if i + 1 == self.ranges.len() { self.rest } else { pages.end };
            ranges.settle(pages, rest);
        }
    }

    /// Makes the pages readable, because they now belong to the tree. The caller has latched the trees' roots.
    pub(super) fn keep(&mut self) {
        let last = self.ranges.len().saturating_sub(1);
        for (i, pages) in self.ranges.drain(..).enumerate() {
            let end = if i == last { self.rest } else { pages.end };
            self.change.pool.readmit(pages.start..end);
        }
    }
}

impl Drop for LoadExtents<'_> {
    fn drop(&mut self) {
        // A panic inside the engine also closes the instance. In a closed instance this function cannot free the pages; the
        // next open does.
        if !self.ranges.is_empty() && !self.change.pool.is_closed() {
            let _ = give_back(self.change, &mut RecordBuf::new(), Some(&self.ranges));
        }
    }
}

/// Withholds pages. Returns false if a page cannot be withheld at the moment because another thread uses it.
fn withhold(change: StructureChange<'_>, pages: &Range<u32>) -> bool {
    is_mutant(Mutant::ReadOwnedPages) || pages.clone().all(|page| change.pool.withhold(PageId(page)))
}

fn has_free_range(change: StructureChange<'_>) -> Result<bool, StorageError> {
    loop {
        let frame = change.pool.get_or_load(SPACE_PAGE)?;
        let read = frame.read(change.pool.latches());
        let found = Ranges::read(read.page()).largest(MIN_PAGES, MIN_PAGES).is_some();
        if frame.page_id() == SPACE_PAGE && read.is_valid() {
            return Ok(found);
        }
    }
}

#[cold]
fn too_many(change: StructureChange<'_>) -> StorageError {
    let what =
        "loads under way, and what earlier loads have left, take too many ranges of pages; end some of them first";
    StorageError::io("take pages", change.pool.file_name(), 0, std::io::Error::other(what))
}

/// Makes owned ranges free: the ranges `some`, or all owned ranges. A free range at the end of the pages in use is removed
/// from the list and lowers that end.
fn give_back(
    change: StructureChange<'_>,
    rec: &mut RecordBuf,
    some: Option<&[Range<u32>]>,
) -> Result<(), StorageError> {
    loop {
        change.pool.get_or_load(SPACE_PAGE)?;
        let Some(mut latched) = space::latch_space(change) else { continue };
        let (end, free) = space::state(latched.page());
        let mut ranges = Ranges::read(latched.page());
        let all = if some.is_none() { ranges.owned() } else { Vec::new() };
        let gone = some.unwrap_or(&all);
        if gone.is_empty() {
            latched.release_unchanged();
            return Ok(());
        }
        gone.iter().for_each(|pages| ranges.give_back(pages));
        let next = AllocatorState { end: ranges.trim(end), free, ranges: Some(ranges) };
        rec.begin_system();
        next.log(rec);
        latched.mark_dirty(change.log.tail());
        let lsn = match change.log.append_redo_only(change.slot, rec, latched.page().lsn()) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(latched);
                refused.make_room(change.log)?;
                continue;
            }
        };
        let trimmed = next.end..end;
        next.finish(change.pool, latched, lsn);
        change.pool.readmit(trimmed);
        return Ok(());
    }
}

/// Frees the pages of loads that a crash interrupted, and then withholds all pages that no tree contains. Called at open.
///
/// # Errors
/// Fails if the allocator's page cannot be read, or if the log cannot be written. On a full disk the pages stay owned until
/// the next open.
pub(crate) fn reclaim(change: StructureChange<'_>) -> Result<(), StorageError> {
    match give_back(change, &mut RecordBuf::new(), None) {
        Err(error) if !error.is_want_of_room() => return Err(error),
        _ => {}
    }
    let space = change.pool.get_or_load(SPACE_PAGE)?.read(change.pool.latches());
    let ((end, _), ranges) = (space::state(space.page()), Ranges::read(space.page()));
    drop(space);
    change.pool.set_pages_end(end);
    for range in ranges.iter() {
        // No other thread uses the pool yet, so the pages can be withheld.
        let _ = withhold(change, &range.pages);
    }
    Ok(())
}

/// Latches the allocator's page and settles the ranges of loads that are complete, in the log record being built. Returns
/// `None` if the allocator's page has left the pool: the caller then releases all latches, loads the page, and retries.
pub(super) fn settle<'a>(
    change: StructureChange<'a>,
    loads: &[&mut LoadExtents<'_>],
    rec: &mut RecordBuf,
) -> Option<(FrameWrite<'a>, AllocatorState)> {
    let mut latched = space::latch_space(change)?;
    let (end, free) = space::state(latched.page());
    let mut ranges = Ranges::read(latched.page());
    loads.iter().for_each(|extents| extents.settle(&mut ranges));
    let next = AllocatorState { end: ranges.trim(end), free, ranges: Some(ranges) };
    next.log(rec);
    latched.mark_dirty(change.log.tail());
    Some((latched, next))
}
