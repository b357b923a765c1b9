//! Files that get their content at the end. They are opened before the work, so that hours are not spent for a path that
//! cannot be written.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use crate::workload::error::Error;

/// An open file that gets its content at the end.
pub(crate) struct OutFile {
    path: PathBuf,
    file: File,
    /// Ours to remove again when nothing is written.
    is_new: bool,
    written: bool,
}

impl OutFile {
    /// Opens `path`, which `flag` has named, for writing without touching what is there.
    pub(crate) fn open(path: &Path, flag: &str) -> Result<OutFile, Error> {
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|e| {
            Error::failed(format!("{}: cannot be written: {e}", path.display()))
                .help(format!("pass another file with {flag}; nothing was done"))
        })?;
        Ok(OutFile { path: path.to_owned(), file, is_new, written: false })
    }

    /// As [`OutFile::open`], if the flag was given.
    pub(crate) fn open_if(path: Option<&Path>, flag: &str) -> Result<Option<OutFile>, Error> {
        path.map(|path| OutFile::open(path, flag)).transpose()
    }

    /// Replaces the content; gives the path.
    pub(crate) fn write(mut self, content: &[u8]) -> Result<PathBuf, Error> {
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(content)
        };
        // A pipe or terminal has no length to set.
        let regular = self.file.metadata().is_ok_and(|m| m.is_file());
        let result = if regular { write(&mut self.file) } else { self.file.write_all(content) };
        result.map_err(|e| Error::failed(format!("{}: cannot be written: {e}", self.path.display())))?;
        self.written = true;
        Ok(self.path.clone())
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if self.is_new && !self.written {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_and_nothing_is_left_without_one() {
        let path = std::env::temp_dir().join(format!("tpcc-out-{}", std::process::id()));
        drop(OutFile::open(&path, "--csv").unwrap());
        assert!(!path.exists(), "nothing was written");
        OutFile::open(&path, "--csv").unwrap().write(b"long content").unwrap();
        OutFile::open(&path, "--csv").unwrap().write(b"short").unwrap();
        drop(OutFile::open(&path, "--csv").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"short", "what was there stays unless something is written");
        fs::remove_file(&path).unwrap();
        let error = OutFile::open(Path::new("/no/such/directory/x"), "--csv").err().unwrap().to_string();
        assert!(error.contains("/no/such/directory/x") && error.contains("--csv"), "{error}");
    }
}
