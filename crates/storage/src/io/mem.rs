//! A directory in memory: every write is durable for the lifetime of the disk.

use std::collections::BTreeMap;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::{Disk, DiskFile, DiskLock, LockError, OpenMode, check_name};

/// Size of a piece of a file in bytes. Pieces let a file grow without moving its bytes, and threads that use different
/// pieces do not contend.
const PIECE: usize = 256 << 10;

/// A directory in memory. Clones share the same directory.
#[derive(Clone, Debug, Default)]
pub struct MemDisk(Arc<Directory>);

#[derive(Debug, Default)]
struct Directory {
    files: Mutex<BTreeMap<String, Arc<MemFile>>>,
    claim: InUse,
}

impl MemDisk {
    /// Creates an empty directory in memory.
    pub fn new() -> MemDisk {
        MemDisk::default()
    }
}

impl Disk for MemDisk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let mut files = self.0.files.lock();
        if let Some(file) = files.get(name) {
            return if mode == OpenMode::CreateNew {
                Err(io::ErrorKind::AlreadyExists.into())
            } else {
                Ok(file.clone())
            };
        }
        if mode == OpenMode::Existing {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = Arc::new(MemFile { name: self.show(name), len: AtomicU64::new(0), pieces: RwLock::default() });
        files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.files.lock().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.files.lock().remove(name).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let mut files = self.0.files.lock();
        if files.contains_key(from) && files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        self.0.claim.take("(memory)")
    }

    fn show(&self, name: &str) -> String {
        format!("(memory)/{name}")
    }
}

#[derive(Debug)]
struct MemFile {
    name: String,
    /// Length of the file in bytes. Changed only under the write lock of `pieces`.
    len: AtomicU64,
    /// Pieces that cover at least `len` bytes. Bytes beyond `len` are zero.
    pieces: RwLock<Vec<RwLock<Piece>>>,
}

/// Bytes of one piece of a file; `None` if no byte of the piece was written, so that all its bytes are zero.
type Piece = Option<Box<[u8]>>;

impl MemFile {
    /// Grows the file to at least `len` bytes. Allocates the list of pieces now, and a piece when it is first written.
    fn grow(&self, len: u64) -> io::Result<()> {
        let mut pieces = self.pieces.write();
        let count = usize::try_from(len.div_ceil(PIECE as u64)).map_err(|_| io::ErrorKind::StorageFull)?;
        if pieces.len() < count {
            let more = count - pieces.len();
            pieces.try_reserve(more).map_err(|_| io::ErrorKind::StorageFull)?;
            pieces.resize_with(count, RwLock::default);
        }
        self.len.fetch_max(len, Ordering::Release);
        Ok(())
    }
}

/// Returns the part of one piece that a transfer of `want` bytes at `off` covers: number of the piece, offset in the piece,
/// length.
fn place(off: u64, want: usize) -> (usize, usize, usize) {
    let within = (off % PIECE as u64) as usize;
    ((off / PIECE as u64) as usize, within, want.min(PIECE - within))
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let pieces = self.pieces.read();
        let left = self.len.load(Ordering::Acquire).saturating_sub(off);
        let total = left.min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < total {
            let (piece, from, n) = place(off + done as u64, total - done);
            match &*pieces[piece].read() {
                Some(bytes) => buf[done..done + n].copy_from_slice(&bytes[from..from + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
        Ok(total)
    }

    fn read_resident_at(&self, buf: &mut [u8], off: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, off).map(Some)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        let end = off.checked_add(buf.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        if buf.is_empty() {
            return Ok(0);
        }
        if self.len.load(Ordering::Acquire) < end {
            self.grow(end)?;
        }
        let pieces = self.pieces.read();
        let mut done = 0;
        while done < buf.len() {
            let (piece, from, n) = place(off + done as u64, buf.len() - done);
            // Another thread truncated the file meanwhile: the rest of the write is lost with the truncated part.
            let Some(piece) = pieces.get(piece) else { break };
            let mut piece = piece.write();
            let bytes = piece.get_or_insert_with(|| vec![0; PIECE].into_boxed_slice());
            bytes[from..from + n].copy_from_slice(&buf[done..done + n]);
            done += n;
        }
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Ordering::Acquire))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len >= self.len.load(Ordering::Acquire) {
            return self.grow(len);
        }
        let mut pieces = self.pieces.write();
        let (last, within, _) = place(len, 0);
        pieces.truncate(last + usize::from(within > 0));
        if within > 0
            && let Some(bytes) = &mut *pieces[last].write()
        {
            bytes[within..].fill(0);
        }
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.grow(off.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Flag that grants exclusive use of a directory within this process.
#[derive(Clone, Debug, Default)]
pub(super) struct InUse(Arc<AtomicBool>);

impl InUse {
    pub(super) fn take(&self, dir: &str) -> Result<DiskLock, LockError> {
        if self.0.swap(true, Ordering::Acquire) {
            return Err(LockError::Held { dir: dir.to_owned(), pid: Some(process::id()) });
        }
        Ok(DiskLock(Box::new(InUseGuard(self.clone()))))
    }
}

#[derive(Debug)]
struct InUseGuard(InUse);

impl Drop for InUseGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
