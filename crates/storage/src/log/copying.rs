//! Copies a part of the log into files of another directory, while the log is being written.

use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::io::{Disk, OpenMode, read_exact_at, sync_file, write_all_at};

use super::Log;
use super::segment::{Geometry, HEADER_BYTES, LogFiles, name};

/// Number of bytes copied at a time.
const PIECE: u64 = 256 << 10;

/// Pin of the log's files: truncations keep the files until the pin is dropped or the log reaches its limit.
#[derive(Debug)]
pub(crate) struct LogPin<'l> {
    log: &'l Log,
    number: u64,
}

impl Log {
    /// Pins the log: every record that has not been removed yet is kept.
    pub(crate) fn pin(&self) -> LogPin<'_> {
        LogPin { log: self, number: self.segments.pin() }
    }

    /// Returns true if records are kept for a copy.
    pub(crate) fn is_pinned(&self) -> bool {
        self.segments.is_pinned()
    }
}

impl Drop for LogPin<'_> {
    fn drop(&mut self) {
        self.log.segments.unpin(self.number);
    }
}

impl LogPin<'_> {
    /// Returns true if the log has reached its limit since the pin was made. Then its files were not kept, and the copied
    /// part is of no use.
    pub(crate) fn is_broken(&self) -> bool {
        self.log.segments.is_broken(self.number)
    }

    /// Writes the log, from the file that contains `from` up to `end`, as the log of database `database`: whole files that
    /// end in zeros, synced. The caller guarantees that everything before `end` is durable and that a record ends there.
    /// `named` is called with the name of each file made, `copied` with the number of bytes copied.
    ///
    /// # Errors
    /// No space on `disk`, a failed read or write, or the first error of `copied`.
    pub(crate) fn copy<E: From<StorageError>>(
        &self,
        (from, end): (Lsn, Lsn),
        disk: &dyn Disk,
        database: u64,
        mut named: impl FnMut(&str),
        mut copied: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let segments = &self.log.segments;
        let source = segments.geometry();
        let target = Geometry { database, ..source };
        let mut piece = vec![0; PIECE as usize];
        for number in source.number(from.0)..=source.number(end.0 - 1) {
            let file = segments.file(number).ok_or_else(|| self.log.no_record(from.0))?;
            let name = name(number);
            let copy = disk
                .open(&name, OpenMode::CreateNew)
                .map_err(|e| StorageError::io("create", disk.show(&name), 0, e))?;
            named(&name);
            copy.allocate(0, source.segment_bytes).map_err(|e| StorageError::io("allocate", disk.show(&name), 0, e))?;
            let to = HEADER_BYTES + (end.0 - source.base(number)).min(source.payload());
            let mut at = HEADER_BYTES;
            while at < to {
                let piece = &mut piece[..PIECE.min(to - at) as usize];
                read_exact_at(&*file, piece, at)?;
                write_all_at(&*copy, piece, at)?;
                at += piece.len() as u64;
                copied(piece.len() as u64)?;
            }
            // The header is written last, as for new segments: a file without a header counts as empty.
            write_all_at(&*copy, &target.header(number), 0)?;
            sync_file(&*copy)?;
        }
        Ok(())
    }
}

impl LogFiles {
    /// Reads all records from `from` on, which must end at `end`.
    ///
    /// # Errors
    /// The records do not end there: the copied log is damaged.
    pub(crate) fn prove(&self, from: Lsn, end: Lsn) -> Result<(), StorageError> {
        let mut reader = super::LogReader::new(self, from, end);
        while reader.next()?.is_some() {}
        Ok(())
    }
}
