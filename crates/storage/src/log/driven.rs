//! Waiting for the log, whether a thread or the caller drives its flusher.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Log;
use crate::base::error::StorageError;
use crate::base::hook::{Hook, WaitToken};
use crate::base::ids::Lsn;

impl Log {
    /// Returns when everything before `end` is on disk. `driven` says whether a thread drives the flusher; if not, the
    /// caller does. No latch may be held.
    ///
    /// # Errors
    /// `Poisoned` if that will never happen.
    pub(crate) fn make_durable(&self, end: Lsn, driven: &AtomicBool, hook: &dyn Hook) -> Result<(), StorageError> {
        if self.durable() >= end {
            return Ok(());
        }
        if driven.load(Ordering::Acquire) {
            self.wait_durable(end, &WaitToken::new(), hook)
        } else {
            self.wait_durable_inline(end)
        }
    }
}
