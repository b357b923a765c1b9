#![doc = include_str!("README.md")]

mod backward;

mod blocks;
mod copying;
mod files;
mod flush;
mod kind;
mod reader;
mod record;
mod reserve;
mod ring;
mod room;
mod segment;
mod sync;
mod throttle;
mod waiters;
mod waker;

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use crate::base::arena::PageSize;
use crate::base::clock::Clock;
use crate::base::error::StorageError;
use crate::base::fault::{FaultKind, should_fail};
use crate::base::hook::Hook;
use crate::base::ids::{Lsn, SlotId};
use crate::base::poison::Poison;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::base::sync::{Mutex, yield_now};
use crate::base::waits::WaitCounter;
use crate::io::{Disk, read_up_to_at};

use blocks::BlockWriter;
use files::{LogEnd, Segments};
use flush::SyncState;
use record::Claimed;
use reserve::Reservations;
use ring::Ring;
use segment::Geometry;
use throttle::Throttle;
use waiters::Waiters;
use waker::ServiceWaker;

pub(crate) use backward::BackwardReader;
pub(crate) use copying::LogPin;
pub(crate) use kind::RecordKind;
pub(crate) use reader::LogReader;
#[cfg(feature = "testing")]
pub(crate) use record::decode as decode_record;
pub(crate) use record::{Difference, HEADER as RECORD_HEADER, MAX_RECORD, Piece, RecordBuf, RecordView};
pub(crate) use room::AppendError;
pub(crate) use segment::{LogFiles, is_name as is_segment_name, is_segment, is_unused as is_unused_segment};
pub(crate) use throttle::LogBounds;

/// Start of the first record of a new log.
pub(crate) const FIRST_LSN: Lsn = Lsn(4096);

/// Maximum number of bytes by which a compensation record exceeds the one-section record that it undoes. These bytes contain
/// the position at which undo continues, and the wider fields of a row that has moved.
pub(crate) const UNDO_HEAD: u64 = 24;

/// Layout and memory settings of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogOptions {
    /// Size of one file in bytes, a multiple of 4096 between 8 KiB and 2 GiB. An existing log keeps its own size.
    pub(crate) segment_bytes: u64,
    /// Size of the ring in bytes, rounded up to a power of two. A record may take a quarter of the ring, and at most
    /// [`MAX_RECORD`].
    pub(crate) ring_bytes: usize,
    /// Page size of the ring's memory.
    pub(crate) memory: PageSize,
    /// Number of appender slots: one more than the largest `SlotId` in use.
    pub(crate) slots: usize,
    /// Bytes that user records leave free in ready segments, in addition to the bytes reserved for the undo of running
    /// transactions. At most half a segment.
    pub(crate) reserve_bytes: u64,
    /// Maximum number of truncated segments that are kept to be recycled, within the limit of the log.
    pub(crate) spare_segments: usize,
    /// Number of bytes of log between two checkpoints, and maximum size of the log's files in bytes; `None` for no limit.
    pub(crate) checkpoint_every: Option<(u64, u64)>,
    /// True to fill new segments with zeros (cheap syncs later); false to only allocate them (cheap to make).
    pub(crate) zero_segments: bool,
    /// Number of bytes that a reader of the log requests from a file at a time.
    pub(crate) reader_bytes: usize,
    /// Id of the database, in the header of every segment.
    pub(crate) database: u64,
    /// Clock of the waits for room.
    pub(crate) clock: Clock,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 16 << 20,
            ring_bytes: 8 << 20,
            memory: PageSize::Usual,
            slots: 256,
            reserve_bytes: 4 << 20,
            spare_segments: 8,
            checkpoint_every: None,
            zero_segments: true,
            reader_bytes: segment::PIECE,
            database: 0,
            clock: Clock::machine(),
        }
    }
}

/// Counters of the log since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogStats {
    /// Number of bytes appended.
    pub(crate) bytes: u64,
    /// Number of records appended.
    pub(crate) records: u64,
    /// Number of syncs of the log that made records durable.
    pub(crate) flushes: u64,
    /// True if the log is written past the system's cache.
    pub(crate) direct: bool,
    /// Number of segments made ready.
    pub(crate) segments: u64,
    /// Number of the segments made ready that were recycled.
    pub(crate) recycled: u64,
}

/// Counters of waits of appends.
#[derive(Debug, Default)]
pub(crate) struct LogWaits {
    /// Waits for room in the files: for a segment, or for a cut of the log.
    pub(crate) room: WaitCounter,
    /// Waits for a place in the ring.
    pub(crate) place: WaitCounter,
}

/// The log of one open database.
#[derive(Debug)]
pub(crate) struct Log {
    reserve: Reservations,
    ring: Ring,
    /// Position up to which bytes have been handed to the system. Threads that flush write this position and every append
    /// reads it, so its cache line is nearly always shared.
    written: CachePadded<AtomicU64>,
    /// End of the last completely written record.
    whole: AtomicU64,
    /// Limit up to which user records may be appended; 0 once poisoned.
    user_limit: AtomicU64,
    durable: AtomicU64,
    /// Position up to which transactions have requested durability of the log.
    requested: CachePadded<AtomicU64>,
    /// True if a quarter of the ring has filled since the flusher went to sleep.
    hurry: AtomicBool,
    hurry_making: AtomicBool,
    /// True if the segment maker found no space at its last attempt.
    disk_full: AtomicBool,
    waker: ServiceWaker,
    maker_waker: ServiceWaker,
    /// Lock whose holder may advance `written`. Acquired before the locks of `segments`.
    writer: Mutex<BlockWriter>,
    /// Lock whose holder may advance `durable`. Never held together with `writer`.
    syncer: Mutex<SyncState>,
    segments: Segments,
    throttle: Throttle,
    waiters: Waiters,
    poison: Arc<Poison>,
    options: LogOptions,
    /// Position at which this run began to append. Earlier records are not in the ring.
    opened_at: u64,
    record_limit: u64,
    flushes: AtomicU64,
    waits: LogWaits,
}

impl Log {
    /// Creates an empty log. Removes any log in the directory: the caller has verified that there is no database.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        poison: Arc<Poison>,
        hook: Arc<dyn Hook>,
    ) -> Result<Log, StorageError> {
        let geometry =
            Geometry { segment_bytes: options.segment_bytes.clamp(8192, 1 << 31) & !4095, database: options.database };
        let segments = Segments::create(disk, geometry, options.zero_segments, options.spare_segments)?;
        Log::with(segments, FIRST_LSN.0, options, poison, hook)
    }

    /// Continues a log that a [`LogReader`] has read to its end. Makes all records that were read durable and clears
    /// everything after them, so no record may be acted upon until this has returned. Records from `keep_from` on (the
    /// oldest that redo or undo may read) must exist; older ones are removed.
    ///
    /// # Errors
    /// `CorruptFile` if a segment from `keep_from` on is missing. After any error a later open can repeat the operation.
    pub(crate) fn open(
        reader: LogReader,
        keep_from: Lsn,
        options: LogOptions,
        poison: Arc<Poison>,
        hook: Arc<dyn Hook>,
    ) -> Result<Log, StorageError> {
        let (files, at, synced) = reader.into_end();
        let end = LogEnd { keep_from: keep_from.0, at: at.0, synced: synced.0 };
        let segments = Segments::adopt(files, &end, options.zero_segments, options.spare_segments)?;
        Log::with(segments, at.0, options, poison, hook)
    }

    fn with(
        segments: Segments,
        at: u64,
        mut options: LogOptions,
        poison: Arc<Poison>,
        hook: Arc<dyn Hook>,
    ) -> Result<Log, StorageError> {
        let ring = Ring::new(options.ring_bytes, options.memory)
            .map_err(|e| StorageError::io("reserving memory", "log ring", 0, e))?;
        let mut writer = BlockWriter::new();
        let geometry = segments.geometry();
        let bounds = match options.checkpoint_every {
            Some((every, limit)) => {
                LogBounds::new(every, limit, geometry.segment_bytes, throttle::most_files(segments.disk()))
            }
            None => LogBounds::NONE,
        };
        segments.set_limit(bounds.files);
        if let Some(file) = segments.file(geometry.number(at)) {
            writer.resume(&*file, geometry.place(at).0)?;
        }
        options.reserve_bytes = options.reserve_bytes.min(segments.geometry().payload() / 2);
        let log = Log {
            reserve: Reservations::new(at, options.slots),
            written: CachePadded::new(AtomicU64::new(at)),
            whole: AtomicU64::new(at),
            user_limit: AtomicU64::new(0),
            durable: AtomicU64::new(at),
            requested: CachePadded::new(AtomicU64::new(at)),
            hurry: AtomicBool::new(false),
            hurry_making: AtomicBool::new(false),
            disk_full: AtomicBool::new(false),
            waker: ServiceWaker::new(),
            maker_waker: ServiceWaker::new(),
            writer: Mutex::new(writer),
            syncer: Mutex::default(),
            segments,
            throttle: Throttle::new(bounds),
            waiters: Waiters::new(hook),
            poison,
            opened_at: at,
            record_limit: (ring.capacity() / 4).min(MAX_RECORD as u64),
            flushes: AtomicU64::new(0),
            waits: LogWaits::default(),
            ring,
            options,
        };
        log.refresh_limit();
        Ok(log)
    }

    /// Returns the position at which this run began to append.
    pub(crate) fn opened_at(&self) -> Lsn {
        Lsn(self.opened_at)
    }

    /// Returns the address range of the ring.
    pub(crate) fn ring_range(&self) -> std::ops::Range<usize> {
        self.ring.range()
    }

    /// Returns the address ranges of the tail and of the slots' copy positions, each with the distance between two
    /// positions.
    #[cfg(feature = "measure")]
    pub(crate) fn position_lines(&self) -> [(std::ops::Range<usize>, usize); 2] {
        self.reserve.lines()
    }

    /// Returns the end of the last appended record. If this position is durable, so is everything appended so far.
    #[inline]
    pub(crate) fn tail(&self) -> Lsn {
        Lsn(self.reserve.tail())
    }

    /// Appends a record that may have to be undone, and returns its start ([`RecordBuf::end`] returns its end). Space for
    /// as many bytes of compensation, and [`UNDO_HEAD`], stays reserved until [`Log::end_txn`] or [`Log::set_undo_bytes`],
    /// or until the slot's next record with `prev` zero.
    ///
    /// `slot` is used by one thread at a time. `after` is the LSN of the changed page (the record must be later, which the
    /// single tail guarantees). The caller may hold page latches, so no segment is made here.
    ///
    /// # Errors
    /// [`AppendError::NoRoom`] if a segment has to be made first; `RecordTooLarge`, `Poisoned`.
    #[inline]
    pub(crate) fn append(&self, slot: SlotId, rec: &mut RecordBuf, after: Lsn) -> Result<Lsn, AppendError> {
        self.append_user(slot, rec, after, true)
    }

    /// Appends a record that is never undone, a structure modification, under the same conditions and with the same errors.
    #[inline]
    pub(crate) fn append_redo_only(&self, slot: SlotId, rec: &mut RecordBuf, after: Lsn) -> Result<Lsn, AppendError> {
        self.append_user(slot, rec, after, false)
    }

    /// Appends a compensation record, or a structure modification that undo needs. The caller may hold page latches. The
    /// record uses the space reserved for undo, so a full disk does not stop it.
    ///
    /// # Errors
    /// [`AppendError::NoRoom`] if the reserved space is used up and a segment has to be made first; `RecordTooLarge`,
    /// `Poisoned`.
    pub(crate) fn append_undo(&self, slot: SlotId, rec: &mut RecordBuf, after: Lsn) -> Result<Lsn, AppendError> {
        let bytes = self.prepare(rec)?;
        if should_fail(FaultKind::Segment) || !self.admits_undo(bytes) {
            return Err(AppendError::NoRoom { slot, bytes, for_undo: true });
        }
        self.reserve.subtract_undo_bytes(slot, bytes);
        Ok(self.place(slot, rec, bytes, after)?)
    }

    /// Appends a commit or rollback record, which only a closed instance refuses. The caller holds no latch.
    ///
    /// # Errors
    /// `Poisoned`, `RecordTooLarge`.
    #[inline]
    pub(crate) fn append_reserved(&self, slot: SlotId, rec: &mut RecordBuf, after: Lsn) -> Result<Lsn, StorageError> {
        let bytes = self.prepare(rec)?;
        self.reserve.subtract_undo_bytes(slot, bytes);
        self.place(slot, rec, bytes, after)
    }

    /// Appends the record of a checkpoint. It may take half of the space for records that do not check the limit, because
    /// only a checkpoint allows the log to be truncated. A segment is made for it only if that space does not suffice,
    /// regardless of the limit of the log. The caller holds no latch.
    ///
    /// # Errors
    /// `NoSpace` if the disk is full, `TooManyFiles`, `RecordTooLarge`, `Poisoned`.
    pub(crate) fn append_checkpoint(&self, slot: SlotId, rec: &mut RecordBuf) -> Result<Lsn, StorageError> {
        let bytes = self.prepare(rec)?;
        let needs = || self.reserve.tail() + bytes + self.reserve.undo_bytes() + self.options.reserve_bytes / 2;
        while needs() > self.segments.end() {
            self.poison.check()?;
            self.make_segment(|| needs() > self.segments.end())?;
        }
        self.append_reserved(slot, rec, Lsn::ZERO)
    }

    /// Reserves `bytes` more for the undo of the slot's transaction than its records need.
    pub(crate) fn add_undo_bytes(&self, slot: SlotId, bytes: u64) {
        self.reserve.add_undo_bytes(slot, bytes, false);
    }

    /// Returns the number of bytes reserved for the undo of the slot's transaction.
    pub(crate) fn undo_bytes_of(&self, slot: SlotId) -> u64 {
        self.reserve.undo_bytes_of(slot)
    }

    /// Sets the number of bytes reserved for the undo of the slot's transaction, after a part of the transaction has been
    /// undone.
    pub(crate) fn set_undo_bytes(&self, slot: SlotId, bytes: u64) {
        self.reserve.set_undo_bytes(slot, bytes);
    }

    /// Ends the slot's transaction: releases the space reserved for its undo.
    #[inline]
    pub(crate) fn end_txn(&self, slot: SlotId) {
        self.reserve.add_undo_bytes(slot, 0, true);
    }

    #[inline]
    fn append_user(&self, slot: SlotId, rec: &mut RecordBuf, after: Lsn, undoable: bool) -> Result<Lsn, AppendError> {
        let bytes = self.prepare(rec)?;
        assert!(!should_fail(FaultKind::Latched), "a fault of a test");
        if should_fail(FaultKind::Log) {
            return Err(AppendError::Failed(StorageError::NoSpace { file: self.segments.show(0) }));
        }
        if should_fail(FaultKind::Segment) {
            return Err(AppendError::NoRoom { slot, bytes, for_undo: false });
        }
        if !self.admits(bytes) {
            self.admit(slot, bytes)?;
        }
        if undoable {
            // The bytes are added before the reservation: a flusher that sees the new tail also sees the bytes reserved for
            // undo.
            self.reserve.add_undo_bytes(slot, bytes + UNDO_HEAD, rec.prev() == Lsn::ZERO);
        }
        Ok(self.place(slot, rec, bytes, after)?)
    }

    /// Completes a record except for its position, and returns its length.
    #[inline]
    fn prepare(&self, rec: &mut RecordBuf) -> Result<u64, StorageError> {
        self.reserve.prefetch_tail();
        rec.prepare(Lsn(self.durable.load(Ordering::Relaxed)));
        let bytes = rec.extent();
        record::check_len(bytes, self.record_limit)?;
        Ok(bytes)
    }

    /// Reserves the record's position and copies the record there.
    #[inline]
    fn place(&self, slot: SlotId, rec: &mut RecordBuf, bytes: u64, after: Lsn) -> Result<Lsn, StorageError> {
        let start = self.reserve.reserve(slot, bytes);
        debug_assert!(start > after.0, "log position {start} does not exceed {after}");
        let end = start + bytes;
        if end > self.written.load(Ordering::Acquire) + self.ring.capacity() {
            self.wait_for_room(slot, start, end)?;
        }
        let (head, rest) = rec.placed(Lsn(start));
        self.ring.copy_in(start, head, rest);
        self.reserve.done(slot);
        // This is true once per quarter of the ring.
        if (start ^ end) & !(self.ring.capacity() / 4 - 1) != 0 {
            self.hurry();
        }
        Ok(Lsn(start))
    }

    #[cold]
    fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
        self.waker.wake_if_asleep();
    }

    /// Waits for space in a ring that is full of unwritten bytes. The caller may hold page latches, so this neither lets a
    /// scheduler run another fiber nor waits for a thread that might need the latches: it writes the bytes out itself. This
    /// terminates, because the first of all unfinished records needs only the bytes before it to be written, and they are
    /// complete: every appender that waits here has raised its slot to its record's own position.
    ///
    /// Ready segments suffice: the records that latched appends have reserved beyond them, one record per thread, take only
    /// a small part of the ring. If they do not suffice (a ring of few records and as many threads), the segment is made
    /// here in spite of latches, because nothing else would end the wait; debug builds assert that this does not happen.
    #[cold]
    fn wait_for_room(&self, slot: SlotId, start: u64, end: u64) -> Result<(), StorageError> {
        self.waits.place.during(&self.options.clock, || self.write_until_room(slot, start, end))
    }

    /// Body of [`Log::wait_for_room`].
    fn write_until_room(&self, slot: SlotId, start: u64, end: u64) -> Result<(), StorageError> {
        const PIECE: u64 = 1 << 20;
        self.reserve.announce_exact(slot, start);
        while end > self.written.load(Ordering::Acquire) + self.ring.capacity() {
            let suffice = end <= self.segments.end() + self.ring.capacity();
            match if suffice { self.write_ready(PIECE) } else { self.write_out(PIECE) } {
                Ok(true) => {}
                // Another thread has not finished its copy of an earlier record.
                Ok(false) => yield_now(),
                Err(e) => {
                    self.reserve.give_up(slot, start);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Returns the counters of waits of appends.
    pub(crate) fn waits(&self) -> &LogWaits {
        &self.waits
    }

    /// Reads the record at `lsn`, from the ring if it is still there, otherwise from the files. `lsn` is the start of a
    /// record that was appended by this thread, or is known from data that the appending thread published, and that is not
    /// truncated. `out` is overwritten.
    ///
    /// # Errors
    /// `CorruptFile` if there is no valid record, `Io`, `Poisoned`.
    pub(crate) fn read_at<'a>(&self, lsn: Lsn, out: &'a mut Vec<u8>) -> Result<RecordView<'a>, StorageError> {
        if !self.read_ring(lsn.0, out) {
            self.read_files(lsn.0, out)?;
        }
        record::decode(out, lsn).ok_or_else(|| self.no_record(lsn.0))
    }

    /// Returns the error for a record that is valid but cannot have been written there by the engine.
    #[cold]
    pub(crate) fn damaged_at(&self, at: Lsn, what: &str) -> StorageError {
        let what = format!("the record at log position {at} {what}; nothing was changed: restore a copy");
        StorageError::CorruptFile { file: self.segments.show(self.segments.geometry().number(at.0)), what }
    }

    fn no_record(&self, at: u64) -> StorageError {
        let what = format!("no sound record at log position {at}; restore a copy");
        StorageError::CorruptFile { file: self.segments.show(self.segments.geometry().number(at)), what }
    }

    /// Copies the record out of the ring. Returns false if the record is not, or no longer, in the ring.
    ///
    /// A byte at `p` is replaced only by an appender whose reservation extends beyond `p + capacity`. The copy is valid if
    /// the tail, loaded after the copy, has not reached that point: had this thread read a word of such an appender, the
    /// fence after that reservation and the fence before the second load would make the appender's tail visible.
    fn read_ring(&self, at: u64, out: &mut Vec<u8>) -> bool {
        if !self.is_in_ring(at) {
            return false;
        }
        out.clear();
        self.ring.copy_out(at, RECORD_HEADER, out);
        if let Some(claimed) = Claimed::of(out, Lsn(at)) {
            let extent = claimed.extent().min(self.ring.capacity() as usize);
            self.ring.copy_out(at + RECORD_HEADER as u64, extent - RECORD_HEADER, out);
        }
        fence(Ordering::Acquire);
        self.is_in_ring(at)
    }

    /// Returns true if a record that begins at `at` is in the ring and its place has not been reserved again.
    #[inline]
    fn is_in_ring(&self, at: u64) -> bool {
        let tail = self.reserve.tail();
        at >= self.opened_at && at < tail && tail <= at + self.ring.capacity()
    }

    fn read_files(&self, at: u64, out: &mut Vec<u8>) -> Result<(), StorageError> {
        if at >= self.reserve.tail() {
            return Err(self.no_record(at));
        }
        out.clear();
        self.copy_files(at, RECORD_HEADER, out)?;
        let extent = Claimed::of(out, Lsn(at)).ok_or_else(|| self.no_record(at))?.extent();
        self.copy_files(at + RECORD_HEADER as u64, extent - RECORD_HEADER, out)
    }

    /// Appends `bytes` bytes of the stream, from position `at` on, to `out`. Reads them from the files.
    fn copy_files(&self, mut at: u64, bytes: usize, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let geometry = self.segments.geometry();
        let end = at + bytes as u64;
        while self.written.load(Ordering::Acquire) < end.min(self.reserve.tail()) {
            // The bytes are still in the ring, although their place has been reserved for another record.
            if !self.write_out(u64::MAX)? {
                yield_now();
            }
        }
        while at < end {
            let (offset, left) = geometry.place(at);
            let file = self.segments.file(geometry.number(at)).ok_or_else(|| self.no_record(at))?;
            let from = out.len();
            out.resize(from + left.min(end - at) as usize, 0);
            if read_up_to_at(&*file, &mut out[from..], offset)? < out.len() - from {
                return Err(self.no_record(at));
            }
            at += (out.len() - from) as u64;
        }
        Ok(())
    }

    /// Returns a reader of the files, from `from` on. The reader sees everything written before this call.
    #[cfg(test)]
    pub(crate) fn reader(&self, from: Lsn) -> LogReader {
        LogReader::new(&self.segments.found(), from, Lsn::ZERO)
    }

    /// Returns a reader of the records that the log contained when it was opened, from `from` on. It does not read later
    /// records, and does not mistake them for records after a hole, so the reading thread may append meanwhile.
    pub(crate) fn reader_of_old(&self, from: Lsn) -> LogReader {
        let files = self.segments.found().in_pieces(self.options.reader_bytes);
        LogReader::again(&files, from, Lsn(self.opened_at))
    }

    /// Removes or recycles the log before `lsn`, in whole segments and at most up to the durable end. Records before `lsn`
    /// must not be read again.
    pub(crate) fn truncate_before(&self, lsn: Lsn) -> Result<(), StorageError> {
        self.poison.check()?;
        self.segments.truncate_before(lsn.min(self.durable()).0).inspect_err(|e| self.close(e))
    }

    /// Makes all records durable and removes all segments that are not needed, for a clean close. The service threads have
    /// been stopped; nothing may be appended afterwards.
    pub(crate) fn shut_down(&self) -> Result<(), StorageError> {
        self.wait_durable_inline(self.tail())?;
        // The log keeps the space for records that do not check the limit, so that the next run can begin, and end, on a
        // full disk too.
        self.segments.shrink(self.tail().0 + self.options.reserve_bytes)
    }

    /// Returns the counters of the log since the database was opened.
    pub(crate) fn stats(&self) -> LogStats {
        let (segments, recycled) = self.segments.made();
        LogStats {
            bytes: self.tail().0 - self.opened_at,
            records: self.reserve.records(),
            flushes: self.flushes.load(Ordering::Relaxed),
            direct: self.segments.is_direct(),
            segments,
            recycled,
        }
    }

    /// Returns the number of bytes that the log's files take, including files that wait to be recycled.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.segments.count() * self.segments.geometry().segment_bytes
    }

    /// Returns the scheduler of the threads and fibers that wait for the log.
    fn hook(&self) -> &dyn Hook {
        self.waiters.hook()
    }
}

// The tests run the service threads as system threads.
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
