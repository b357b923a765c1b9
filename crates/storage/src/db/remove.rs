//! Removal of a database: deletes the files of the database and no other files.

use std::path::Path;

use super::files::{self, COPYING, is_ours};
use crate::base::error::{OpenError, StorageError};
use crate::io::{Disk, DiskLock, FileDisk, LOCK_FILE, OpenMode};
use crate::log::{is_segment, is_segment_name};
use crate::recovery::control::CONTROL;

/// The locked files of a database that no process has open. No other process can open it until this value is dropped.
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
    /// Locks the files of the database in a directory, intact or damaged. Returns `None` if the directory has no
    /// database files.
    ///
    /// # Errors
    /// [`OpenError::InUse`]; a directory or a file that cannot be read or is a link.
    pub fn claim(directory: impl AsRef<Path>) -> Result<Option<DatabaseFiles>, OpenError> {
        let directory = directory.as_ref();
        let disk = match FileDisk::open(directory) {
            Ok(disk) => disk,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::directory(directory, error)),
        };
        let list = || disk.list().map_err(|e| StorageError::io("list", disk.show(""), 0, e));
        // No lock file is created in a directory without a database.
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
                    // Other programs may create files with the name of a log segment, so the content is checked too.
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

    /// Returns the total size of the database's files in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the names of other files in the directory, and of directories that have the name of a database file.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Deletes the database's files. The directory stays, with the lock file and all other files. The control file is
    /// removed first: without it there is no database. The mark of an unfinished copy is removed last: a directory with
    /// the mark cannot be opened.
    ///
    /// # Errors
    /// An error if a file cannot be removed. Some files may already be removed then.
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

    /// Returns the path of the directory, for messages.
    pub fn directory(&self) -> String {
        files::directory(&self.disk)
    }
}
