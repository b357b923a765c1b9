//! Stdout and stderr. What cannot be written is no panic: for stdout it is an error at the end, for stderr there is no place left
//! to tell it.

use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;

use crate::workload::error::Error;

/// Why something could not be printed.
static NOT_PRINTED: OnceLock<std::io::Error> = OnceLock::new();

/// Prints results. A reader that has gone away is no failure; any other is told by [`not_printed`], at the end.
pub fn print(text: &str) {
    note_printed(std::io::stdout().write_all(text.as_bytes()));
}

/// Notes how printing has ended.
pub fn note_printed(ended: std::io::Result<()>) {
    if let Err(error) = ended.and_then(|()| std::io::stdout().flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = NOT_PRINTED.set(error);
    }
}

/// The error of a command whose results could not be printed.
pub fn not_printed() -> Option<Error> {
    NOT_PRINTED.get().map(|error| {
        Error::failed(format!("stdout: cannot be written: {error}")).help("what was printed is lost; the rest was done")
    })
}

/// Prints a line on stderr, if that can be written.
pub fn say(line: impl Display) {
    say_text(format_args!("{line}\n"));
}

/// Prints a text on stderr, if that can be written.
pub fn say_text(text: impl Display) {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}
