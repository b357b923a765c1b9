//! The first and the third pass of restart (ARIES, section 6): analysis and undo. `redo` has the second pass.
//!
//! Restart is idempotent: redo compares page LSNs, and undo writes compensation records. Restart may be interrupted after
//! any record, and the next open repeats it.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::checkpoint::CheckpointBody;
use super::control::Control;
use super::progress::{OnRecovery, Recovery, RecoveryPass};
use crate::base::error::{OpenError, StorageError};
use crate::base::ids::{Lsn, PAGE_SIZE, SlotId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::StructureChange;
use crate::btree::ops;
use crate::btree::space::SPACE_PAGE;
use crate::buffer::BufferPool;
use crate::io::Disk;
use crate::log::{Log, LogFiles, LogReader, RecordBuf, RecordKind};
use crate::txn::undo::{Victim, roll_back};

/// Number of records between two calls of the progress callback.
const REPORT_EVERY: u64 = 8192;

/// Transactions without an end (losers). A slot has at most one: the records of its earlier transactions precede their ends.
#[derive(Debug, Default)]
pub(crate) struct Losers {
    /// LSN of the last record of the transaction in each slot; zero if it has ended or written nothing.
    last: Vec<Lsn>,
}

impl Losers {
    #[inline]
    fn set_last(&mut self, slot: SlotId, last: Lsn) {
        let at = usize::from(slot.0);
        if at >= self.last.len() {
            self.last.resize(at + 1, Lsn::ZERO);
        }
        self.last[at] = last;
    }

    /// Returns the losers: the LSN of the last record of each, and the slot.
    fn iter(&self) -> impl Iterator<Item = (Lsn, SlotId)> {
        let slots = self.last.iter().enumerate();
        slots.filter(|(_, last)| **last != Lsn::ZERO).map(|(at, last)| (*last, SlotId(at as u16)))
    }
}

/// Result of the analysis pass.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// LSN at which redo begins.
    pub(crate) redo: Lsn,
    losers: Losers,
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
    pub(super) state: Recovery,
    directory: String,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(callback: Option<&'a mut OnRecovery>, directory: String) -> Reporter<'a> {
        let state = Recovery { pass: RecoveryPass::Analysis, records: 0, bytes: 0, total_bytes: None, losers: 0 };
        Reporter { callback, state, directory }
    }

    /// Reports the begin of a pass that reads `total_bytes` of log.
    pub(super) fn begin(&mut self, pass: RecoveryPass, total_bytes: Option<u64>) -> Result<(), OpenError> {
        self.state = Recovery { pass, records: 0, bytes: 0, total_bytes, losers: self.state.losers };
        self.report()
    }

    pub(super) fn count(&mut self, bytes: u64) -> Result<(), OpenError> {
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
        self.state =
            Recovery { pass: RecoveryPass::Done, records, bytes, total_bytes: Some(bytes), losers: self.state.losers };
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
    let mut losers = Losers::default();
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
        body.active.iter().for_each(|a| losers.set_last(a.txn.slot(), a.last));
    } else {
        redo = crate::log::FIRST_LSN.max(redo);
    }
    report.begin(RecoveryPass::Analysis, None)?;
    let mut reader = LogReader::new(&files, redo, control.durable);
    let mut clean = true;
    while let Some(record) = reader.next()? {
        report.count(record.end.0 - record.lsn.0)?;
        match RecordKind::from(record.kind) {
            Some(RecordKind::Data | RecordKind::Compensation) => {
                losers.set_last(record.slot, record.lsn);
                clean = false;
            }
            Some(RecordKind::Commit | RecordKind::End) => {
                losers.set_last(record.slot, Lsn::ZERO);
                // Members of the transaction: see `txn::family`.
                for member in record.body.as_chunks::<2>().0 {
                    losers.set_last(SlotId(u16::from_le_bytes(*member)), Lsn::ZERO);
                }
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
    report.state.losers = losers.iter().count() as u64;
    clean &= report.state.losers == 0;
    Ok(Analysis { redo, losers, reader, keep: keep.min(redo), clean })
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
    losers: &Losers,
    slot: SlotId,
    report: &mut Reporter<'_>,
) -> Result<(), OpenError> {
    report.begin(RecoveryPass::Undo, None)?;
    let mut rec = RecordBuf::new();
    let mut bytes = Vec::with_capacity(PAGE_SIZE);
    // The latest record first, over all chains: the members of a transaction may have changed the same row one after the
    // other. Nobody else has changed a row of a loser.
    let mut chains: BinaryHeap<(Lsn, SlotId)> = losers.iter().collect();
    if is_mutant(Mutant::SkipRestartUndo) {
        chains.clear();
    }
    while let Some((last, loser)) = chains.pop() {
        let next = chains.peek().filter(|_| !is_mutant(Mutant::UndoChainByChain));
        let floor = next.map_or(Lsn::ZERO, |(last, _)| *last);
        let mut victim = Victim { slot: loser, last };
        let change = StructureChange { pool, log, slot, for_undo: true };
        let undone = roll_back(change, &mut rec, &mut bytes, &mut victim, floor)?;
        if undone.last_in_effect != Lsn::ZERO {
            chains.push((undone.last_in_effect, loser));
            continue;
        }
        rec.begin(RecordKind::End, loser, victim.last);
        log.append_reserved(slot, &mut rec, Lsn::ZERO)?;
        log.end_txn(slot);
        report.count(0)?;
    }
    Ok(())
}

impl Analysis {
    /// Returns the losers, and the log reader at the log's end.
    pub(crate) fn into_parts(self) -> (Losers, LogReader) {
        (self.losers, self.reader)
    }
}
