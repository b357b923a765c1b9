//! Signals that end a command: Ctrl-C (SIGINT), SIGTERM and SIGHUP. The first asks the command to end cleanly; the second ends
//! the process at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use tpcc_core::workload::interrupt::{self, SIGNAL};

/// Status of a process that a signal has ended is this and its number, as shells tell it.
const ENDED_BY_SIGNAL: i32 = 128;

/// Takes over the signals that are not ignored.
pub(crate) fn install() {
    let (ignored, has_come) = (ignored(), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        // Actions run in this order. Without them the signal simply ends the process, which no database minds.
        let _ = flag::register_conditional_shutdown(signal, ENDED_BY_SIGNAL + signal, Arc::clone(&has_come));
        let _ = flag::register(signal, Arc::clone(&has_come));
        let _ = flag::register_usize(signal, Arc::clone(&SIGNAL), signal as usize);
    }
}

/// Signals that whatever has started the command wants ignored, as `nohup` does with SIGHUP: signal n is bit n - 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Exit status of a command that a signal has ended: 128 and its number. None without a signal, and for Ctrl-C, after which the
/// status tells how the command ended.
pub(crate) fn status() -> Option<ExitCode> {
    let signal = interrupt::signal().filter(|&signal| signal != SIGINT)?;
    u8::try_from(ENDED_BY_SIGNAL + signal).ok().map(ExitCode::from)
}
