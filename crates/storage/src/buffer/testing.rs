//! A data file and a log in memory, with faults on demand, for tests of this module and those above.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::ahead::DurablePages;
use super::file::{PageFile, PageImage, WriteAhead};
use super::{BufferPool, PoolOptions};
use crate::base::error::StorageError;
use crate::base::hook::{Hook, ThreadHook};
use crate::base::ids::{Lsn, PAGE_SIZE};
use crate::base::poison::Poison;

/// A file that is a vector.
#[derive(Debug, Default)]
pub(crate) struct MemoryFile {
    pub(crate) bytes: Mutex<Vec<u8>>,
    /// The content as of the last sync.
    pub(crate) synced: Mutex<Vec<u8>>,
    pub(crate) fail_reads: AtomicBool,
    pub(crate) fail_writes: AtomicBool,
    pub(crate) fail_syncs: AtomicBool,
    /// Longest possible length in bytes; 0 for no limit.
    pub(crate) limit: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// A write that has more bytes than this writes only so many and fails; 0 for none.
    pub(crate) tear_write_after: AtomicU64,
    /// Microseconds that a read takes.
    pub(crate) read_delay_us: AtomicU64,
    /// Every read is served from memory, without waiting.
    pub(crate) resident: AtomicBool,
    /// Reads begun.
    pub(crate) reads: AtomicU64,
    /// While it is set no read ends.
    pub(crate) is_shut: AtomicBool,
    /// Reads panic.
    pub(crate) panic_reads: AtomicBool,
}

impl MemoryFile {
    fn broken(&self, flag: &AtomicBool, op: &'static str, offset: u64) -> Result<(), StorageError> {
        if flag.load(Ordering::Relaxed) {
            return Err(StorageError::io(op, self.show(), offset, io::Error::other("injected")));
        }
        Ok(())
    }
}

impl PageFile for MemoryFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        let delay = self.read_delay_us.load(Ordering::Relaxed);
        if delay > 0 {
            std::thread::sleep(std::time::Duration::from_micros(delay));
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let begun = std::time::Instant::now();
        while self.is_shut.load(Ordering::Acquire) {
            if begun.elapsed() > std::time::Duration::from_secs(10) {
                return Err(StorageError::io("read", self.show(), offset, io::ErrorKind::TimedOut.into()));
            }
            std::thread::yield_now();
        }
        assert!(!self.panic_reads.load(Ordering::Relaxed), "injected");
        self.broken(&self.fail_reads, "read", offset)?;
        let bytes = self.bytes.lock();
        let at = offset as usize;
        match bytes.get(at..at + buf.len()) {
            Some(from) => buf.copy_from_slice(from),
            None => return Err(StorageError::io("read", self.show(), offset, io::ErrorKind::UnexpectedEof.into())),
        }
        Ok(())
    }

    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, StorageError> {
        if !self.resident.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.read_exact_at(buf, offset).map(|()| true)
    }

    fn write_pages(&self, pages: DurablePages<'_>) -> Result<(), StorageError> {
        let (buf, offset) = (pages.bytes(), pages.first().offset());
        self.broken(&self.fail_writes, "write", offset)?;
        let (at, tear) = (offset as usize, self.tear_write_after.load(Ordering::Relaxed) as usize);
        if tear > 0 && buf.len() > tear {
            self.bytes.lock()[at..at + tear].copy_from_slice(&buf[..tear]);
            return Err(StorageError::io("write", self.show(), offset, io::Error::other("injected tear")));
        }
        self.bytes.lock()[at..at + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.broken(&self.fail_syncs, "sync", 0)?;
        let bytes = self.bytes.lock();
        self.synced.lock().clone_from(&bytes);
        Ok(())
    }

    fn len(&self) -> Result<u64, StorageError> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn extend_to(&self, bytes: u64) -> Result<(), StorageError> {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit != 0 && bytes > limit {
            return Err(StorageError::io("extend", self.show(), bytes, io::ErrorKind::StorageFull.into()));
        }
        let mut all = self.bytes.lock();
        let len = all.len().max(bytes as usize);
        all.resize(len, 0);
        Ok(())
    }

    fn show(&self) -> String {
        "pages.0".into()
    }
}

/// A file of the file system, for measurements.
#[derive(Debug)]
pub(crate) struct DiskFile(std::fs::File);

impl DiskFile {
    pub(crate) fn create(path: &std::path::Path) -> io::Result<DiskFile> {
        let mut options = std::fs::OpenOptions::new();
        Ok(DiskFile(options.read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn told<T>(&self, op: &'static str, offset: u64, result: io::Result<T>) -> Result<T, StorageError> {
        result.map_err(|e| StorageError::io(op, self.show(), offset, e))
    }
}

impl PageFile for DiskFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        self.told("read", offset, self.0.read_exact_at(buf, offset))
    }

    fn read_resident_at(&self, _: &mut [u8], _: u64) -> Result<bool, StorageError> {
        Ok(false)
    }

    fn write_pages(&self, pages: DurablePages<'_>) -> Result<(), StorageError> {
        let offset = pages.first().offset();
        self.told("write", offset, self.0.write_all_at(pages.bytes(), offset))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.told("sync", 0, self.0.sync_data())
    }

    fn len(&self) -> Result<u64, StorageError> {
        self.told("stat", 0, self.0.metadata().map(|m| m.len()))
    }

    fn extend_to(&self, bytes: u64) -> Result<(), StorageError> {
        self.told("extend", bytes, self.0.set_len(bytes))
    }

    fn show(&self) -> String {
        "pages.0".into()
    }
}

/// An image in the log: its end, the page's LSN, its content.
type Image = (Lsn, Lsn, Vec<u8>);

/// A log that hands out LSNs and remembers images.
#[derive(Debug)]
pub(crate) struct MemoryLog {
    tail: AtomicU64,
    durable: AtomicU64,
    pub(crate) fail: AtomicBool,
    /// The last image of each page.
    pub(crate) images: Mutex<HashMap<u32, Image>>,
}

impl Default for MemoryLog {
    fn default() -> Self {
        MemoryLog {
            tail: AtomicU64::new(100),
            durable: AtomicU64::new(100),
            fail: AtomicBool::new(false),
            images: Mutex::default(),
        }
    }
}

impl MemoryLog {
    /// Where the next record will lie.
    pub(crate) fn tail(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    /// Everything below is durable.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    /// Appends a record of `bytes` bytes; returns its LSN.
    pub(crate) fn append(&self, bytes: u64) -> Lsn {
        Lsn(self.tail.fetch_add(bytes, Ordering::SeqCst))
    }
}

impl WriteAhead for MemoryLog {
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    fn end(&self) -> Lsn {
        self.tail()
    }

    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError> {
        assert!(lsn <= self.tail());
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn log_images<'a>(&self, images: &mut dyn Iterator<Item = PageImage<'a>>) -> Result<Lsn, StorageError> {
        if self.fail.load(Ordering::Relaxed) {
            return Err(StorageError::NoSpace { file: "log.0".into() });
        }
        for (id, lsn, bytes) in images {
            let end = Lsn(self.append(PAGE_SIZE as u64).0 + PAGE_SIZE as u64);
            self.images.lock().insert(id.0, (end, lsn, bytes.to_vec()));
        }
        Ok(self.tail())
    }
}

/// A pool over memory, with its file and log.
#[derive(Debug)]
pub(crate) struct TestPool {
    pub(crate) pool: BufferPool,
    pub(crate) file: Arc<MemoryFile>,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) poison: Arc<Poison>,
}

/// A pool of `frames` frames over an empty file.
pub(crate) fn pool(frames: usize) -> TestPool {
    pool_over(Arc::default(), PoolOptions::new(frames))
}

/// A pool over a file that exists.
pub(crate) fn pool_over(file: Arc<MemoryFile>, options: PoolOptions) -> TestPool {
    pool_under(Arc::new(ThreadHook::default()), file, options)
}

/// A pool over a file that exists, run by this hook.
pub(crate) fn pool_under(hook: Arc<dyn Hook>, file: Arc<MemoryFile>, options: PoolOptions) -> TestPool {
    let (log, poison) = (Arc::new(MemoryLog::default()), Arc::new(Poison::default()));
    let pool = BufferPool::open(file.clone(), options, log.clone(), poison.clone(), hook).unwrap();
    TestPool { pool, file, log, poison }
}
