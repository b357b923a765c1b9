//! Deleting a database: its own files, and nothing else.

use std::path::Path;

use super::files::{self, COPYING, is_ours};
use crate::base::error::{OpenError, StorageError};
use crate::io::{Disk, DiskLock, FileDisk, LOCK_FILE, OpenMode};
use crate::log::{is_segment, is_segment_name};
use crate::recovery::control::CONTROL;

/// The files of a database that no process has open, claimed: no other process opens it until this is dropped.
///
/// ```
/// # use storage::{Database, DatabaseFiles, Options};
/// # let directory = std::env::temp_dir().join(format!("lockstep-remove-{}", std::process::id()));
/// # Database::open(&directory, Options::new())?.close()?;
/// if let Some(files) = DatabaseFiles::claim(&directory)? {
///     println!("{} bytes go", files.bytes());
///     files.delete()?;
/// }
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatabaseFiles {
    disk: FileDisk,
    ours: Vec<String>,
    bytes: u64,
    foreign: Vec<String>,
    _lock: DiskLock,
}

impl DatabaseFiles {
    /// Claims the files of the database in a directory, whole or damaged; `None` if there is no file of one.
    ///
    /// # Errors
    /// [`OpenError::InUse`]; a directory or a file that cannot be read, or that is a link.
    pub fn claim(directory: impl AsRef<Path>) -> Result<Option<DatabaseFiles>, OpenError> {
        let directory = directory.as_ref();
        let disk = match FileDisk::open(directory) {
            Ok(disk) => disk,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::directory(directory, error)),
        };
        let list = || disk.list().map_err(|e| StorageError::io("list", disk.show(""), 0, e));
        // A directory that is not a database's does not even get a lock file.
        let is_ours = |name: &str| is_ours(name) || name == COPYING;
        if !list()?.iter().any(|name| name != LOCK_FILE && is_ours(name)) {
            return Ok(None);
        }
        let lock = disk.lock().map_err(files::not_locked)?;
        let (mut ours, mut foreign, mut bytes) = (Vec::new(), Vec::new(), 0);
        for name in list()? {
            match name.strip_suffix('/') {
                Some(directory) if is_ours(directory) => foreign.push(name),
                Some(_) => {}
                None if name == LOCK_FILE => {}
                None if !is_ours(&name) => foreign.push(name),
                None => {
                    let fail = |op, e| StorageError::io(op, disk.show(&name), 0, e);
                    let file = disk.open(&name, OpenMode::Existing).map_err(|e| fail("open", e))?;
                    // Other programs may well use the name of a segment.
                    if is_segment_name(&name) && !is_segment(&*file)? {
                        foreign.push(name);
                        continue;
                    }
                    bytes += file.len().map_err(|e| fail("measure", e))?;
                    ours.push(name);
                }
            }
        }
        Ok(Some(DatabaseFiles { disk, ours, bytes, foreign, _lock: lock }))
    }

    /// Bytes of the database's files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Other files in the directory, without directories whose names no database file has.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Deletes the database's files. The directory stays, with everything else in it and the lock file. The control
    /// file goes first: without it the rest is no database. The mark of an unfinished copy goes last: with it nothing
    /// is opened.
    ///
    /// # Errors
    /// A file that cannot be removed: those before it are gone.
    pub fn delete(mut self) -> Result<(), StorageError> {
        let fail = |op, name: &str, e| StorageError::io(op, self.disk.show(name), 0, e);
        self.ours.sort_by_key(|name| (name == COPYING, name != CONTROL));
        for (at, name) in self.ours.iter().enumerate() {
            self.disk.remove(name).map_err(|e| fail("remove", name, e))?;
            if at == 0 {
                self.disk.sync_dir().map_err(|e| fail("sync", "", e))?;
            }
        }
        self.disk.sync_dir().map_err(|e| fail("sync", "", e))
    }

    /// The path of the directory, for messages.
    pub fn directory(&self) -> String {
        files::directory(&self.disk)
    }
}
