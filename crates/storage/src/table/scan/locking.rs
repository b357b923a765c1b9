//! How a scan locks what it reads in a leaf: record by record, or by one range (`lock/range.rs`).
//!
//! A range protects gaps, and it is worth its price for several rows. So scans below *serializable* lock records, and so do
//! scans that find few rows in a leaf, or that announce U. Where a range is not to be had (another transaction has the seat, or
//! is reading there itself), records are locked, too: both ways exclude each other as record locks do.

use super::ScanSpec;
use crate::base::error::TxnError;
use crate::lock::{KeyMode, LockName, OpenRange, Opened, Prefix, RecordMode, Span};
use crate::page::PageRef;
use crate::table::index::{Index, LockAttempt, Want};
use crate::txn::core::Txn;

/// Rows of a leaf, ghosts included, from which on a range is cheaper than a lock on each.
const WORTH: usize = 4;

/// How the rows of one leaf are locked.
pub(super) enum Locking<'db> {
    /// A lock on each record, and on the gap below it where gaps are protected.
    Rows,
    /// They are locked already, by a range or with the table.
    Held,
    /// One range, which is kept when the leaf has been read and validated.
    Range(OpenRange<'db>),
}

/// Whether so many rows of a leaf belong to a range that one lock for them pays: `ends` says whether the range ends before a
/// key, and `far` is the position of the row that decides. The page may be changing.
#[inline]
pub(super) fn is_worth(page: PageRef<'_>, far: Option<usize>, key: &mut Vec<u8>, ends: impl Fn(&[u8]) -> bool) -> bool {
    let Some(far) = far.filter(|&far| far < page.count()) else { return false };
    key.clear();
    page.append_key(far, key) && !ends(key)
}

/// The position of the row that decides, `WORTH` rows above `position` with it.
#[inline]
pub(super) fn far_above(position: usize) -> Option<usize> {
    Some(position + WORTH - 1)
}

/// The position of the row that decides, `WORTH` rows below `position`.
#[inline]
pub(super) fn far_below(position: usize) -> Option<usize> {
    position.checked_sub(WORTH)
}

impl<'db> Txn<'db> {
    /// Whether the scan may lock by ranges at all.
    #[inline]
    pub(super) fn scans_by_range(&self, wanted: &ScanSpec<'_>, likely: usize) -> bool {
        likely >= WORTH && wanted.want != Want::Update && self.locks_gaps() && !self.reads_instantly()
    }

    /// Begins to lock a range of the index, of which the scan reads the part in one leaf next.
    #[inline]
    pub(super) fn open_range(&mut self, index: &Index, wanted: &ScanSpec<'_>, span: Span<'_>) -> Locking<'db> {
        let core = self.core;
        let mode = if self.key_mode(wanted.want).key() == KeyMode::X { KeyMode::X } else { KeyMode::S };
        let owner = &mut self.claim.context().owner;
        match core.locks.open_range(owner, (index.lock_table, index.tree.index), mode, span) {
            Opened::Rows => Locking::Rows,
            Opened::Held => Locking::Held,
            Opened::Range(range) => Locking::Range(range),
        }
    }

    /// Locks a key, a gap or both if that is possible at once; where a range is being locked, only asks whether it is.
    #[inline]
    pub(super) fn try_step(
        &mut self,
        index: &Index,
        how: &Locking<'db>,
        (name, key): (LockName, &[u8]),
        mode: RecordMode,
        low: Prefix,
    ) -> Result<LockAttempt, TxnError> {
        match how {
            Locking::Rows => self.try_lock(index, (name, key), mode, low),
            Locking::Held => Ok(LockAttempt::Lock),
            Locking::Range(_) => {
                self.strike(index)?;
                let owner = &self.claim.peek().owner;
                let free = owner.could_acquire(index.lock_table, name, mode, low);
                Ok(if free { LockAttempt::Lock } else { LockAttempt::MustWait })
            }
        }
    }
}
