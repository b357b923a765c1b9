//! Reading the log in order, at restart, and finding where it ends.
//!
//! The log ends at the first position that holds no sound record. After a crash that is normal: the tail was being
//! written, and any part of the unsynced bytes may be missing. But a hole in *synced* bytes is damage, and to end the
//! log there would silently drop acknowledged commits. The `synced` field distinguishes the two: a sound record beyond
//! the hole that was prepared when the log was already durable beyond the hole proves damage. So before a reader
//! declares the end it looks for such a record in all that follows, at every multiple of 8 bytes. It also uses a
//! position that the caller vouches for (the end of the last checkpoint, or of the log after a clean close).
//!
//! **Why this proves damage, and nothing else does.** Let the reader have come through sound records to `hole`, where
//! there is none, and let a sound record R at `r >= synced(R) > hole` lie behind.
//!
//! 1. `hole` is where a record began: each record ends where the next one begins, and the reader follows them.
//! 2. `synced(R)` is the value of `durable` when R was prepared or before, and `durable` only grows. So a sync that
//!    covered everything before `synced(R)` had returned before R was written.
//! 3. `durable` only ever stands between two records (`flush`: it follows `whole`, and `whole` follows the safe end,
//!    which is the tail, an announced tail, or a reservation's begin; where a write ends elsewhere, `whole` stays
//!    behind). So from `synced(R) > hole` it follows that the record at `hole` ended at `synced(R)` at the latest: it
//!    was durable as a whole, and is not there now. That is damage. If `durable` could stand *inside* the record at
//!    `hole`, only its first part would have been durable, and losing the rest in a crash would be no damage: so it was
//!    in an early version of the flusher, whose syncs went by `written`.
//! 4. R is of this history. Its checksum covers its LSN, so it is not left over from another lap through the file. Nor
//!    is it from a tail that an earlier restart cut off at some end `e <= hole`: records written before that crash have
//!    `synced <= e`, or restart would have found the damage then. (Restart also cleared and synced that tail before
//!    anything was appended at `e`.)
//!
//! Writing on cannot undo durable bytes: a block that is written again holds the same bytes up to there.
//!
//! What no reader can detect: damage to the very last flush before a crash, after which no record was written, looks
//! like a tail that was never synced.

use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::io::read_up_to_at;

use super::record::{self, HEADER, RecordView, claimed_len, claimed_synced, extent};
use super::segment::{LogFiles, name};

/// Iterates over records. After `next` has returned `None`, the reader's position is the end of the log.
#[derive(Debug)]
pub(crate) struct LogReader {
    stream: Stream,
    /// Where the next record begins.
    at: u64,
    /// Largest `synced` seen: everything before it was durable.
    synced: u64,
    /// Everything before this was durable, says the caller.
    vouched: u64,
    /// Nothing that begins here or behind is read.
    until: u64,
    ended: bool,
}

impl LogReader {
    /// Reads from the record that begins at `from`. Everything before `vouched` is known to have been
    /// durable (`Lsn::ZERO` if nothing is).
    pub(crate) fn new(files: &LogFiles, from: Lsn, vouched: Lsn) -> LogReader {
        let stream = Stream { files: files.clone(), buf: Vec::new(), start: from.0 };
        LogReader { stream, at: from.0, synced: 0, vouched: vouched.0, until: u64::MAX, ended: false }
    }

    /// Reads records again that another reader has read: from `from` to where that reader ended, whatever has been
    /// appended there since.
    pub(super) fn again(files: &LogFiles, from: Lsn, until: Lsn) -> LogReader {
        LogReader { until: until.0, ..LogReader::new(files, from, until) }
    }

    /// The next record; `None` at the end of the log, or of what is to be read. (Not an `Iterator`: a record borrows
    /// the buffer.)
    ///
    /// # Errors
    /// `CorruptFile` if the log is damaged before its end, `Io`. Reading on gives the same again.
    pub(crate) fn next(&mut self) -> Result<Option<RecordView<'_>>, StorageError> {
        if self.ended || self.at >= self.until {
            return Ok(None);
        }
        let at = self.at;
        let Some(len) = self.stream.load_record(at)? else {
            self.check_end()?;
            self.ended = true;
            return Ok(None);
        };
        let extent = extent(len);
        self.stream.check_headers(at, at + extent as u64)?;
        let view = record::view(self.stream.bytes(at, extent), len, Lsn(at));
        self.at = view.end.0;
        self.synced = self.synced.max(view.synced.0);
        Ok(Some(view))
    }

    /// End of the last record read, where the log goes on.
    #[cfg(test)]
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.at)
    }

    /// Files, end, synced.
    pub(super) fn into_end(self) -> (LogFiles, Lsn, Lsn) {
        (self.stream.files, Lsn(self.at), Lsn(self.synced))
    }

    /// An error if the log goes on behind `self.at`.
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

/// The stream's bytes through a buffer.
#[derive(Debug)]
struct Stream {
    files: LogFiles,
    /// Bytes from position `start` on.
    buf: Vec<u8>,
    start: u64,
}

impl Stream {
    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let from = (at - self.start) as usize;
        &self.buf[from..from + len]
    }

    /// Bytes that are in the buffer from `at` on.
    fn loaded(&self, at: u64) -> usize {
        if at < self.start { 0 } else { self.buf.len().saturating_sub((at - self.start) as usize) }
    }

    /// Reads until `want` bytes from `at` on are in the buffer, or the files end; returns how many are.
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

    /// Loads the record at `at` and returns its length; `None` if there is no sound one.
    fn load_record(&mut self, at: u64) -> Result<Option<usize>, StorageError> {
        if self.load(at, HEADER)? < HEADER {
            return Ok(None);
        }
        let Some(len) = claimed_len(self.bytes(at, HEADER)) else { return Ok(None) };
        let extent = extent(len);
        if self.load(at, extent)? < extent {
            return Ok(None);
        }
        Ok(record::decode(self.bytes(at, extent), Lsn(at)).map(|_| len))
    }

    /// A sound record proves that its segments were in use, so their headers must be sound as well.
    fn check_headers(&self, from: u64, to: u64) -> Result<(), StorageError> {
        let geometry = self.files.geometry;
        for number in geometry.number(from)..=geometry.number(to - 1) {
            if self.files.files.get(&number).is_some_and(|found| !found.valid) {
                let file = self.files.disk.show(&name(number));
                let what = "its header is damaged; restore a copy (nothing was changed)".to_owned();
                return Err(StorageError::CorruptFile { file, what });
            }
        }
        Ok(())
    }

    /// Segments are made one after the other, each whole and synced before the next is begun: a sound header proves
    /// those of lower numbers, and one that is damaged nevertheless may have hidden records.
    fn check_made_in_order(&self, at: u64) -> Result<(), StorageError> {
        let from = self.files.geometry.number(at);
        let files = || self.files.files.range(from..);
        let Some((last, _)) = files().rev().find(|(_, found)| found.valid) else { return Ok(()) };
        match files().find(|(number, found)| !found.valid && *number < last) {
            None => Ok(()),
            Some((number, _)) => {
                let file = self.files.disk.show(&name(*number));
                let what = "its header is damaged; restore a copy (nothing was changed)".to_owned();
                Err(StorageError::CorruptFile { file, what })
            }
        }
    }

    /// The error where there is no sound record at `at` although a record or position `beyond` proves that there was
    /// one.
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

    /// A sound record behind `at` that was prepared when everything up to beyond `at` was durable.
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

    /// Searches the loaded bytes from `from` on for a possible record behind `hole` that proves damage. `Err` is such a
    /// position; `Ok` is where to go on loading.
    fn scan(&self, from: u64, end: u64, hole: u64) -> Result<u64, u64> {
        let mut at = from;
        let bytes = &self.buf[(from - self.start) as usize..];
        for header in bytes.windows(HEADER).step_by(8) {
            if at >= end {
                break;
            }
            let synced = claimed_synced(header).0;
            if synced > hole && synced <= at && header[24] != 0 && claimed_len(header).is_some() {
                return Err(at);
            }
            at += 8;
        }
        Ok(at)
    }
}
