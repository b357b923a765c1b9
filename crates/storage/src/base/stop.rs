//! Guard for tests whose threads run until a flag is set: a panic sets the flag as well.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, at the end of its scope or by a panic. Threads that run until the flag is set then end.
#[derive(Debug)]
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
