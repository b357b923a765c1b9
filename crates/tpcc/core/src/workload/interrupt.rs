//! Signals that ask a command to end. Long work looks here; the command line takes the signals over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGTERM};

/// Number of the signal that has come, 0 before.
pub static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The signal that has asked all work to end cleanly.
pub fn signal() -> Option<i32> {
    i32::try_from(SIGNAL.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
}

/// What a user calls the signal that has asked all work to end.
pub fn name() -> &'static str {
    match signal() {
        Some(SIGHUP) => "SIGHUP",
        Some(SIGTERM) => "SIGTERM",
        _ => "Ctrl-C",
    }
}

/// Whether a signal has asked all work to end cleanly.
pub fn requested() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}
