//! Signals that request the end of a command. Long operations poll this module; the command line installs the signal
//! handlers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGTERM};

/// Number of the received signal; 0 if no signal was received.
pub static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Returns the number of the signal that has requested the clean end of all work. `None` if there was no signal.
pub fn signal() -> Option<i32> {
    i32::try_from(SIGNAL.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
}

/// Returns the user's name for the signal that has requested the end of all work.
pub fn name() -> &'static str {
    match signal() {
        Some(SIGHUP) => "SIGHUP",
        Some(SIGTERM) => "SIGTERM",
        _ => "Ctrl-C",
    }
}

/// Returns true if a signal has requested the clean end of all work.
pub fn requested() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}
