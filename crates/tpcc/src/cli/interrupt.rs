//! Ctrl-C. The first asks the command to end cleanly; the second ends the process at once.

use std::sync::OnceLock;
use std::thread::Thread;

use crate::workload::interrupt;

static MAIN: OnceLock<Thread> = OnceLock::new();

/// Status of a process ended by SIGINT, as shells tell it.
const ENDED_BY_SIGINT: i32 = 130;

/// Takes over Ctrl-C and wakes the calling thread when it comes.
pub(crate) fn install() {
    let _ = MAIN.set(std::thread::current());
    // Without a handler Ctrl-C simply kills the process, which no database minds.
    let _ = ctrlc::set_handler(|| {
        if interrupt::request() {
            std::process::exit(ENDED_BY_SIGINT);
        }
        if let Some(main) = MAIN.get() {
            main.unpark();
        }
    });
}
