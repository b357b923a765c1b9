//! Reading a range of an index, leaf by leaf, forwards or backwards.
//!
//! From each leaf the rows of the range are copied out and their keys and gaps locked, all without waiting; then the
//! leaf's version is validated, and only then does the caller see the rows. A lock that another transaction holds ends
//! the batch before it: the rows before it are delivered, the scan waits for the lock with no latch held, and goes on
//! from that key.
//!
//! A scan owns its rows and its position. Between two batches it borrows nothing of the transaction, which may read
//! other rows then, or the same ones.

use std::ops::ControlFlow;

use super::index::{Index, LockAttempt, Want};
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::{LockName, Prefix, RecordMode};
use crate::page::PageRef;
use crate::txn::context::RowBatch;
use crate::txn::core::Txn;
use crate::txn::ghosts;

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

    /// Whether a backward scan stops short of `key`.
    #[inline]
    fn stops_above(self, key: &[u8]) -> bool {
        match self {
            ScanEnd::With(end) => key < end,
            ScanEnd::Before(end) => key <= end,
            ScanEnd::Never => false,
        }
    }
}

/// Ghosts in one leaf that make a scan take them out.
const MANY_GHOSTS: usize = 12;

/// Whether a scan should remove the ghosts that it meets in a leaf, or the whole leaf: there are many, or nothing else.
#[inline]
fn wants_purge(page: PageRef<'_>) -> bool {
    let ghosts = page.ghosts();
    ghosts >= MANY_GHOSTS || ghosts >= page.count()
}

/// How the work on one leaf ended.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// The range is exhausted.
    End,
    /// The leaf, which is this page, is exhausted: the scan goes on at the key left in `next`, and from here on the
    /// range reaches down into the gap below that key.
    Leaf(PageId, Prefix),
    /// The batch is full: the scan goes on behind the last row.
    Full,
    /// This lock has to be waited for; the scan goes on behind the last row.
    Wait(LockName, RecordMode, Prefix),
}

/// The parameters of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanSpec<'k> {
    /// First key of a forward scan. Ignored by a backward one.
    pub(crate) from: &'k [u8],
    /// Where it ends.
    pub(crate) to: ScanEnd<'k>,
    /// What the statement will do with the rows.
    pub(crate) want: Want,
    /// Rows that probably suffice.
    pub(crate) likely: usize,
}

/// Where a batch of rows was read: a frame and its version.
pub(crate) type BatchPlace = (u32, Version);

/// A scan in ascending order, between two batches.
#[derive(Debug)]
pub(crate) struct ForwardScan<'k> {
    wanted: ScanSpec<'k>,
    /// The rows of the last batch, all from one leaf and locked.
    pub(crate) batch: RowBatch,
    /// Where the scan is, once it has started.
    cursor: Vec<u8>,
    next: Vec<u8>,
    likely: usize,
    /// How far down the range reaches into the gap below the next key: at first to the range's beginning, then all the
    /// way.
    low: Prefix,
    /// The leaf whose ghosts this scan has tried to remove.
    purged: PageId,
    /// How the last batch ended.
    stop: Option<Stop>,
    started: bool,
    /// It has begun behind ghosts that this transaction has passed before, and has locked.
    behind_run: bool,
    delivered: bool,
}

impl<'k> ForwardScan<'k> {
    /// The key from which the rest of the range is searched.
    #[inline]
    fn at(&self) -> &[u8] {
        if self.started { &self.cursor } else { self.wanted.from }
    }

    #[inline]
    fn go_to_next(&mut self, low: Prefix) {
        self.low = low;
        std::mem::swap(&mut self.cursor, &mut self.next);
        self.started = true;
    }

    #[inline]
    fn go_behind_last(&mut self) {
        self.next.clear();
        self.next.extend_from_slice(self.batch.key(self.batch.len() - 1));
        self.next.push(0);
        self.go_to_next(Prefix::MIN);
    }
}

impl Txn<'_> {
    /// Visits the rows of a range in ascending order until `visit` breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn scan(
        &mut self,
        index: &Index,
        wanted: ScanSpec<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        self.scan_batches(index, wanted, |_, batch, _| Ok(batch.visit(&mut visit)))
    }

    /// Visits the rows of a range in batches, each from one leaf and locked; `visit` may use the transaction.
    pub(crate) fn scan_batches(
        &mut self,
        index: &Index,
        wanted: ScanSpec<'_>,
        mut visit: impl FnMut(&mut Self, &RowBatch, BatchPlace) -> Result<ControlFlow<()>, TxnError>,
    ) -> Result<(), TxnError> {
        let mut scan = self.begin_scan(index, wanted)?;
        let result = loop {
            let visited = match self.next_batch(index, &mut scan) {
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

    /// Begins a scan. [`Txn::next_batch`] reads, and [`Txn::end_scan`] should follow for the sake of the buffers.
    ///
    /// # Errors
    /// Those of the table's lock.
    #[inline]
    pub(crate) fn begin_scan<'k>(&mut self, index: &Index, wanted: ScanSpec<'k>) -> Result<ForwardScan<'k>, TxnError> {
        self.intend(index, wanted.want)?;
        let gaps = self.locks_gaps();
        let cx = self.claim.context();
        let (cursor, next) = std::mem::take(&mut cx.cursors);
        let mut scan = ForwardScan {
            wanted,
            batch: std::mem::take(&mut cx.batch),
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
        if !cx.ghosts.is_empty()
            && gaps
            && let Some(end) = cx.ghosts.end_of(index.tree.index, wanted.from)
        {
            if wanted.to.stops_before(end) || wanted.to == ScanEnd::Before(end) {
                scan.stop = Some(Stop::End);
            }
            scan.cursor.clear();
            scan.cursor.extend_from_slice(end);
            (scan.behind_run, scan.started, scan.low) = (true, true, Prefix::MIN);
        }
        Ok(scan)
    }

    /// Gives the buffers of a scan back. A transaction keeps those of one scan: of nested ones, those of the outer one.
    #[inline]
    pub(crate) fn end_scan(&mut self, scan: ForwardScan<'_>) {
        let cx = self.claim.context();
        cx.batch = scan.batch;
        cx.cursors = (scan.cursor, scan.next);
    }

    /// Reads and locks the next rows, at least one; `None` at the end of the range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn next_batch(
        &mut self,
        index: &Index,
        scan: &mut ForwardScan<'_>,
    ) -> Result<Option<BatchPlace>, TxnError> {
        loop {
            match scan.stop {
                None => {}
                Some(Stop::End) => return Ok(None),
                // The next key lies beyond the leaf: if a damaged tree led back, the scan would never end.
                Some(Stop::Leaf(_, below)) if scan.next.as_slice() > scan.at() => scan.go_to_next(below),
                Some(Stop::Leaf(page, _)) => {
                    return Err(index.tree.damaged(&self.core.pool, page, "ends before it begins").into());
                }
                Some(Stop::Full) => {
                    scan.go_behind_last();
                    scan.likely = scan.likely.saturating_mul(8);
                }
                Some(Stop::Wait(name, mode, from)) => {
                    self.wait_for(index, name, mode, from)?;
                    // Before the lock was requested the gap below the key was unprotected: a row may have come into it.
                    // So the scan goes on behind the last row it has delivered, not at the key.
                    if scan.batch.len() > 0 {
                        scan.go_behind_last();
                    }
                }
            }
            let place = self.read_batch(index, scan)?;
            if scan.batch.len() == 0 {
                continue;
            }
            if !scan.delivered {
                scan.delivered = true;
                if (scan.behind_run || scan.batch.ghosts >= ghosts::WORTH) && self.locks_gaps() {
                    self.claim.context().ghosts.note(index.tree.index, scan.wanted.from, scan.batch.key(0));
                }
            }
            return Ok(Some(place));
        }
    }

    /// Copies and locks the rows of one leaf, which may be none, and notes how that ended.
    fn read_batch(&mut self, index: &Index, scan: &mut ForwardScan<'_>) -> Result<BatchPlace, TxnError> {
        loop {
            let leaf = index.tree.find(&self.core.pool, scan.at())?;
            // Before the scan locks any of them: a locked ghost stays.
            let page = leaf.read.frame().page_id();
            if scan.behind_run && scan.purged.is_none() {
                // The ghosts here are this transaction's own, which stay until it ends.
                scan.purged = page;
            }
            if scan.purged != page && page != index.tree.root && wants_purge(leaf.read.page()) {
                drop(leaf);
                scan.purged = page;
                match self.purge_leaf(index, scan.at()) {
                    // This only helps later readers, so it can wait while the disk is full.
                    Ok(_) | Err(TxnError::Storage(StorageError::NoSpace { .. })) => continue,
                    Err(error) => return Err(error),
                }
            }
            let stop = self.gather(index, scan, leaf.read.page(), leaf.position)?;
            if !leaf.read.is_valid() {
                continue;
            }
            scan.stop = Some(match stop {
                Stop::Leaf(_, low) => Stop::Leaf(page, low),
                stop => stop,
            });
            return Ok((self.core.pool.index_of(leaf.read.frame()), leaf.read.version()));
        }
    }

    /// Copies and locks the rows of one leaf from `position` on. The page may be changing.
    fn gather(
        &mut self,
        index: &Index,
        scan: &mut ForwardScan<'_>,
        page: PageRef<'_>,
        position: usize,
    ) -> Result<Stop, TxnError> {
        let mut low = scan.low;
        let ForwardScan { wanted, batch, next, likely, .. } = scan;
        let names = &self.core.locks.names;
        let gaps = self.locks_gaps();
        let key_mode = self.key_mode(wanted.want);
        let both = if gaps { key_mode.union(RecordMode::GAP) } else { key_mode };
        next.clear();
        batch.clear();
        for i in position..page.count() {
            let slot = page.slot(i);
            let value = |out: &mut Vec<u8>| slot.is_ghost() || page.append_value(slot, out);
            if !batch.add(i, |out| page.append_key(i, out), value) {
                return Ok(Stop::Leaf(PageId::NONE, low));
            }
            let row = batch.len() - 1;
            let key = batch.key(row);
            let beyond = wanted.to.stops_before(key);
            let mode = if beyond { RecordMode::GAP } else { both };
            if !beyond || gaps {
                let name = names.of(index.tree.index, key);
                if self.try_lock(index, name, mode, low)? == LockAttempt::MustWait {
                    batch.truncate(row);
                    return Ok(Stop::Wait(name, mode, low));
                }
                low = Prefix::MIN;
            }
            if beyond || slot.is_ghost() {
                batch.truncate(row);
                batch.ghosts += 1;
            }
            if beyond {
                return Ok(Stop::End);
            }
            if batch.len() >= *likely {
                return Ok(Stop::Full);
            }
        }
        let more = page.append_high(next);
        let over = !more || wanted.to.stops_before(next) || wanted.to == ScanEnd::Before(next);
        if gaps {
            let name = if more { names.of(index.tree.index, next) } else { names.supremum(index.tree.index) };
            if self.try_lock(index, name, RecordMode::GAP, low)? == LockAttempt::MustWait {
                // Gap locks never exclude each other; a waiting insert may be ahead in the queue.
                return Ok(Stop::Wait(name, RecordMode::GAP, low));
            }
        }
        Ok(if over { Stop::End } else { Stop::Leaf(PageId::NONE, low) })
    }

    /// Visits the rows of a range in descending order, from `from` (or the index's end) down, until `visit` breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn scan_backward(
        &mut self,
        index: &Index,
        mut scan: BackwardScan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        while self.next_below(index, &mut scan)? {
            if visit(&scan.key, &scan.value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Reads and locks the next row of a scan in descending order; false at the end of the range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn next_below(&mut self, index: &Index, scan: &mut BackwardScan<'_>) -> Result<bool, TxnError> {
        if !scan.started {
            self.intend(index, scan.want)?;
            scan.started = true;
        }
        let names = &self.core.locks.names;
        let (gaps, mode) = (self.locks_gaps(), self.key_mode(scan.want));
        loop {
            scan.go_below_last();
            let BackwardScan { to, above, key, value, low, .. } = scan;
            let (to, low) = (*to, *low);
            let leaf = index.tree.leaf_before(&self.core.pool, above.as_deref())?;
            let page = leaf.page();
            let position = above.as_deref().map_or(page.count(), |a| page.lower_bound(a).0);
            // One row a round: a backward scan is nearly always for the newest row.
            let mut waits = None;
            let mut found = false;
            let mut ghost = false;
            if gaps && !scan.gap_above_locked {
                let name = index.name_at(names, page, position, key);
                if self.try_lock(index, name, RecordMode::GAP, low)? == LockAttempt::MustWait {
                    waits = Some((name, RecordMode::GAP));
                }
            }
            key.clear();
            value.clear();
            let mut beyond = false;
            if waits.is_none() && position > 0 {
                let slot = page.slot(position - 1);
                ghost = slot.is_ghost();
                found = page.append_key(position - 1, key) && page.append_value(slot, value);
                beyond = found && to.stops_above(key);
                if found && !beyond {
                    let mode = if gaps { mode.union(RecordMode::GAP) } else { mode };
                    let name = names.of(index.tree.index, key);
                    if self.try_lock(index, name, mode, low)? == LockAttempt::MustWait {
                        waits = Some((name, mode));
                    }
                }
            }
            let below = if position == 0 { page.low_fence() } else { None };
            let here = leaf.frame().page_id();
            if !leaf.is_valid() {
                continue;
            }
            drop(leaf);
            if let Some((name, mode)) = waits {
                self.wait_for(index, name, mode, low)?;
                continue;
            }
            scan.gap_above_locked = true;
            if beyond {
                return Ok(false);
            }
            if position == 0 {
                // No row is left here: on to the leaf on the left, unless this is the first or the range ends here.
                let Some(fence) = below else { return Ok(false) };
                if above.as_ref().is_some_and(|above| fence >= *above) {
                    return Err(index.tree.damaged(&self.core.pool, here, "begins behind its end").into());
                }
                let nothing_below = match to {
                    ScanEnd::With(key) | ScanEnd::Before(key) => key >= fence.as_slice(),
                    ScanEnd::Never => false,
                };
                if nothing_below {
                    return Ok(false);
                }
                *above = Some(fence);
                scan.gap_above_locked = false;
                continue;
            }
            scan.passed = found;
            if found && !ghost {
                return Ok(true);
            }
        }
    }
}

/// A scan in descending order, between two rows.
#[derive(Debug)]
pub(crate) struct BackwardScan<'k> {
    to: ScanEnd<'k>,
    want: Want,
    low: Prefix,
    /// The upper end of the rest of the range.
    above: Option<Vec<u8>>,
    /// The last row.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// The rest of the range lies below `key`.
    passed: bool,
    gap_above_locked: bool,
    started: bool,
}

impl<'k> BackwardScan<'k> {
    /// The rows from `from` (or the index's end) down to `to`.
    pub(crate) fn new(from: ScanEnd<'_>, to: ScanEnd<'k>, want: Want) -> BackwardScan<'k> {
        let low = match to {
            ScanEnd::With(key) | ScanEnd::Before(key) => Prefix::of(key),
            ScanEnd::Never => Prefix::MIN,
        };
        let above = match from {
            ScanEnd::With(key) => Some([key, &[0]].concat()),
            ScanEnd::Before(key) => Some(key.to_vec()),
            ScanEnd::Never => None,
        };
        let (key, value) = (Vec::new(), Vec::new());
        BackwardScan { to, want, low, above, key, value, passed: false, gap_above_locked: false, started: false }
    }

    fn go_below_last(&mut self) {
        if std::mem::take(&mut self.passed) {
            std::mem::swap(self.above.get_or_insert_default(), &mut self.key);
        }
    }
}
