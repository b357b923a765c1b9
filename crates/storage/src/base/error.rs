//! Errors. One enum for what can go wrong below a transaction, [`StorageError`]; the enums of the public calls wrap it.

use std::io;
use std::sync::Arc;

use super::ids::{Lsn, PageId};

/// What can go wrong in files, pages, the log and the buffer pool.
///
/// Cheap to clone, because one failure may have to be told to many waiters.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The operating system refused a file operation.
    #[error("{file}: {op} at byte {offset} failed: {source}")]
    Io {
        /// What was tried: "read", "write", "sync", ...
        op: &'static str,
        /// The file, as the user would find it.
        file: String,
        /// Byte offset in the file, 0 where it has no meaning.
        offset: u64,
        /// The system's own word.
        source: Arc<io::Error>,
    },
    /// The device or quota is full. Nothing is broken: the transaction rolls back, and service resumes when there is space.
    #[error("{file}: no space left; free some space, then try again (nothing was lost)")]
    NoSpace {
        /// The file that could not grow.
        file: String,
    },
    /// Bytes on disk are not what was written there.
    #[error("{file}: page {page} {what}; nothing was changed: restore a copy")]
    CorruptPage {
        /// The data file.
        file: String,
        /// The damaged page.
        page: PageId,
        /// What is wrong, as a clause: "fails its checksum".
        what: String,
    },
    /// A file that is not a page file is damaged.
    #[error("{file}: {what}")]
    CorruptFile {
        /// The damaged file.
        file: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// The file was written by another version of the format.
    #[error("{file}: format version {found}, this build reads version {expected}")]
    Format {
        /// The file.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version this build reads.
        expected: u32,
    },
    /// An earlier failed write or sync closed the instance to commits.
    #[error("closed to commits after an earlier failure ({cause}); durable up to LSN {durable}; reopen the database")]
    Poisoned {
        /// The first failure.
        cause: Arc<str>,
        /// Everything below this position is on disk.
        durable: Lsn,
    },
    /// Every frame of the buffer pool is in use at once.
    #[error("buffer pool: all {frames} frames are in use; open with a larger pool")]
    PoolExhausted {
        /// Frames in the pool.
        frames: usize,
    },
    /// A log record larger than the log can take at once.
    #[error("log record of {bytes} bytes is larger than the limit of {limit}")]
    RecordTooLarge {
        /// Size asked for.
        bytes: usize,
        /// Largest size possible.
        limit: usize,
    },
}

impl StorageError {
    /// Wraps an I/O error with what was tried where; a full disk becomes [`StorageError::NoSpace`].
    pub(crate) fn io(op: &'static str, file: impl Into<String>, offset: u64, source: io::Error) -> Self {
        let file = file.into();
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return StorageError::NoSpace { file };
        }
        StorageError::Io { op, file, offset, source: Arc::new(source) }
    }

    /// Whether the same call may succeed later without anyone repairing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StorageError::NoSpace { .. } | StorageError::PoolExhausted { .. })
    }
}
