//! Directory for the databases of an experiment: a directory that the user names, or a temporary one. A temporary directory
//! is removed when the experiment ends, even after an error.

use std::fs;
use std::path::{Path, PathBuf};

use tpcc_core::workload::error::Error;
use tpcc_core::workload::streams::say;

/// Name of the file with the pages of a database.
const PAGES: &str = "pages.0";

/// A directory for databases and files.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// True for a temporary directory, which is removed with everything in it.
    temporary: bool,
}

impl Directory {
    /// Opens the directory that the user names, and creates it if necessary; without a name, creates a temporary directory.
    pub fn open(named: Option<&Path>) -> Result<Directory, Error> {
        let (path, temporary) = match named {
            Some(path) => (path.to_owned(), false),
            None => (std::env::temp_dir().join(format!("tpcc-{}", std::process::id())), true),
        };
        let made = match temporary {
            // The name has this process's id: an existing directory is a leftover of a process that was killed.
            true => fs::remove_dir_all(&path).or_else(absent).and_then(|()| fs::create_dir(&path)),
            false => fs::create_dir_all(&path),
        };
        made.map_err(|e| {
            Error::failed(format!("{}: cannot be created: {e}", path.display()))
                .help("name another directory with --data")
        })?;
        Ok(Directory { path, temporary })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            say(format_args!("{}: cannot be removed: {error}", self.path.display()));
        }
    }
}

/// Removes a directory with everything in it, if it exists.
pub fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_dir_all(path)
        .or_else(absent)
        .map_err(|e| Error::failed(format!("{}: cannot be removed: {e}", path.display())))
}

/// Copies a database to `to`, in place of anything there.
pub fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let cannot =
        |e: std::io::Error| Error::failed(format!("{}: cannot be copied to {}: {e}", from.display(), to.display()));
    match fs::remove_dir_all(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(e)),
        _ => fs::create_dir_all(to).map_err(cannot)?,
    }
    for entry in fs::read_dir(from).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        fs::copy(entry.path(), to.join(entry.file_name())).map_err(cannot)?;
    }
    Ok(())
}

/// Returns the size of a database's pages in MiB.
pub fn pages_mib(database: &Path) -> Result<u64, Error> {
    let pages = database.join(PAGES);
    let file = fs::metadata(&pages).map_err(|e| Error::failed(format!("{}: cannot be read: {e}", pages.display())))?;
    Ok(file.len() >> 20)
}

/// Waits until all files of a database are on the disk, so that the system writes no file of it while a run is timed.
pub fn sync(database: &Path) -> Result<(), Error> {
    let cannot = |e: std::io::Error| Error::failed(format!("{}: cannot be written: {e}", database.display()));
    for entry in fs::read_dir(database).map_err(cannot)? {
        fs::File::open(entry.map_err(cannot)?.path()).and_then(|file| file.sync_all()).map_err(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_directories_go_and_named_ones_stay() {
        let temporary = Directory::open(None).unwrap();
        let path = temporary.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(temporary);
        assert!(!path.exists());

        let named = std::env::temp_dir().join(format!("tpcc-named-{}", std::process::id()));
        drop(Directory::open(Some(&named)).unwrap());
        assert!(named.exists());
        fs::remove_dir(&named).unwrap();
        assert!(Directory::open(Some(Path::new("/proc/none/such"))).is_err());
    }
}
