//! Where `--json` goes: a file, or stdout (`-`). A file is opened before the work, so that hours are not spent for a path
//! that cannot be written.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::workload::error::Error;

/// Stands for stdout.
const STDOUT: &str = "-";

/// Where one JSON object goes at the end.
pub(crate) enum JsonOut {
    /// Alone on stdout: the summary goes to stderr.
    Stdout,
    /// A file.
    File(JsonFile),
}

impl JsonOut {
    /// Opens what `--json` names, if it names something.
    pub(crate) fn open(path: Option<&Path>) -> Result<Option<JsonOut>, Error> {
        path.map(|path| match path.as_os_str() == STDOUT {
            true => Ok(JsonOut::Stdout),
            false => JsonFile::open(path).map(JsonOut::File),
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
        Some(JsonOut::File(file)) => file.write(value).map(|path| {
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

/// Prints results. A reader that has gone away is no failure.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

fn text_of(value: &impl Serialize) -> Result<String, Error> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Error::failed(format!("the JSON object cannot be made: {error}"))),
    }
}

/// An open file that gets its content at the end.
pub(crate) struct JsonFile {
    path: PathBuf,
    file: File,
    /// Ours to remove again when nothing is written.
    is_new: bool,
    written: bool,
}

impl JsonFile {
    /// Opens `path` for writing without touching what is there.
    fn open(path: &Path) -> Result<JsonFile, Error> {
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|e| {
            Error::failed(format!("{}: cannot be written: {e}", path.display()))
                .help("pass another file with --json; nothing was done")
        })?;
        Ok(JsonFile { path: path.to_owned(), file, is_new, written: false })
    }

    /// Replaces the content by one JSON object.
    fn write(mut self, value: &impl Serialize) -> Result<PathBuf, Error> {
        let failed =
            |e: &dyn std::fmt::Display| Error::failed(format!("{}: cannot be written: {e}", self.path.display()));
        let text = text_of(value)?;
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(text.as_bytes())
        };
        // A pipe or terminal has no length to set.
        let regular = self.file.metadata().is_ok_and(|m| m.is_file());
        let result = if regular { write(&mut self.file) } else { self.file.write_all(text.as_bytes()) };
        result.map_err(|e| failed(&e))?;
        self.written = true;
        Ok(self.path.clone())
    }
}

impl Drop for JsonFile {
    fn drop(&mut self) {
        if self.is_new && !self.written {
            let _ = fs::remove_file(&self.path);
        }
    }
}
