//! Where `--json` goes: a file, or stdout (`-`). A file is opened before the work, so that hours are not spent for a path
//! that cannot be written.

use std::path::Path;

use serde::Serialize;

use super::out::OutFile;
use crate::workload::error::Error;
use crate::workload::streams;

/// Stands for stdout.
const STDOUT: &str = "-";

/// Where one JSON object goes at the end.
pub enum JsonOut {
    /// Alone on stdout: the summary goes to stderr.
    Stdout,
    /// A file.
    File(OutFile),
}

impl JsonOut {
    /// Opens what `--json` names, if it names something.
    pub fn open(path: Option<&Path>) -> Result<Option<JsonOut>, Error> {
        path.map(|path| match path.as_os_str() == STDOUT {
            true => Ok(JsonOut::Stdout),
            false => OutFile::open(path, "--json").map(JsonOut::File),
        })
        .transpose()
    }
}

/// Writes the object, if it is wanted, and prints the summary: on stdout, unless that has the object or `quiet` says that it
/// has something else. The summary is printed also if the object cannot be written.
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

/// The object as text.
pub fn text_of(value: &impl Serialize) -> Result<String, Error> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Error::failed(format!("the JSON object cannot be made: {error}"))),
    }
}
