//! In-memory data file and log with fault injection, for tests of the buffer pool and of the modules that use it.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::ahead::DurablePages;
use super::file::{AsideCopy, PageFile, SLOT_PAGES, WriteAhead};
use super::{BufferPool, PoolOptions};
use crate::base::error::StorageError;
use crate::base::hook::{Hook, ThreadHook};
use crate::base::ids::{Lsn, PAGE_SIZE};
use crate::base::poison::Poison;

/// Data file in memory, with injected faults.
#[derive(Debug, Default)]
pub(crate) struct MemoryFile {
    pub(crate) bytes: Mutex<Vec<u8>>,
    /// Content of the file as of the last sync.
    pub(crate) synced: Mutex<Vec<u8>>,
    pub(crate) fail_reads: AtomicBool,
    pub(crate) fail_writes: AtomicBool,
    pub(crate) fail_syncs: AtomicBool,
    /// Maximum length of the file in bytes; 0 for no limit.
    pub(crate) limit: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// Number of bytes after which a longer write stops and fails; 0 for no such fault.
    pub(crate) tear_write_after: AtomicU64,
    /// Duration of a read in microseconds.
    pub(crate) read_delay_us: AtomicU64,
    /// If set, every read is served from memory without a wait.
    pub(crate) resident: AtomicBool,
    /// Number of reads begun.
    pub(crate) reads: AtomicU64,
    /// While this is set, no read ends.
    pub(crate) is_shut: AtomicBool,
    /// If set, reads panic.
    pub(crate) panic_reads: AtomicBool,
    /// If set, there is no space for doublewrite copies.
    pub(crate) fail_aside: AtomicBool,
    /// Doublewrite copies, indexed by slot.
    pub(crate) aside: Mutex<HashMap<u64, Vec<OwnedAsideCopy>>>,
    /// Doublewrite copies as of their last sync, indexed by slot.
    pub(crate) aside_synced: Mutex<HashMap<u64, Vec<OwnedAsideCopy>>>,
}

/// Doublewrite copy of a page: number, recovery LSN, content.
pub(crate) type OwnedAsideCopy = (u32, Lsn, Vec<u8>);

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

    fn cut_to(&self, bytes: u64) -> Result<(), StorageError> {
        self.bytes.lock().truncate(bytes as usize);
        Ok(())
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

    fn slots(&self) -> u64 {
        SLOTS
    }

    fn write_aside(&self, slot: u64, copies: &[AsideCopy<'_>]) -> Result<(), StorageError> {
        if self.fail_aside.load(Ordering::Relaxed) {
            return Err(StorageError::NoSpace { file: "control".into() });
        }
        let copies = copies.iter().map(|copy| (copy.id.0, copy.recovery, copy.page.to_vec())).collect();
        self.aside.lock().insert(slot, copies);
        Ok(())
    }

    fn sync_aside(&self) -> Result<(), StorageError> {
        self.aside_synced.lock().clone_from(&self.aside.lock());
        Ok(())
    }

    fn show(&self) -> String {
        "pages.0".into()
    }
}

/// Data file in the file system, for measurements, and a second file for doublewrite copies.
#[derive(Debug)]
pub(crate) struct DiskFile(std::fs::File, std::fs::File);

/// Number of doublewrite slots.
const SLOTS: u64 = 128;
const SLOT: u64 = (SLOT_PAGES * PAGE_SIZE) as u64;

impl DiskFile {
    pub(crate) fn create(path: &std::path::Path) -> io::Result<DiskFile> {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(DiskFile(options.open(path)?, options.open(path.with_extension("aside"))?))
    }

    fn with_context<T>(&self, op: &'static str, offset: u64, result: io::Result<T>) -> Result<T, StorageError> {
        result.map_err(|e| StorageError::io(op, self.show(), offset, e))
    }
}

impl PageFile for DiskFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        self.with_context("read", offset, self.0.read_exact_at(buf, offset))
    }

    fn read_resident_at(&self, _: &mut [u8], _: u64) -> Result<bool, StorageError> {
        Ok(false)
    }

    fn write_pages(&self, pages: DurablePages<'_>) -> Result<(), StorageError> {
        let offset = pages.first().offset();
        self.with_context("write", offset, self.0.write_all_at(pages.bytes(), offset))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.with_context("sync", 0, self.0.sync_data())
    }

    fn len(&self) -> Result<u64, StorageError> {
        self.with_context("stat", 0, self.0.metadata().map(|m| m.len()))
    }

    fn extend_to(&self, bytes: u64) -> Result<(), StorageError> {
        self.with_context("extend", bytes, self.0.set_len(bytes))
    }

    fn cut_to(&self, bytes: u64) -> Result<(), StorageError> {
        self.with_context("cut", bytes, self.0.set_len(bytes))
    }

    fn slots(&self) -> u64 {
        SLOTS
    }

    fn write_aside(&self, slot: u64, copies: &[AsideCopy<'_>]) -> Result<(), StorageError> {
        let bytes = copies.iter().flat_map(|copy| copy.page).copied().collect::<Vec<_>>();
        self.with_context("write", slot, self.1.write_all_at(&bytes, slot * SLOT))
    }

    fn sync_aside(&self) -> Result<(), StorageError> {
        self.with_context("sync", 0, self.1.sync_data())
    }

    fn show(&self) -> String {
        "pages.0".into()
    }
}

/// In-memory log that only allocates LSNs.
#[derive(Debug)]
pub(crate) struct MemoryLog {
    tail: AtomicU64,
    durable: AtomicU64,
    /// If set, requests to make the log durable fail.
    pub(crate) fail: AtomicBool,
}

impl Default for MemoryLog {
    fn default() -> Self {
        MemoryLog { tail: AtomicU64::new(100), durable: AtomicU64::new(100), fail: AtomicBool::new(false) }
    }
}

impl MemoryLog {
    /// Returns the LSN of the next record.
    pub(crate) fn tail(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    /// Returns the LSN below which the log is durable.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    /// Appends a record of `bytes` bytes. Returns its LSN.
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
        if self.fail.load(Ordering::Relaxed) {
            return Err(StorageError::NoSpace { file: "log.0".into() });
        }
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }
}

/// A pool over an in-memory file, together with the file and the log.
#[derive(Debug)]
pub(crate) struct TestPool {
    pub(crate) pool: BufferPool,
    pub(crate) file: Arc<MemoryFile>,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) poison: Arc<Poison>,
}

/// Creates a pool of `frames` frames over an empty file.
pub(crate) fn pool(frames: usize) -> TestPool {
    pool_over(Arc::default(), PoolOptions::new(frames))
}

/// Creates a pool over an existing file.
pub(crate) fn pool_over(file: Arc<MemoryFile>, options: PoolOptions) -> TestPool {
    pool_under(Arc::new(ThreadHook::default()), file, options)
}

/// Creates a pool over an existing file, with this hook.
pub(crate) fn pool_under(hook: Arc<dyn Hook>, file: Arc<MemoryFile>, options: PoolOptions) -> TestPool {
    let (log, poison) = (Arc::new(MemoryLog::default()), Arc::new(Poison::default()));
    let pool = BufferPool::open(file.clone(), options, log.clone(), poison.clone(), hook).unwrap();
    TestPool { pool, file, log, poison }
}
