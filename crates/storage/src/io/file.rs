//! Real files, through `std::fs`, so that tracing tools see every call.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::{BLOCK, Disk, DiskFile, DiskLock, LockError, OpenMode, write_zeros_at};
use crate::base::error::StorageError;

/// Name of the file whose lock is the directory's lock. It stays when the lock is released: removing it
/// would let two processes lock two files of that name.
const LOCK_FILE: &str = "lock";

/// A directory of the file system.
#[derive(Debug)]
pub struct FileDisk {
    dir: PathBuf,
}

impl FileDisk {
    /// An existing directory.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<FileDisk> {
        let dir = dir.into();
        if fs::metadata(&dir)?.is_dir() { Ok(FileDisk { dir }) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// A directory that is created, durably, with all its parents, if it does not exist.
    pub fn create(dir: impl Into<PathBuf>) -> io::Result<FileDisk> {
        let dir = dir.into();
        if !dir.is_dir() {
            let mut fresh: Vec<&Path> =
                dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).collect();
            fs::create_dir_all(&dir)?;
            while let Some(made) = fresh.pop() {
                let parent = made.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                File::open(parent)?.sync_all()?;
            }
        }
        FileDisk::open(dir)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Disk for FileDisk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(mode == OpenMode::Create).create_new(mode == OpenMode::CreateNew);
        let file = options.open(self.dir.join(name))?;
        Ok(Arc::new(RealFile { file, direct: OnceLock::new(), refused: AtomicBool::new(false), name: self.show(name) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            // Names that are not UTF-8 are not ours.
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        let path = self.dir.join(LOCK_FILE);
        let fail = |op, e| StorageError::io(op, path.display().to_string(), 0, e);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| fail("open", e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(LockError::Held { dir: self.dir.display().to_string(), pid });
            }
            Err(TryLockError::Error(e)) => return Err(fail("lock", e).into()),
        }
        // The number only helps a message: without space for it the lock holds all the same.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", process::id()));
        Ok(DiskLock(Box::new(file)))
    }

    fn show(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

/// Opens a file past the cache; none where the system has no such flag.
#[cfg(target_os = "linux")]
const DIRECT: Option<OFlags> = Some(OFlags::DIRECT);
#[cfg(not(target_os = "linux"))]
const DIRECT: Option<OFlags> = None;

#[derive(Debug)]
struct RealFile {
    file: File,
    /// The same file opened past the cache, when blocks are first written; none where that is not to be had.
    direct: OnceLock<Option<File>>,
    /// The file system opened it so and then would not write.
    refused: AtomicBool,
    name: String,
}

impl RealFile {
    fn direct(&self) -> Option<&File> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || {
            // The same file, whatever it is called by now.
            let again = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            OpenOptions::new().write(true).custom_flags(DIRECT?.bits() as i32).open(again).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }
}

fn is_aligned(blocks: &[IoSlice<'_>], off: u64) -> bool {
    let slice = |block: &IoSlice<'_>| block.as_ptr().addr() | block.len();
    blocks.iter().fold(off as usize, |bits, block| bits | slice(block)).is_multiple_of(BLOCK)
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.file.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.file.write_at(buf, off)
    }

    fn write_blocks_at(&self, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        // What a short transfer has left over is not aligned.
        if is_aligned(blocks, off)
            && let Some(direct) = self.direct()
        {
            match rustix::io::pwritev(direct, blocks, off) {
                Err(rustix::io::Errno::INVAL) => self.refused.store(true, Ordering::Relaxed),
                other => return other.map_err(io::Error::from),
            }
        }
        Ok(rustix::io::pwritev(&self.file, blocks, off)?)
    }

    fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), off, len) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            other => return other.map_err(io::Error::from),
        }
        // A file system without it: only what lies beyond the end can be zeroed without losing bytes.
        let end = self.len()?;
        let from = off.max(end);
        let to = off.saturating_add(len);
        if to <= from {
            return Ok(());
        }
        write_zeros_at(self, from, to - from).map_err(|e| match e {
            StorageError::Io { source, .. } => io::Error::new(source.kind(), source.to_string()),
            _ => io::ErrorKind::StorageFull.into(),
        })
    }

    fn name(&self) -> &str {
        &self.name
    }
}
