//! The instance's one-way switch from "working" to "closed to commits".
//!
//! After a failed write or fsync it is unknown what the disk holds (the kernel may have dropped the dirty pages, and
//! reports the error once), so no later acknowledgement could be trusted. fsync is never retried; the way out is to
//! reopen the database, which recovers from what is on disk.

use crate::base::sync::plain::{AtomicU8, Ordering};
use std::sync::Arc;
use std::sync::OnceLock;

use super::error::StorageError;
use super::fork::Process;
use super::ids::Lsn;

/// Commits are taken.
const OPEN: u8 = 0;
/// Nothing more becomes durable. The state in memory is sound.
const CLOSED: u8 = 1;
/// A panic has left a page half changed, or a rollback has stopped half-way: the state in memory is not sound.
const DISTRUSTED: u8 = 2;

/// Shared by log, pool and transactions.
#[derive(Debug)]
pub(crate) struct Poison {
    /// The process that opened the instance.
    process: Process,
    state: AtomicU8,
    cause: OnceLock<(Arc<str>, Lsn)>,
}

impl Default for Poison {
    fn default() -> Poison {
        Poison { process: Process::this(), state: AtomicU8::new(OPEN), cause: OnceLock::new() }
    }
}

impl Poison {
    /// Whether this process is a child of the one that opened the instance.
    #[inline]
    pub(crate) fn is_of_the_parent(&self) -> bool {
        !self.process.is_this()
    }

    /// Closes the instance; the first cause is kept.
    pub(crate) fn close(&self, cause: &StorageError, durable: Lsn) {
        self.close_because(&cause.as_cause(), durable);
    }

    /// As [`Poison::close`], for a cause that is no error of storage.
    pub(crate) fn close_because(&self, cause: &str, durable: Lsn) {
        let _ = self.cause.set((cause.into(), durable));
        self.state.fetch_max(CLOSED, Ordering::Release);
    }

    /// Closes the instance to readers as well.
    pub(crate) fn distrust(&self, cause: &str, durable: Lsn) {
        let _ = self.cause.set((cause.into(), durable));
        self.state.fetch_max(DISTRUSTED, Ordering::Release);
    }

    /// `Err(Poisoned)` once the state in memory is not sound.
    #[inline]
    pub(crate) fn check_memory(&self) -> Result<(), StorageError> {
        if self.state.load(Ordering::Acquire) == DISTRUSTED || self.is_of_the_parent() {
            return Err(self.error());
        }
        Ok(())
    }

    /// `Err(Poisoned)` once the instance is closed.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if self.is_closed() { Err(self.error()) } else { Ok(()) }
    }

    /// Whether the instance is closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) != OPEN || self.is_of_the_parent()
    }

    #[cold]
    fn error(&self) -> StorageError {
        if self.is_of_the_parent() {
            return StorageError::Forked;
        }
        let (cause, durable) = self.cause.get().cloned().unwrap_or(("unknown".into(), Lsn::ZERO));
        StorageError::Poisoned { cause, durable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a closed instance quoted a cause that said to try again, and that nothing was lost.
    #[test]
    fn what_closed_the_instance_is_told_without_its_advice() {
        let file = || "bank/log.7".to_owned();
        for cause in [StorageError::NoSpace { file: file() }, StorageError::TooManyFiles { file: file() }] {
            let poison = Poison::default();
            poison.close(&cause, Lsn(4096));
            let told = poison.check().unwrap_err().to_string();
            assert!(told.contains("bank/log.7: no ") && told.ends_with("reopen the database"), "{told}");
            assert!(!told.contains("try again") && !told.contains("nothing was lost"), "{told}");
        }
    }
}
