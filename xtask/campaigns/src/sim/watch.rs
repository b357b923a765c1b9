//! Simulated disk that reports every changing call before executing it, and records calls that the engine must never make.

use std::collections::BTreeSet;
use std::fmt::{Debug, Formatter};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::disk::{Call, Disk, DiskFile, DiskLock, LockError, OpenMode, SimDisk};

/// Callback that is called before each changing call of the disk.
pub(crate) type CallObserver = dyn Fn(&SimDisk, Call) + Send + Sync;

/// Simulated disk with a callback. Each time a database is opened, it gets a new one.
#[derive(Clone)]
pub(crate) struct ObservedDisk {
    disk: SimDisk,
    observer: Arc<CallObserver>,
    recorded: Arc<Mutex<RecordedCalls>>,
}

/// Calls that were recorded for the check.
#[derive(Debug, Default)]
struct RecordedCalls {
    /// Names of files whose last sync failed.
    failed: BTreeSet<String>,
    /// Descriptions of forbidden calls. A sync of a file after a failed sync is forbidden.
    forbidden: Vec<String>,
}

impl Debug for ObservedDisk {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ObservedDisk").field(&self.disk).finish()
    }
}

impl ObservedDisk {
    /// Wraps a disk. `observer` is called before each changing call, with the state of the disk before the call.
    pub(crate) fn new(disk: &SimDisk, observer: impl Fn(&SimDisk, Call) + Send + Sync + 'static) -> ObservedDisk {
        ObservedDisk { disk: disk.clone(), observer: Arc::new(observer), recorded: Arc::default() }
    }

    /// Returns the descriptions of the forbidden calls that were made.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        self.recorded().forbidden.clone()
    }

    fn recorded(&self) -> MutexGuard<'_, RecordedCalls> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, call: Call) {
        (self.observer)(&self.disk, call);
    }

    /// Runs `sync` on the file `name`, and records a failure. If an earlier sync of the file has failed, records a forbidden
    /// call.
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
