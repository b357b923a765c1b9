//! Fuzzy checkpoints: they record the position at which a restart may begin, while transactions run.
//!
//! A checkpoint reads the log's tail, then the LSN of the oldest change that is not on disk, then the list of transactions
//! that have not ended. It logs this information, flushes the log, and only then stores the LSN of the checkpoint's record
//! in the control file. The log before all of these positions is truncated.
//!
//! Body of the record: redo start u64, count u32, then (transaction, first LSN, last LSN) u64 each.

use std::time::Duration;

use super::control::{Control, ControlFile};
use crate::base::error::{LogHolder, StorageError};
use crate::base::fair_lock::FairLock;
use crate::base::hook::BlockReason;
use crate::base::ids::{Lsn, SlotId, TxnId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::log::{FIRST_LSN, RecordBuf, RecordKind};
use crate::txn::active::ActiveTransaction;
use crate::txn::engine::Engine;

/// Takes checkpoints, one at a time.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    /// State of the checkpoint that has the turn. A checkpoint waits for the log, so it holds no mutex during that time. The
    /// next checkpoint waits for its turn through the hook.
    turns: FairLock<CheckpointState>,
    /// Content of the control file as of the newest checkpoint.
    control: Mutex<Control>,
    /// Number of checkpoints since open.
    taken: AtomicU64,
    /// LSN at which redo begins from the newest checkpoint.
    redo: AtomicU64,
    /// First record of the transaction or online copy that held the log at the newest checkpoint, and the time (in
    /// nanoseconds) at which it was first found to hold the log.
    held: Mutex<Option<(Lsn, u64)>>,
    slot: SlotId,
}

/// Control file and buffer with which a checkpoint writes.
#[derive(Debug)]
struct CheckpointState {
    file: ControlFile,
    rec: RecordBuf,
}

/// Decoded body of a checkpoint's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointBody {
    /// LSN at which redo begins.
    pub(crate) redo: Lsn,
    /// Transactions that had not ended at the checkpoint.
    pub(crate) active: Vec<ActiveTransaction>,
}

impl CheckpointBody {
    fn put(&self, rec: &mut RecordBuf) {
        rec.put_u64(self.redo.0);
        rec.put_u32(self.active.len() as u32);
        for a in &self.active {
            rec.put_u64(a.txn.0);
            rec.put_u64(a.first.0);
            rec.put_u64(a.last.0);
        }
    }

    /// Returns the LSN of the first record that a restart from this checkpoint reads, for redo or to undo transactions that
    /// had not ended.
    pub(crate) fn keep(&self) -> Lsn {
        self.active.iter().map(|a| a.first).min().unwrap_or(self.redo).min(self.redo)
    }

    /// Decodes the body of the record at `at`. Returns `None` if the body is not a checkpoint's, or contains positions
    /// beyond the log's end at the time of the checkpoint.
    pub(crate) fn decode(body: &[u8], at: Lsn) -> Option<CheckpointBody> {
        let word = |at: usize| body.get(at..at + 8)?.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
        let count = u32::from_le_bytes(*body.get(8..12)?.first_chunk()?) as usize;
        let active = (0..count).map(|i| {
            let from = 12 + 24 * i;
            Some(ActiveTransaction {
                txn: TxnId(word(from)?),
                first: Lsn(word(from + 8)?),
                last: Lsn(word(from + 16)?),
            })
        });
        let body = CheckpointBody { redo: Lsn(word(0)?), active: active.collect::<Option<_>>()? };
        // With a position beyond `at`, restart would read the log from there, stop there, and continue to write there.
        let is_before = |lsn: Lsn| lsn <= at && lsn.0.is_multiple_of(8);
        let all = body.active.iter().flat_map(|a| [a.first, a.last]).chain([body.redo]).all(is_before);
        (all && body.redo >= FIRST_LSN).then_some(body)
    }
}

impl Checkpointer {
    /// Creates the checkpointer from the content of the control file. `slot` is the log slot of this service.
    pub(crate) fn new(file: ControlFile, control: Control, redo: Lsn, slot: SlotId) -> Checkpointer {
        let turns = FairLock::new(CheckpointState { file, rec: RecordBuf::new() }, BlockReason::LogFlush);
        Checkpointer {
            turns,
            control: Mutex::new(control),
            taken: AtomicU64::new(0),
            redo: AtomicU64::new(redo.0),
            held: Mutex::default(),
            slot,
        }
    }

    /// Returns the number of checkpoints since open.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the content of the control file as of the newest checkpoint.
    pub(crate) fn control(&self) -> Control {
        *self.control.lock()
    }

    /// Returns the LSN at which redo begins from the newest checkpoint.
    pub(crate) fn redo(&self) -> Lsn {
        Lsn(self.redo.load(Ordering::Relaxed))
    }

    /// Returns the number of bytes of log that a restart would read now.
    pub(crate) fn distance(&self, tail: Lsn) -> u64 {
        tail.0.saturating_sub(self.redo.load(Ordering::Relaxed))
    }

    /// Takes a checkpoint now.
    ///
    /// # Errors
    /// A failed write closes the instance. A full disk does not.
    pub(crate) fn take(&self, engine: &Engine) -> Result<(), StorageError> {
        let mut turn = self.turns.take(&*engine.hook);
        let Some(CheckpointState { file, rec }) = turn.state() else { return Ok(()) };
        engine.poison.check()?;
        // This order is necessary: if a later step misses a change, all records of the change are after this tail.
        let tail = engine.log.tail();
        let oldest = engine.pool.oldest_recovery_lsn().unwrap_or(tail).min(tail);
        let oldest = if is_mutant(Mutant::ForgetDirtyPages) { tail } else { oldest };
        let active = if is_mutant(Mutant::ForgetActive) { Vec::new() } else { engine.slots.active() };
        let keep = active.iter().map(|a| a.first).min().unwrap_or(oldest).min(oldest);
        let body = CheckpointBody { redo: oldest, active };
        rec.begin(RecordKind::Checkpoint, self.slot, Lsn::ZERO);
        body.put(rec);
        let at = engine.log.append_checkpoint(self.slot, rec)?;
        let end = rec.end();
        if !is_mutant(Mutant::NameBeforeFlush) {
            let _locked = is_mutant(Mutant::WaitWithMutex).then(|| self.turns.lock_queue());
            engine.make_durable(end)?;
        }
        let before = *self.control.lock();
        let next = Control { number: before.number + 1, checkpoint: at, durable: end, ..before };
        file.write(&next).inspect_err(|e| {
            if !e.is_want_of_room() {
                engine.poison.close(e, engine.log.durable());
            }
        })?;
        *self.control.lock() = next;
        self.redo.store(oldest.0, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        engine.log.truncate_before(if is_mutant(Mutant::TruncateTooEarly) { end } else { keep })?;
        let now = engine.clock.now_ns();
        engine.log.note_cut(now, self.holder(engine, &body, now));
        Ok(())
    }

    /// Returns the transaction or online copy that prevented the newest checkpoint from truncating the log at the start of
    /// redo. `None` if it has ended since.
    pub(crate) fn holder_now(&self, engine: &Engine) -> Option<LogHolder> {
        engine.log.holder().filter(|holder| match holder.transaction {
            Some(age) => engine.slots.is_writing(age),
            None => engine.log.is_pinned(),
        })
    }

    /// Returns the holder of log files that redo does not need: the oldest transaction, or an online copy.
    fn holder(&self, engine: &Engine, body: &CheckpointBody, now_ns: u64) -> Option<LogHolder> {
        let oldest = body.active.iter().filter(|a| a.first < body.redo).min_by_key(|a| a.first);
        let (transaction, first) = match oldest {
            _ if engine.log.is_pinned() && engine.log.would_shrink(body.keep()) => (None, engine.log.begin()),
            Some(oldest) if engine.log.would_shrink(body.redo) => {
                (Some(engine.locks.age_in(oldest.txn.slot())), oldest.first)
            }
            _ => {
                *self.held.lock() = None;
                return None;
            }
        };
        let mut held = self.held.lock();
        let since = match *held {
            Some((other, since)) if other == first => since,
            _ => now_ns,
        };
        *held = Some((first, since));
        let bytes = engine.log.tail().0.saturating_sub(first.0);
        Some(LogHolder { transaction, bytes, held_for: Duration::from_nanos(now_ns.saturating_sub(since)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_survives_the_log() {
        let active = vec![ActiveTransaction { txn: TxnId(3), first: Lsn(5000), last: Lsn(6000) }];
        let body = CheckpointBody { redo: Lsn(4200), active };
        let at = Lsn(8000);
        let mut rec = RecordBuf::new();
        rec.begin(RecordKind::Checkpoint, SlotId(0), Lsn::ZERO);
        body.put(&mut rec);
        assert_eq!(CheckpointBody::decode(rec.body(), at), Some(body));
        for cut in 0..rec.body().len() {
            assert_eq!(CheckpointBody::decode(&rec.body()[..cut], at), None);
        }
    }

    /// Regression test: with a forged record, restart read the log from a position between two words, and then continued to
    /// write there.
    #[test]
    fn nothing_begins_behind_the_checkpoint_or_between_words() {
        let body = |redo: u64, first: u64, last: u64| {
            let mut body = redo.to_le_bytes().to_vec();
            body.extend_from_slice(&1u32.to_le_bytes());
            body.extend([3, first, last].into_iter().flat_map(u64::to_le_bytes));
            body
        };
        let decode = |body: Vec<u8>| CheckpointBody::decode(&body, Lsn(8000)).is_some();
        assert!(decode(body(4200, 5000, 6000)) && decode(body(8000, 8000, 0)));
        for (redo, first, last) in
            [(8008, 5000, 6000), (4201, 5000, 6000), (0, 5000, 6000), (4200, 8008, 6000), (4200, 5000, 6001)]
        {
            assert!(!decode(body(redo, first, last)), "{redo} {first} {last}");
        }
    }
}
