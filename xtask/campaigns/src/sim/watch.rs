//! A disk that reports every changing call before it happens, and records calls that the engine must never make.

use std::collections::BTreeSet;
use std::fmt::{Debug, Formatter};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Disk, DiskFile, DiskLock, LockError, OpenMode, SimDisk};

/// Callback before a changing call.
pub(crate) type Hear = dyn Fn(&SimDisk, Call) + Send + Sync;

/// A simulated disk with a callback. Each opening of a database has its own.
#[derive(Clone)]
pub(crate) struct Watched {
    disk: SimDisk,
    hear: Arc<Hear>,
    seen: Arc<Mutex<Seen>>,
}

/// The recorded calls.
#[derive(Debug, Default)]
struct Seen {
    /// Files whose sync has failed.
    failed: BTreeSet<String>,
    /// Forbidden calls: a sync that is repeated after a failure.
    forbidden: Vec<String>,
}

impl Debug for Watched {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watched").field(&self.disk).finish()
    }
}

impl Watched {
    /// Wraps a disk. `hear` is called before each changing call, with the disk before the call.
    pub(crate) fn new(disk: &SimDisk, hear: impl Fn(&SimDisk, Call) + Send + Sync + 'static) -> Watched {
        Watched { disk: disk.clone(), hear: Arc::new(hear), seen: Arc::default() }
    }

    /// The forbidden calls that were made.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        self.seen().forbidden.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before(&self, call: Call) {
        (self.hear)(&self.disk, call);
    }

    /// Runs a sync of `name` and records a failure. A sync after a failed one is a forbidden call.
    fn synced(&self, name: &str, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut seen = self.seen();
        if seen.failed.contains(name) {
            seen.forbidden.push(format!("{name}: synced again after its sync had failed"));
        }
        let result = sync();
        if result.is_err() {
            seen.failed.insert(name.to_owned());
        }
        result
    }
}

impl Disk for Watched {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode != OpenMode::Existing {
            self.before(Call::Open);
        }
        let file = self.disk.open(name, mode)?;
        Ok(Arc::new(WatchedFile { file, of: self.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.before(Call::Remove);
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.before(Call::Rename);
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.before(Call::SyncDir);
        self.synced("", || self.disk.sync_dir())
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        self.disk.lock()
    }

    fn show(&self, name: &str) -> String {
        self.disk.show(name)
    }
}

struct WatchedFile {
    file: Arc<dyn DiskFile>,
    of: Watched,
}

impl Debug for WatchedFile {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.file.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.of.before(Call::Write);
        self.file.write_at(buf, off)
    }

    fn sync(&self) -> io::Result<()> {
        self.of.before(Call::Sync);
        self.of.synced(self.file.name(), || self.file.sync())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.of.before(Call::SetLen);
        self.file.set_len(len)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.of.before(Call::Allocate);
        self.file.allocate(off, len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
