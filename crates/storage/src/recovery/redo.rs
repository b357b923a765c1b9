//! The redo pass of restart (ARIES, section 6.2): repeats the logged changes that pages lack.
//!
//! One thread reads the log and fills batches. It distributes the page sections of a batch among workers by page number, so
//! that one worker repeats all changes of a page, in the order of the log. A worker sorts its part of a batch by page: it
//! looks up and latches each page once, and reads the missing pages of a batch from the device in parallel. Without threads
//! (a simulated run, or one core) the calling thread itself is the only worker.
//!
//! Changes of different pages may be repeated in any order, because redo compares only the LSN of the page itself. Pages of
//! one record need not become consistent at the same time: no transaction reads a page before redo has ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::progress::RecoveryPass;
use super::restart::Reporter;
use crate::base::error::{OpenError, StorageError};
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::prefetch::prefetch_read;
use crate::btree::extent;
use crate::btree::ops::{self, PageChange, PageChanges};
use crate::btree::row_sections::{self, SectionAt};
use crate::btree::space::SPACE_PAGE;
use crate::buffer::BufferPool;
use crate::buffer::frame::FrameWrite;
use crate::log::{Log, LogReader, RecordKind};
use crate::page::{header, sound};

/// Maximum number of batches that wait for a worker.
const WAITING: usize = 2;
/// Maximum number of workers.
const MOST_WORKERS: usize = 32;

/// Size of the redo pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedoOptions {
    /// Number of workers. One worker is the calling thread; several workers are threads of their own.
    pub(crate) workers: usize,
    /// Number of bytes of log in a batch.
    pub(crate) batch_bytes: usize,
}

/// Result of the redo pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedoResult {
    /// Number of records and bytes read.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Largest number of pages in use that the records of the allocator's state name; 0 if the log has no such record.
    pub(crate) pages: u64,
}

/// Second pass of restart. `reader` reads the same records as analysis, from the start of redo to the log's end.
///
/// # Errors
/// Fails if a page is damaged, or if the callback breaks.
pub(crate) fn redo(
    pool: &BufferPool,
    log: &Log,
    reader: LogReader,
    options: RedoOptions,
    report: &mut Reporter<'_>,
) -> Result<RedoResult, OpenError> {
    report.begin(RecoveryPass::Redo, Some(reader.bytes_left()))?;
    pool.redo_until(log.tail());
    let mut filler = BatchFiller { log, reader, limit: PageLimit::of(pool), bytes: options.batch_bytes, report };
    let missing = match options.workers.min(MOST_WORKERS) {
        0 | 1 => redo_alone(pool, &mut filler)?,
        workers => redo_in_parallel(pool, &mut filler, workers)?,
    };
    pool.redo_until(Lsn::MAX);
    match missing.into_iter().min_by_key(|(id, _)| *id) {
        Some((_, error)) => Err(error.into()),
        None => {
            let state = filler.report.state;
            Ok(RedoResult { records: state.records, bytes: state.bytes, pages: filler.limit.newest_end })
        }
    }
}

/// Pages that cannot be read, with the error of each.
type MissingPages = HashMap<PageId, StorageError>;

fn redo_alone(pool: &BufferPool, filler: &mut BatchFiller<'_, '_>) -> Result<MissingPages, OpenError> {
    let mut worker = RedoWorker::new(pool);
    let mut batch = Batch::new(1);
    while filler.fill(&mut batch)? {
        worker.apply(&batch.parts[0], &batch.bytes)?;
    }
    Ok(worker.missing)
}

/// Runs the workers in threads. Ends all of them before it returns.
fn redo_in_parallel(
    pool: &BufferPool,
    filler: &mut BatchFiller<'_, '_>,
    workers: usize,
) -> Result<MissingPages, OpenError> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| sync_channel(WAITING)).unzip();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(workers);
        for receiver in receivers {
            let work = move || RedoWorker::new(pool).run(&receiver);
            let thread = thread::Builder::new().name("lockstep-redo".into()).spawn_scoped(scope, work);
            threads.push(thread.map_err(|source| OpenError::Thread { source })?);
        }
        let filled = distribute(filler, senders);
        let mut missing = MissingPages::new();
        let mut failures: Vec<RedoError> = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(Ok(pages)) => missing.extend(pages),
                Ok(Err(failure)) => failures.push(failure),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // Of several errors, the one of the first record is reported, as without threads. A worker may have failed because
        // another one has closed the instance.
        let is_consequence = |failure: &RedoError| matches!(failure.error, StorageError::Poisoned { .. });
        match failures.into_iter().min_by_key(|failure| (is_consequence(failure), failure.lsn)) {
            Some(failure) => Err(failure.into()),
            None => filled.map(|()| missing),
        }
    })
}

/// Sends batches to the workers until the log ends or a worker has failed.
fn distribute(filler: &mut BatchFiller<'_, '_>, senders: Vec<SyncSender<WorkerPart>>) -> Result<(), OpenError> {
    let mut batch = Batch::new(senders.len());
    while filler.fill(&mut batch)? {
        let bytes = Arc::new(std::mem::take(&mut batch.bytes));
        for (sender, parts) in senders.iter().zip(&mut batch.parts) {
            let part = WorkerPart { sections: std::mem::take(parts), bytes: Arc::clone(&bytes) };
            if !part.sections.is_empty() && sender.send(part).is_err() {
                // The worker has failed; its error is reported.
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Position in a batch of adjacent sections of a record that concern one page.
#[derive(Clone, Copy, Debug)]
struct PageSections {
    page: PageId,
    lsn: Lsn,
    /// Body of the record in the bytes of the batch: start and length.
    body: (u32, u32),
    /// Position of the first section in the body, and number of sections.
    first: SectionAt,
    count: u32,
}

impl PageSections {
    /// Returns the position of the first section in the bytes of the batch.
    fn start(self) -> usize {
        self.body.0 as usize + self.first.at()
    }

    /// Decodes the sections, each with the LSN of the record.
    fn changes(self, bytes: &[u8]) -> impl Iterator<Item = (Lsn, PageChange<'_>)> {
        let (from, len) = (self.body.0 as usize, self.body.1 as usize);
        let body = PageChanges::new(&bytes[from..from + len]);
        body.starting_at(self.first).take(self.count as usize).map(move |change| (self.lsn, change))
    }
}

/// Records of a part of the log.
#[derive(Debug)]
struct Batch {
    /// Bodies of the records.
    bytes: Vec<u8>,
    /// Sections of the records, by worker.
    parts: Vec<Vec<PageSections>>,
}

/// Part of a batch that one worker repeats.
struct WorkerPart {
    sections: Vec<PageSections>,
    bytes: Arc<Vec<u8>>,
}

impl Batch {
    fn new(workers: usize) -> Batch {
        Batch { bytes: Vec::new(), parts: vec![Vec::new(); workers] }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.parts.iter_mut().for_each(Vec::clear);
    }
}

/// Reader of the log that fills batches.
struct BatchFiller<'a, 'r> {
    log: &'a Log,
    reader: LogReader,
    limit: PageLimit,
    /// Number of bytes of log in a batch.
    bytes: usize,
    report: &'a mut Reporter<'r>,
}

impl BatchFiller<'_, '_> {
    /// Fills a batch with the next records. Returns false if there are none.
    ///
    /// # Errors
    /// Fails if a record cannot be decoded or names pages that cannot exist, or if the callback breaks.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, OpenError> {
        batch.clear();
        let mut read_any = false;
        while batch.bytes.len() < self.bytes {
            let Some(record) = self.reader.next()? else { break };
            read_any = true;
            self.report.count(record.end.0 - record.lsn.0)?;
            let kind = RecordKind::from(record.kind);
            let redoes = matches!(kind, Some(RecordKind::Data | RecordKind::Compensation | RecordKind::System));
            if !redoes || is_mutant(Mutant::SkipRedo) {
                continue;
            }
            // A compensation record begins with the position at which undo continues.
            let skip = if kind == Some(RecordKind::Compensation) { 8 } else { 0 };
            let body = record.body.get(skip..).unwrap_or_default();
            let place = (batch.bytes.len() as u32, body.len() as u32);
            match add_sections(&mut batch.parts, body, record.lsn, place, &mut self.limit) {
                Ok(()) => batch.bytes.extend_from_slice(body),
                Err(what) => return Err(self.log.damaged_at(record.lsn, what).into()),
            }
        }
        Ok(read_any)
    }
}

/// Adds the sections of a record's body, which will be at `place` in the bytes of the batch, to the parts of their workers.
/// If the record is damaged, returns a description of the damage.
fn add_sections(
    parts: &mut [Vec<PageSections>],
    body: &[u8],
    lsn: Lsn,
    place: (u32, u32),
    limit: &mut PageLimit,
) -> Result<(), &'static str> {
    const TOO_FAR: &str = "speaks of pages far beyond all others";
    let mut sections = PageChanges::new(body);
    let mut highest = 0;
    let mut last: Option<(PageId, usize)> = None;
    loop {
        let first = sections.place();
        let Some(section) = sections.next() else { break };
        if let PageChange::Space { end, .. } = section
            && !limit.admits_end(end)
        {
            return Err(TOO_FAR);
        }
        let page = section.page();
        if let Some((before, worker)) = last
            && before == page
            && let Some(run) = parts[worker].last_mut()
        {
            run.count += 1;
            continue;
        }
        if page.0 == 0 {
            return Err(TOO_FAR);
        }
        highest = highest.max(page.0);
        if is_mutant(Mutant::RedoNeighboursOnly) && has_sections(parts, page, lsn) {
            continue;
        }
        let worker = worker_of(page, parts.len());
        parts[worker].push(PageSections { page, lsn, body: place, first, count: 1 });
        last = Some((page, worker));
    }
    // The record itself may raise the limit, also after the first section that names a new page.
    match sections.is_whole() {
        true if highest == 0 || is_numbered(PageId(highest), limit.limit) => Ok(()),
        true => Err(TOO_FAR),
        false => Err("does not decode; it was written by another build"),
    }
}

/// Returns true if earlier sections of the record at `lsn` concern the page. For a mutant that loses the later ones.
#[cold]
fn has_sections(parts: &[Vec<PageSections>], page: PageId, lsn: Lsn) -> bool {
    let of_record = parts[worker_of(page, parts.len())].iter().rev().take_while(|sections| sections.lsn == lsn);
    of_record.into_iter().any(|sections| sections.page == page)
}

/// Returns the worker that repeats the changes of a page.
#[inline]
fn worker_of(page: PageId, workers: usize) -> usize {
    // The low bits of the product depend on few bits of the page number.
    (page.0.wrapping_mul(0x9E37_79B9) >> 16) as usize % workers
}

/// Error of a worker, with the record that it could not repeat.
struct RedoError {
    lsn: Lsn,
    error: StorageError,
}

impl From<RedoError> for OpenError {
    fn from(error: RedoError) -> OpenError {
        error.error.into()
    }
}

/// Worker that repeats the changes of its pages.
struct RedoWorker<'a> {
    pool: &'a BufferPool,
    /// Pages that cannot be read: a later record may create the page, or the page was freed.
    missing: MissingPages,
    /// Page (upper half) and index (lower half) of all sections of a part, sorted.
    order: Vec<u64>,
    /// Sections of a part, sorted by page. Sections of one page are in the order of the log.
    sorted: Vec<PageSections>,
    /// Pages of a part that are not in memory.
    absent: Vec<PageId>,
}

impl<'a> RedoWorker<'a> {
    fn new(pool: &'a BufferPool) -> RedoWorker<'a> {
        RedoWorker { pool, missing: MissingPages::new(), order: Vec::new(), sorted: Vec::new(), absent: Vec::new() }
    }

    /// Repeats the parts that it receives until there are no more. Returns the pages that cannot be read.
    fn run(mut self, parts: &Receiver<WorkerPart>) -> Result<MissingPages, RedoError> {
        while let Ok(part) = parts.recv() {
            self.apply(&part.sections, &part.bytes)?;
        }
        Ok(self.missing)
    }

    /// Repeats these sections of a batch with these bytes.
    fn apply(&mut self, sections: &[PageSections], bytes: &[u8]) -> Result<(), RedoError> {
        // Short keys are sorted, because sections are too long to be moved often.
        self.order.clear();
        self.order.extend(sections.iter().zip(0..).map(|(of_page, index)| u64::from(of_page.page.0) << 32 | index));
        self.order.sort_unstable();
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.clear();
        sorted.extend(self.order.iter().map(|key| sections[*key as u32 as usize]));
        let result = self.apply_sorted(&sorted, bytes);
        self.sorted = sorted;
        result
    }

    fn apply_sorted(&mut self, sections: &[PageSections], bytes: &[u8]) -> Result<(), RedoError> {
        let pages = sections.chunk_by(|a, b| a.page == b.page).map(|of_page| of_page[0].page);
        self.absent.clear();
        self.absent.extend(pages.filter(|page| self.pool.resident(*page).is_none()));
        let mut absent = &self.absent[..];
        while !absent.is_empty() {
            let (group, rest) = absent.split_at(absent.len().min(GROUP));
            self.pool.load_group(group);
            absent = rest;
        }
        let mut at = 0;
        for of_page in sections.chunk_by(|a, b| a.page == b.page) {
            for i in at..at + of_page.len() {
                self.prefetch(sections, i, bytes);
            }
            at += of_page.len();
            self.apply_to_page(of_page, bytes)?;
        }
        Ok(())
    }

    /// Prefetches what the changes after section `i` read: in stages, because each stage reads what an earlier one fetched.
    fn prefetch(&self, sections: &[PageSections], i: usize, bytes: &[u8]) {
        let later = |distance: usize| sections.get(i + distance);
        if let Some(of_page) = later(4 * STAGE) {
            prefetch_read(bytes[of_page.start()..].as_ptr());
            if let Some(frame) = self.pool.resident(of_page.page) {
                frame.prefetch_head();
            }
        }
        let row_of = |of_page: &PageSections| {
            let position = row_sections::position_of(&bytes[of_page.start()..])?;
            Some((self.pool.resident(of_page.page)?.bytes(), position))
        };
        if let Some((page, position)) = later(2 * STAGE).and_then(row_of) {
            page.prefetch_slot(position);
        }
        // Another worker may evict the page and load another one into its frame.
        if !cfg!(any(miri, race_free))
            && let Some((page, position)) = later(STAGE).and_then(row_of)
        {
            page.prefetch_row(position);
        }
    }

    /// Repeats the changes of a page that the page lacks. All changes of one record are repeated under one latch: a page
    /// with the record's LSN and only a part of the record's changes must never be written.
    fn apply_to_page(&mut self, sections: &[PageSections], bytes: &[u8]) -> Result<(), RedoError> {
        let id = sections[0].page;
        let at_record = |lsn: Lsn| move |error: StorageError| RedoError { lsn, error };
        let frame = self.latch(id).map_err(at_record(sections[0].lsn))?;
        let contained = match &frame {
            Some(frame) if !is_mutant(Mutant::SkipRedoTest) => {
                sections.partition_point(|of_record| of_record.lsn <= frame.page().lsn())
            }
            _ => 0,
        };
        let mut changes = sections[contained..].iter().flat_map(|of_record| of_record.changes(bytes)).peekable();
        if frame.is_none() {
            // Changes of a page that does not exist cannot be repeated. They are skipped up to a change that creates the page.
            while changes.next_if(|(_, change)| !creates_page(change)).is_some() {}
        }
        let Some(&(mut lsn, _)) = changes.peek() else {
            frame.into_iter().for_each(FrameWrite::release_unchanged);
            return Ok(());
        };
        let mut frame = match frame {
            Some(frame) => frame,
            None => {
                self.missing.remove(&id);
                self.pool.ensure_file(u64::from(id.0) + 1).map_err(at_record(lsn))?;
                self.pool.create(id).map_err(at_record(lsn))?
            }
        };
        for (of_record, change) in changes {
            lsn = of_record;
            let creates = creates_page(&change);
            let fits = creates || ops::fits(&change, frame.page());
            if fits {
                frame.mark_dirty(lsn);
            }
            let done = fits && ops::apply(&change, &mut frame.page_mut());
            if !done || creates && !is_page(frame.stable(), id) {
                let what = format!("does not fit its log record at position {lsn}");
                let error = StorageError::CorruptPage { file: self.pool.file_name(), page: id, what };
                self.pool.give_up_changes(&error);
                return Err(RedoError { lsn, error });
            }
        }
        frame.page_mut().set_lsn(lsn);
        self.pool.note_ghosts_of(&frame);
        Ok(())
    }

    /// Latches a page. Returns `None` if the page cannot be read.
    fn latch(&mut self, id: PageId) -> Result<Option<FrameWrite<'a>>, StorageError> {
        if !self.missing.is_empty() && self.missing.contains_key(&id) {
            return Ok(None);
        }
        loop {
            match self.pool.get_or_load(id) {
                Ok(frame) => {
                    let frame = frame.write(self.pool.latches());
                    if frame.frame().page_id() == id {
                        return Ok(Some(frame));
                    }
                    // Another worker has evicted the page meanwhile.
                    frame.release_unchanged();
                }
                Err(error @ StorageError::CorruptPage { .. }) => {
                    self.missing.insert(id, error);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Number of sections between two stages of prefetching.
const STAGE: usize = 3;

/// Number of pages that a worker reads in parallel.
const GROUP: usize = 64;

/// Returns true if the change replaces the whole content of its page.
fn creates_page(change: &PageChange<'_>) -> bool {
    matches!(change, PageChange::Image { .. } | PageChange::Free { .. })
}

/// Limit on the page numbers that a log may name. The log is read from a disk whose content is arbitrary, and redo extends
/// the file to the pages that the log names. So a page must be in use, or a record that adds at most the maximum number of
/// pages must have added it.
struct PageLimit {
    limit: u64,
    newest_end: u64,
}

impl PageLimit {
    /// Maximum number of pages that one record adds.
    const STEP: u64 = extent::MAX_PAGES as u64;
    /// Number of pages beyond the file's end that are assumed to exist if the number of pages in use is unknown.
    const UNKNOWN: u64 = 1 << 16;

    fn of(pool: &BufferPool) -> PageLimit {
        let file = u64::from(pool.file_pages());
        let limit = match pool.get_or_load(SPACE_PAGE) {
            Ok(space) => file.max(space.bytes().u32(ops::space::END).into()),
            Err(_) => file + Self::UNKNOWN,
        };
        PageLimit { limit, newest_end: 0 }
    }

    /// Notes the number of pages in use that a record names. Returns false if it is too large.
    fn admits_end(&mut self, end: u32) -> bool {
        let end = u64::from(end);
        if end > self.limit + Self::STEP {
            return false;
        }
        self.limit = self.limit.max(end);
        self.newest_end = self.newest_end.max(end);
        true
    }
}

/// Returns true if a log may name this page. Page 0 is the file's header, which no record changes.
fn is_numbered(id: PageId, limit: u64) -> bool {
    (1..limit).contains(&id.0.into())
}

/// Returns true if these bytes can be the content of page `id`.
fn is_page(bytes: &[u8; PAGE_SIZE], id: PageId) -> bool {
    header::damage(bytes, id, false).is_none() && sound::find_defect(bytes, id).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a forged record made redo create page 0, the file's header, which panics.
    #[test]
    fn the_log_cannot_speak_of_pages_that_are_none() {
        let free = |page: u32| [&[22, 0, 12, 0], &page.to_le_bytes()[..], &[0; 4]].concat();
        let admits = |page| {
            let body = free(page);
            assert_eq!(PageChanges::new(&body).map(|s| s.page()).collect::<Vec<_>>(), [PageId(page)]);
            let mut limit = PageLimit { limit: 10, newest_end: 0 };
            add_sections(&mut [Vec::new()], &body, Lsn(4096), (0, 12), &mut limit).is_ok()
        };
        assert_eq!([0, 1, 9, 10, u32::MAX].map(admits), [false, true, true, false, false]);
    }
}
