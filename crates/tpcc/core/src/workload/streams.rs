//! Output to stdout and stderr. A failed write does not panic. A failed write to stdout is reported as an error at the end.
//! A failed write to stderr is ignored, because there is no other output to report it on.

use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

use crate::workload::error::Error;

/// First error of a write to stdout.
static NOT_PRINTED: OnceLock<std::io::Error> = OnceLock::new();

/// Prints results on stdout. A closed pipe is not an error. [`print_error`] reports every other error at the end.
pub fn print(text: &str) {
    record_print_result(std::io::stdout().write_all(text.as_bytes()));
}

/// Flushes stdout. Records the first error of the write, whose result is `ended`, and of the flush.
pub fn record_print_result(ended: std::io::Result<()>) {
    if let Err(error) = ended.and_then(|()| std::io::stdout().flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = NOT_PRINTED.set(error);
    }
}

/// Returns the command's error if its results could not be printed; `None` otherwise.
pub fn print_error() -> Option<Error> {
    NOT_PRINTED.get().map(|error| {
        Error::failed(format!("stdout: cannot be written: {error}")).help("what was printed is lost; the rest was done")
    })
}

/// Prints a line on stderr. Ignores errors.
pub fn say(line: impl Display) {
    say_text(format_args!("{line}\n"));
}

/// Prints a text on stderr. Ignores errors.
pub fn say_text(text: impl Display) {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}
