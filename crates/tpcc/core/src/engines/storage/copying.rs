//! Online copies of the database.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::disk::{FileDisk, MemDisk};
use storage::{Copied, CopyError, StorageError};

use super::advice::{cannot_open, storage_error};
use super::database::options;
use super::fiber_hook::StoreHook;
use super::store::Store;
use crate::workload::error::Error;
use crate::workload::settings::StoreConfig;

/// Progress of a copy, readable by other threads.
#[derive(Debug, Default)]
pub struct PagesDone {
    pages: AtomicU64,
    in_all: AtomicU64,
}

impl PagesDone {
    /// Returns the number of copied pages, and the total number of pages.
    pub fn pages(&self) -> (u64, u64) {
        (self.pages.load(Ordering::Relaxed), self.in_all.load(Ordering::Relaxed))
    }
}

impl Store {
    /// Copies the database, which is in the directory `from`, into a directory that is empty or does not exist. Returns
    /// `None` if `goes_on` has cancelled the copy.
    pub fn copy_to(
        &self,
        from: &str,
        to: &Path,
        done: &PagesDone,
        goes_on: impl Fn() -> ControlFlow<()>,
    ) -> Result<Option<Copied>, Error> {
        let shown = to.display();
        let disk = FileDisk::create(to).map_err(|error| {
            Error::failed(format!("{shown}: {error}")).help("choose another directory with --to; nothing was done")
        })?;
        let copied = self.database().copy_on(Arc::new(disk), |copying| {
            done.pages.store(copying.pages, Ordering::Relaxed);
            done.in_all.store(copying.pages_in_all, Ordering::Relaxed);
            goes_on()
        });
        match copied {
            Ok(copied) => Ok(Some(copied)),
            Err(CopyError::Cancelled { .. }) => Ok(None),
            Err(CopyError::Storage(error)) => Err(storage_error(&error, from)),
            Err(error) => {
                Err(Error::failed(error.to_string()).help("choose another directory with --to; nothing was changed"))
            }
        }
    }

    /// Returns the memory that an in-memory copy needs, in bytes: its files, and a buffer pool for all its pages.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub fn copy_bytes(&self) -> Result<u64, StorageError> {
        let sizes = self.database().sizes()?;
        Ok(2 * sizes.data_file.saturating_sub(sizes.free))
    }

    /// Copies the database into memory and opens the copy with the settings of `config`. The buffer pool of the copy
    /// contains all its pages.
    pub fn copy_in_memory(&self, config: &StoreConfig, hook: Option<&Arc<dyn StoreHook>>) -> Result<Store, Error> {
        let shown = config.shown();
        let disk = Arc::new(MemDisk::new());
        match self.database().copy_on(Arc::<MemDisk>::clone(&disk), |_| ControlFlow::Continue(())) {
            Ok(_) => {}
            Err(CopyError::Storage(error)) => return Err(storage_error(&error, &shown)),
            Err(error) => return Err(Error::failed(error.to_string())),
        }
        let db = options(config, hook)?.open_on(disk).map_err(|error| cannot_open(&error, &shown))?;
        let store = Store::on(db, config, hook)?;
        store.database().preload().map_err(|error| storage_error(&error, &shown))?;
        Ok(store)
    }
}
