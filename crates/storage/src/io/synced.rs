//! A file that several threads sync.

use std::sync::Arc;

use super::{DiskFile, sync_file};
use crate::base::error::StorageError;
use crate::base::sync::Mutex;
use crate::base::sync::plain::{AtomicU64, Ordering};

/// A file whose syncs run one at a time, and never again after a failed sync.
///
/// The system reports a failed writeback only once, to the first sync. The next sync succeeds, even if another thread wrote
/// the lost bytes (Rebello et al., ATC 2020). So a file that several threads sync is wrapped in this type, which returns
/// the first failure to all of them.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    file: Arc<dyn DiskFile>,
    /// Number of syncs that have begun.
    begun: AtomicU64,
    state: Mutex<SyncState>,
}

/// Outcome of the syncs so far.
#[derive(Debug, Default)]
struct SyncState {
    /// Number of the newest sync that succeeded; the first is 1.
    succeeded: u64,
    failure: Option<StorageError>,
}

impl SyncedFile {
    pub(crate) fn new(file: Arc<dyn DiskFile>) -> SyncedFile {
        SyncedFile { file, begun: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Returns the file, for all calls except syncs.
    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// Makes the caller's writes durable. Threads that wait at the same time share a sync.
    ///
    /// # Errors
    /// The first failure of a sync, for this and every later call.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        // A read-modify-write that adds 0: a thread that begins a later sync synchronizes with it, and so with the caller's
        // writes.
        let before = self.begun.fetch_add(0, Ordering::AcqRel);
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.succeeded > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        match sync_file(&*self.file) {
            Ok(()) => state.succeeded = number,
            Err(error) => {
                state.failure = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Call, Disk, Fault, OpenMode, SimDisk, When};

    fn synced(disk: &SimDisk) -> SyncedFile {
        SyncedFile::new(disk.open("file", OpenMode::CreateNew).unwrap())
    }

    #[test]
    fn after_a_sync_that_failed_no_sync_is_made() {
        let disk = SimDisk::new(1);
        let file = synced(&disk);
        file.sync().unwrap();
        disk.plan(Some(Call::Sync), When::Once(1), Fault::Eio);
        let first = file.sync().unwrap_err().to_string();
        let calls = disk.count(Call::Sync);
        assert_eq!([file.sync(), file.sync()].map(|again| again.unwrap_err().to_string()), [first.clone(), first]);
        assert_eq!(disk.count(Call::Sync), calls);
    }

    #[test]
    fn threads_that_wait_share_a_sync_that_began_after_their_writes() {
        let disk = SimDisk::new(1);
        let file = synced(&disk);
        file.sync().unwrap();
        std::thread::scope(|s| {
            let held = file.state.lock();
            let waiting: Vec<_> = (0..8).map(|_| s.spawn(|| file.sync())).collect();
            drop(held);
            waiting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        let calls = disk.count(Call::Sync);
        assert!((2..=9).contains(&calls), "{calls}");
        // A call after the end of the shared syncs makes a sync of its own.
        file.sync().unwrap();
        assert_eq!(disk.count(Call::Sync), calls + 1);
    }
}
