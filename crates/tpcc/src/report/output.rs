//! The file that `--json` names. It is opened before the work, so that hours are not spent for a path that cannot be
//! written.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Error;

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
    pub(crate) fn open(path: &Path) -> Result<JsonFile, Error> {
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|e| {
            Error::failed(format!("{}: cannot be written: {e}", path.display()))
                .help("pass another file with --json; nothing was done")
        })?;
        Ok(JsonFile { path: path.to_owned(), file, is_new, written: false })
    }

    /// Replaces the content by one JSON object.
    pub(crate) fn write(mut self, value: &impl Serialize) -> Result<PathBuf, Error> {
        let failed =
            |e: &dyn std::fmt::Display| Error::failed(format!("{}: cannot be written: {e}", self.path.display()));
        let mut text = serde_json::to_string_pretty(value).map_err(|e| failed(&e))?;
        text.push('\n');
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
