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

use super::index::Want;
use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::{LockName, Prefix, RecordMode};

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
    /// Whether a forward scan stops short of `key`.
    #[inline]
    fn stops_before(self, key: &[u8]) -> bool {
        match self {
            ScanEnd::With(end) => key > end,
            ScanEnd::Before(end) => key >= end,
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
