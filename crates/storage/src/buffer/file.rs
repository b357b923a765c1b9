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

    /// Writes single pages in place, which have no image in the log, so that no crash tears them. When it returns they
    /// are on the disk. Slow; for use when the log has no room.
    ///
    /// # Errors
    /// A failed write or sync: what is on the disk is not known. [`StorageError::NoSpace`]: nothing was written in
    /// place.
    fn write_aside(&self, _pages: &[DurablePages<'_>]) -> Result<(), StorageError> {
        Err(StorageError::NoSpace { file: self.show() })
    }

    /// The file's path, for messages.
    fn show(&self) -> String;
}

/// A page's content as it goes to the log before it is written in place: number, page LSN, bytes.
pub(crate) type PageImage<'a> = (PageId, Lsn, &'a [u8; PAGE_SIZE]);

/// The log, as far as the pool is concerned.
///
/// Both calls that may wait do so through the [hook](crate::base::hook::Hook); the pool holds no latch
/// and no lock then. `log_images` must not wait for a checkpoint or for the cleaner: it is the cleaner
/// that calls it, so the log keeps room for a batch of images in reserve.
pub(crate) trait WriteAhead: Send + Sync + Debug {
    /// Everything below is on disk.
    fn durable(&self) -> Lsn;

    /// End of what was appended: no page has a later LSN.
    fn end(&self) -> Lsn;

    /// Returns when everything below `lsn` is on disk.
    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError>;

    /// Appends the images; returns the end of the last one.
    fn log_images<'a>(&self, images: &mut dyn Iterator<Item = PageImage<'a>>) -> Result<Lsn, StorageError>;
}
