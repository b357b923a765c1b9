//! The three passes of restart (ARIES, section 6): analysis, redo, undo.
//!
//! Restart is idempotent: redo compares page LSNs, undo writes compensation records. It may be broken off
//! after any record; the next open does it again.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::checkpoint::CheckpointBody;
use super::control::Control;
use crate::base::error::{OpenError, StorageError};
use crate::base::ids::{Lsn, PAGE_SIZE, PageId, SlotId, TxnId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::Pages;
use crate::btree::ops::{self, Section, Sections};
use crate::buffer::BufferPool;
use crate::db::options::{OnRecovery, Recovery, RecoveryPass};
use crate::io::Disk;
use crate::log::{Log, LogFiles, LogReader, RecordBuf, RecordKind, RecordView};
use crate::page::{PageBytes, PageMut, PageRef};
use crate::txn::undo::{Victim, roll_back};

/// Records between two calls of the callback.
const REPORT_EVERY: u64 = 8192;

/// What analysis found.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// Redo begins here.
    pub(crate) redo: Lsn,
    /// Transactions without an end, with their last records.
    losers: HashMap<TxnId, Lsn>,
    /// The newest image of each page that was written in place.
    images: HashMap<PageId, Lsn>,
    /// The log goes on here.
    pub(crate) reader: LogReader,
    /// Neither redo nor undo wants anything before this.
    pub(crate) keep: Lsn,
    /// Whether there is anything to repeat or to take back.
    pub(crate) clean: bool,
}

/// Tells the caller's callback how far restart is.
pub(crate) struct Reporter<'a> {
    hear: Option<&'a mut OnRecovery>,
    state: Recovery,
    directory: String,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(hear: Option<&'a mut OnRecovery>, directory: String) -> Reporter<'a> {
        let state = Recovery { pass: RecoveryPass::Analysis, records: 0, bytes: 0, losers: 0 };
        Reporter { hear, state, directory }
    }

    fn begin(&mut self, pass: RecoveryPass) -> Result<(), OpenError> {
        self.state = Recovery { pass, records: 0, bytes: 0, losers: self.state.losers };
        self.tell()
    }

    fn count(&mut self, bytes: u64) -> Result<(), OpenError> {
        self.state.records += 1;
        self.state.bytes += bytes;
        if self.state.records.is_multiple_of(REPORT_EVERY) { self.tell() } else { Ok(()) }
    }

    fn tell(&mut self) -> Result<(), OpenError> {
        if let Some(hear) = &mut self.hear
            && hear(&self.state).is_break()
        {
            return Err(OpenError::Cancelled { directory: std::mem::take(&mut self.directory) });
        }
        Ok(())
    }

    /// Tells that restart is over.
    pub(crate) fn done(&mut self, records: u64, bytes: u64) {
        self.state = Recovery { pass: RecoveryPass::Done, records, bytes, losers: self.state.losers };
        if let Some(hear) = &mut self.hear {
            let _: ControlFlow<()> = hear(&self.state);
        }
    }
}

/// First pass: finds the log's end, the transactions that did not, and the images of pages.
///
/// # Errors
/// When the log is damaged before its end, or the callback breaks.
pub(crate) fn analyse(
    disk: &Arc<dyn Disk>,
    control: &Control,
    report: &mut Reporter<'_>,
) -> Result<Analysis, OpenError> {
    let files = LogFiles::find(Arc::clone(disk), control.database)?;
    let mut losers = HashMap::new();
    let mut redo = control.checkpoint;
    let mut keep = Lsn::MAX;
    if control.checkpoint != Lsn::ZERO {
        let mut at = LogReader::new(&files, control.checkpoint, control.durable);
        let body = match at.next()? {
            Some(record) if record.kind == RecordKind::Checkpoint as u8 => CheckpointBody::decode(record.body),
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
        // One that had only announced itself has nothing to undo, unless its records follow.
        losers.extend(body.active.iter().filter(|a| a.last != Lsn::ZERO).map(|a| (a.txn, a.last)));
    } else {
        redo = crate::log::FIRST_LSN.max(redo);
    }
    report.begin(RecoveryPass::Analysis)?;
    let mut images = HashMap::new();
    let mut reader = LogReader::new(&files, redo, control.durable);
    let mut clean = true;
    while let Some(record) = reader.next()? {
        report.count(record.end.0 - record.lsn.0)?;
        match RecordKind::from(record.kind) {
            Some(RecordKind::Data | RecordKind::Compensation) => {
                losers.insert(record.txn, record.lsn);
                clean = false;
            }
            Some(RecordKind::Commit | RecordKind::End) => {
                losers.remove(&record.txn);
                clean = false;
            }
            Some(RecordKind::System) => clean = false,
            Some(RecordKind::PageImage) => {
                images.extend(sections(&record).map(|s| (s.page(), record.lsn)));
            }
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
    Ok(Analysis { redo, losers, images, reader, keep: keep.min(redo), clean })
}

/// The page sections of a record.
fn sections<'a>(record: &RecordView<'a>) -> Sections<'a> {
    let skip = if record.kind == RecordKind::Compensation as u8 { 8 } else { 0 };
    Sections::new(record.body.get(skip..).unwrap_or_default())
}

/// Second pass: repeats what pages lack. `reader` reads the log from the analysis' redo position.
///
/// # Errors
/// When a page is damaged and the log has no image of it, or the callback breaks.
pub(crate) fn redo(
    pool: &BufferPool,
    log: &Log,
    analysis_images: &HashMap<PageId, Lsn>,
    mut reader: LogReader,
    report: &mut Reporter<'_>,
) -> Result<(u64, u64), OpenError> {
    report.begin(RecoveryPass::Redo)?;
    // Pages that cannot be read and have no image: they may have been created later in the log, or be gone.
    let mut missing: HashMap<PageId, StorageError> = HashMap::new();
    let mut scratch = Vec::new();
    while let Some(record) = reader.next()? {
        report.count(record.end.0 - record.lsn.0)?;
        let redoes = matches!(
            RecordKind::from(record.kind),
            Some(RecordKind::Data | RecordKind::Compensation | RecordKind::System)
        );
        if !redoes || is_mutant(Mutant::SkipRedo) {
            continue;
        }
        let mut all = sections(&record);
        // A record may change one page several times: its sections follow each other, and all apply or none.
        let mut begun = PageId::NONE;
        for section in all.by_ref() {
            let id = section.page();
            let whole = matches!(section, Section::Image { .. } | Section::Free { .. });
            let absent = missing.contains_key(&id);
            if absent && !whole {
                continue;
            }
            let loaded = if absent { Ok(false) } else { bring(pool, log, analysis_images, id, &mut scratch) };
            let mut frame = match loaded {
                Ok(true) => pool.get_or_load(id)?.write(),
                Ok(false) => {
                    missing.remove(&id);
                    pool.ensure_file(u64::from(id.0) + 1)?;
                    pool.create(id)?
                }
                Err(error @ StorageError::CorruptPage { .. }) if whole => {
                    let _ = error;
                    pool.ensure_file(u64::from(id.0) + 1)?;
                    pool.create(id)?
                }
                Err(error @ StorageError::CorruptPage { .. }) => {
                    missing.insert(id, error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if frame.page().lsn() >= record.lsn && begun != id && !is_mutant(Mutant::SkipRedoTest) {
                frame.release_unchanged();
                continue;
            }
            begun = id;
            frame.mark_dirty(record.lsn);
            if !ops::apply(&section, &mut frame.page_mut()) {
                let what = format!("does not fit its log record at position {}", record.lsn);
                return Err(StorageError::CorruptPage { file: pool.file_name(), page: id, what }.into());
            }
            frame.page_mut().set_lsn(record.lsn);
        }
        if !all.is_whole() {
            let what =
                format!("record at log position {} does not decode; it was written by another build", record.lsn);
            return Err(StorageError::CorruptFile { file: "log".into(), what }.into());
        }
    }
    // A page may have been torn whose changes all lie before the start of redo: its image has them.
    // In order: neighbours are read one after the other, and a simulated restart repeats itself.
    let mut ids: Vec<_> = analysis_images.keys().collect();
    ids.sort_unstable();
    for id in ids {
        if !missing.contains_key(id)
            && matches!(bring(pool, log, analysis_images, *id, &mut scratch), Err(StorageError::CorruptPage { .. }))
        {
            missing.insert(
                *id,
                StorageError::CorruptPage {
                    file: pool.file_name(),
                    page: *id,
                    what: "is damaged, and so is its image in the log".into(),
                },
            );
        }
    }
    match missing.into_iter().min_by_key(|(id, _)| *id).map(|(_, error)| error) {
        Some(error) => Err(error.into()),
        None => Ok((report.state.records, report.state.bytes)),
    }
}

/// Makes sure the page is in the pool, from its image in the log if it was torn. `Ok(true)`: it is there.
fn bring(
    pool: &BufferPool,
    log: &Log,
    images: &HashMap<PageId, Lsn>,
    id: PageId,
    scratch: &mut Vec<u8>,
) -> Result<bool, StorageError> {
    let error = match pool.get_or_load(id) {
        Ok(_) => return Ok(true),
        Err(error @ StorageError::CorruptPage { .. }) => error,
        Err(error) => return Err(error),
    };
    let Some(at) = images.get(&id) else { return Err(error) };
    let record = log.read_at(*at, scratch)?;
    let mut page = PageBytes::boxed();
    let found = Sections::new(record.body).find(|s| s.page() == id);
    let Some(section) = found else { return Err(error) };
    if !ops::apply(&section, &mut PageMut::of(&mut page)) || PageRef::of(&page).id() != id {
        return Err(error);
    }
    pool.ensure_file(u64::from(id.0) + 1)?;
    let mut frame = pool.create(id)?;
    frame.mark_dirty(PageRef::of(&page).lsn());
    frame.page_mut().bytes().copy_from_slice(page.as_bytes());
    Ok(true)
}

/// Third pass: rolls the losers back.
///
/// # Errors
/// When a page cannot be read, there is no space, or the callback breaks.
pub(crate) fn undo(
    pool: &BufferPool,
    log: &Log,
    losers: &HashMap<TxnId, Lsn>,
    slot: SlotId,
    report: &mut Reporter<'_>,
) -> Result<(), OpenError> {
    report.begin(RecoveryPass::Undo)?;
    let mut rec = RecordBuf::new();
    let mut bytes = Vec::with_capacity(PAGE_SIZE);
    // In a fixed order, so that a simulated restart can be repeated; which one does not matter, because
    // no two transactions had changed the same row.
    let mut order: Vec<_> = losers.iter().map(|(txn, last)| (*last, *txn)).collect();
    order.sort_unstable();
    if is_mutant(Mutant::SkipRestartUndo) {
        order.clear();
    }
    for (last, txn) in order.into_iter().rev() {
        let mut victim = Victim { txn, last };
        roll_back(Pages { pool, log, slot, for_undo: true }, &mut rec, &mut bytes, &mut victim, Lsn::ZERO)?;
        rec.begin(RecordKind::End as u8, txn, victim.last);
        log.append_reserved(slot, &mut rec, Lsn::ZERO)?;
        log.end_txn(slot);
        report.count(0)?;
    }
    Ok(())
}

impl Analysis {
    /// The losers, the images, and the reader at the log's end.
    pub(crate) fn into_parts(self) -> (HashMap<TxnId, Lsn>, HashMap<PageId, Lsn>, LogReader) {
        (self.losers, self.images, self.reader)
    }
}
