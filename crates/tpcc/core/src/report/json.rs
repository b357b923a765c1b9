//! Destination of `--json`: a file, or stdout (`-`). A file is opened before the work, so that an unwritable path is
//! reported before hours of work.

use std::path::Path;

use serde::Serialize;

use super::out::OutFile;
use crate::workload::error::Error;
use crate::workload::streams;

/// Path that means stdout.
const STDOUT: &str = "-";

/// Destination of the JSON object that a command writes at its end.
pub enum JsonOut {
    /// Stdout, with only the object. The summary goes to stderr.
    Stdout,
    /// A file, which receives only the object.
    File(OutFile),
}

impl JsonOut {
    /// Opens the destination of `--json`, if given.
    pub fn open(path: Option<&Path>) -> Result<Option<JsonOut>, Error> {
        path.map(|path| match path.as_os_str() == STDOUT {
            true => Ok(JsonOut::Stdout),
            false => OutFile::open(path, "--json").map(JsonOut::File),
        })
        .transpose()
    }
}

/// Writes the object, if requested, and prints the summary. The summary goes to stderr if stdout has the object or if
/// `quiet` is set, else to stdout. The summary is printed even if the object cannot be written.
pub fn conclude(json: Option<JsonOut>, value: &impl Serialize, mut summary: String, quiet: bool) -> Result<(), Error> {
    let mut to_stderr = quiet;
    let written = match json {
        None => Ok(()),
        Some(JsonOut::Stdout) => {
            to_stderr = true;
            text_of(value).map(|text| streams::print(&text))
        }
        Some(JsonOut::File(file)) => text_of(value).and_then(|text| file.write(text.as_bytes())).map(|path| {
            summary += &format!("written   {}\n", path.display());
        }),
    };
    if to_stderr {
        streams::say_text(summary);
    } else {
        streams::print(&summary);
    }
    written
}

/// Formats a value as JSON text.
pub fn text_of(value: &impl Serialize) -> Result<String, Error> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Error::failed(format!("the JSON object cannot be made: {error}"))),
    }
}
