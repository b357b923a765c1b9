//! The instance's one-way switch from "working" to "closed to commits".
//!
//! After a failed write or fsync nobody knows what the disk holds (the kernel may have dropped the dirty
//! pages and the error is reported once), so nothing that would be acknowledged afterwards can be believed.
//! fsync is never retried; the way out is to reopen, which recovers from what is on disk.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::StorageError;
use super::ids::Lsn;

/// Shared by log, pool and transactions.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    closed: AtomicBool,
    cause: OnceLock<(Arc<str>, Lsn)>,
}

impl Poison {
    /// Closes the instance; the first cause is kept.
    pub(crate) fn close(&self, cause: &StorageError, durable: Lsn) {
        let _ = self.cause.set((cause.as_cause().into(), durable));
        self.closed.store(true, Ordering::Release);
    }

    /// `Err(Poisoned)` once the instance is closed.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    /// Whether the instance is closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    #[cold]
    fn error(&self) -> StorageError {
        let (cause, durable) = self.cause.get().cloned().unwrap_or(("unknown".into(), Lsn::ZERO));
        StorageError::Poisoned { cause, durable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Closed to commits" quoted an error that said to try again, and that nothing was lost.
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
