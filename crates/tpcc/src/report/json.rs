//! Where `--json` goes: a file, or stdout (`-`). A file is opened before the work, so that hours are not spent for a path
//! that cannot be written.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use serde::Serialize;

use super::out::OutFile;
use crate::workload::error::Error;

/// Stands for stdout.
const STDOUT: &str = "-";

/// Where one JSON object goes at the end.
pub(crate) enum JsonOut {
    /// Alone on stdout: the summary goes to stderr.
    Stdout,
    /// A file.
    File(OutFile),
}

impl JsonOut {
    /// Opens what `--json` names, if it names something.
    pub(crate) fn open(path: Option<&Path>) -> Result<Option<JsonOut>, Error> {
        path.map(|path| match path.as_os_str() == STDOUT {
            true => Ok(JsonOut::Stdout),
            false => OutFile::open(path, "--json").map(JsonOut::File),
        })
        .transpose()
    }
}

/// Writes the object, if it is wanted, and prints the summary: on stdout, unless that has the object or `quiet` says that it
/// has something else. The summary is printed also if the object cannot be written.
pub(crate) fn conclude(
    json: Option<JsonOut>,
    value: &impl Serialize,
    mut summary: String,
    quiet: bool,
) -> Result<(), Error> {
    let mut to_stderr = quiet;
    let written = match json {
        None => Ok(()),
        Some(JsonOut::Stdout) => {
            to_stderr = true;
            text_of(value).map(|text| print(&text))
        }
        Some(JsonOut::File(file)) => text_of(value).and_then(|text| file.write(text.as_bytes())).map(|path| {
            summary += &format!("written   {}\n", path.display());
        }),
    };
    if to_stderr {
        eprint!("{summary}");
    } else {
        print(&summary);
    }
    written
}

/// Why something could not be printed.
static NOT_PRINTED: OnceLock<std::io::Error> = OnceLock::new();

/// Prints results. A reader that has gone away is no failure; any other is told by [`not_printed`], at the end.
pub(crate) fn print(text: &str) {
    note_printed(std::io::stdout().write_all(text.as_bytes()));
}

/// Notes how printing has ended.
pub(crate) fn note_printed(ended: std::io::Result<()>) {
    if let Err(error) = ended.and_then(|()| std::io::stdout().flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = NOT_PRINTED.set(error);
    }
}

/// The error of a command whose results could not be printed.
pub(crate) fn not_printed() -> Option<Error> {
    NOT_PRINTED.get().map(|error| {
        Error::failed(format!("stdout: cannot be written: {error}")).help("what was printed is lost; the rest was done")
    })
}

/// The object as text.
pub(crate) fn text_of(value: &impl Serialize) -> Result<String, Error> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Error::failed(format!("the JSON object cannot be made: {error}"))),
    }
}
