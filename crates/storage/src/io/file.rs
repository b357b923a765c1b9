//! Access to real files through the C library, so that tracing tools see every call.
//!
//! A directory is opened once; its files are opened relative to its descriptor. So a database stays in the directory in
//! which it was opened, even if the working directory of the process or the target of the path changes later.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{
    AtFlags, Dir, DirEntry, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, fallocate,
};
use rustix::io::{Errno, retry_on_intr};

use super::{BLOCK, Disk, DiskFile, DiskLock, LOCK_FILE, LockError, OpenMode, check_name, write_zeros_at};
use crate::base::error::StorageError;

/// Maximum size of a lock file in bytes: digits and line ends.
const LOCK_TEXT: u64 = 20;

const IS_LINK: &str = "is a symbolic link, which no file of a database may be: put the file itself there, or open the database that it is of";
const IS_OTHER: &str = "is not a regular file; move it away";

/// A directory of the file system.
#[derive(Debug)]
pub struct FileDisk {
    dir: OwnedFd,
    /// The path as the user gave it, for messages.
    path: PathBuf,
}

impl FileDisk {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// The path does not exist, is not a directory, or may not be read.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<FileDisk> {
        let path = dir.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()))?;
        Ok(FileDisk { dir, path })
    }

    /// Opens a directory. If it does not exist, creates it with all its missing parents, durably.
    ///
    /// # Errors
    /// As [`FileDisk::open`], and if the system refuses to create a directory. Directories that were created are then
    /// removed.
    pub fn create(dir: impl Into<PathBuf>) -> io::Result<FileDisk> {
        let dir = dir.into();
        if dir.is_dir() {
            return FileDisk::open(dir);
        }
        let missing: Vec<&Path> = dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).collect();
        let mut created = Vec::new();
        // `missing` includes a directory that another process has created meanwhile: its entry may not be durable yet.
        let opened = create_each(&missing, &mut created)
            .and_then(|()| missing.iter().rev().try_for_each(|dir| make_entry_durable(dir)))
            .and_then(|()| FileDisk::open(&dir));
        if opened.is_err() {
            created.iter().rev().for_each(|dir| drop(fs::remove_dir(dir)));
        }
        opened
    }

    /// Returns the path of the directory, as given by the caller.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file of the directory. A link is not followed, because its target does not belong to the database.
    fn open_at(&self, name: &str, flags: OFlags) -> io::Result<File> {
        check_name(name)?;
        // The flag NONBLOCK is set because a pipe or a terminal of that name must not stop the caller.
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match retry_on_intr(|| rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(0o666))) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(io::Error::other(IS_LINK)),
            Err(error) => return Err(error.into()),
        };
        let stat = retry_on_intr(|| rustix::fs::fstat(&file))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(file),
            _ => Err(io::Error::other(IS_OTHER)),
        }
    }

    /// Locks the directory itself. Returns `None` if the file system cannot lock directories (NFS).
    fn lock_directory(&self) -> io::Result<Option<OwnedFd>> {
        // The lock needs a separate descriptor, because a lock belongs to one descriptor and ends with it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = retry_on_intr(|| rustix::fs::openat(&self.dir, ".", flags, Mode::empty()))?;
        match retry_on_intr(|| rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(own)),
            Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the entries of the directory. Starts again after an interruption.
    fn entries(&self) -> io::Result<Vec<DirEntry>> {
        Ok(retry_on_intr(|| Dir::read_from(&self.dir)?.collect())?)
    }

    fn held(&self, by: Option<u32>) -> LockError {
        LockError::Held { dir: self.path.display().to_string(), pid: by }
    }
}

/// Creates the directories `missing`, of which each lies in the next one, and appends the new directories to `created`.
fn create_each(missing: &[&Path], created: &mut Vec<PathBuf>) -> io::Result<()> {
    for &dir in missing.iter().rev() {
        match retry_on_intr(|| rustix::fs::mkdir(dir, Mode::from_raw_mode(0o777))) {
            Ok(()) => created.push(dir.to_owned()),
            Err(Errno::EXIST) if dir.is_dir() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes the entry of a directory in its parent directory durable.
fn make_entry_durable(dir: &Path) -> io::Result<()> {
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(parent) {
        // If the parent may be entered but not read, the whole file system is made durable instead.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => sync_file_system(&File::open(dir)?),
        parent => parent?.sync_all(),
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(of: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::syncfs(of))?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: &File) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

/// Returns the process number that a lock file contains, and true if the file is a lock file. After a power loss the number
/// may read as zeros, because a file grows before its bytes are written.
fn holder(file: &File) -> io::Result<(Option<u32>, bool)> {
    let mut text = Vec::new();
    file.take(LOCK_TEXT + 1).read_to_end(&mut text)?;
    let is_ours = text.len() as u64 <= LOCK_TEXT && text.iter().all(|b| b.is_ascii_digit() || matches!(b, b'\n' | 0));
    Ok((str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()), is_ours))
}

impl Disk for FileDisk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.open_at(
            name,
            match mode {
                OpenMode::Existing => OFlags::empty(),
                OpenMode::Create => OFlags::CREATE,
                OpenMode::CreateNew => OFlags::CREATE | OFlags::EXCL,
            },
        )?;
        let (refused, waits) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(RealFile { file, direct: OnceLock::new(), refused, waits, name: self.show(name) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.entries()? {
            let raw = entry.file_name();
            if matches!(raw.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    match retry_on_intr(|| rustix::fs::statat(&self.dir, raw, AtFlags::SYMLINK_NOFOLLOW)) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        // The entry was removed after the directory was read.
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                kind => kind,
            };
            // A name that is not UTF-8 does not belong to the database, but is listed too.
            let mut name = raw.to_string_lossy().into_owned();
            if kind == FileType::Directory {
                name.push('/');
            }
            names.push(name);
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()))?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        match retry_on_intr(|| rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE)) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            renamed => return Ok(renamed?),
        }
        // This file system cannot rename without replacing. The directory is locked, so no other database process takes the
        // name meanwhile.
        match retry_on_intr(|| rustix::fs::statat(&self.dir, to, AtFlags::SYMLINK_NOFOLLOW)) {
            Err(Errno::NOENT) => Ok(retry_on_intr(|| rustix::fs::renameat(&self.dir, from, &self.dir, to))?),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fsync(&self.dir))?)
    }

    /// Locks the directory, and also the file `lock`, which is the only lock if the file system cannot lock directories. The
    /// file remains when the lock is released: if it were removed, two processes could lock two different files of that
    /// name. If a file of that name has other content and is alone in the directory, it belongs to another program.
    fn lock(&self) -> Result<DiskLock, LockError> {
        let shown = self.show(LOCK_FILE);
        let fail = |op, e| StorageError::io(op, &*shown, 0, e);
        let directory = match self.lock_directory() {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let named = self.open_at(LOCK_FILE, OFlags::empty()).and_then(|file| holder(&file));
                return Err(self.held(named.ok().and_then(|(pid, _)| pid)));
            }
            Err(error) => return Err(StorageError::io("lock", self.path.display().to_string(), 0, error).into()),
        };
        let mut file = self.open_at(LOCK_FILE, OFlags::CREATE).map_err(|e| fail("open", e))?;
        let (pid, is_ours) = holder(&file).map_err(|e| fail("read", e))?;
        match retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(self.held(pid)),
            Err(e) => return Err(fail("lock", e.into()).into()),
        }
        if is_ours {
            // The process number is only for messages: if there is no space to write it, the lock is still valid.
            let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", process::id()));
        } else if self.list().map_err(|e| fail("list", e))?.iter().all(|name| name == LOCK_FILE) {
            let what = "is not the lock file of a database; move it away, or choose another directory".to_owned();
            return Err(StorageError::CorruptFile { file: shown, what }.into());
        }
        // If the directory contains other files, any other content of the lock file is ignored and kept: the locks are on
        // the descriptors.
        Ok(DiskLock(Box::new((directory, file))))
    }

    fn show(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn most_open_files(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    }
}

/// Flag to open a file past the system's cache; `None` if the system has no such flag.
#[cfg(target_os = "linux")]
const DIRECT: Option<OFlags> = Some(OFlags::DIRECT);
#[cfg(not(target_os = "linux"))]
const DIRECT: Option<OFlags> = None;

#[derive(Debug)]
struct RealFile {
    file: File,
    /// Handle of the same file that bypasses the system's cache, opened when blocks are first written; `None` if the file
    /// cannot be opened in this way.
    direct: OnceLock<Option<File>>,
    /// True if the file system opened the file for writes past the cache and then refused such a write.
    refused: AtomicBool,
    /// True if the file system cannot report whether a read would wait for a device.
    waits: AtomicBool,
    name: String,
}

impl RealFile {
    fn direct(&self) -> Option<&File> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || {
            // This path opens the same file again, even if the file was renamed.
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

    #[cfg(target_os = "linux")]
    fn read_resident_at(&self, buf: &mut [u8], off: u64) -> io::Result<Option<usize>> {
        use std::io::IoSliceMut;

        use rustix::io::{ReadWriteFlags, preadv2};
        if self.waits.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match preadv2(&self.file, &mut [IoSliceMut::new(buf)], off, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.waits.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.file.write_at(buf, off)
    }

    fn write_blocks_at(&self, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        // After a short write, the remaining blocks may be unaligned.
        if is_aligned(blocks, off)
            && let Some(direct) = self.direct()
        {
            match rustix::io::pwritev(direct, blocks, off) {
                Err(Errno::INVAL) => self.refused.store(true, Ordering::Relaxed),
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
        let stat = retry_on_intr(|| rustix::fs::fstat(&self.file))?;
        u64::try_from(stat.st_size).map_err(io::Error::other)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), off, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            other => return other.map_err(io::Error::from),
        }
        // This file system cannot allocate space: only the bytes beyond the end of the file can be zeroed without a loss of
        // data.
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
