//! Reading a range of an index, leaf by leaf, forwards or backwards.
//!
//! From each leaf the rows of the range are copied out and their keys and gaps locked, all without waiting; then the
//! leaf's version is validated, and only then does the caller see the rows. A lock that another transaction holds ends
//! the batch before it: the rows before it are delivered, the scan waits for the lock with no latch held, and goes on
//! from that key.
//!
//! A scan owns its rows and its position. Between two batches it borrows nothing of the transaction, which may read
//! other rows then, or the same ones. A transaction keeps the buffers of one scan; of nested ones, those of the outer one.

mod backward;
mod forward;

use super::index::{Index, Want};
use crate::base::bytes::compare_few;
use crate::base::error::TxnError;
use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::{LockName, Prefix, RecordMode};
use crate::page::PageRef;
use crate::txn::transaction::Txn;

pub(crate) use backward::BackwardScan;
pub(crate) use forward::ForwardScan;

/// Where a range ends, in the direction of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanEnd<'k> {
    /// With this key.
    With(&'k [u8]),
    /// Before this key.
    Before(&'k [u8]),
    /// With the index.
    Never,
}

impl ScanEnd<'_> {
    /// The first slot of a leaf whose key a forward scan stops short of.
    #[inline]
    fn position_in(self, page: PageRef<'_>) -> usize {
        let (end, is_with) = match self {
            ScanEnd::With(end) => (end, true),
            ScanEnd::Before(end) => (end, false),
            ScanEnd::Never => return page.count(),
        };
        // A search takes for granted that the leaf covers the key.
        if !page.is_below_high(end) {
            return page.count();
        }
        if !page.is_from_low(end) {
            return 0;
        }
        let (position, exact) = page.lower_bound(end);
        position + usize::from(exact && is_with)
    }

    /// Whether a forward scan stops short of `key`.
    #[inline]
    fn stops_before(self, key: &[u8]) -> bool {
        match self {
            ScanEnd::With(end) => compare_few(key, end).is_gt(),
            ScanEnd::Before(end) => compare_few(key, end).is_ge(),
            ScanEnd::Never => false,
        }
    }
}

/// How the work on one leaf ended.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// The range is exhausted.
    End,
    /// The leaf, which is this page, is exhausted: the scan goes on at the fence left in `next`. From there on the range of
    /// a forward scan reaches down to this prefix in the gap below a key.
    Leaf(PageId, Prefix),
    /// The batch is full: the scan goes on past the last row.
    Full,
    /// This lock has to be waited for; the scan goes on past the last row.
    Wait(LockName, RecordMode, Prefix),
}

/// A scan between two batches, in either direction.
trait Scan {
    /// What is wrong with a leaf whose fence leads back.
    const LEADS_BACK: &'static str;
    /// How the last batch ended.
    fn stop(&self) -> Option<Stop>;
    /// Rows of the last batch.
    fn rows(&self) -> usize;
    /// Whether the fence left in `next` lies in the direction of the scan.
    fn goes_on(&self, wanted: &ScanSpec<'_>) -> bool;
    /// Goes on at that fence.
    fn go_to_fence(&mut self, low: Prefix);
    /// Goes on past the last row of the batch.
    fn go_past_last(&mut self);
    /// Makes the next batch larger.
    fn expect_more(&mut self);
}

impl Txn<'_> {
    /// Goes to where the next batch begins, after the lock for which the last one ended; false at the end of the range.
    #[inline]
    fn go_on<S: Scan>(&mut self, index: &Index, scan: &mut S, wanted: &ScanSpec<'_>) -> Result<bool, TxnError> {
        match scan.stop() {
            None => {}
            Some(Stop::End) => return Ok(false),
            // If a damaged tree led back, the scan would never end.
            Some(Stop::Leaf(_, low)) if scan.goes_on(wanted) => scan.go_to_fence(low),
            Some(Stop::Leaf(page, _)) => {
                return Err(index.tree().damaged(&self.engine.pool, page, S::LEADS_BACK).into());
            }
            Some(Stop::Full) => {
                scan.go_past_last();
                scan.expect_more();
            }
            Some(Stop::Wait(name, mode, low)) => {
                self.wait_for(index, name, mode, low)?;
                // Before the lock was requested the gap beside the key was unprotected: a row may have come into it. So
                // the scan goes on past the last row it has delivered, not at the key.
                if scan.rows() > 0 {
                    scan.go_past_last();
                }
            }
        }
        Ok(true)
    }
}

/// The parameters of a scan. Between two batches the far end may move closer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanSpec<'k> {
    /// First key. A backward scan ends with it.
    pub(crate) from: &'k [u8],
    /// Where a forward scan ends. A backward one begins there.
    pub(crate) to: ScanEnd<'k>,
    /// What the statement will do with the rows.
    pub(crate) want: Want,
    /// Rows that probably suffice.
    pub(crate) likely: usize,
}

/// Where a batch of rows was read: a frame and its version.
pub(crate) type BatchPlace = (u32, Version);
