//! File access. No other module of the crate uses `std::fs`.
//!
//! A [`Disk`] is one directory, a [`DiskFile`] an open file of it. There are three implementations: [`FileDisk`] (real
//! files), [`MemDisk`] (memory, for in-memory databases and tests) and [`SimDisk`] (memory that can lose unsynced data,
//! tear writes, flip bits and fail calls, from a seed). A [`LayeredDisk`] puts a program's [`Layer`] over the files of one of
//! them.
//!
//! Guarantees of every disk: a write is visible to every later read at once; it is *durable* only after [`DiskFile::sync`]
//! has returned `Ok`; a new, renamed or removed name is durable only after [`Disk::sync_dir`] has returned `Ok`; transfers
//! may be short or interrupted, which the helpers below hide.

#[allow(clippy::disallowed_methods, reason = "the one place where files are touched")]
mod file;
mod layer;
mod mem;
#[allow(clippy::disallowed_methods, reason = "the one place where the system's own files are read")]
pub(crate) mod memory;
mod sim;
pub(crate) mod synced;
#[allow(clippy::disallowed_methods, reason = "the one place where the system's own files are read")]
pub(crate) mod topology;

use std::any::Any;
use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::base::error::StorageError;

pub use file::FileDisk;
pub use layer::{Layer, LayeredDisk};
pub use mem::MemDisk;
pub use sim::{Call, Crash, Fault, SimDisk, When};

/// Name of the lock file, which contains the number of the process that has a directory open. Only [`FileDisk`] creates it.
pub(crate) const LOCK_FILE: &str = "lock";
/// Size in bytes of a block of [`DiskFile::write_blocks_at`], and alignment of its memory.
pub const BLOCK: usize = 4096;

/// Mode of [`Disk::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file is created, empty, if it does not exist.
    Create,
    /// The file must not exist. It is created.
    CreateNew,
}

/// One directory of files. A name denotes a regular file in that directory: links are not followed, and a name that leads
/// elsewhere (an empty one, `.`, `..`, one with a `/` or a zero byte) is refused (`InvalidInput`).
pub trait Disk: Send + Sync + Debug {
    /// Opens a file for reading and writing.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Returns the names of all entries of the directory, in no particular order. Names of directories end in `/`.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a file name. Handles that are open remain readable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file atomically. The new name must be free: an existing file is not replaced (`AlreadyExists`).
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Locks the directory for this process (and, within it, for one owner) until the lock is dropped.
    fn lock(&self) -> Result<DiskLock, LockError>;

    /// Returns the path of a file, for messages.
    fn show(&self, name: &str) -> String;

    /// Returns the maximum number of file descriptors of the process; `None`, the default, if files take no descriptors. The
    /// log of a database has at most a quarter of this number of files.
    fn most_open_files(&self) -> Option<u64> {
        None
    }
}

/// Checks that a name can be the name of a file in a directory.
fn check_name(name: &str) -> io::Result<()> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        let what = format!("'{}' is no name of a file in a directory", name.escape_default());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

/// One open file. All calls may be made from any thread at once.
#[expect(clippy::len_without_is_empty, reason = "a length is wanted; whether a file is empty never is")]
pub trait DiskFile: Send + Sync + Debug {
    /// Reads at `off`. The read may be short; it returns 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize>;

    /// Like [`DiskFile::read_at`], if the system has the bytes in memory. Returns `None` if the call might wait for a
    /// device, or if this is unknown, as in the default implementation.
    fn read_resident_at(&self, _buf: &mut [u8], _off: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    /// Writes at `off`, and grows the file if needed. The write may be short.
    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize>;

    /// Writes consecutive blocks at `off`, past the system's cache if the file system supports it (`O_DIRECT`). The write
    /// may be short. `off`, the memory of each slice and its length are multiples of [`BLOCK`]. Earlier and later reads and
    /// cached writes stay coherent with it. The default is [`DiskFile::write_at`].
    fn write_blocks_at(&self, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        blocks.iter().find(|block| !block.is_empty()).map_or(Ok(0), |block| self.write_at(block, off))
    }

    /// Returns true if [`DiskFile::write_blocks_at`] bypasses the cache.
    fn is_direct(&self) -> bool {
        false
    }

    /// Makes the length of the file and all bytes written so far durable (`fdatasync`). After an error it is unknown which
    /// bytes are durable: never call it again, and do not trust the file until it has been recovered.
    fn sync(&self) -> io::Result<()>;

    /// Returns the length of the file in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Truncates the file, or extends it with zeros that take no space yet.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Allocates space for the range now, so that later writes in it need no more space. A file that ends before the range
    /// does is extended with zeros. Existing bytes stay.
    fn allocate(&self, off: u64, len: u64) -> io::Result<()>;

    /// Returns the path of the file, for messages.
    fn name(&self) -> &str;
}

/// Lock of a directory, with exclusive ownership of it until the lock is dropped.
#[derive(Debug)]
#[must_use = "the directory is free again when this is dropped"]
pub struct DiskLock(#[allow(dead_code, reason = "held for its drop")] Box<dyn LockGuard>);

trait LockGuard: Any + Send + Sync + Debug {}
impl<T: Any + Send + Sync + Debug> LockGuard for T {}

/// Errors of locking a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process, or another owner in this process, has locked the directory.
    #[error("{dir}: in use by {}", holder(.pid))]
    Held {
        /// Path of the directory.
        dir: String,
        /// Process number of the holder, if known.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn holder(pid: &Option<u32>) -> String {
    pid.map_or("another process".into(), |pid| format!("process {pid}"))
}

/// Reads exactly `buf.len()` bytes at `off`.
///
/// # Errors
/// `Io` with `UnexpectedEof` if the file ends earlier.
pub fn read_exact_at(file: &dyn DiskFile, buf: &mut [u8], off: u64) -> Result<(), StorageError> {
    let got = read_up_to_at(file, buf, off)?;
    if got < buf.len() {
        return Err(StorageError::io("read", file.name(), off + got as u64, io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends. Returns the number of bytes read.
pub fn read_up_to_at(file: &dyn DiskFile, buf: &mut [u8], off: u64) -> Result<usize, StorageError> {
    let mut got = 0;
    while got < buf.len() {
        match file.read_at(&mut buf[got..], off + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StorageError::io("read", file.name(), off + got as u64, e)),
        }
    }
    Ok(got)
}

/// Writes all of `buf` at `off`. After an error a part may have been written.
pub fn write_all_at(file: &dyn DiskFile, buf: &[u8], off: u64) -> Result<(), StorageError> {
    let mut put = 0;
    while put < buf.len() {
        match file.write_at(&buf[put..], off + put as u64) {
            Ok(0) => {
                return Err(StorageError::io("write", file.name(), off + put as u64, io::ErrorKind::WriteZero.into()));
            }
            Ok(n) => put += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StorageError::io("write", file.name(), off + put as u64, e)),
        }
    }
    Ok(())
}

/// Writes consecutive blocks from `off` on. After an error a part may have been written.
pub fn write_all_blocks_at(
    file: &dyn DiskFile,
    mut blocks: &mut [IoSlice<'_>],
    mut off: u64,
) -> Result<(), StorageError> {
    IoSlice::advance_slices(&mut blocks, 0);
    while !blocks.is_empty() {
        match file.write_blocks_at(blocks, off) {
            Ok(0) => return Err(StorageError::io("write", file.name(), off, io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                IoSlice::advance_slices(&mut blocks, n);
                off += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StorageError::io("write", file.name(), off, e)),
        }
    }
    Ok(())
}

/// Writes zeros over a range of bytes, in pieces of at most 1 MiB.
pub fn write_zeros_at(file: &dyn DiskFile, off: u64, len: u64) -> Result<(), StorageError> {
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(ZEROS.len() as u64);
        write_all_at(file, &ZEROS[..piece as usize], off + done)?;
        done += piece;
    }
    Ok(())
}

/// Makes a file's bytes durable. Never retried, not even after `EINTR`: see [`DiskFile::sync`].
pub fn sync_file(file: &dyn DiskFile) -> Result<(), StorageError> {
    file.sync().map_err(|e| StorageError::io("sync", file.name(), 0, e))
}

#[cfg(test)]
mod tests;
