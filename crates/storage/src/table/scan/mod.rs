//! Range scans of an index, leaf by leaf, forwards or backwards.
//!
//! The scan copies the rows of the range from each leaf and locks their keys and gaps, without waiting. Then it
//! validates the leaf's version, and only then delivers the rows to the caller. If another transaction holds the lock
//! of a row, the batch ends before this row: the earlier rows are delivered, the scan waits for the lock without any
//! latch, and then continues after the last delivered row.
//!
//! A scan owns its rows and its position. Between two batches the scan does not borrow the transaction, so the
//! transaction may read other rows. A transaction caches the buffers of one scan; if scans are nested, the buffers of
//! the outer scan.

mod backward;
mod forward;

use super::index::{AccessMode, Index};
use crate::base::bytes::compare_few;
use crate::base::error::TxnError;
use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::{LockName, Prefix, RecordMode};
use crate::page::PageRef;
use crate::txn::transaction::Txn;

pub(crate) use backward::BackwardScan;
pub(crate) use forward::ForwardScan;

/// End of a range, in the direction of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanEnd<'k> {
    /// The range ends with this key (inclusive).
    With(&'k [u8]),
    /// The range ends before this key (exclusive).
    Before(&'k [u8]),
    /// The range extends to the end of the index.
    Never,
}

impl ScanEnd<'_> {
    /// Returns the number of the first slot of a leaf after the end of a forward scan.
    #[inline]
    fn position_in(self, page: PageRef<'_>) -> usize {
        let (end, is_with) = match self {
            ScanEnd::With(end) => (end, true),
            ScanEnd::Before(end) => (end, false),
            ScanEnd::Never => return page.count(),
        };
        // The search requires that the leaf covers the key.
        if !page.is_below_high(end) {
            return page.count();
        }
        if !page.is_from_low(end) {
            return 0;
        }
        let (position, exact) = page.lower_bound(end);
        position + usize::from(exact && is_with)
    }

    /// Returns true if a forward scan ends before `key`.
    #[inline]
    fn stops_before(self, key: &[u8]) -> bool {
        match self {
            ScanEnd::With(end) => compare_few(key, end).is_gt(),
            ScanEnd::Before(end) => compare_few(key, end).is_ge(),
            ScanEnd::Never => false,
        }
    }
}

/// Reason for the end of a batch.
#[derive(Clone, Copy, Debug)]
enum BatchEnd {
    /// The range is exhausted.
    End,
    /// The leaf, with this page number, is exhausted: the scan continues at the fence stored in `next`. From there on,
    /// the range of a forward scan extends down to this prefix in the gap below a key.
    Leaf(PageId, Prefix),
    /// The batch is full: the scan continues after the last row.
    Full,
    /// The scan must wait for this lock and then continues after the last row.
    Wait(LockName, RecordMode, Prefix),
}

/// A scan between two batches, in either direction.
trait Scan {
    /// Description of a damaged leaf whose fence leads backwards, for the error message.
    const LEADS_BACK: &'static str;
    /// Returns the reason for the end of the last batch.
    fn stop(&self) -> Option<BatchEnd>;
    /// Returns the number of rows of the last batch.
    fn rows(&self) -> usize;
    /// Returns true if the fence stored in `next` lies in the direction of the scan.
    fn advances(&self, wanted: &ScanSpec<'_>) -> bool;
    /// Moves to the fence stored in `next`.
    fn go_to_fence(&mut self, low: Prefix);
    /// Moves past the last row of the batch.
    fn go_past_last(&mut self);
    /// Increases the size of the next batch.
    fn expect_more(&mut self);
}

impl Txn<'_> {
    /// Moves to the start of the next batch, after waiting for the lock that ended the last one. Returns false at the
    /// end of the range.
    #[inline]
    fn start_batch<S: Scan>(&mut self, index: &Index, scan: &mut S, wanted: &ScanSpec<'_>) -> Result<bool, TxnError> {
        match scan.stop() {
            None => {}
            Some(BatchEnd::End) => return Ok(false),
            // The check detects a damaged tree that leads backwards, in which the scan would never end.
            Some(BatchEnd::Leaf(_, low)) if scan.advances(wanted) => scan.go_to_fence(low),
            Some(BatchEnd::Leaf(page, _)) => {
                return Err(index.tree().damaged(&self.engine.pool, page, S::LEADS_BACK).into());
            }
            Some(BatchEnd::Full) => {
                scan.go_past_last();
                scan.expect_more();
            }
            Some(BatchEnd::Wait(name, mode, low)) => {
                self.wait_for(index, name, mode, low)?;
                // The gap below the key was not locked before the request: another transaction may have inserted a row
                // there. So the scan continues after the last delivered row, not at the key.
                if scan.rows() > 0 {
                    scan.go_past_last();
                }
            }
        }
        Ok(true)
    }
}

/// Parameters of a scan. Between two batches the caller may move the end closer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanSpec<'k> {
    /// Lower end of the range (inclusive): start of a forward scan, end of a backward scan.
    pub(crate) from: &'k [u8],
    /// Upper end of the range: end of a forward scan, start of a backward scan.
    pub(crate) to: ScanEnd<'k>,
    /// Purpose of the statement's access to the rows.
    pub(crate) access: AccessMode,
    /// Number of rows that the caller will probably read.
    pub(crate) likely: usize,
}

/// Position at which a batch of rows was read: a frame and its version.
pub(crate) type BatchPlace = (u32, Version);
