//! The write-ahead rule: a page goes to the data file only when the log is durable to the page's LSN.
//!
//! If a page whose LSN is not durable were written, the page would survive a crash but its log record would not. After
//! restart the log would continue before that LSN, and redo would treat the page as newer than records that were never
//! applied to it. The data file therefore accepts only [`DurablePages`], and only the functions in this module create them.
//! They check every page that leaves the pool: batches of dirty pages, and pages that a bulk load writes without a frame.

use super::BufferPool;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::page::header;

/// Sealed pages with consecutive numbers whose LSNs are all durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurablePages<'a> {
    first: PageId,
    bytes: &'a [u8],
}

impl<'a> DurablePages<'a> {
    /// Returns the number of the first page.
    pub(crate) fn first(&self) -> PageId {
        self.first
    }

    /// Returns the content of the pages, in order.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl BufferPool {
    /// Checks that pages with consecutive numbers from `first` on may be written. Costs one load per page.
    ///
    /// # Errors
    /// Fails if the LSN of a page is not durable. The instance is closed in this case, because the state in memory
    /// contradicts the log.
    pub(super) fn prove<'a>(&self, first: PageId, bytes: &'a [u8]) -> Result<DurablePages<'a>, StorageError> {
        let durable = self.wal.durable();
        let (pages, _) = bytes.as_chunks::<PAGE_SIZE>();
        let early = pages.iter().position(|page| header::lsn_of(page) >= durable);
        match early.filter(|_| !is_mutant(Mutant::SkipWriteAhead)) {
            None => Ok(DurablePages { first, bytes }),
            Some(at) => {
                let id = PageId(first.0 + at as u32);
                Err(self.refuse_early(id, header::lsn_of(&pages[at]), durable))
            }
        }
    }

    /// Returns the largest LSN of the pages in `bytes`.
    pub(super) fn newest_lsn(bytes: &[u8]) -> Lsn {
        let (pages, _) = bytes.as_chunks::<PAGE_SIZE>();
        pages.iter().map(header::lsn_of).max().unwrap_or(Lsn::ZERO)
    }

    #[cold]
    fn refuse_early(&self, id: PageId, lsn: Lsn, durable: Lsn) -> StorageError {
        let what = format!("was to be written with LSN {lsn}, but the log is durable only to {durable}");
        let error = self.corrupt(id, what);
        self.poison.close(&error, durable);
        error
    }
}
