//! Reading a range of an index, leaf by leaf, forwards or backwards.
//!
//! From each leaf the rows of the range are copied out and their keys and gaps locked, all without waiting; then the
//! leaf's version is validated, and only then does the caller see the rows. A lock that another transaction holds ends
//! the batch before it: the rows before it are delivered, the scan waits for the lock with no latch held, and goes on
//! from that key.

use std::ops::ControlFlow;

use super::index::{Index, LockAttempt, Want};
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::PageId;
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
#[derive(Debug)]
enum Stop {
    /// The range is exhausted.
    ScanEnd,
    /// The leaf is exhausted: the scan goes on at the key left in `cursor`, and from here on the range reaches down
    /// into the gap below that key.
    Leaf(Prefix),
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
        self.scan_batches(index, wanted, |_, batch, _| {
            for i in 0..batch.len() {
                if visit(batch.key(i), batch.value(i)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits the rows of a range in batches, each from one leaf and locked; `visit` may use the transaction.
    pub(crate) fn scan_batches(
        &mut self,
        index: &Index,
        wanted: ScanSpec<'_>,
        mut visit: impl FnMut(
            &mut Self,
            &RowBatch,
            Option<(u32, crate::latch::Version)>,
        ) -> Result<ControlFlow<()>, TxnError>,
    ) -> Result<(), TxnError> {
        self.intend(index, wanted.want)?;
        let cx = self.claim.context();
        let mut batch = std::mem::take(&mut cx.batch);
        let (mut cursor, mut next) = std::mem::take(&mut cx.cursors);
        let result = self.scan_with(index, wanted, &mut batch, &mut cursor, &mut next, &mut visit);
        let cx = self.claim.context();
        cx.batch = batch;
        cx.cursors = (cursor, next);
        result
    }

    fn scan_with(
        &mut self,
        index: &Index,
        wanted: ScanSpec<'_>,
        batch: &mut RowBatch,
        cursor: &mut Vec<u8>,
        next: &mut Vec<u8>,
        visit: &mut impl FnMut(
            &mut Self,
            &RowBatch,
            Option<(u32, crate::latch::Version)>,
        ) -> Result<ControlFlow<()>, TxnError>,
    ) -> Result<(), TxnError> {
        let mut started = false;
        let mut likely = wanted.likely.max(1);
        // How far down the range reaches into the gap below the next key: at first to the range's beginning, then all
        // the way.
        let mut low = Prefix::of(wanted.from);
        // The leaf whose ghosts this scan has tried to remove.
        let mut purged = PageId::NONE;
        batch.ghosts = 0;
        // Begin behind ghosts that this transaction has passed before, and has locked.
        let mut behind_run = false;
        if !self.claim.peek().ghosts.is_empty()
            && self.locks_gaps()
            && let Some(end) = self.claim.peek().ghosts.end_of(index.tree.index, wanted.from)
        {
            if wanted.to.stops_before(end) || wanted.to == ScanEnd::Before(end) {
                return Ok(());
            }
            cursor.clear();
            cursor.extend_from_slice(end);
            (behind_run, started, low) = (true, true, Prefix::MIN);
        }
        let mut delivered = false;
        loop {
            let at = if started { cursor.as_slice() } else { wanted.from };
            let leaf = index.tree.find(&self.core.pool, at)?;
            // Before the scan locks any of them: a locked ghost stays.
            let page = leaf.read.frame().page_id();
            if behind_run && purged.is_none() {
                // The ghosts here are this transaction's own, which stay until it ends.
                purged = page;
            }
            if purged != page && page != index.tree.root && wants_purge(leaf.read.page()) {
                drop(leaf);
                purged = page;
                match self.purge_leaf(index, at) {
                    // This only helps later readers, so it can wait while the disk is full.
                    Ok(_) | Err(TxnError::Storage(StorageError::NoSpace { .. })) => continue,
                    Err(error) => return Err(error),
                }
            }
            next.clear();
            let stop = self.gather(index, &wanted, leaf.read.page(), leaf.position, low, likely, batch, next)?;
            if !leaf.read.is_valid() {
                continue;
            }
            let place = (self.core.pool.index_of(leaf.read.frame()), leaf.read.version());
            drop(leaf);
            if batch.len() > 0 && !delivered {
                delivered = true;
                if (behind_run || batch.ghosts >= ghosts::WORTH) && self.locks_gaps() {
                    self.claim.context().ghosts.note(index.tree.index, wanted.from, batch.key(0));
                }
            }
            if batch.len() > 0 && visit(self, batch, Some(place))?.is_break() {
                return Ok(());
            }
            match stop {
                Stop::ScanEnd => return Ok(()),
                // The next key lies beyond the leaf: if a damaged tree led back, the scan would never end.
                Stop::Leaf(below) if next.as_slice() > at => low = below,
                Stop::Leaf(_) => return Err(index.tree.damaged(&self.core.pool, page, "ends before it begins").into()),
                Stop::Full => {
                    next.clear();
                    next.extend_from_slice(batch.key(batch.len() - 1));
                    next.push(0);
                    low = Prefix::MIN;
                    likely = likely.saturating_mul(8);
                }
                Stop::Wait(name, mode, from) => {
                    self.wait_for(index, name, mode, from)?;
                    // Before the lock was requested the gap below the key was unprotected: a row may have come into it.
                    // So the scan goes on behind the last row it has delivered, not at the key.
                    if batch.len() == 0 {
                        continue;
                    }
                    next.clear();
                    next.extend_from_slice(batch.key(batch.len() - 1));
                    next.push(0);
                    low = Prefix::MIN;
                }
            }
            std::mem::swap(cursor, next);
            started = true;
        }
    }

    /// Copies and locks the rows of one leaf from `position` on. The page may be changing.
    #[allow(clippy::too_many_arguments)]
    fn gather(
        &mut self,
        index: &Index,
        wanted: &ScanSpec<'_>,
        page: PageRef<'_>,
        position: usize,
        mut low: Prefix,
        likely: usize,
        batch: &mut RowBatch,
        next: &mut Vec<u8>,
    ) -> Result<Stop, TxnError> {
        let names = &self.core.locks.names;
        let gaps = self.locks_gaps();
        let key_mode = self.key_mode(wanted.want);
        let both = if gaps { key_mode.union(RecordMode::GAP) } else { key_mode };
        batch.clear();
        for i in position..page.count() {
            let slot = page.slot(i);
            let value = |out: &mut Vec<u8>| slot.is_ghost() || page.append_value(slot, out);
            if !batch.add(i, |out| page.append_key(i, out), value) {
                return Ok(Stop::Leaf(low));
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
                return Ok(Stop::ScanEnd);
            }
            if batch.len() >= likely {
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
        Ok(if over { Stop::ScanEnd } else { Stop::Leaf(low) })
    }

    /// Visits the rows of a range in descending order, from `from` (or the index's end) down, until `visit` breaks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn scan_backward(
        &mut self,
        index: &Index,
        from: ScanEnd<'_>,
        to: ScanEnd<'_>,
        want: Want,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TxnError> {
        self.intend(index, want)?;
        let names = &self.core.locks.names;
        let (gaps, mode) = (self.locks_gaps(), self.key_mode(want));
        let low = match to {
            ScanEnd::With(key) | ScanEnd::Before(key) => Prefix::of(key),
            ScanEnd::Never => Prefix::MIN,
        };
        // The upper end of the rest of the range.
        let mut above: Option<Vec<u8>> = match from {
            ScanEnd::With(key) => Some([key, &[0]].concat()),
            ScanEnd::Before(key) => Some(key.to_vec()),
            ScanEnd::Never => None,
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut gap_above_locked = false;
        loop {
            let leaf = index.tree.leaf_before(&self.core.pool, above.as_deref())?;
            let page = leaf.page();
            let position = above.as_deref().map_or(page.count(), |a| page.lower_bound(a).0);
            // One row a round: a backward scan is nearly always for the newest row.
            let mut waits = None;
            let mut found = false;
            let mut ghost = false;
            if gaps && !gap_above_locked {
                let name = index.name_at(names, page, position, &mut key);
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
                found = page.append_key(position - 1, &mut key) && page.append_value(slot, &mut value);
                beyond = found && to.stops_above(&key);
                if found && !beyond {
                    let mode = if gaps { mode.union(RecordMode::GAP) } else { mode };
                    let name = names.of(index.tree.index, &key);
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
            gap_above_locked = true;
            if beyond {
                return Ok(());
            }
            if position == 0 {
                // No row is left here: on to the leaf on the left, unless this is the first or the range ends here.
                let Some(fence) = below else { return Ok(()) };
                if above.as_ref().is_some_and(|above| fence >= *above) {
                    return Err(index.tree.damaged(&self.core.pool, here, "begins behind its end").into());
                }
                let nothing_below = match to {
                    ScanEnd::With(key) | ScanEnd::Before(key) => key >= fence.as_slice(),
                    ScanEnd::Never => false,
                };
                if nothing_below {
                    return Ok(());
                }
                above = Some(fence);
                gap_above_locked = false;
                continue;
            }
            if found {
                if !ghost && visit(&key, &value).is_break() {
                    return Ok(());
                }
                above = Some(key.clone());
            }
        }
    }
}
