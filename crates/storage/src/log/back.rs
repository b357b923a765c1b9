//! Reading a transaction's records back, from its newest one to its oldest: what a rollback does.
//!
//! The newest bytes of the log are in the ring, and records that are still there are copied from it one by one. Older
//! records are read from the files in pieces that end behind the record asked for, because a long transaction's records
//! lie close together: the piece serves the earlier ones as well. The size of the next piece depends on how much of the
//! last one was used, so that a transaction whose few records lie far apart does not read what lies between them.

use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::base::sync::atomic::Ordering;

use super::Log;
use super::record::{self, HEADER, RecordView, claimed_len, extent};

/// Bytes of a piece: of the first one, and the bounds of all.
const FIRST: u64 = 16 << 10;
const LEAST: u64 = 4 << 10;
const MOST: u64 = 256 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ReadBack<'l> {
    log: &'l Log,
    /// A record from the ring, or one that no piece holds.
    one: &'l mut Vec<u8>,
    /// No record that begins before this is asked for.
    since: u64,
    /// Bytes of the stream from `start` on.
    piece: Vec<u8>,
    start: u64,
    /// Bytes of the piece that were asked for.
    served: usize,
    /// Bytes of the next piece.
    ask: u64,
    /// The record read last begins here, so the record before it ends here at the latest.
    below: u64,
}

impl<'l> ReadBack<'l> {
    /// Reads records of `log` that begin behind `since`. `one` is scratch for one record.
    pub(crate) fn new(log: &'l Log, one: &'l mut Vec<u8>, since: Lsn) -> ReadBack<'l> {
        ReadBack { log, one, since: since.0, piece: Vec::new(), start: 0, served: 0, ask: FIRST, below: u64::MAX }
    }

    /// The record that begins at `lsn`, with the contract of [`Log::read_at`]. It precedes all records read so far.
    ///
    /// # Errors
    /// As [`Log::read_at`].
    pub(crate) fn read(&mut self, lsn: Lsn) -> Result<RecordView<'_>, StorageError> {
        let at = lsn.0;
        if self.extent_in_piece(at).is_none() && !self.log.is_in_ring(at) {
            self.load(at);
        }
        self.below = at;
        match self.extent_in_piece(at) {
            Some(extent) => {
                self.served += extent;
                let record = &self.piece[(at - self.start) as usize..][..extent];
                record::decode(record, lsn).ok_or_else(|| self.log.no_record(at))
            }
            None => self.log.read_at(lsn, self.one),
        }
    }

    /// Bytes of the record at `at`, if all of them are in the piece.
    #[inline]
    fn extent_in_piece(&self, at: u64) -> Option<usize> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let bytes = self.piece.get(from..)?;
        let extent = extent(claimed_len(bytes.get(..HEADER)?)?);
        (extent <= bytes.len()).then_some(extent)
    }

    /// Reads the piece that ends with the record at `at`, or not far behind, as far as it has been written to the
    /// files. If the read fails there is no piece: the record itself may still be readable.
    #[cold]
    fn load(&mut self, at: u64) {
        let wanted = self.served * 4 >= self.piece.len();
        if !self.piece.is_empty() {
            self.ask = if wanted { (self.ask * 2).min(MOST) } else { (self.ask / 2).max(LEAST) };
        }
        self.piece.clear();
        self.served = 0;
        let geometry = self.log.segments.geometry();
        let written = self.log.written.load(Ordering::Acquire);
        let to = self.below.min(written).min(at + self.ask);
        // Records before `since` are not asked for, and segments before this one may have been recycled.
        let least = geometry.base(geometry.number(at)).max(self.since);
        self.start = to.saturating_sub(self.ask).max(least).min(at);
        if to > at && self.log.copy_files(self.start, (to - self.start) as usize, &mut self.piece).is_err() {
            self.piece.clear();
        }
    }
}
