//! The write-ahead rule: a page goes to the data file only when the log is durable to the page's LSN.
//!
//! A page whose LSN is not durable would survive a crash that its record does not. The log then goes on before that
//! position, and redo takes the page for newer than records that it has never seen. So the data file accepts only
//! [`DurablePages`], which nothing makes but the functions here, for every way by which pages leave the pool: batches of
//! dirty pages, and pages that a bulk load writes past the frames.

use super::BufferPool;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::page::header;

/// Sealed neighbouring pages whose LSNs are all durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurablePages<'a> {
    first: PageId,
    bytes: &'a [u8],
}

impl<'a> DurablePages<'a> {
    /// Number of the first page.
    pub(crate) fn first(&self) -> PageId {
        self.first
    }

    /// The pages, one behind the other.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl BufferPool {
    /// Proves that pages may be written from page `first` on. Costs a load per page.
    ///
    /// # Errors
    /// A page with an LSN that is not durable: the instance is closed, since the state in memory contradicts the log.
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

    /// The largest LSN of some pages.
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
