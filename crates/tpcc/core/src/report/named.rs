//! Registry of the files that a command reads or writes. A file to be written must not be read by the command, be named by
//! two flags, or belong to a database.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::workload::error::Error;

static NAMED: Mutex<Vec<NamedFile>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Registered file of a command.
struct NamedFile {
    number: u64,
    file: FileIdentity,
    /// Use of the file, for messages.
    by: String,
}

/// Identity of the file that a path resolves to, through all links.
#[derive(PartialEq, Eq)]
enum FileIdentity {
    /// Device and inode of an existing file.
    Inode(u64, u64),
    /// Resolved path of a file that does not exist yet.
    Path(PathBuf),
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<FileIdentity> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(FileIdentity::Inode(metadata.dev(), metadata.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let directory = fs::canonicalize(directory.unwrap_or(Path::new(".")))?;
                Ok(FileIdentity::Path(directory.join(path.file_name().unwrap_or_default())))
            }
            Err(error) => Err(error),
        }
    }
}

/// Registration of a file name, removed on drop.
pub struct NameGuard(u64);

impl Drop for NameGuard {
    fn drop(&mut self) {
        NAMED.lock().unwrap_or_else(PoisonError::into_inner).retain(|named| named.number != self.0);
    }
}

fn note(file: FileIdentity, by: String) -> NameGuard {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NAMED.lock().unwrap_or_else(PoisonError::into_inner).push(NamedFile { number, file, by });
    NameGuard(number)
}

/// Registers `path` as a file to read. A missing file is not registered: its reader reports the error.
pub fn to_read(path: &Path) -> Option<NameGuard> {
    let by = format!("the file to read, {}", path.display());
    FileIdentity::of(path).ok().map(|file| note(file, by))
}

/// Registers `path`, the argument of `flag`, as a file to write. Devices and pipes may be named by several flags.
///
/// # Errors
/// If the file is read, written for another flag, or belongs to a database. An invalid path is not registered: its writer
/// reports the error.
pub fn to_write(path: &Path, flag: &str) -> Result<Option<NameGuard>, Error> {
    let is_special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let Some(file) = FileIdentity::of(path).ok().filter(|_| !is_special) else { return Ok(None) };
    let refused = |why: String| {
        let help = format!("pass another file with {flag}; nothing was done");
        Err(Error::usage(format!("{flag} {}: {why}", path.display())).help(help))
    };
    let other = {
        let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().find(|named| named.file == file).map(|named| named.by.clone())
    };
    if let Some(other) = other {
        return refused(format!("is also {other}"));
    }
    if is_of_a_database(path) {
        return refused("is a file of a database".to_owned());
    }
    Ok(Some(note(file, format!("what {flag} names"))))
}

/// Returns true if `path` is a file of a database, or a file that the database may create.
pub fn is_of_a_database(path: &Path) -> bool {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_log = name.strip_prefix("log.").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let is_name = is_log || matches!(name, "pages.0" | "control" | "control.new" | "lock" | "copying");
    is_name && directory.join("pages.0").exists() && directory.join("control").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_once() {
        let directory = std::env::temp_dir().join(format!("tpcc-named-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, link) = (directory.join("run.json"), directory.join("link"));
        let said = |result: Result<Option<NameGuard>, Error>| result.err().map(|error| error.to_string());
        let first = to_write(&path, "--json").unwrap();
        let again = said(to_write(&directory.join("./run.json"), "--csv")).unwrap();
        assert!(again.contains("--csv") && again.contains("what --json names"), "{again}");
        drop(first);
        fs::write(&path, "{}").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let read = to_read(&path).unwrap();
        let over = said(to_write(&link, "--out")).unwrap();
        assert!(over.contains("the file to read") && over.contains("run.json"), "{over}");
        drop(read);
        assert!(to_write(&link, "--out").is_ok());
        for name in ["pages.0", "control"] {
            fs::write(directory.join(name), "").unwrap();
        }
        let of_database = said(to_write(&directory.join("log.7"), "--json")).unwrap();
        assert!(of_database.contains("a file of a database"), "{of_database}");
        assert!(to_write(&directory.join("log.txt"), "--json").is_ok());
        let null = Path::new("/dev/null");
        assert!(to_write(null, "--json").unwrap().is_none() && to_write(null, "--csv").is_ok());
        fs::remove_dir_all(&directory).unwrap();
    }
}
