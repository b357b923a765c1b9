//! Disk with delayed reads of the data file: simulates a device with latency on a machine that has none.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use storage::disk::{Disk, DiskFile, DiskLock, LockError, OpenMode};

/// Prefix of the names of page files, whose reads are delayed.
const PAGES: &str = "pages.";

/// Delays each read of a page file; passes everything else to the inner disk.
#[derive(Debug)]
pub(super) struct DelayedDisk<D> {
    disk: D,
    delay: Duration,
}

impl<D: Disk> DelayedDisk<D> {
    pub(super) fn new(disk: D, delay: Duration) -> DelayedDisk<D> {
        DelayedDisk { disk, delay }
    }
}

impl<D: Disk> Disk for DelayedDisk<D> {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, mode)?;
        Ok(if name.starts_with(PAGES) { Arc::new(DelayedFile { file, delay: self.delay }) } else { file })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        self.disk.lock()
    }

    fn show(&self, name: &str) -> String {
        self.disk.show(name)
    }
}

#[derive(Debug)]
struct DelayedFile {
    file: Arc<dyn DiskFile>,
    delay: Duration,
}

impl DiskFile for DelayedFile {
    /// Sleeps before the read, so that other threads use the core as during a device access. (`read_resident_at` is not
    /// forwarded, because a device with latency has no data in memory.)
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        std::thread::sleep(self.delay);
        self.file.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.file.write_at(buf, off)
    }

    fn write_blocks_at(&self, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        self.file.write_blocks_at(blocks, off)
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.file.allocate(off, len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
