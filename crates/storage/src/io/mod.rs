//! The only access to files. Nothing else in the crate touches `std::fs`.
//!
//! A [`Disk`] is one directory, a [`DiskFile`] an open file of it. There are three: [`FileDisk`] (the
//! real thing), [`MemDisk`] (memory, for in-memory databases and tests) and [`SimDisk`] (memory that can
//! lose what was not synced, tear, flip and fail, from a seed).
//!
//! What a caller may rely on, on every disk: a write is seen by every later read at once; it is *durable*
//! only after [`DiskFile::sync`] has returned `Ok`; a new, renamed or removed name is durable only after
//! [`Disk::sync_dir`] has; transfers may be short or interrupted, which the helpers below hide.

#[allow(clippy::disallowed_methods, reason = "the one place where files are touched")]
mod file;
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
pub use mem::MemDisk;
pub use sim::{Call, Crash, Fault, SimDisk, When};

/// Name of the file that names the process that has a directory open. A disk of files has one, and makes it.
pub(crate) const LOCK_FILE: &str = "lock";
/// Bytes of a block as [`DiskFile::write_blocks_at`] takes it, and the alignment of its memory.
pub const BLOCK: usize = 4096;

/// How [`Disk::open`] treats a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// Opens the file, or creates it empty.
    Create,
    /// The file must not exist.
    CreateNew,
}

/// One directory of files. A name stands for a regular file in that directory: links are not followed, and a name that
/// leads elsewhere (an empty one, `.`, `..`, one with a `/` or a zero byte) is refused (`InvalidInput`).
pub trait Disk: Send + Sync + Debug {
    /// Opens a file for reading and writing.
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Names of everything in the directory, in no particular order; those of directories end in `/`.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a name. Files that are open stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, atomically. The name must be free: a file that has it stays (`AlreadyExists`).
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Claims the directory for this process (and, within it, for one owner) until the lock is dropped.
    fn lock(&self) -> Result<DiskLock, LockError>;

    /// Path of the file, for messages.
    fn show(&self, name: &str) -> String;

    /// Descriptors of open files that the process may have; `None`, the default, where files take none. A database has at most a
    /// quarter as many files of its log.
    fn most_open_files(&self) -> Option<u64> {
        None
    }
}

/// Refuses what is no name of a file in a directory.
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
    /// Reads at `off`; may be short, 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`], if the system has those bytes in memory; `None` if the call might have to wait for a
    /// device, or if that is unknown. The default does not know.
    fn read_resident_at(&self, _buf: &mut [u8], _off: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    /// Writes at `off`, growing the file if needed; may be short.
    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize>;

    /// Writes blocks one after the other at `off`, past the system's cache where the file system can (`O_DIRECT`); may
    /// be short. `off`, the memory of each slice and its length are multiples of [`BLOCK`]. Reads and cached writes
    /// before and after stay coherent with it. The default is [`DiskFile::write_at`].
    fn write_blocks_at(&self, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        blocks.iter().find(|block| !block.is_empty()).map_or(Ok(0), |block| self.write_at(block, off))
    }

    /// Whether [`DiskFile::write_blocks_at`] passes the cache by.
    fn is_direct(&self) -> bool {
        false
    }

    /// Makes all bytes written so far durable, and the length (`fdatasync`). After an error it is unknown what is
    /// durable: never call it again, never trust the file until it has been recovered.
    fn sync(&self) -> io::Result<()>;

    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or grows it by zeros that take no space yet.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Takes space for the range now, growing the file by zeros if it ends before the range does, so that
    /// later writes there need no more space. Bytes already in the file stay.
    fn allocate(&self, off: u64, len: u64) -> io::Result<()>;

    /// Path of the file, for messages.
    fn name(&self) -> &str;
}

/// Exclusive ownership of a directory, until dropped.
#[derive(Debug)]
#[must_use = "the directory is free again when this is dropped"]
pub struct DiskLock(#[allow(dead_code, reason = "held for its drop")] Box<dyn Held>);

trait Held: Any + Send + Sync + Debug {}
impl<T: Any + Send + Sync + Debug> Held for T {}

/// Why a directory could not be claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process, or another owner in this process, has it.
    #[error("{dir}: in use by {}", holder(.pid))]
    Held {
        /// The directory.
        dir: String,
        /// The holder, if it could be found out.
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
/// `Io` with `UnexpectedEof` if the file ends before.
pub fn read_exact_at(file: &dyn DiskFile, buf: &mut [u8], off: u64) -> Result<(), StorageError> {
    let got = read_up_to_at(file, buf, off)?;
    if got < buf.len() {
        return Err(StorageError::io("read", file.name(), off + got as u64, io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends; returns the bytes read.
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

/// Writes all of `buf` at `off`. After an error some of it may have been written.
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

/// Writes all blocks, one after the other, from `off` on. After an error some may have been written.
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

/// Writes zeros over a range, in pieces of at most 1 MiB.
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
