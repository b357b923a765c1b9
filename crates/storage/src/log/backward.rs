//! Reads the records of a transaction backwards, from the newest to the oldest, for a rollback.
//!
//! The newest bytes of the log are in the ring; records there are copied one by one. Older records are read from the files
//! in pieces. A piece ends at or after the end of the requested record, because the records of a long transaction lie close
//! together and the piece contains earlier records as well. The size of the next piece depends on the used fraction of the
//! last piece, so that a transaction with few, distant records does not read the bytes between them.

use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::base::sync::atomic::Ordering;

use super::Log;
use super::record::{self, Claimed, HEADER, RecordView};

/// Size of the first piece, minimum size, and maximum size of a piece, in bytes.
const FIRST: u64 = 16 << 10;
const LEAST: u64 = 4 << 10;
const MOST: u64 = 256 << 10;

/// Backward reader: see the module's documentation.
#[derive(Debug)]
pub(crate) struct BackwardReader<'l> {
    log: &'l Log,
    /// Buffer for a record from the ring, or for a record that no piece contains.
    scratch: &'l mut Vec<u8>,
    /// Lower bound: no record that begins before this position is requested.
    since: u64,
    /// Bytes of the stream from position `start` on, as read from the files.
    piece: Vec<u8>,
    start: u64,
    /// Number of bytes of the piece that belong to requested records.
    used: usize,
    /// Size of the next piece in bytes.
    next_len: u64,
    /// Start of the record that was read last. The next record to read ends at this position at the latest.
    last_start: u64,
}

impl<'l> BackwardReader<'l> {
    /// Creates a reader of records of `log` that begin at or after `since`. `scratch` is a buffer for one record.
    pub(crate) fn new(log: &'l Log, scratch: &'l mut Vec<u8>, since: Lsn) -> BackwardReader<'l> {
        BackwardReader {
            log,
            scratch,
            since: since.0,
            piece: Vec::new(),
            start: 0,
            used: 0,
            next_len: FIRST,
            last_start: u64::MAX,
        }
    }

    /// Returns the record that begins at `lsn`, with the contract of [`Log::read_at`]. It precedes all records read so far.
    ///
    /// # Errors
    /// As [`Log::read_at`].
    pub(crate) fn read(&mut self, lsn: Lsn) -> Result<RecordView<'_>, StorageError> {
        let at = lsn.0;
        if self.extent_in_piece(at).is_none() && !self.log.is_in_ring(at) {
            self.load(at);
        }
        self.last_start = at;
        match self.extent_in_piece(at) {
            Some(extent) => {
                self.used += extent;
                let record = &self.piece[(at - self.start) as usize..][..extent];
                record::decode(record, lsn).ok_or_else(|| self.log.no_record(at))
            }
            None => self.log.read_at(lsn, self.scratch),
        }
    }

    /// Returns the length in bytes of the record at `at`; `None` if the piece does not contain all of it.
    #[inline]
    fn extent_in_piece(&self, at: u64) -> Option<usize> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let bytes = self.piece.get(from..)?;
        let extent = Claimed::of(bytes.get(..HEADER)?, Lsn(at))?.extent();
        (extent <= bytes.len()).then_some(extent)
    }

    /// Reads the piece that ends with the record at `at`, or shortly after it. The piece contains no bytes that have not
    /// been written to the files. If the read fails there is no piece: the record itself may still be readable.
    #[cold]
    fn load(&mut self, at: u64) {
        let wanted = self.used * 4 >= self.piece.len();
        if !self.piece.is_empty() {
            self.next_len = if wanted { (self.next_len * 2).min(MOST) } else { (self.next_len / 2).max(LEAST) };
        }
        self.piece.clear();
        self.used = 0;
        let geometry = self.log.segments.geometry();
        let written = self.log.written.load(Ordering::Acquire);
        let to = self.last_start.min(written).min(at + self.next_len);
        // Records before `since` are not requested, and segments before this one may have been recycled.
        let least = geometry.base(geometry.number(at)).max(self.since);
        self.start = to.saturating_sub(self.next_len).max(least).min(at);
        if to > at && self.log.copy_files(self.start, (to - self.start) as usize, &mut self.piece).is_err() {
            self.piece.clear();
        }
    }
}
