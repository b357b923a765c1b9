//! The three passes of restart (ARIES, section 6): analysis, redo, undo.
//!
//! Restart is idempotent: redo compares page LSNs, and undo writes compensation records. Restart may be interrupted after
//! any record, and the next open repeats it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::checkpoint::CheckpointBody;
use super::control::Control;
use super::progress::{OnRecovery, Recovery, RecoveryPass};
use crate::base::error::{OpenError, StorageError};
use crate::base::ids::{Lsn, PAGE_SIZE, PageId, SlotId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::StructureChange;
use crate::btree::extent;
use crate::btree::ops::{self, PageChange, PageChanges, SectionAt};
use crate::btree::space::SPACE_PAGE;
use crate::buffer::BufferPool;
use crate::io::Disk;
use crate::log::{Log, LogFiles, LogReader, RecordBuf, RecordKind, RecordView};
use crate::page::{header, sound};
use crate::txn::undo::{Victim, roll_back};

/// Number of records between two calls of the progress callback.
const REPORT_EVERY: u64 = 8192;

/// Result of the analysis pass.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// LSN at which redo begins.
    pub(crate) redo: Lsn,
    /// Slots of the transactions without an end (losers), with the LSN of the last record of each.
    losers: HashMap<SlotId, Lsn>,
    /// Log reader at the end of the log, where new records are appended.
    pub(crate) reader: LogReader,
    /// LSN before which neither redo nor undo reads the log.
    pub(crate) keep: Lsn,
    /// True if there is nothing to redo and nothing to undo.
    pub(crate) clean: bool,
}

/// Reports the progress of restart to the program's callback.
pub(crate) struct Reporter<'a> {
    callback: Option<&'a mut OnRecovery>,
    state: Recovery,
    directory: String,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(callback: Option<&'a mut OnRecovery>, directory: String) -> Reporter<'a> {
        let state = Recovery { pass: RecoveryPass::Analysis, records: 0, bytes: 0, losers: 0 };
        Reporter { callback, state, directory }
    }

    fn begin(&mut self, pass: RecoveryPass) -> Result<(), OpenError> {
        self.state = Recovery { pass, records: 0, bytes: 0, losers: self.state.losers };
        self.report()
    }

    fn count(&mut self, bytes: u64) -> Result<(), OpenError> {
        self.state.records += 1;
        self.state.bytes += bytes;
        if self.state.records.is_multiple_of(REPORT_EVERY) { self.report() } else { Ok(()) }
    }

    fn report(&mut self) -> Result<(), OpenError> {
        if let Some(callback) = &mut self.callback
            && callback(&self.state).is_break()
        {
            return Err(OpenError::Cancelled { directory: std::mem::take(&mut self.directory) });
        }
        Ok(())
    }

    /// Reports that the restart is complete.
    pub(crate) fn done(&mut self, records: u64, bytes: u64) {
        self.state = Recovery { pass: RecoveryPass::Done, records, bytes, losers: self.state.losers };
        if let Some(callback) = &mut self.callback {
            let _: ControlFlow<()> = callback(&self.state);
        }
    }
}

/// First pass: finds the log's end and the transactions without an end. The log is read in pieces of `reader_bytes`.
///
/// # Errors
/// Fails if the log is damaged before its end, or if the callback breaks.
pub(crate) fn analyse(
    disk: &Arc<dyn Disk>,
    control: &Control,
    reader_bytes: usize,
    report: &mut Reporter<'_>,
) -> Result<Analysis, OpenError> {
    let files = LogFiles::find(Arc::clone(disk), control.database)?.in_pieces(reader_bytes);
    let mut losers = HashMap::new();
    let mut redo = control.checkpoint;
    let mut keep = Lsn::MAX;
    if control.checkpoint != Lsn::ZERO {
        let mut at = LogReader::new(&files, control.checkpoint, control.durable);
        let body = match at.next()? {
            Some(record) if record.kind == RecordKind::Checkpoint as u8 => {
                CheckpointBody::decode(record.body, record.lsn)
            }
            _ => None,
        };
        let Some(body) = body else {
            let what = format!(
                "no checkpoint at log position {}, where the control file says; restore a copy",
                control.checkpoint
            );
            return Err(StorageError::CorruptFile { file: disk.show("log.*"), what }.into());
        };
        redo = body.redo;
        keep = body.active.iter().map(|a| a.first).min().unwrap_or(keep);
        // A transaction in the checkpoint's list that had written no record has nothing to undo, unless its records follow.
        losers.extend(body.active.iter().filter(|a| a.last != Lsn::ZERO).map(|a| (a.txn.slot(), a.last)));
    } else {
        redo = crate::log::FIRST_LSN.max(redo);
    }
    report.begin(RecoveryPass::Analysis)?;
    let mut reader = LogReader::new(&files, redo, control.durable);
    let mut clean = true;
    while let Some(record) = reader.next()? {
        report.count(record.end.0 - record.lsn.0)?;
        match RecordKind::from(record.kind) {
            Some(RecordKind::Data | RecordKind::Compensation) => {
                losers.insert(record.slot, record.lsn);
                clean = false;
            }
            Some(RecordKind::Commit | RecordKind::End) => {
                losers.remove(&record.slot);
                clean = false;
            }
            Some(RecordKind::System) => clean = false,
            Some(RecordKind::Checkpoint) => {}
            None => {
                let what = format!(
                    "record of unknown kind {} at log position {}; it was written by another build",
                    record.kind, record.lsn
                );
                return Err(StorageError::CorruptFile { file: disk.show("log.*"), what }.into());
            }
        }
    }
    report.state.losers = losers.len() as u64;
    clean &= losers.is_empty();
    Ok(Analysis { redo, losers, reader, keep: keep.min(redo), clean })
}

/// Returns the page sections of a record.
fn sections<'a>(record: &RecordView<'a>) -> PageChanges<'a> {
    let skip = if record.kind == RecordKind::Compensation as u8 { 8 } else { 0 };
    PageChanges::new(record.body.get(skip..).unwrap_or_default())
}

/// Second pass: repeats the logged changes that pages lack. `reader` reads the same records as analysis, from the start of
/// redo to the log's end.
///
/// # Errors
/// Fails if a page is damaged, or if the callback breaks.
pub(crate) fn redo(
    pool: &BufferPool,
    log: &Log,
    mut reader: LogReader,
    report: &mut Reporter<'_>,
) -> Result<RedoResult, OpenError> {
    report.begin(RecoveryPass::Redo)?;
    pool.redo_until(log.tail());
    let mut pages = RedoApplier::new(pool);
    let mut parts = Vec::new();
    while let Some(record) = reader.next()? {
        report.count(record.end.0 - record.lsn.0)?;
        let redoes = matches!(
            RecordKind::from(record.kind),
            Some(RecordKind::Data | RecordKind::Compensation | RecordKind::System)
        );
        if !redoes || is_mutant(Mutant::SkipRedo) {
            continue;
        }
        let all = sections(&record);
        if !pages.limit.admits(all.clone()) {
            return Err(log.damaged_at(record.lsn, "speaks of pages far beyond all others").into());
        }
        if !by_page(all.clone(), &mut parts) {
            return Err(log.damaged_at(record.lsn, "does not decode; it was written by another build").into());
        }
        for of_one in parts.chunk_by(|a, b| a.page == b.page) {
            let neighbours = of_one.iter().zip(of_one[0].number..).take_while(|(part, n)| part.number == *n).count();
            let of_one = if is_mutant(Mutant::RedoNeighboursOnly) { &of_one[..neighbours] } else { of_one };
            let changes = of_one.iter().filter_map(|part| all.at(part.place));
            pages.apply(record.lsn, of_one[0].page, changes)?;
        }
    }
    pool.redo_until(Lsn::MAX);
    match pages.missing.into_iter().min_by_key(|(id, _)| *id).map(|(_, error)| error) {
        Some(error) => Err(error.into()),
        None => {
            Ok(RedoResult { records: report.state.records, bytes: report.state.bytes, pages: pages.limit.newest_end })
        }
    }
}

/// Position of a section in its record, with the page that the section changes.
struct PageSection {
    page: PageId,
    /// Index of the section in its record.
    number: usize,
    place: SectionAt,
}

/// Sorts the sections of a record by page. Sections of one page keep their order. These sections need not be adjacent in the
/// record: a statement on several rows writes them in its caller's order. Returns false if the body of the record cannot be
/// decoded.
fn by_page(mut sections: PageChanges<'_>, parts: &mut Vec<PageSection>) -> bool {
    parts.clear();
    loop {
        let place = sections.place();
        let Some(section) = sections.next() else { break };
        parts.push(PageSection { page: section.page(), number: parts.len(), place });
    }
    parts.sort_unstable_by_key(|part| (part.page, part.number));
    sections.is_whole()
}

/// Applier of the logged changes to pages.
struct RedoApplier<'a> {
    pool: &'a BufferPool,
    limit: PageLimit,
    /// Pages that cannot be read, with the error of each: a later record may create the page, or the page was freed.
    missing: HashMap<PageId, StorageError>,
}

impl<'a> RedoApplier<'a> {
    fn new(pool: &'a BufferPool) -> RedoApplier<'a> {
        RedoApplier { pool, limit: PageLimit::of(pool), missing: HashMap::new() }
    }

    /// Repeats the changes of the record at `lsn` to one page: all of them under one latch, or none if the page already
    /// contains them. A page with the record's LSN and only a part of the record's changes must never be written.
    fn apply<'s>(
        &mut self,
        lsn: Lsn,
        id: PageId,
        changes: impl Iterator<Item = PageChange<'s>>,
    ) -> Result<(), OpenError> {
        let mut changes = changes.peekable();
        let makes_page = |change: &PageChange<'_>| matches!(change, PageChange::Image { .. } | PageChange::Free { .. });
        let brought = match self.missing.contains_key(&id) {
            true => None,
            false => match self.pool.get_or_load(id) {
                Ok(frame) => Some(frame),
                Err(error @ StorageError::CorruptPage { .. }) => {
                    self.missing.insert(id, error);
                    None
                }
                Err(error) => return Err(error.into()),
            },
        };
        let mut frame = match brought {
            Some(frame) => {
                let frame = frame.write();
                if frame.page().lsn() >= lsn && !is_mutant(Mutant::SkipRedoTest) {
                    frame.release_unchanged();
                    return Ok(());
                }
                frame
            }
            None => {
                // Changes of a page that does not exist cannot be repeated. They are skipped up to a change that creates the
                // page.
                while changes.next_if(|change| !makes_page(change)).is_some() {}
                if changes.peek().is_none() {
                    return Ok(());
                }
                self.missing.remove(&id);
                self.pool.ensure_file(u64::from(id.0) + 1)?;
                self.pool.create(id)?
            }
        };
        for change in changes {
            let makes_page = makes_page(&change);
            let fits = makes_page || ops::fits(&change, frame.page());
            if fits {
                frame.mark_dirty(lsn);
            }
            let done = fits && ops::apply(&change, &mut frame.page_mut());
            if !done || makes_page && !is_page(frame.stable(), id) {
                let what = format!("does not fit its log record at position {lsn}");
                return Err(StorageError::CorruptPage { file: self.pool.file_name(), page: id, what }.into());
            }
        }
        frame.page_mut().set_lsn(lsn);
        self.pool.note_ghosts_of(&frame);
        Ok(())
    }
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

    /// Returns true if the sections of a record name only pages that can exist.
    fn admits(&mut self, mut sections: PageChanges<'_>) -> bool {
        let ends =
            sections.clone().filter_map(|s| if let PageChange::Space { end, .. } = s { Some(end) } else { None });
        if let Some(end) = ends.max().map(u64::from) {
            if end > self.limit + Self::STEP {
                return false;
            }
            self.limit = self.limit.max(end);
            self.newest_end = self.newest_end.max(end);
        }
        sections.all(|section| is_numbered(section.page(), self.limit))
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

/// Extends the file so that it contains all pages in use. A crash may have lost the file's newest length, but then the log
/// names the pages beyond the file (`pages`, as found by redo).
///
/// # Errors
/// Fails if the allocator claims pages that neither the file nor the log contains, or if there is no space.
pub(crate) fn ensure_pages(pool: &BufferPool, pages: u64) -> Result<(), StorageError> {
    // If the allocator's page is damaged, a transaction that needs it will get the error.
    let Ok(space) = pool.get_or_load(SPACE_PAGE) else { return Ok(()) };
    let end = u64::from(space.bytes().u32(ops::space::END));
    if pool.file_holds(end) {
        return Ok(());
    }
    if end > pages {
        let what = format!("says that {end} pages are in use, more than the file has");
        return Err(StorageError::CorruptPage { file: pool.file_name(), page: SPACE_PAGE, what });
    }
    pool.ensure_file(end)
}

/// Third pass: rolls back the transactions without an end (losers).
///
/// # Errors
/// Fails if a page cannot be read, if there is no space, or if the callback breaks.
pub(crate) fn undo(
    pool: &BufferPool,
    log: &Log,
    losers: &HashMap<SlotId, Lsn>,
    slot: SlotId,
    report: &mut Reporter<'_>,
) -> Result<(), OpenError> {
    report.begin(RecoveryPass::Undo)?;
    let mut rec = RecordBuf::new();
    let mut bytes = Vec::with_capacity(PAGE_SIZE);
    // The order is fixed, so that a simulated restart can be repeated. The order does not affect the result, because no two
    // losers have changed the same row.
    let mut order: Vec<_> = losers.iter().map(|(loser, last)| (*last, *loser)).collect();
    order.sort_unstable();
    if is_mutant(Mutant::SkipRestartUndo) {
        order.clear();
    }
    for (last, loser) in order.into_iter().rev() {
        let mut victim = Victim { slot: loser, last };
        roll_back(StructureChange { pool, log, slot, for_undo: true }, &mut rec, &mut bytes, &mut victim, Lsn::ZERO)?;
        rec.begin(RecordKind::End, loser, victim.last);
        log.append_reserved(slot, &mut rec, Lsn::ZERO)?;
        log.end_txn(slot);
        report.count(0)?;
    }
    Ok(())
}

impl Analysis {
    /// Returns the losers, and the log reader at the log's end.
    pub(crate) fn into_parts(self) -> (HashMap<SlotId, Lsn>, LogReader) {
        (self.losers, self.reader)
    }
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
            PageLimit { limit: 10, newest_end: 0 }.admits(PageChanges::new(&body))
        };
        assert_eq!([0, 1, 9, 10, u32::MAX].map(admits), [false, true, true, false, false]);
    }
}
