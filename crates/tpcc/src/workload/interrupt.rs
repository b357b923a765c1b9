//! Whether the user wants long work to end. Long work looks here; the command line listens for Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Asks all work to end cleanly. Returns whether that had been asked before.
pub(crate) fn request() -> bool {
    INTERRUPTED.swap(true, Ordering::Relaxed)
}

/// Whether the user has asked to end.
pub(crate) fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
