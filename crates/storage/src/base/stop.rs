//! A guard for tests whose threads run until they are told: a panic tells them as well.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, at the end of its scope or by a panic: whatever runs until the flag is set then ends.
#[derive(Debug)]
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
