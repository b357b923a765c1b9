//! Signals that end a command: Ctrl-C (SIGINT), SIGTERM and SIGHUP. The first asks the command to end cleanly; the second ends
//! the process at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use tpcc_core::workload::interrupt::{self, SIGNAL};

/// Exit status of a process that was ended by a signal, minus the number of the signal. Shells use the same convention.
const ENDED_BY_SIGNAL: i32 = 128;

/// Installs the handlers of the signals, except for ignored ones.
pub(crate) fn install() {
    let (ignored, received) = (ignored(), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        // Actions run in this order: the first one ends the process only if an earlier signal has set `received`. If an action
        // cannot be registered, the signal ends the process at once, which damages no database.
        let _ = flag::register_conditional_shutdown(signal, ENDED_BY_SIGNAL + signal, Arc::clone(&received));
        let _ = flag::register(signal, Arc::clone(&received));
        let _ = flag::register_usize(signal, Arc::clone(&SIGNAL), signal as usize);
    }
}

/// Returns the signals that this process ignores, as inherited from its parent (`nohup` ignores SIGHUP). Signal n is bit n - 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns the exit status of a command that was ended by a signal: 128 plus the signal's number. Returns `None` without a
/// signal, and for Ctrl-C: then the status reports the result of the command.
pub(crate) fn status() -> Option<ExitCode> {
    let signal = interrupt::signal().filter(|&signal| signal != SIGINT)?;
    u8::try_from(ENDED_BY_SIGNAL + signal).ok().map(ExitCode::from)
}
