//! Copy-on-write disk in memory. It begins with the files of an image and stores only the differences, so thousands of
//! copies are cheap. Storage's own disk in memory would copy all files each time. The capacity is limited, to detect
//! unbounded growth.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Disk, DiskFile, DiskLock, LockError, MemDisk, OpenMode};

/// Unit of copying, in bytes.
const BLOCK: usize = 4096;

/// Contents of all files of a directory at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image(pub(crate) BTreeMap<String, Arc<Vec<u8>>>);

impl Image {
    /// Returns the total number of bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().map(|file| file.len() as u64).sum()
    }

    /// Returns the contents of a file; empty if the file does not exist.
    pub(crate) fn file(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], |file| file)
    }
}

/// Copy-on-write disk over an image. Clones share the same files.
#[derive(Clone, Debug)]
pub(crate) struct CowDisk(Arc<Directory>);

#[derive(Debug)]
struct Directory {
    files: Mutex<BTreeMap<String, Arc<CowFile>>>,
    /// Maximum total number of bytes of all files.
    capacity: u64,
    /// Disk that implements the lock of the directory.
    owner: MemDisk,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is ignored, because these disks are used for tests of panics, and the files are only read after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CowDisk {
    /// Creates a copy of the image. The files may grow to `capacity` bytes in total.
    pub(crate) fn over(image: &Image, capacity: u64) -> CowDisk {
        let files = image.0.iter().map(|(name, bytes)| (name.clone(), CowFile::over(Arc::clone(bytes)))).collect();
        CowDisk(Arc::new(Directory { files: Mutex::new(files), capacity, owner: MemDisk::new() }))
    }

    /// Returns the current contents of all files.
    pub(crate) fn image(&self) -> Image {
        Image(lock(&self.0.files).iter().map(|(name, file)| (name.clone(), Arc::new(file.whole()))).collect())
    }

    /// Returns the total number of bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        lock(&self.0.files).values().map(|file| lock(&file.state).len).sum()
    }

    /// Overwrites bytes of a file, as a defective disk does. Returns false if the range is not within an existing file.
    pub(crate) fn change(&self, name: &str, at: u64, bytes: &[u8]) -> bool {
        let file = lock(&self.0.files).get(name).cloned();
        match file {
            Some(file) if at + bytes.len() as u64 <= lock(&file.state).len => {
                lock(&file.state).write(bytes, at);
                true
            }
            _ => false,
        }
    }

    /// Flips one bit of a file. Returns false if the bit does not exist.
    pub(crate) fn flip(&self, name: &str, at: u64, bit: u8) -> bool {
        let Some(file) = lock(&self.0.files).get(name).cloned() else { return false };
        let mut byte = [0];
        let is_there = lock(&file.state).read(&mut byte, at) == 1;
        is_there && self.change(name, at, &[byte[0] ^ 1 << (bit & 7)])
    }

    /// Truncates a file to `len` bytes.
    pub(crate) fn truncate(&self, name: &str, len: u64) {
        if let Some(file) = lock(&self.0.files).get(name) {
            lock(&file.state).set_len(len);
        }
    }

    /// Replaces the contents of a file; creates the file if it does not exist.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        lock(&self.0.files).insert(name.to_owned(), CowFile::over(Arc::new(bytes)));
    }

    /// Removes a file.
    pub(crate) fn remove_file(&self, name: &str) {
        lock(&self.0.files).remove(name);
    }

    /// Exchanges the contents of two files.
    pub(crate) fn swap(&self, a: &str, b: &str) {
        let mut files = lock(&self.0.files);
        if let (Some(first), Some(second)) = (files.remove(a), files.remove(b)) {
            files.insert(a.to_owned(), second);
            files.insert(b.to_owned(), first);
        }
    }

    fn room_for(&self, more: u64) -> io::Result<()> {
        if self.used().saturating_add(more) > self.0.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for CowDisk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = lock(&self.0.files);
        let file = match (files.get(name), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (Some(file), _) => Arc::clone(file),
            (None, _) => {
                let file = CowFile::over(Arc::default());
                files.insert(name.to_owned(), Arc::clone(&file));
                file
            }
        };
        Ok(Arc::new(CowHandle { disk: self.clone(), file, name: self.show(name) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.0.files).keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.0.files).remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock(&self.0.files);
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
        self.0.owner.lock()
    }

    fn show(&self, name: &str) -> String {
        format!("(copy)/{name}")
    }
}

#[derive(Debug)]
struct CowFile {
    state: Mutex<FileState>,
}

#[derive(Debug)]
struct FileState {
    base: Arc<Vec<u8>>,
    /// Number of bytes of `base` that are still part of the file. Bytes after them are zero, unless a block has them.
    visible: u64,
    blocks: HashMap<u64, Box<[u8; BLOCK]>>,
    len: u64,
}

/// Calls `f` for each block of a transfer, with the number of the block, the offset within the block, and the range of the
/// buffer.
fn each_block(at: u64, len: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let here = at + done as u64;
        let within = (here % BLOCK as u64) as usize;
        let n = (len - done).min(BLOCK - within);
        f(here / BLOCK as u64, within, done..done + n);
        done += n;
    }
}

impl CowFile {
    fn over(base: Arc<Vec<u8>>) -> Arc<CowFile> {
        let len = base.len() as u64;
        Arc::new(CowFile { state: Mutex::new(FileState { base, visible: len, blocks: HashMap::new(), len }) })
    }

    fn whole(&self) -> Vec<u8> {
        let state = lock(&self.state);
        let mut bytes = vec![0; state.len as usize];
        state.read(&mut bytes, 0);
        bytes
    }
}

impl FileState {
    /// Fills `buf` with bytes of the image, from offset `at` on.
    fn read_base(&self, buf: &mut [u8], at: u64) {
        let from = at.min(self.visible) as usize;
        let n = ((self.visible as usize) - from).min(buf.len());
        buf[..n].copy_from_slice(&self.base[from..from + n]);
        buf[n..].fill(0);
    }

    fn read(&self, buf: &mut [u8], at: u64) -> usize {
        let total = self.len.saturating_sub(at).min(buf.len() as u64) as usize;
        each_block(at, total, |block, within, range| {
            let n = range.len();
            match self.blocks.get(&block) {
                Some(bytes) => buf[range].copy_from_slice(&bytes[within..within + n]),
                None => self.read_base(&mut buf[range], block * BLOCK as u64 + within as u64),
            }
        });
        total
    }

    fn write(&mut self, buf: &[u8], at: u64) {
        each_block(at, buf.len(), |block, within, range| {
            let mut bytes = self.blocks.remove(&block).unwrap_or_else(|| {
                let mut fresh = Box::new([0; BLOCK]);
                self.read_base(&mut *fresh, block * BLOCK as u64);
                fresh
            });
            bytes[within..within + range.len()].copy_from_slice(&buf[range]);
            self.blocks.insert(block, bytes);
        });
        self.len = self.len.max(at + buf.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.visible = self.visible.min(len);
            self.blocks.retain(|block, _| block * (BLOCK as u64) < len);
            if let Some(last) = self.blocks.get_mut(&(len / BLOCK as u64)) {
                last[(len % BLOCK as u64) as usize..].fill(0);
            }
        }
        self.len = len;
    }
}

#[derive(Debug)]
struct CowHandle {
    disk: CowDisk,
    file: Arc<CowFile>,
    name: String,
}

impl CowHandle {
    fn grow_to(&self, len: u64) -> io::Result<()> {
        let now = lock(&self.file.state).len;
        if len > now { self.disk.room_for(len - now) } else { Ok(()) }
    }
}

impl DiskFile for CowHandle {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        Ok(lock(&self.file.state).read(buf, off))
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.grow_to(off.checked_add(buf.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?)?;
        lock(&self.file.state).write(buf, off);
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.file.state).len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.grow_to(len)?;
        lock(&self.file.state).set_len(len);
        Ok(())
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        let end = off.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
        self.grow_to(end)?;
        let mut state = lock(&self.file.state);
        state.len = state.len.max(end);
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::rng::Rng;

    #[test]
    fn a_copy_behaves_like_a_disk_and_leaves_the_image_alone() {
        let image = Image([("a".to_owned(), Arc::new((0..10_000u32).map(|i| i as u8).collect()))].into());
        let mut rng = Rng::of_case(7, 7);
        for _ in 0..50 {
            let (copy, real) = (CowDisk::over(&image, 1 << 20), MemDisk::new());
            let (a, b) = (copy.open("a", OpenMode::Existing).unwrap(), real.open("a", OpenMode::Create).unwrap());
            b.write_at(image.file("a"), 0).unwrap();
            for _ in 0..60 {
                let (at, n) = (rng.below(15_000), rng.index(9000));
                match rng.below(4) {
                    0 => {
                        let bytes = rng.bytes(n);
                        assert_eq!(a.write_at(&bytes, at).unwrap(), b.write_at(&bytes, at).unwrap());
                    }
                    1 => (a.set_len(at).unwrap(), b.set_len(at).unwrap()).0,
                    2 => (a.allocate(at, n as u64).unwrap(), b.allocate(at, n as u64).unwrap()).0,
                    _ => {
                        let (mut x, mut y) = (vec![1; n], vec![1; n]);
                        assert_eq!(a.read_at(&mut x, at).unwrap(), b.read_at(&mut y, at).unwrap());
                        assert_eq!(x, y);
                    }
                }
                assert_eq!(a.len().unwrap(), b.len().unwrap());
            }
        }
        assert_eq!(image.bytes(), 10_000);
        assert_eq!(image.file("a")[300], 44);
    }
}
