//! Scans in ascending order.

use std::ops::ControlFlow;

use super::{BatchEnd, BatchPlace, Scan, ScanEnd, ScanSpec};
use crate::base::error::TxnError;
use crate::base::ids::PageId;
use crate::lock::{Prefix, RecordMode};
use crate::page::PageRef;
use crate::table::index::{Index, LockAttempt};
use crate::txn::buffers::RowBatch;
use crate::txn::ghosts;
use crate::txn::transaction::Txn;

/// Minimum number of ghosts in a leaf for which a scan purges the leaf.
const MANY_GHOSTS: usize = 12;

/// Returns true if a scan should purge a leaf: the leaf has many ghosts, or only ghosts.
#[inline]
fn wants_purge(page: PageRef<'_>) -> bool {
    let ghosts = page.ghosts();
    ghosts >= MANY_GHOSTS || ghosts >= page.count()
}

/// A scan in ascending order, between two batches.
#[derive(Debug)]
pub(crate) struct ForwardScan {
    /// Rows of the last batch, all from one leaf and locked.
    pub(crate) batch: RowBatch,
    /// Current position, once the scan has started.
    cursor: Vec<u8>,
    next: Vec<u8>,
    likely: usize,
    /// Lower end of the range within the gap below the next key, as a key prefix. At first this is the start of the
    /// range; later the range contains the whole gap.
    low: Prefix,
    /// Last leaf whose ghosts this scan has tried to remove.
    purged: PageId,
    /// Reason for the end of the last batch.
    stop: Option<BatchEnd>,
    started: bool,
    /// True if the scan skipped a run of ghosts that this transaction had scanned and locked before.
    behind_run: bool,
    delivered: bool,
}

impl ForwardScan {
    /// Returns the key at which the scan continues.
    #[inline]
    fn at<'k>(&'k self, wanted: &ScanSpec<'k>) -> &'k [u8] {
        if self.started { &self.cursor } else { wanted.from }
    }

    /// Returns true if there is no further batch.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stop, Some(BatchEnd::End))
    }
}

impl Scan for ForwardScan {
    const LEADS_BACK: &'static str = "ends before it begins";

    #[inline]
    fn stop(&self) -> Option<BatchEnd> {
        self.stop
    }

    #[inline]
    fn rows(&self) -> usize {
        self.batch.len()
    }

    #[inline]
    fn advances(&self, wanted: &ScanSpec<'_>) -> bool {
        self.next.as_slice() > self.at(wanted)
    }

    #[inline]
    fn go_to_fence(&mut self, low: Prefix) {
        self.low = low;
        std::mem::swap(&mut self.cursor, &mut self.next);
        self.started = true;
    }

    #[inline]
    fn go_past_last(&mut self) {
        self.next.clear();
        self.next.extend_from_slice(self.batch.key(self.batch.len() - 1));
        self.next.push(0);
        self.go_to_fence(Prefix::MIN);
    }

    #[inline]
    fn expect_more(&mut self) {
        self.likely = self.likely.saturating_mul(8);
    }
}

impl Txn<'_> {
    /// Calls `visit` for the rows of a range in ascending order until it breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn scan(
        &mut self,
        index: &Index,
        wanted: ScanSpec<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        self.scan_batches(index, wanted, |txn, batch, _| {
            if batch.has_references() { txn.visit_large(index, batch, &mut visit) } else { Ok(batch.visit(&mut visit)) }
        })
    }

    /// Calls `visit` for batches of rows of a range, each from one leaf and locked; `visit` may use the transaction.
    pub(crate) fn scan_batches(
        &mut self,
        index: &Index,
        wanted: ScanSpec<'_>,
        mut visit: impl FnMut(&mut Self, &RowBatch, BatchPlace) -> Result<ControlFlow<()>, TxnError>,
    ) -> Result<(), TxnError> {
        let mut scan = self.begin_scan(index, &wanted)?;
        let result = loop {
            let visited = match self.next_batch(index, &mut scan, &wanted) {
                Ok(Some(place)) => visit(self, &scan.batch, place),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            match visited {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end_scan(scan);
        result
    }

    /// Begins a scan. [`Txn::next_batch`] reads rows, and [`Txn::end_scan`] returns the buffers.
    ///
    /// # Errors
    /// Errors of the table's lock.
    #[inline]
    pub(crate) fn begin_scan(&mut self, index: &Index, wanted: &ScanSpec<'_>) -> Result<ForwardScan, TxnError> {
        self.intend(index, wanted.access)?;
        let gaps = self.locks_gaps();
        let state = self.slot.state();
        let (cursor, next) = std::mem::take(&mut state.cursors);
        let mut scan = ForwardScan {
            batch: std::mem::take(&mut state.batch),
            cursor,
            next,
            likely: wanted.likely.max(1),
            low: Prefix::of(wanted.from),
            purged: PageId::NONE,
            stop: None,
            started: false,
            behind_run: false,
            delivered: false,
        };
        scan.batch.ghosts = 0;
        if !state.ghosts.is_empty()
            && gaps
            && let Some(end) = state.ghosts.end_of(index.id(), wanted.from)
        {
            if wanted.to.stops_before(end) || wanted.to == ScanEnd::Before(end) {
                scan.stop = Some(BatchEnd::End);
            }
            scan.cursor.clear();
            scan.cursor.extend_from_slice(end);
            (scan.behind_run, scan.started, scan.low) = (true, true, Prefix::MIN);
        }
        Ok(scan)
    }

    /// Returns the buffers of a scan to the transaction.
    #[inline]
    pub(crate) fn end_scan(&mut self, scan: ForwardScan) {
        let state = self.slot.state();
        state.batch = scan.batch;
        state.cursors = (scan.cursor, scan.next);
    }

    /// Reads and locks the next rows, at least one; `None` at the end of the range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn next_batch(
        &mut self,
        index: &Index,
        scan: &mut ForwardScan,
        wanted: &ScanSpec<'_>,
    ) -> Result<Option<BatchPlace>, TxnError> {
        loop {
            if !self.start_batch(index, scan, wanted)? {
                return Ok(None);
            }
            let place = self.read_batch(index, scan, wanted)?;
            if scan.batch.len() == 0 {
                continue;
            }
            if !scan.delivered {
                scan.delivered = true;
                if (scan.behind_run || scan.batch.ghosts >= ghosts::MIN_GHOSTS) && self.locks_gaps() {
                    self.slot.state().ghosts.note(index.id(), wanted.from, scan.batch.key(0));
                }
            }
            return Ok(Some(place));
        }
    }

    /// Copies and locks the rows of one leaf, perhaps none, and records the reason for the batch's end.
    fn read_batch(
        &mut self,
        index: &Index,
        scan: &mut ForwardScan,
        wanted: &ScanSpec<'_>,
    ) -> Result<BatchPlace, TxnError> {
        loop {
            let leaf = index.tree().find(&self.engine.pool, scan.at(wanted))?;
            // The purge comes before the scan locks any row of the leaf: a locked ghost cannot be removed.
            let page = leaf.read.frame().page_id();
            if scan.behind_run && scan.purged.is_none() {
                // The ghosts of this leaf belong to this transaction and stay until the transaction ends.
                scan.purged = page;
            }
            let is_new = scan.purged != page && page != index.tree().root;
            let may_log = || !self.engine.poison.is_closed() && !self.engine.log.is_throttled();
            if is_new && wants_purge(leaf.read.page()) && may_log() {
                drop(leaf);
                scan.purged = page;
                // The purge only helps later readers. The scan itself needs neither the log nor the neighbouring pages,
                // so errors of the purge are not reported by the scan.
                let _ = self.purge_leaf(index, scan.at(wanted));
                continue;
            }
            let stop = self.gather(index, scan, wanted, page, leaf.read.page(), leaf.position)?;
            if !leaf.read.is_valid() {
                continue;
            }
            scan.stop = Some(stop);
            return Ok((self.engine.pool.index_of(leaf.read.frame()), leaf.read.version()));
        }
    }

    /// Copies and locks the rows of one leaf, page `here`, from slot `position` on. Other threads may change the page
    /// during the copy.
    ///
    /// Not inlined, so that its loop can use all registers.
    #[inline(never)]
    fn gather(
        &mut self,
        index: &Index,
        scan: &mut ForwardScan,
        wanted: &ScanSpec<'_>,
        here: PageId,
        page: PageRef<'_>,
        position: usize,
    ) -> Result<BatchEnd, TxnError> {
        let mut low = scan.low;
        let ForwardScan { batch, next, likely, .. } = scan;
        let names = &self.engine.locks.names;
        let gaps = self.locks_gaps();
        let key_mode = self.key_mode(wanted.access);
        let mode = if gaps { key_mode.union(RecordMode::GAP) } else { key_mode };
        next.clear();
        batch.clear();
        // If the range ends before it begins, `end` is `position` and no row is copied.
        let (count, end) = (page.count(), wanted.to.position_in(page).max(position));
        for i in position..end {
            let slot = page.slot(i);
            if !batch.add(i, |out| page.append_record(slot, !slot.is_ghost(), out)) {
                return Ok(BatchEnd::Leaf(here, low));
            }
            let row = batch.len() - 1;
            let name = names.of(index.id(), batch.key(row));
            if self.try_lock_row(index, name, mode, low)? == LockAttempt::MustWait {
                batch.truncate(row);
                return Ok(BatchEnd::Wait(name, mode, low));
            }
            low = Prefix::MIN;
            if slot.flags != 0 {
                if slot.is_ghost() {
                    batch.truncate(row);
                    batch.ghosts += 1;
                } else {
                    batch.refers();
                }
            }
            if batch.len() >= *likely {
                return Ok(BatchEnd::Full);
            }
        }
        // The range ends in the gap below the next key or, after the last key, below the fence.
        let is_inside = end < count;
        let more = if is_inside { page.append_key(end, next) } else { page.append_high(next) };
        if is_inside && !more {
            // The page is being changed, or is damaged. Damage is reported later, when the scan does not advance.
            next.clear();
            return Ok(BatchEnd::Leaf(here, low));
        }
        let over = is_inside || !more || wanted.to.stops_before(next) || wanted.to == ScanEnd::Before(next);
        if gaps {
            let name = if more { names.of(index.id(), next) } else { names.supremum(index.id()) };
            if self.try_lock(index, name, RecordMode::GAP, low)? == LockAttempt::MustWait {
                // Gap locks never conflict with each other, but a waiting insert may be ahead in the queue.
                return Ok(BatchEnd::Wait(name, RecordMode::GAP, low));
            }
        }
        Ok(if over { BatchEnd::End } else { BatchEnd::Leaf(here, low) })
    }
}
