//! Statements on several rows. If possible, all rows share a log record, and neighbouring rows share one descent of the
//! tree and one latch.

use std::ops::{ControlFlow, Range};

use super::columns::{NOTHING, bytes_until, changed_range};
use super::index::{AccessMode, Index, LockAttempt};
use super::overflow::fits_slot;
use super::scan::{ScanEnd, ScanSpec};
use super::write::difference;
use crate::base::bytes::{compare_few, copy_few};
use crate::base::error::TxnError;
use crate::base::ids::{Lsn, PageId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sites::site;
use crate::btree::group::{GROUP, KeyHint, RowPart};
use crate::btree::ops;
use crate::btree::row_sections::{self, RowAt, RowsBefore};
use crate::buffer::frame::FrameWrite;
use crate::lock::{InsertCheck, LockName, Prefix, RecordMode};
use crate::log::RecordKind;
use crate::page::layout::{RECORD_HEAD, SLOT};
use crate::txn::buffers::RowBatch;
use crate::txn::positions::LeafSpot;
use crate::txn::transaction::Txn;

/// Maximum number of rows in one log record.
const MOST: usize = 64;
/// Maximum number of times that the rows of one log record are tried again together.
const MOST_RETRIES: u32 = 4;
/// Maximum number of rows written together if they lie in different leaves.
const TOGETHER: usize = GROUP;

/// Returns the number of leading keys that are written in one turn. A repeated key is left to the next turn, which
/// reads the row as changed by this turn.
fn turn(keys: &[&[u8]]) -> usize {
    let most = keys.len().min(TOGETHER);
    // Ascending keys are distinct. Most callers sort the keys, so that all transactions lock rows in the same order.
    if keys[..most].is_sorted_by(|a, b| compare_few(a, b).is_lt()) {
        return most;
    }
    (1..most).find(|&n| keys[..n].contains(&keys[n])).unwrap_or(most)
}

/// Result of an attempt to insert rows together.
enum RunAttempt {
    /// This number of rows was inserted.
    Inserted(usize),
    /// Another thread has changed the leaf since it was read, or the log had no segment ready.
    Again,
    /// The rows cannot be inserted together. [`Txn::insert`] handles the first one.
    Single,
}

impl Txn<'_> {
    /// Inserts rows with ascending keys. Rows that belong in one gap of one leaf are inserted together.
    ///
    /// # Errors
    /// See [`TxnError`]. Rows before the failed row stay inserted: the caller rolls back to a savepoint.
    pub(crate) fn insert_run(&mut self, index: &Index, rows: &[(&[u8], &[u8])]) -> Result<(), TxnError> {
        self.intend(index, AccessMode::Write)?;
        self.rows_come(index);
        for (i, (key, row)) in rows.iter().enumerate() {
            self.check_sizes(index, key, row.len())?;
            if i > 0 && compare_few(rows[i - 1].0, key).is_ge() {
                return Err(TxnError::NotAscending { table: index.table() });
            }
        }
        for rows in rows.chunks(MOST) {
            let mut names = [LockName::NONE; MOST];
            for (name, (key, _)) in names.iter_mut().zip(rows) {
                *name = self.engine.locks.name_ahead(index.id(), key);
            }
            let (mut at, mut retries) = (0, 0);
            while at < rows.len() {
                match self.insert_together(index, &rows[at..], &names[at..rows.len()])? {
                    RunAttempt::Inserted(n) => at += n,
                    // Other writers can overtake a run again and again. A single insert locks less before it latches the leaf.
                    RunAttempt::Again if retries < MOST_RETRIES => retries += 1,
                    RunAttempt::Again | RunAttempt::Single => {
                        self.insert(index, rows[at].0, rows[at].1)?;
                        at += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Inserts as many of the rows as fit one gap of one leaf; `names` are the lock names of their keys.
    fn insert_together(
        &mut self,
        index: &Index,
        rows: &[(&[u8], &[u8])],
        row_names: &[LockName],
    ) -> Result<RunAttempt, TxnError> {
        let leaf = match self.finger(index, rows[0].0) {
            Some(leaf) => leaf,
            None => index.tree().find(&self.engine.pool, rows[0].0)?,
        };
        let page = leaf.read.page();
        let (position, exact) = (leaf.position, leaf.exact);
        let names = &self.engine.locks.names;
        let state = self.slot.state();
        let next = index.name_at(names, page, position, &mut state.key);
        let ends = position < page.count() || !state.key.is_empty();
        let is_below = |key: &[u8]| !ends || compare_few(key, &state.key).is_lt();
        // Keys ascend, so if the last key lies in the gap, all keys do.
        let all_below = rows.last().is_some_and(|(key, _)| is_below(key));
        let mut room = page.free_bytes();
        let mut n = 0;
        for (key, row) in rows {
            // This is an upper bound: the page's prefix compression reduces the required space.
            let need = SLOT + RECORD_HEAD + key.len() + row.len();
            if need > room || !fits_slot(key.len(), row.len()) || !(all_below || is_below(key)) {
                break;
            }
            room -= need;
            n += 1;
        }
        // The insert of a single row reports a key that cannot belong in this leaf.
        let belong = rows[..n].iter().all(|(key, _)| page.may_share_prefix(key));
        if !leaf.read.is_valid() {
            return Ok(RunAttempt::Again);
        }
        if exact || n == 0 || !belong {
            return Ok(RunAttempt::Single);
        }
        for name in &row_names[..n] {
            if self.try_lock_row(index, *name, RecordMode::X, Prefix::MIN)? == LockAttempt::MustWait {
                return Ok(RunAttempt::Single);
            }
        }
        // A gap lock that excludes a smaller key also excludes the largest one.
        let prefix = Prefix::of(rows[n - 1].0);
        let Some(mut leaf) = leaf.read.upgrade() else { return Ok(RunAttempt::Again) };
        if self.slot.state().owner.check_insert(index.lock_table, next, prefix) != InsertCheck::Granted {
            leaf.release_unchanged();
            return Ok(RunAttempt::Single);
        }
        leaf.mark_dirty_at(|| self.engine.log.tail());
        self.begin_record(RecordKind::Data);
        let id = leaf.frame().page_id();
        let mut before = RowsBefore::none();
        let mut place = RowAt { page: id, tree: index.tree(), position };
        for (key, row) in &rows[..n] {
            row_sections::put_insert(&mut self.slot.state().rec, &place, key, &mut before, (row, 0));
            place.position += 1;
        }
        let lsn = match self.append_several(leaf.page().lsn(), n) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(leaf);
                refused.make_room(&self.engine.log)?;
                return Ok(RunAttempt::Again);
            }
        };
        let mut page = leaf.page_mut();
        page.insert_rows(position, &rows[..n]);
        page.set_lsn(lsn);
        self.release_inserted(index, rows[n - 1].0, position + n - 1, leaf);
        Ok(RunAttempt::Inserted(n))
    }

    /// Locks every row of `[from, to]` for writing and calls `change` to edit the row in place. Returns the number of
    /// rows. `change` must keep the row's length.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn modify_run(
        &mut self,
        index: &Index,
        from: &[u8],
        to: ScanEnd<'_>,
        mut change: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<usize, TxnError> {
        let wanted = ScanSpec { from, to, access: AccessMode::Write, likely: usize::MAX / 16 };
        let mut rows = 0;
        self.scan_batches(index, wanted, |txn, batch, place| {
            rows += batch.len();
            if batch.has_references() {
                txn.modify_one_by_one(index, batch, &mut change)?;
                return Ok(ControlFlow::Continue(()));
            }
            for first in (0..batch.len()).step_by(MOST) {
                let last = (first + MOST).min(batch.len());
                txn.modify_batch(index, batch, first..last, (first == 0).then_some(place), &mut change)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Changes the rows of one leaf one by one, because some of the rows are large.
    #[cold]
    fn modify_one_by_one(
        &mut self,
        index: &Index,
        batch: &RowBatch,
        change: &mut impl FnMut(&[u8], &mut [u8]),
    ) -> Result<(), TxnError> {
        for i in 0..batch.len() {
            let (key, value) = (batch.key(i), batch.value(i));
            let mut before = std::mem::take(&mut self.slot.state().before);
            before.clear();
            let read = match batch.row(i).is_reference {
                // The scan has locked the row for writing.
                true => self.read_referred(index, key, value, &mut before),
                false => {
                    before.extend_from_slice(value);
                    Ok(true)
                }
            };
            let state = self.slot.state();
            state.after.clear();
            state.after.extend_from_slice(&before);
            state.before = before;
            read?;
            change(key, &mut state.after);
            self.store(index, key, LeafSpot::NONE)?;
        }
        Ok(())
    }

    /// Changes the rows of one leaf, in one log record if the leaf has not changed since the rows were read.
    fn modify_batch(
        &mut self,
        index: &Index,
        batch: &RowBatch,
        range: std::ops::Range<usize>,
        place: Option<(u32, crate::latch::Version)>,
        change: &mut impl FnMut(&[u8], &mut [u8]),
    ) -> Result<(), TxnError> {
        // The new rows, concatenated.
        let mut after = std::mem::take(&mut self.slot.state().after);
        after.clear();
        for i in range.clone() {
            let start = after.len();
            after.extend_from_slice(batch.value(i));
            change(batch.key(i), &mut after[start..]);
        }
        let result = self.write_batch(index, batch, range, place, &after);
        self.slot.state().after = after;
        result
    }

    fn write_batch(
        &mut self,
        index: &Index,
        batch: &RowBatch,
        range: std::ops::Range<usize>,
        place: Option<(u32, crate::latch::Version)>,
        after: &[u8],
    ) -> Result<(), TxnError> {
        let latched = place.and_then(|(frame, version)| self.engine.pool.frame(frame).write_at(version));
        let Some(mut leaf) = latched else {
            if let Some((frame, version)) = place {
                let first = batch.row(range.start).position;
                self.note_contention(index, batch.key(range.start), LeafSpot { frame, version, position: first });
            }
            // Another thread has changed the leaf. The rows are locked and are written one by one.
            let mut start = 0;
            for i in range {
                let row = &after[start..start + batch.value(i).len()];
                start += row.len();
                let state = self.slot.state();
                state.before.clear();
                state.before.extend_from_slice(batch.value(i));
                state.after.clear();
                state.after.extend_from_slice(row);
                self.store(index, batch.key(i), LeafSpot::NONE)?;
            }
            return Ok(());
        };
        let id = leaf.frame().page_id();
        leaf.mark_dirty_at(|| self.engine.log.tail());
        self.begin_record(RecordKind::Data);
        let mut start = 0;
        let mut patches: [(u16, u16, u32, u16); MOST] = [(0, 0, 0, 0); MOST];
        let (mut rows_before, mut n) = (RowsBefore::none(), 0);
        for i in range.clone() {
            let before = batch.value(i);
            let row = &after[start..start + before.len()];
            let (from, to) = difference(before, row);
            if from < to {
                let position = batch.row(i).position;
                let place = RowAt { page: id, tree: index.tree(), position: usize::from(position) };
                let bytes = (&before[from..to], &row[from..to]);
                let rec = &mut self.slot.state().rec;
                row_sections::put_patch(rec, &place, batch.key(i), &mut rows_before, from, bytes);
                patches[n] = (position, from as u16, (start + from) as u32, (to - from) as u16);
                n += 1;
            }
            start += before.len();
        }
        if n == 0 {
            leaf.release_unchanged();
            return Ok(());
        }
        let lsn = match self.append_several(leaf.page().lsn(), n) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(leaf);
                refused.make_room(&self.engine.log)?;
                return self.write_batch(index, batch, range, None, after);
            }
        };
        let mut page = leaf.page_mut();
        for (position, offset, from, len) in &patches[..n] {
            let from = *from as usize;
            ops::patch(&mut page, usize::from(*position), usize::from(*offset), &after[from..from + usize::from(*len)]);
        }
        page.set_lsn(lsn);
        Ok(())
    }

    /// Calls `change` for the row of each key, with the key's index in `keys`: to edit the first part in `columns` and
    /// to read the other parts. All rows are locked before the first row is written. Keys without a row, and keys whose
    /// row ends within the first part, are skipped. Returns the number of keys that were not skipped.
    ///
    /// # Errors
    /// See [`TxnError`]. Rows written before the error stay changed: the caller rolls back to a savepoint.
    pub(crate) fn update_several(
        &mut self,
        index: &Index,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        mut change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        let mut found = 0;
        let mut rest = 0..keys.len();
        while !rest.is_empty() {
            let turn = rest.start..rest.start + turn(&keys[rest.clone()]);
            if rest.start == 0 && turn.end < rest.end {
                self.lock_all(index, keys)?;
            }
            let mut heads = std::mem::take(&mut self.slot.state().heads);
            heads.clear();
            let change = |i, head: &mut [u8], rest: &[u8]| change(turn.start + i, head, rest);
            let result = self.update_together(index, &keys[turn.clone()], columns, &mut heads, change);
            self.slot.state().heads = heads;
            found += result?;
            rest.start = turn.end;
        }
        Ok(found)
    }

    /// Locks all rows of a statement that writes in several turns.
    #[cold]
    fn lock_all(&mut self, index: &Index, keys: &[&[u8]]) -> Result<(), TxnError> {
        keys.iter().try_for_each(|key| self.fetch_for_write(index, key, NOTHING).map(drop))
    }

    /// Runs one turn of [`Txn::update_several`]. The keys are distinct.
    fn update_together(
        &mut self,
        index: &Index,
        keys: &[&[u8]],
        columns: &[Range<usize>],
        heads: &mut Vec<u8>,
        mut change: impl FnMut(usize, &mut [u8], &[u8]),
    ) -> Result<usize, TxnError> {
        let part = changed_range(columns);
        let len = part.len();
        self.intend(index, AccessMode::Write)?;
        let (mut names, mut places) = ([LockName::NONE; TOGETHER], [None; TOGETHER]);
        self.look_for(index, keys, RowPart::to_write(bytes_until(columns)), &mut names, &mut places);
        self.engine.pool.points().at(&site::BEFORE_READ);
        let mut spots = [(0, LeafSpot::NONE); TOGETHER];
        let mut n = 0;
        for (i, key) in keys.iter().enumerate() {
            let found = self.fetch_at(index, (names[i], key), places[i].as_ref(), columns)?;
            let Some(spot) = found else { continue };
            let Some((head, rest)) = self.slot.peek().before.split_at_checked(len) else { continue };
            if n == 0 {
                // Only now is it known that the part is not longer than a row.
                heads.resize(2 * len * (keys.len() - i), 0);
            }
            let (before, after) = heads[2 * len * n..][..2 * len].split_at_mut(len);
            copy_few(before, head);
            copy_few(after, head);
            change(i, after, rest);
            spots[n] = (i, spot);
            n += 1;
        }
        self.engine.pool.points().at(&site::BEFORE_WRITE);
        if !self.write_together(index, keys, part.clone(), heads, &spots[..n])? {
            // A leaf has changed since it was read: the rows are written one by one.
            for (at, (i, _)) in spots[..n].iter().enumerate() {
                let (before, after) = heads[2 * len * at..][..2 * len].split_at(len);
                let state = self.slot.state();
                state.before.clear();
                state.before.extend_from_slice(before);
                state.after.clear();
                state.after.extend_from_slice(after);
                self.store_columns(index, keys[*i], part.start, LeafSpot::NONE)?;
            }
        }
        Ok(n)
    }

    /// As [`Txn::fetch_for_write`], for a row at a position found by a group lookup.
    #[inline]
    fn fetch_at(
        &mut self,
        index: &Index,
        (name, key): (LockName, &[u8]),
        place: Option<&KeyHint<'_>>,
        columns: &[Range<usize>],
    ) -> Result<Option<LeafSpot>, TxnError> {
        if let Some(place) = place {
            let mut before = std::mem::take(&mut self.slot.state().before);
            before.clear();
            let copied = self.copy_from(index, (name, key), (place, AccessMode::Write), columns, &mut before);
            self.slot.state().before = before;
            if copied? {
                return Ok(Some(place.spot(&self.engine.pool)));
            }
        }
        self.fetch_for_write(index, key, columns)
    }

    /// Latches the leaves of all rows at the versions at which they were read, and writes all rows in one log record.
    /// Returns false without writing if a leaf cannot be latched at once or the log has no segment ready.
    fn write_together(
        &mut self,
        index: &Index,
        keys: &[&[u8]],
        part: Range<usize>,
        heads: &[u8],
        spots: &[(usize, LeafSpot)],
    ) -> Result<bool, TxnError> {
        let engine = self.engine;
        let len = part.len();
        let part_at = if is_mutant(Mutant::ShiftColumns) { 0 } else { part.start };
        let mut leaves: [Option<FrameWrite<'_>>; TOGETHER] = [const { None }; TOGETHER];
        let unlatch = |leaves: &mut [Option<FrameWrite<'_>>]| {
            leaves.iter_mut().filter_map(Option::take).for_each(FrameWrite::release_unchanged);
        };
        // For each row: index of its leaf. Two rows of one leaf share the leaf's latch.
        let mut leaf_of = [0; TOGETHER];
        for (at, (_, spot)) in spots.iter().enumerate() {
            let same = |earlier: &usize| {
                let other = &spots[*earlier].1;
                other.frame == spot.frame && other.version == spot.version
            };
            // Usually keys ascend, and rows of one leaf are neighbours.
            if at > 0 && same(&(at - 1)) {
                leaf_of[at] = leaf_of[at - 1];
                continue;
            }
            leaves[at] = engine.pool.frame(spot.frame).try_write_at(spot.version);
            leaf_of[at] = at;
            if leaves[at].is_none() {
                // Another thread holds the latch, or this call latched the leaf for an earlier row.
                let Some(earlier) = (0..at).find(same) else {
                    unlatch(&mut leaves);
                    let (i, spot) = spots[at];
                    self.note_contention(index, keys[i], spot);
                    return Ok(false);
                };
                leaf_of[at] = leaf_of[earlier];
            }
        }
        let mut after = Lsn::ZERO;
        for leaf in leaves[..spots.len()].iter_mut().flatten() {
            leaf.mark_dirty_at(|| engine.log.tail());
            after = after.max(leaf.page().lsn());
        }
        self.begin_record(RecordKind::Data);
        let (mut before, mut sections) = (RowsBefore::none(), 0);
        let mut place = RowAt { page: PageId::NONE, tree: index.tree(), position: 0 };
        let mut ranges = [(0, 0); TOGETHER];
        for (at, (i, spot)) in spots.iter().enumerate() {
            let (old, new) = heads[2 * len * at..][..2 * len].split_at(len);
            let (from, to) = difference(old, new);
            ranges[at] = (from, to);
            if from < to {
                place.page = engine.pool.frame(spot.frame).page_id();
                place.position = usize::from(spot.position);
                let bytes = (&old[from..to], &new[from..to]);
                let rec = &mut self.slot.state().rec;
                row_sections::put_patch(rec, &place, keys[*i], &mut before, part_at + from, bytes);
                sections += 1;
            }
        }
        if sections == 0 {
            unlatch(&mut leaves);
            return Ok(true);
        }
        let lsn = match self.append_several(after, sections) {
            Ok(lsn) => lsn,
            Err(refused) => {
                unlatch(&mut leaves);
                refused.make_room(&engine.log)?;
                return Ok(false);
            }
        };
        for (at, (_, spot)) in spots.iter().enumerate() {
            let Some(leaf) = &mut leaves[leaf_of[at]] else { continue };
            let (from, to) = ranges[at];
            let mut page = leaf.page_mut();
            if from < to {
                let new = &heads[2 * len * at + len..][..len];
                ops::patch(&mut page, usize::from(spot.position), part_at + from, &new[from..to]);
                page.set_lsn(lsn);
            }
        }
        Ok(true)
    }
}
