//! Output files that are written at the end of the work. They are opened before the work, so that an unwritable path is
//! reported before hours of work. An existing file keeps its content until the whole new content is on disk.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::named::{self, NameGuard};
use crate::workload::error::Error;

/// An open file that is written at the end of the work.
pub struct OutFile {
    /// Path of the file, as given by the user.
    path: PathBuf,
    to: Destination,
    _name: Option<NameGuard>,
}

enum Destination {
    /// A regular file, which is replaced.
    Part(Part),
    /// A pipe or a terminal, which has no earlier content.
    Stream(File),
}

/// Temporary file that replaces the target. Removed on drop if it has not replaced the target.
struct Part {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Part {
    fn of(target: PathBuf) -> io::Result<Part> {
        // The temporary file is a hidden file of this process, in the directory of the target.
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        Ok(Part { file: File::create(&path)?, path, target })
    }

    /// Writes the content, syncs it and replaces the target. A full disk may cause an error only at the sync.
    fn replace(mut self, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)?;
        self.file.sync_all()?;
        fs::rename(&self.path, &self.target)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The removal fails after a successful rename, because the temporary file no longer exists.
        let _ = fs::remove_file(&self.path);
    }
}

/// Replaces the content of a file, or creates the file. On an error the file is unchanged.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    Part::of(path.to_owned())?.replace(content)
}

impl OutFile {
    /// Opens `path`, the argument of `flag`, for writing. An existing file keeps its content.
    ///
    /// # Errors
    /// If the file cannot be written, or must not be written (see [`named::to_write`]).
    pub fn open(path: &Path, flag: &str) -> Result<OutFile, Error> {
        let name = named::to_write(path, flag)?;
        let to = Destination::of(path).map_err(|e| {
            Error::failed(format!("{}: cannot be written: {e}", path.display()))
                .help(format!("pass another file with {flag}; nothing was done"))
        })?;
        Ok(OutFile { path: path.to_owned(), to, _name: name })
    }

    /// Calls [`OutFile::open`] if the flag was given.
    pub fn open_if(path: Option<&Path>, flag: &str) -> Result<Option<OutFile>, Error> {
        path.map(|path| OutFile::open(path, flag)).transpose()
    }

    /// Replaces the whole content and returns the path. On an error the file is unchanged.
    pub fn write(self, content: &[u8]) -> Result<PathBuf, Error> {
        // A database may have been created in this directory since the file was registered.
        if named::is_of_a_database(&self.path) {
            let what = format!("{}: is a file of a database by now, and stays as it is", self.path.display());
            return Err(Error::failed(what));
        }
        let written = match self.to {
            Destination::Part(part) => part.replace(content),
            Destination::Stream(mut stream) => stream.write_all(content),
        };
        written.map_err(|e| Error::failed(format!("{}: cannot be written: {e}", self.path.display())))?;
        Ok(self.path)
    }
}

impl Destination {
    fn of(path: &Path) -> io::Result<Destination> {
        let there = match fs::metadata(path) {
            Ok(there) => there,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Part::of(path.to_owned()).map(Destination::Part),
            Err(e) => return Err(e),
        };
        // Opening the file for writing checks the write permission: a file without it must not be replaced.
        let file = OpenOptions::new().write(true).open(path)?;
        if !there.is_file() {
            return Ok(Destination::Stream(file));
        }
        // Replaces the file that the links resolve to.
        let part = Part::of(fs::canonicalize(path)?)?;
        part.file.set_permissions(there.permissions())?;
        Ok(Destination::Part(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_and_nothing_is_left_without_one() {
        let directory = std::env::temp_dir().join(format!("tpcc-out-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("result");
        drop(OutFile::open(&path, "--csv").unwrap());
        assert!(!path.exists(), "nothing was written");
        OutFile::open(&path, "--csv").unwrap().write(b"long content").unwrap();
        OutFile::open(&path, "--csv").unwrap().write(b"short").unwrap();
        drop(OutFile::open(&path, "--csv").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"short", "what was there stays unless something is written");
        let link = directory.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        OutFile::open(&link, "--csv").unwrap().write(b"by a link").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"by a link");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no part is left");
        fs::remove_dir_all(&directory).unwrap();
        let error = OutFile::open(Path::new("/no/such/directory/x"), "--csv").err().unwrap().to_string();
        assert!(error.contains("/no/such/directory/x") && error.contains("--csv"), "{error}");
    }

    /// Writes to the device `/dev/full` fail with the error of a full disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_named() {
        let error = OutFile::open(Path::new("/dev/full"), "--csv").unwrap().write(b"content").unwrap_err().to_string();
        assert!(error.contains("/dev/full: cannot be written: No space left"), "{error}");
    }

    #[test]
    fn an_error_leaves_what_was_there() {
        let directory = std::env::temp_dir().join(format!("tpcc-replace-{}", std::process::id()));
        // A file cannot replace a directory.
        fs::create_dir_all(directory.join("taken")).unwrap();
        assert!(replace(&directory.join("taken"), b"content").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "no part is left");
        fs::remove_dir_all(&directory).unwrap();
    }
}
