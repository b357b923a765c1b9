//! Traits through which the pool uses the data file and the log.

use std::fmt::Debug;

use super::ahead::DurablePages;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};

/// Operations of the data file. All offsets and lengths are in bytes.
pub(crate) trait PageFile: Send + Sync + Debug {
    /// Fills `buf` with the bytes of the file from `offset` on.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError>;

    /// Fills `buf` with the bytes of the file from `offset` on if the operating system's page cache has all of them. Returns
    /// false if the read might wait for a device.
    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, StorageError>;

    /// Writes pages in place. The pages are within the file's length.
    fn write_pages(&self, pages: DurablePages<'_>) -> Result<(), StorageError>;

    /// Waits until all earlier writes are durable.
    fn sync(&self) -> Result<(), StorageError>;

    /// Returns the length of the file in bytes.
    fn len(&self) -> Result<u64, StorageError>;

    /// Makes the file at least `bytes` long and allocates the space, so that later writes there cannot run out of space. If
    /// this fails with [`StorageError::NoSpace`], the file remains usable as before.
    fn extend_to(&self, bytes: u64) -> Result<(), StorageError>;

    /// Truncates the file to at most `bytes`. The truncation is durable from the next sync on. A crash must not make the
    /// removed pages readable again.
    ///
    /// # Errors
    /// After an error the file may be longer than `bytes`.
    fn cut_to(&self, bytes: u64) -> Result<(), StorageError>;

    /// Returns the number of doublewrite slots beside the file, at least [`MIN_SLOTS`]. Each slot has space for
    /// [`SLOT_PAGES`] copies of pages.
    fn slots(&self) -> u64;

    /// Writes copies of at most [`SLOT_PAGES`] pages to a slot and overwrites its old content.
    fn write_aside(&self, slot: u64, copies: &[AsideCopy<'_>]) -> Result<(), StorageError>;

    /// Waits until all doublewrite copies written earlier are durable. A restart repairs torn pages from these copies.
    fn sync_aside(&self) -> Result<(), StorageError>;

    /// Returns the path of the file, for messages.
    fn show(&self) -> String;
}

/// Capacity of a doublewrite slot, in pages.
pub(crate) const SLOT_PAGES: usize = 32;
/// Minimum number of doublewrite slots: enough for two batches of pages.
pub(crate) const MIN_SLOTS: u64 = 8;

/// Doublewrite copy of a page: a sealed page, written to a slot before the page is written in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsideCopy<'a> {
    /// Page number.
    pub(crate) id: PageId,
    /// Recovery LSN: every change that the page contains and the disk may lack is at or after this LSN. Redo begins here at
    /// the latest.
    pub(crate) recovery: Lsn,
    /// Page content.
    pub(crate) page: &'a [u8; PAGE_SIZE],
}

/// The operations of the log that the pool uses.
///
/// `make_durable` may wait, through the [hook](crate::base::hook::Hook). The pool holds no latch and no lock during that
/// wait.
pub(crate) trait WriteAhead: Send + Sync + Debug {
    /// Returns the LSN below which the log is durable.
    fn durable(&self) -> Lsn;

    /// Returns the LSN of the end of the log. No page has a later LSN.
    fn end(&self) -> Lsn;

    /// Waits until the log below `lsn` is durable.
    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError>;
}
