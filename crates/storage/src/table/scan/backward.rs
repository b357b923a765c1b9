//! Scans in descending order.

use super::{BatchEnd, Scan, ScanEnd, ScanSpec};
use crate::base::error::TxnError;
use crate::base::ids::PageId;
use crate::base::mutant::{Mutant, is_mutant};
use crate::lock::{Prefix, RecordMode};
use crate::page::PageRef;
use crate::table::index::{Index, LockAttempt};
use crate::txn::buffers::RowBatch;
use crate::txn::transaction::Txn;

/// A scan in descending order, between two batches.
#[derive(Debug)]
pub(crate) struct BackwardScan {
    /// Rows of the last batch, all from one leaf and locked, in descending order.
    pub(crate) batch: RowBatch,
    /// Upper bound (exclusive) of the remaining range, if `unbounded` is false.
    above: Vec<u8>,
    /// True if the remaining range extends to the end of the index.
    unbounded: bool,
    next: Vec<u8>,
    likely: usize,
    /// True if the gap below `above` is locked. The lock on a key includes the gap below it.
    gap_locked: bool,
    /// Reason for the end of the last batch.
    stop: Option<BatchEnd>,
}

impl BackwardScan {
    /// Returns true if there is no further batch.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stop, Some(BatchEnd::End))
    }
}

impl Scan for BackwardScan {
    const LEADS_BACK: &'static str = "begins behind its end";

    #[inline]
    fn stop(&self) -> Option<BatchEnd> {
        self.stop
    }

    #[inline]
    fn rows(&self) -> usize {
        self.batch.len()
    }

    #[inline]
    fn advances(&self, _: &ScanSpec<'_>) -> bool {
        self.unbounded || self.next < self.above
    }

    #[inline]
    fn go_to_fence(&mut self, _: Prefix) {
        std::mem::swap(&mut self.above, &mut self.next);
        (self.unbounded, self.gap_locked) = (false, false);
    }

    #[inline]
    fn go_past_last(&mut self) {
        self.above.clear();
        self.above.extend_from_slice(self.batch.key(self.batch.len() - 1));
        (self.unbounded, self.gap_locked) = (false, true);
    }

    #[inline]
    fn expect_more(&mut self) {
        self.likely = self.likely.saturating_mul(8);
    }
}

impl Txn<'_> {
    /// Begins a scan. [`Txn::next_batch_below`] reads rows, and [`Txn::end_scan_below`] returns the buffers.
    ///
    /// # Errors
    /// Errors of the table's lock.
    pub(crate) fn begin_scan_below(&mut self, index: &Index, wanted: &ScanSpec<'_>) -> Result<BackwardScan, TxnError> {
        self.intend(index, wanted.access)?;
        let state = self.slot.state();
        let (mut above, next) = std::mem::take(&mut state.cursors);
        above.clear();
        match wanted.to {
            ScanEnd::With(key) => {
                above.extend_from_slice(key);
                above.push(0);
            }
            ScanEnd::Before(key) => above.extend_from_slice(key),
            ScanEnd::Never => {}
        }
        Ok(BackwardScan {
            batch: std::mem::take(&mut state.batch),
            above,
            unbounded: wanted.to == ScanEnd::Never,
            next,
            likely: wanted.likely.max(1),
            gap_locked: false,
            stop: None,
        })
    }

    /// Returns the buffers of a scan to the transaction.
    pub(crate) fn end_scan_below(&mut self, scan: BackwardScan) {
        let state = self.slot.state();
        state.batch = scan.batch;
        state.cursors = (scan.above, scan.next);
    }

    /// Reads and locks the next lower rows, at least one; returns false at the end of the range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn next_batch_below(
        &mut self,
        index: &Index,
        scan: &mut BackwardScan,
        wanted: &ScanSpec<'_>,
    ) -> Result<bool, TxnError> {
        loop {
            if !self.start_batch(index, scan, wanted)? {
                return Ok(false);
            }
            self.read_batch_below(index, scan, wanted)?;
            if scan.batch.len() > 0 {
                return Ok(true);
            }
        }
    }

    /// Copies and locks the rows of one leaf, perhaps none, and records the reason for the batch's end.
    fn read_batch_below(
        &mut self,
        index: &Index,
        scan: &mut BackwardScan,
        wanted: &ScanSpec<'_>,
    ) -> Result<(), TxnError> {
        loop {
            let above = (!scan.unbounded).then_some(scan.above.as_slice());
            let leaf = index.tree().leaf_before(&self.engine.pool, above)?;
            let stop = self.gather_below(index, scan, wanted, leaf.frame().page_id(), leaf.page())?;
            if !leaf.is_valid() {
                continue;
            }
            scan.stop = Some(stop);
            return Ok(());
        }
    }

    /// Copies and locks the rows of one leaf, page `here`, with keys below `above`. Other threads may change the page
    /// during the copy.
    fn gather_below(
        &mut self,
        index: &Index,
        scan: &mut BackwardScan,
        wanted: &ScanSpec<'_>,
        here: PageId,
        page: PageRef<'_>,
    ) -> Result<BatchEnd, TxnError> {
        let BackwardScan { batch, above, unbounded, next, likely, gap_locked, .. } = scan;
        let names = &self.engine.locks.names;
        let gaps = self.locks_gaps();
        let key_mode = self.key_mode(wanted.access);
        let mode = if gaps { key_mode.union(RecordMode::GAP) } else { key_mode };
        // Each gap of the range extends down to the lower end of the range at most.
        let low = Prefix::of(wanted.from);
        next.clear();
        batch.clear();
        let position = if *unbounded { page.count() } else { page.lower_bound(above).0 };
        if gaps && !*gap_locked && !is_mutant(Mutant::SkipGapAbove) {
            let name = index.name_at(names, page, position, next);
            if self.try_lock(index, name, RecordMode::GAP, low)? == LockAttempt::MustWait {
                return Ok(BatchEnd::Wait(name, RecordMode::GAP, low));
            }
            next.clear();
        }
        for i in (0..position).rev() {
            let slot = page.slot(i);
            if !batch.add(i, |out| page.append_record(slot, !slot.is_ghost(), out)) {
                return Ok(BatchEnd::Leaf(here, low));
            }
            let row = batch.len() - 1;
            let key = batch.key(row);
            if key < wanted.from {
                batch.truncate(row);
                return Ok(BatchEnd::End);
            }
            let name = names.of(index.id(), key);
            if self.try_lock(index, name, mode, low)? == LockAttempt::MustWait {
                batch.truncate(row);
                return Ok(BatchEnd::Wait(name, mode, low));
            }
            if slot.flags != 0 {
                if slot.is_ghost() {
                    batch.truncate(row);
                    continue;
                }
                batch.refers();
            }
            if batch.len() >= *likely {
                return Ok(BatchEnd::Full);
            }
        }
        // The leaf has no more rows in the range. The scan continues with the leaf on its left, unless this leaf is the
        // first one or the range ends here.
        let more = page.append_low(next) && wanted.from < next.as_slice();
        Ok(if more { BatchEnd::Leaf(here, low) } else { BatchEnd::End })
    }
}
