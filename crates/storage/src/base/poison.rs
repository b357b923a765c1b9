//! The instance's one-way switch from "working" to "closed to commits".
//!
//! After a failed write or fsync the contents of the disk are unknown (the kernel may have dropped the dirty pages, and
//! reports the error once), so later acknowledgements could not be trusted. fsync is never retried. The only remedy is to
//! reopen the database, which recovers from the contents of the disk.

use crate::base::sync::plain::{AtomicU8, Ordering};
use std::sync::Arc;
use std::sync::OnceLock;

use super::error::StorageError;
use super::fork::Process;
use super::ids::Lsn;

/// State in which commits are accepted.
const OPEN: u8 = 0;
/// State in which no more changes become durable. The state in memory is consistent.
const CLOSED: u8 = 1;
/// State after a panic has left a page half changed, or a rollback has stopped half-way: the state in memory is
/// inconsistent.
const INCONSISTENT: u8 = 2;

/// The switch, shared by the log, the pool and transactions.
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
    /// Returns true if this process is a child of the process that opened the instance.
    #[inline]
    pub(crate) fn is_forked_child(&self) -> bool {
        !self.process.is_this()
    }

    /// Closes the instance to commits. If it is closed already, its first cause is kept.
    pub(crate) fn close(&self, cause: &StorageError, durable: Lsn) {
        self.close_because(&cause.as_cause(), durable);
    }

    /// Like [`Poison::close`], for a cause that is not a [`StorageError`].
    pub(crate) fn close_because(&self, cause: &str, durable: Lsn) {
        let _ = self.cause.set((cause.into(), durable));
        self.state.fetch_max(CLOSED, Ordering::Release);
    }

    /// Closes the instance to commits and to readers, because the state in memory is inconsistent.
    pub(crate) fn mark_inconsistent(&self, cause: &str, durable: Lsn) {
        let _ = self.cause.set((cause.into(), durable));
        self.state.fetch_max(INCONSISTENT, Ordering::Release);
    }

    /// Returns an error if the state in memory is inconsistent, or if this process is a child of the process that opened the
    /// instance.
    #[inline]
    pub(crate) fn check_memory(&self) -> Result<(), StorageError> {
        if self.state.load(Ordering::Acquire) == INCONSISTENT || self.is_forked_child() {
            return Err(self.error());
        }
        Ok(())
    }

    /// Returns an error if the instance is closed to commits.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if self.is_closed() { Err(self.error()) } else { Ok(()) }
    }

    /// Returns true if the instance is closed to commits.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) != OPEN || self.is_forked_child()
    }

    #[cold]
    fn error(&self) -> StorageError {
        if self.is_forked_child() {
            return StorageError::Forked;
        }
        let (cause, durable) = self.cause.get().cloned().unwrap_or(("unknown".into(), Lsn::ZERO));
        StorageError::Poisoned { cause, durable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: the error of a closed instance quoted the advice of its cause (to try again; nothing was lost).
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
