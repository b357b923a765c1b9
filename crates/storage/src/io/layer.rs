//! Layers over disks: programs and tests that watch, delay, change or fail the calls of files.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::{Disk, DiskFile, DiskLock, LockError, OpenMode};

/// Handles the calls of the files of a [`LayeredDisk`]. Each default passes the call on.
pub trait Layer: Debug + Send + Sync {
    /// Handles [`DiskFile::read_at`]. A layer sees all reads: [`DiskFile::read_resident_at`] returns `None`.
    ///
    /// # Errors
    /// Errors of the file, and errors of the layer's own.
    fn read_at(&self, file: &dyn DiskFile, buf: &mut [u8], off: u64) -> io::Result<usize> {
        file.read_at(buf, off)
    }

    /// Handles [`DiskFile::write_at`].
    ///
    /// # Errors
    /// As [`Layer::read_at`].
    fn write_at(&self, file: &dyn DiskFile, buf: &[u8], off: u64) -> io::Result<usize> {
        file.write_at(buf, off)
    }

    /// Handles [`DiskFile::write_blocks_at`].
    ///
    /// # Errors
    /// As [`Layer::read_at`].
    fn write_blocks_at(&self, file: &dyn DiskFile, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        file.write_blocks_at(blocks, off)
    }

    /// Handles [`DiskFile::sync`].
    ///
    /// # Errors
    /// As [`Layer::read_at`].
    fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        file.sync()
    }
}

/// A disk whose files with names of one prefix have a [`Layer`]. All other calls go to the disk below.
///
/// ```
/// # use std::io;
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU64, Ordering};
/// use storage::disk::{DiskFile, Layer, LayeredDisk, MemDisk};
/// use storage::{Options, Table, TxnError};
///
/// /// Counts the syncs of the log.
/// #[derive(Debug, Default)]
/// struct Syncs(AtomicU64);
///
/// impl Layer for Syncs {
///     fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         file.sync()
///     }
/// }
///
/// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
/// let syncs = Arc::new(Syncs::default());
/// let disk = LayeredDisk::new(MemDisk::new(), "log.", syncs.clone());
/// let db = Options::new().open_on(Arc::new(disk))?;
/// let before = syncs.0.load(Ordering::Relaxed);
/// db.transact(|tx| tx.put(&ACCOUNTS, &1, &100))?;
/// assert!(syncs.0.load(Ordering::Relaxed) > before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LayeredDisk<D, L> {
    disk: D,
    prefix: &'static str,
    layer: Arc<L>,
}

impl<D: Disk, L: Layer> LayeredDisk<D, L> {
    /// Puts a layer over the files whose names begin with `prefix`: `pages.` for the data file, `log.` for the log, and
    /// the empty prefix for all files.
    pub fn new(disk: D, prefix: &'static str, layer: Arc<L>) -> LayeredDisk<D, L> {
        LayeredDisk { disk, prefix, layer }
    }
}

impl<D: Disk, L: Layer + 'static> Disk for LayeredDisk<D, L> {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, mode)?;
        if !name.starts_with(self.prefix) {
            return Ok(file);
        }
        Ok(Arc::new(LayeredFile { file, layer: Arc::clone(&self.layer) }))
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

    fn most_open_files(&self) -> Option<u64> {
        self.disk.most_open_files()
    }
}

#[derive(Debug)]
struct LayeredFile<L> {
    file: Arc<dyn DiskFile>,
    layer: Arc<L>,
}

impl<L: Layer> DiskFile for LayeredFile<L> {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.layer.read_at(&*self.file, buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.layer.write_at(&*self.file, buf, off)
    }

    fn write_blocks_at(&self, blocks: &[IoSlice<'_>], off: u64) -> io::Result<usize> {
        self.layer.write_blocks_at(&*self.file, blocks, off)
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn sync(&self) -> io::Result<()> {
        self.layer.sync(&*self.file)
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
