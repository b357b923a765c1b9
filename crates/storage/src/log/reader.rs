//! Reads the log in order at restart, and finds its end.
//!
//! The log ends at the first position without a valid record. After a crash that is normal: the tail was being written, and
//! any part of the unsynced bytes may be missing. But a hole in *synced* bytes is damage, and to end the log there would
//! silently drop acknowledged commits. The field `lag` distinguishes the two: a valid record after the hole that was
//! prepared when the log was already durable beyond the hole proves damage. So before a reader declares the end, it
//! searches all following bytes for such a record, at every multiple of 8 bytes. It also uses a position that the caller
//! vouches for (the end of the last checkpoint, or of the log after a clean close).
//!
//! `synced(R)` is the position that the field `lag` of a record R names: the durable end when R was prepared. A record that was
//! prepared far after the durable end names no position.
//!
//! **Proof of damage.** Let the reader have reached `hole` through valid records, let there be no valid record at `hole`,
//! and let a valid record R with `r >= synced(R) > hole` begin at `r`, after the hole.
//!
//! 1. `hole` is the start of a record: each record ends where the next one begins, and the reader follows them.
//! 2. `synced(R)` is the value of `durable` when R was prepared or before, and `durable` only grows. So a sync that covered
//!    everything before `synced(R)` had returned before R was written.
//! 3. `durable` is always a boundary between two records (`flush`: it follows `whole`, and `whole` follows the safe end,
//!    which is the tail, an announced tail, or the start of a reservation; if a write ends elsewhere, `whole` does not
//!    advance). So `synced(R) > hole` implies that the record at `hole` ended at `synced(R)` at the latest: it was durable
//!    as a whole, and is not there now. That is damage. If `durable` could lie *inside* the record at `hole`, only the
//!    first part of the record would have been durable, and the loss of the rest in a crash would be no damage: this was
//!    the case in an early version of the flusher, whose syncs followed `written`.
//! 4. R belongs to this history. Its checksum covers its LSN, so it is not left over from an earlier use of the file. Nor
//!    is it from a tail that an earlier restart cut off at some end `e <= hole`: records written before that crash have
//!    `synced <= e`, or restart would have found the damage then. (Restart also cleared and synced that tail before
//!    anything was appended at `e`.)
//!
//! Later writes cannot undo durable bytes: a block that is written again contains the same bytes up to their end.
//!
//! No reader can detect damage to the very last flush before a crash: no record was written after it, so it looks like a
//! tail that was never synced.

use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::io::read_up_to_at;

use super::record::{self, Claimed, HEADER, RecordView};
use super::segment::{LogFiles, SegmentContent, SegmentFile, name};

/// Iterates over records. After `next` has returned `None`, the reader's position is the end of the log.
#[derive(Debug)]
pub(crate) struct LogReader {
    stream: Stream,
    /// Position of the start of the next record.
    at: u64,
    /// Largest position that the fields `lag` of the records read so far name: everything before it was durable.
    synced: u64,
    /// Position before which everything was durable, according to the caller.
    vouched: u64,
    /// End of the range to read: a record that begins at or after this position is not read.
    until: u64,
    ended: bool,
}

impl LogReader {
    /// Creates a reader that begins with the record at `from`. The caller knows that everything before `vouched` was durable
    /// (`Lsn::ZERO` if it knows nothing).
    pub(crate) fn new(files: &LogFiles, from: Lsn, vouched: Lsn) -> LogReader {
        let stream = Stream { files: files.clone(), buf: Vec::new(), start: from.0 };
        LogReader { stream, at: from.0, synced: 0, vouched: vouched.0, until: u64::MAX, ended: false }
    }

    /// Creates a reader for records that another reader has read already: from `from` to the end of that reader, regardless
    /// of later appends.
    pub(super) fn again(files: &LogFiles, from: Lsn, until: Lsn) -> LogReader {
        LogReader { until: until.0, ..LogReader::new(files, from, until) }
    }

    /// Returns the number of bytes up to the end of the range to read.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.until.saturating_sub(self.at)
    }

    /// Returns the next record; `None` at the end of the log or of the range to read. (The reader is not an `Iterator`,
    /// because a record borrows its buffer.)
    ///
    /// # Errors
    /// `CorruptFile` if the log is damaged before its end, `Io`. Further calls return the same error.
    pub(crate) fn next(&mut self) -> Result<Option<RecordView<'_>>, StorageError> {
        if self.ended || self.at >= self.until {
            return Ok(None);
        }
        let at = self.at;
        let Some(claimed) = self.stream.load_record(at)? else {
            self.check_end()?;
            self.ended = true;
            return Ok(None);
        };
        let extent = claimed.extent();
        self.stream.check_headers(at, at + extent as u64)?;
        let view = claimed.view(self.stream.bytes(at, extent), Lsn(at));
        self.at = view.end.0;
        self.synced = self.synced.max(view.synced.0);
        Ok(Some(view))
    }

    /// Returns the end of the last record read, at which the log continues.
    #[cfg(test)]
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.at)
    }

    /// Returns the files, the end of the log, and the largest position that a field `lag` names.
    pub(super) fn into_end(self) -> (LogFiles, Lsn, Lsn) {
        (self.stream.files, Lsn(self.at), Lsn(self.synced))
    }

    /// Returns an error if the log continues after `self.at`.
    fn check_end(&mut self) -> Result<(), StorageError> {
        let at = self.at;
        if at < self.vouched {
            return Err(self.stream.damaged(at, self.vouched, "it was durable up to"));
        }
        self.stream.check_made_in_order(at)?;
        match self.stream.find_proof(at)? {
            Some(beyond) => Err(self.stream.damaged(at, beyond, "the log goes on at")),
            None => Ok(()),
        }
    }
}

/// Buffered access to the bytes of the stream.
#[derive(Debug)]
struct Stream {
    files: LogFiles,
    /// Buffered bytes of the stream, from position `start` on.
    buf: Vec<u8>,
    start: u64,
}

impl Stream {
    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let from = (at - self.start) as usize;
        &self.buf[from..from + len]
    }

    /// Returns the number of buffered bytes from `at` on.
    fn loaded(&self, at: u64) -> usize {
        if at < self.start { 0 } else { self.buf.len().saturating_sub((at - self.start) as usize) }
    }

    /// Reads until `want` bytes from `at` on are buffered, or the files end. Returns the number of buffered bytes.
    fn load(&mut self, at: u64, want: usize) -> Result<usize, StorageError> {
        if self.loaded(at) >= want {
            return Ok(self.loaded(at));
        }
        if at < self.start || self.loaded(at) == 0 {
            self.buf.clear();
        } else {
            self.buf.drain(..(at - self.start) as usize);
        }
        self.start = at;
        let geometry = self.files.geometry;
        while self.buf.len() < want {
            let next = at + self.buf.len() as u64;
            let (offset, left) = geometry.place(next);
            let Some(found) = self.files.files.get(&geometry.number(next)) else { break };
            let from = self.buf.len();
            let piece = (self.files.piece as u64).min(left) as usize;
            self.buf.resize(from + piece, 0);
            let got = read_up_to_at(&*found.file, &mut self.buf[from..], offset)?;
            self.buf.truncate(from + got);
            if got < piece {
                break;
            }
        }
        Ok(self.buf.len())
    }

    /// Loads the record at `at` and returns the fields of its header; `None` if there is no valid record at `at`.
    fn load_record(&mut self, at: u64) -> Result<Option<Claimed>, StorageError> {
        if self.load(at, HEADER)? < HEADER {
            return Ok(None);
        }
        let Some(claimed) = Claimed::of(self.bytes(at, HEADER), Lsn(at)) else { return Ok(None) };
        let extent = claimed.extent();
        if self.load(at, extent)? < extent {
            return Ok(None);
        }
        Ok(record::decode(self.bytes(at, extent), Lsn(at)).map(|_| claimed))
    }

    /// Checks the headers of the segments of a valid record: the record proves that its segments were in use, so their
    /// headers must be valid as well.
    fn check_headers(&self, from: u64, to: u64) -> Result<(), StorageError> {
        let geometry = self.files.geometry;
        for number in geometry.number(from)..=geometry.number(to - 1) {
            if self.files.files.get(&number).is_some_and(|found| !found.is_sound()) {
                let file = self.files.disk.show(&name(number));
                let what = "its header is damaged; restore a copy (nothing was changed)".to_owned();
                return Err(StorageError::CorruptFile { file, what });
            }
        }
        Ok(())
    }

    /// Checks the segments that may hide the records from `at` on. Segments are made one after the other, each complete and
    /// synced before the next is begun. So a valid header proves that the headers of lower numbers were valid, and that the
    /// segments were there in which the record at `at` would lie. (A clean close removes unused segments after these, in an
    /// order that a crash may change.)
    fn check_made_in_order(&mut self, at: u64) -> Result<(), StorageError> {
        let extent = match self.load(at, HEADER)? < HEADER {
            true => 1,
            false => Claimed::of(self.bytes(at, HEADER), Lsn(at)).map_or(1, Claimed::extent),
        };
        let geometry = self.files.geometry;
        let (first, last_of_record) = (geometry.number(at), geometry.number(at + extent as u64 - 1));
        let files = || self.files.files.range(first..);
        // Only a truncated segment is recycled, so a file that the log may still need never gets the header of a later one.
        let exchanged = |(number, found): (&u64, &SegmentFile)| match found.content {
            SegmentContent::Later(later) => Some((*number, later)),
            _ => None,
        };
        if let Some((number, later)) = files().take_while(|(number, _)| **number <= last_of_record).find_map(exchanged)
        {
            let what = format!("is '{}' under another name; give the files their names back", name(later));
            return Err(StorageError::CorruptFile { file: self.files.disk.show(&name(number)), what });
        }
        let Some((last, _)) = files().rev().find(|(_, found)| found.is_sound()) else { return Ok(()) };
        let missing = (first..=last_of_record).find(|number| number < last && !self.files.files.contains_key(number));
        let damaged = files().find(|(number, found)| !found.is_sound() && *number < last).map(|(number, _)| *number);
        let (number, what) = match (missing, damaged) {
            (Some(number), _) => (number, "the file is missing"),
            (None, Some(number)) => (number, "its header is damaged"),
            (None, None) => return Ok(()),
        };
        let file = self.files.disk.show(&name(number));
        Err(StorageError::CorruptFile { file, what: format!("{what}; restore a copy (nothing was changed)") })
    }

    /// Returns the error for a position `at` without a valid record, if a record or position `beyond` proves that there was
    /// a record at `at`.
    fn damaged(&self, at: u64, beyond: u64, why: &str) -> StorageError {
        let geometry = self.files.geometry;
        let numbers = geometry.number(at)..=geometry.number(beyond);
        let missing = numbers.clone().find(|number| !self.files.files.contains_key(number));
        let file = self.files.disk.show(&name(missing.unwrap_or(*numbers.start())));
        let first = if missing.is_some() { "the file is missing: " } else { "" };
        let what = format!(
            "{first}no sound record at log position {at}, yet {why} {beyond}; nothing was changed: restore a copy"
        );
        StorageError::CorruptFile { file, what }
    }

    /// Finds a valid record after `at` that was prepared when the log was durable beyond `at`. Such a record proves damage.
    fn find_proof(&mut self, at: u64) -> Result<Option<u64>, StorageError> {
        let geometry = self.files.geometry;
        let behind: Vec<u64> = self.files.files.range(geometry.number(at)..).map(|(number, _)| *number).collect();
        for number in behind {
            let mut next = (geometry.base(number)).max(at.saturating_add(8) & !7);
            let end = geometry.base(number + 1);
            while next < end {
                let loaded = self.load(next, HEADER)?;
                if loaded < HEADER {
                    break;
                }
                match self.scan(next, end, at) {
                    Ok(stopped) => next = stopped,
                    Err(candidate) => {
                        if self.load_record(candidate)?.is_some() {
                            return Ok(Some(candidate));
                        }
                        next = candidate + 8;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Searches the buffered bytes from `from` on for a possible record after `hole` that proves damage. Returns its
    /// position as `Err`; `Ok` is the position at which loading continues.
    fn scan(&self, from: u64, end: u64, hole: u64) -> Result<u64, u64> {
        let mut at = from;
        let bytes = &self.buf[(from - self.start) as usize..];
        for header in bytes.windows(HEADER).step_by(8) {
            if at >= end {
                break;
            }
            if Claimed::of(header, Lsn(at)).is_some_and(|claimed| claimed.synced.0 > hole) {
                return Err(at);
            }
            at += 8;
        }
        Ok(at)
    }
}
