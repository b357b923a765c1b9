//! The two interfaces that the pool needs: a file of pages, and the log in front of it.

use std::fmt::Debug;

use super::ahead::DurablePages;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};

/// The data file. All offsets and lengths are in bytes.
pub(crate) trait PageFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError>;

    /// Fills `buf` from `offset` if the system has all of it in memory; false if it may have to wait for a device.
    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, StorageError>;

    /// Writes pages in their place, within the file's length.
    fn write_pages(&self, pages: DurablePages<'_>) -> Result<(), StorageError>;

    /// Returns when all earlier writes are on the disk.
    fn sync(&self) -> Result<(), StorageError>;

    /// Bytes in the file.
    fn len(&self) -> Result<u64, StorageError>;

    /// Makes the file at least `bytes` long, with space allocated, so that later writes there cannot
    /// run out of it. [`StorageError::NoSpace`] leaves the file usable as it was.
    fn extend_to(&self, bytes: u64) -> Result<(), StorageError>;

    /// Makes the file at most `bytes` long, on the disk from the next sync on. No crash may bring the rest back into use:
    /// none of its content is wanted.
    ///
    /// # Errors
    /// The file may be longer then.
    fn cut_to(&self, bytes: u64) -> Result<(), StorageError>;

    /// Slots beside the file for copies of [`SLOT_PAGES`] pages each; at least [`MIN_SLOTS`].
    fn slots(&self) -> u64;

    /// Writes copies of at most [`SLOT_PAGES`] pages to a slot, over what it held.
    fn write_aside(&self, slot: u64, copies: &[AsideCopy<'_>]) -> Result<(), StorageError>;

    /// Returns when all copies written before are on the disk: a restart repairs their pages from them.
    fn sync_aside(&self) -> Result<(), StorageError>;

    /// The file's path, for messages.
    fn show(&self) -> String;
}

/// Pages of a slot.
pub(crate) const SLOT_PAGES: usize = 32;
/// Least number of slots: two batches.
pub(crate) const MIN_SLOTS: u64 = 8;

/// A sealed page as it is put aside before it is written in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsideCopy<'a> {
    /// Its number.
    pub(crate) id: PageId,
    /// No change that it has and the disk may lack is older: redo begins here at the latest.
    pub(crate) recovery: Lsn,
    /// Its content.
    pub(crate) page: &'a [u8; PAGE_SIZE],
}

/// The log, as far as the pool is concerned.
///
/// The call that may wait does so through the [hook](crate::base::hook::Hook); the pool holds no latch and no lock then.
pub(crate) trait WriteAhead: Send + Sync + Debug {
    /// Everything below is on disk.
    fn durable(&self) -> Lsn;

    /// End of what was appended: no page has a later LSN.
    fn end(&self) -> Lsn;

    /// Returns when everything below `lsn` is on disk.
    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError>;
}
