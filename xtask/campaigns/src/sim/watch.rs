//! A disk that reports every changing call before it happens, and records calls that the engine must never make.

use std::collections::BTreeSet;
use std::fmt::{Debug, Formatter};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Disk, DiskFile, DiskLock, LockError, OpenMode, SimDisk};

/// Callback before a changing call.
pub(crate) type CallObserver = dyn Fn(&SimDisk, Call) + Send + Sync;

/// A simulated disk with a callback. Each opening of a database has its own.
#[derive(Clone)]
pub(crate) struct ObservedDisk {
    disk: SimDisk,
    observer: Arc<CallObserver>,
    recorded: Arc<Mutex<RecordedCalls>>,
}

/// The recorded calls.
#[derive(Debug, Default)]
struct RecordedCalls {
    /// Files whose sync has failed.
    failed: BTreeSet<String>,
    /// Forbidden calls: a sync that is repeated after a failure.
    forbidden: Vec<String>,
}

impl Debug for ObservedDisk {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ObservedDisk").field(&self.disk).finish()
    }
}

impl ObservedDisk {
    /// Wraps a disk. `observer` is called before each changing call, with the disk before the call.
    pub(crate) fn new(disk: &SimDisk, observer: impl Fn(&SimDisk, Call) + Send + Sync + 'static) -> ObservedDisk {
        ObservedDisk { disk: disk.clone(), observer: Arc::new(observer), recorded: Arc::default() }
    }

    /// The forbidden calls that were made.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        self.recorded().forbidden.clone()
    }

    fn recorded(&self) -> MutexGuard<'_, RecordedCalls> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, call: Call) {
        (self.observer)(&self.disk, call);
    }

    /// Runs a sync of `name` and records a failure. A sync after a failed one is a forbidden call.
    fn record_sync(&self, name: &str, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut recorded = self.recorded();
        if recorded.failed.contains(name) {
            recorded.forbidden.push(format!("{name}: synced again after its sync had failed"));
        }
        let result = sync();
        if result.is_err() {
            recorded.failed.insert(name.to_owned());
        }
        result
    }
}

impl Disk for ObservedDisk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode != OpenMode::Existing {
            self.notify(Call::Open);
        }
        let file = self.disk.open(name, mode)?;
        Ok(Arc::new(ObservedFile { file, of: self.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.notify(Call::Remove);
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.notify(Call::Rename);
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.notify(Call::SyncDir);
        self.record_sync("", || self.disk.sync_dir())
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        self.disk.lock()
    }

    fn show(&self, name: &str) -> String {
        self.disk.show(name)
    }
}

struct ObservedFile {
    file: Arc<dyn DiskFile>,
    of: ObservedDisk,
}

impl Debug for ObservedFile {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl DiskFile for ObservedFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.file.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        self.of.notify(Call::Write);
        self.file.write_at(buf, off)
    }

    fn sync(&self) -> io::Result<()> {
        self.of.notify(Call::Sync);
        self.of.record_sync(self.file.name(), || self.file.sync())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.of.notify(Call::SetLen);
        self.file.set_len(len)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.of.notify(Call::Allocate);
        self.file.allocate(off, len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
