//! Changes of one row of one index: insert, update, delete.
//!
//! Every change follows the same steps: lock the key; find its leaf; take the leaf's exclusive latch by one
//! compare-and-swap on the version at which the position was found; log; change; unlatch. If the version has changed,
//! the statement searches again and keeps its locks. If the log has no segment ready, the statement unlatches, waits
//! for a segment and searches again.

use std::ops::Range;

use super::columns::{NOTHING, WHOLE};
use super::index::{AccessMode, Index, LockAttempt};
use super::locate::spot;
use super::overflow::fits_slot;
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::PAGE_SIZE;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sites::site;
use crate::btree::MAX_KEY;
use crate::btree::merge::{MergeLimits, Merger};
use crate::btree::ops;
use crate::btree::row_sections::{self, RowAt, RowsBefore};
use crate::btree::split::SplitOutcome;
use crate::buffer::frame::FrameWrite;
use crate::latch::Version;
use crate::lock::{InsertCheck, LockName, Prefix, RecordMode};
use crate::log::RecordKind;
use crate::page::PageRef;
use crate::page::layout::RECORD_HEAD;
use crate::txn::positions::LeafSpot;
use crate::txn::transaction::Txn;

/// Returns the start and the end (exclusive) of the byte range in which two rows of equal length differ. The range is
/// empty if the rows are equal.
#[inline]
pub(crate) fn difference(before: &[u8], after: &[u8]) -> (usize, usize) {
    let len = before.len();
    let differing = |a: &[u8; 16], b: &[u8; 16]| u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b);
    let differing_half = |a: &[u8; 8], b: &[u8; 8]| u128::from(u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b));
    match len {
        8.. if len != after.len() => difference_of_many(before, after),
        8..16 => {
            let first = before.first_chunk().zip(after.first_chunk()).map_or(0, |(a, b)| differing_half(a, b));
            let last = before.last_chunk().zip(after.last_chunk()).map_or(0, |(a, b)| differing_half(a, b));
            difference_in(len, first, last << 64)
        }
        16..=32 => {
            let first = before.first_chunk().zip(after.first_chunk()).map_or(0, |(a, b)| differing(a, b));
            let last = before.last_chunk().zip(after.last_chunk()).map_or(0, |(a, b)| differing(a, b));
            difference_in(len, first, last)
        }
        _ => difference_of_many(before, after),
    }
}

fn difference_of_many(before: &[u8], after: &[u8]) -> (usize, usize) {
    let word = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk);
    let ((a, a_tail), (b, b_tail)) = (before.as_chunks::<8>(), after.as_chunks::<8>());
    let from = match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(i) => 8 * i + (word(&a[i]) ^ word(&b[i])).trailing_zeros() as usize / 8,
        None => match a_tail.iter().zip(b_tail).position(|(a, b)| a != b) {
            Some(i) => 8 * a.len() + i,
            None => return (before.len(), before.len()),
        },
    };
    // Long rows often differ only at their beginning.
    let equal = if before.len() < 64 { 0 } else { equal_blocks_at_end(before, after) };
    let (before, after) = (&before[..before.len() - equal], &after[..after.len() - equal]);
    let ((a_head, a), (b_head, b)) = (before.as_rchunks::<8>(), after.as_rchunks::<8>());
    let to = match a.iter().zip(b).rposition(|(a, b)| a != b) {
        Some(i) => a_head.len() + 8 * i + 8 - (word(&a[i]) ^ word(&b[i])).leading_zeros() as usize / 8,
        None => a_head.iter().zip(b_head).rposition(|(a, b)| a != b).map_or(from, |i| i + 1),
    };
    (from, to)
}

/// As [`difference`], for rows of `len` bytes. `first` is the exclusive or of their first bytes, from the lowest bit; `last`
/// that of their last bytes, up to the highest bit. The two cover the rows, and may overlap.
#[inline(always)]
fn difference_in(len: usize, first: u128, last: u128) -> (usize, usize) {
    const WIDTH: usize = size_of::<u128>();
    let from = match (first, last) {
        (0, 0) => return (len, len),
        (0, _) => len + last.trailing_zeros() as usize / 8 - WIDTH,
        _ => first.trailing_zeros() as usize / 8,
    };
    let to =
        if last == 0 { WIDTH - first.leading_zeros() as usize / 8 } else { len - last.leading_zeros() as usize / 8 };
    (from, to)
}

/// Returns the number of equal bytes at the end of two rows, rounded down to a multiple of 32.
fn equal_blocks_at_end(before: &[u8], after: &[u8]) -> usize {
    let ((_, a), (_, b)) = (before.as_rchunks::<32>(), after.as_rchunks::<32>());
    32 * a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Result of an attempt to change a leaf.
enum LeafAttempt {
    Done,
    /// The search must be repeated.
    Again,
    /// The leaf has no space for the change.
    Full,
}

impl<'db> Txn<'db> {
    /// Checks that a key and a row of `row` bytes are not too long.
    #[inline]
    pub(crate) fn check_sizes(&mut self, index: &Index, key: &[u8], row: usize) -> Result<(), TxnError> {
        if key.len() > MAX_KEY || !fits_slot(key.len(), row) {
            return self.check_large(index, key, row);
        }
        Ok(())
    }

    /// Records that rows will be inserted into the index: scans of this transaction must not skip runs of ghosts there
    /// any more.
    #[inline]
    pub(super) fn rows_come(&mut self, index: &Index) {
        if !self.slot.peek().ghosts.is_empty() {
            self.slot.state().ghosts.forget(index.id());
        }
    }

    /// Inserts a row with a new key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn insert(&mut self, index: &Index, key: &[u8], row: &[u8]) -> Result<(), TxnError> {
        if key.len() > MAX_KEY || !fits_slot(key.len(), row.len()) {
            return self.insert_large(index, key, row);
        }
        self.insert_value(index, key, (row, 0))
    }

    /// As [`Txn::insert`], for a value with the flags of its slot: a row, or a reference to a large value.
    #[inline]
    pub(super) fn insert_value(&mut self, index: &Index, key: &[u8], value: (&[u8], u16)) -> Result<(), TxnError> {
        self.intend(index, AccessMode::Write)?;
        self.rows_come(index);
        let name = self.engine.locks.name_ahead(index.id(), key);
        loop {
            let leaf = match self.finger(index, key) {
                Some(leaf) => leaf,
                None => self.locate(index, name, key)?,
            };
            if self.try_lock(index, name, RecordMode::X, Prefix::MIN)? == LockAttempt::MustWait {
                drop(leaf);
                self.wait_for(index, name, RecordMode::X, Prefix::MIN)?;
                continue;
            }
            let (position, exact) = (leaf.position, leaf.exact);
            if exact && !leaf.read.page().slot(position).is_ghost() {
                if leaf.read.is_valid() {
                    return Err(TxnError::DuplicateKey { table: index.table(), index: index.name() });
                }
                self.retreat();
                continue;
            }
            let Some(leaf) = leaf.read.upgrade() else {
                self.retreat();
                continue;
            };
            let placed = if exact {
                self.revive(index, key, value, position, leaf)?
            } else {
                self.place(index, key, value, position, leaf)?
            };
            match placed {
                LeafAttempt::Done => return Ok(()),
                LeafAttempt::Again => {}
                LeafAttempt::Full => self.make_room(index, key, value.0.len())?,
            }
        }
    }

    /// Inserts a value at a position in a latched leaf, unless another transaction has locked the gap or the leaf is
    /// full.
    fn place(
        &mut self,
        index: &Index,
        key: &[u8],
        (row, flags): (&[u8], u16),
        position: usize,
        mut leaf: FrameWrite<'_>,
    ) -> Result<LeafAttempt, TxnError> {
        let prefix = Prefix::of(key);
        let names = &self.engine.locks.names;
        let state = self.slot.state();
        let next = index.name_at(names, leaf.page(), position, &mut state.key);
        let own_gap = match state.owner.check_insert(index.lock_table, next, prefix) {
            InsertCheck::Granted => None,
            InsertCheck::OwnGap(low) => Some(low),
            InsertCheck::Blocked => {
                leaf.release_unchanged();
                self.wait_to_insert(index, next, prefix)?;
                return Ok(LeafAttempt::Again);
            }
        };
        if let Some(low) = own_gap {
            // The new key divides a gap that this transaction has read: both halves must stay locked.
            let name = names.of(index.id(), key);
            if self.try_lock(index, name, RecordMode::X_GAP, low)? == LockAttempt::MustWait {
                leaf.release_unchanged();
                self.wait_for(index, name, RecordMode::X_GAP, low)?;
                return Ok(LeafAttempt::Again);
            }
        }
        if !leaf.page().has_room(key.len(), row.len()) {
            leaf.release_unchanged();
            return Ok(LeafAttempt::Full);
        }
        if !leaf.page().may_share_prefix(key) {
            return Err(self.misplaced(index, leaf));
        }
        leaf.mark_dirty_at(|| self.engine.log.tail());
        self.begin_record(RecordKind::Data);
        let place = RowAt { page: leaf.frame().page_id(), tree: index.tree(), position };
        row_sections::put_insert(&mut self.slot.state().rec, &place, key, &mut RowsBefore::none(), (row, flags));
        let lsn = match self.append(leaf.page().lsn()) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(leaf);
                refused.make_room(&self.engine.log)?;
                return Ok(LeafAttempt::Again);
            }
        };
        let mut page = leaf.page_mut();
        page.insert(position, key, 0, row, flags);
        page.note_insert(position);
        page.set_lsn(lsn);
        self.release_inserted(index, key, position, leaf);
        Ok(LeafAttempt::Done)
    }

    /// Replaces a ghost by a new row. The ghost's key already separates the gaps, so no gap lock is needed.
    fn revive(
        &mut self,
        index: &Index,
        key: &[u8],
        value: (&[u8], u16),
        position: usize,
        leaf: FrameWrite<'_>,
    ) -> Result<LeafAttempt, TxnError> {
        let slot = leaf.page().slot(position);
        let state = self.slot.state();
        state.before.clear();
        let _ = leaf.page().append_value(slot, &mut state.before);
        self.replace(index, key, value, slot.flags, position, leaf)
    }

    /// Replaces the value in a slot. The buffer `before` has the old value.
    fn replace(
        &mut self,
        index: &Index,
        key: &[u8],
        after: (&[u8], u16),
        was: u16,
        position: usize,
        mut leaf: FrameWrite<'_>,
    ) -> Result<LeafAttempt, TxnError> {
        let slot = leaf.page().slot(position);
        let shorter = after.0.len() < slot.value_len;
        if shorter && !self.may_shorten() {
            leaf.release_unchanged();
            self.reserve_for_shrink(index.tree())?;
            return Ok(LeafAttempt::Again);
        }
        if after.0.len() > slot.value_len && leaf.page().free_bytes() < after.0.len() - slot.value_len + RECORD_HEAD {
            leaf.release_unchanged();
            return Ok(LeafAttempt::Full);
        }
        leaf.mark_dirty_at(|| self.engine.log.tail());
        self.begin_record(RecordKind::Data);
        let place = RowAt { page: leaf.frame().page_id(), tree: index.tree(), position };
        let state = self.slot.state();
        row_sections::put_replace(&mut state.rec, &place, key, (&state.before, was), after);
        let lsn = match self.append(leaf.page().lsn()) {
            Ok(lsn) => lsn,
            Err(refused) => {
                drop(leaf);
                refused.make_room(&self.engine.log)?;
                return Ok(LeafAttempt::Again);
            }
        };
        let mut page = leaf.page_mut();
        ops::replace(&mut page, position, after);
        page.set_lsn(lsn);
        if shorter {
            self.has_shortened();
        }
        Ok(LeafAttempt::Done)
    }

    /// Makes room in the leaf of `key`: removes ghosts to which no lock refers, or splits the leaf.
    #[cold]
    fn make_room(&mut self, index: &Index, key: &[u8], value_len: usize) -> Result<(), TxnError> {
        if self.purge_leaf(index, key)? > 0 {
            return Ok(());
        }
        let engine = self.engine;
        let prefix = Prefix::of(key);
        let state = self.slot.state();
        let change = engine.structure_change(state.id);
        let name = engine.locks.names.of(index.id(), key);
        let mut next = LockName::NONE;
        // Prefix from which the transaction's own gap lock must be taken again for the new key, if this was not
        // possible under the latch.
        let mut own_gap = None;
        let owner = &mut state.owner;
        let (key_buffer, rec) = (&mut state.key, &mut state.rec);
        let mut gap_is_free = |leaf: PageRef<'_>| {
            next = index.name_at(&engine.locks.names, leaf, leaf.count(), key_buffer);
            match owner.check_insert(index.lock_table, next, prefix) {
                InsertCheck::Granted => true,
                // Waiting for a lock of this transaction would never end. The new key will divide the gap, so both
                // halves are locked.
                InsertCheck::OwnGap(low) => {
                    let locked = owner.try_acquire(index.lock_table, name, RecordMode::X_GAP, low).is_ok();
                    own_gap = (!locked).then_some(low);
                    locked
                }
                InsertCheck::Blocked => false,
            }
        };
        let made = index.tree().split(change, rec, key, 0, value_len, &mut gap_is_free)?;
        match own_gap {
            _ if made != SplitOutcome::GapLocked => Ok(()),
            Some(low) => self.wait_for(index, name, RecordMode::X_GAP, low),
            None => self.wait_to_insert(index, next, prefix),
        }
    }

    /// Removes the ghosts to which no lock refers from the leaf of `key`, then merges the leaf with a neighbour if it
    /// is nearly empty. Returns the number of removed ghosts.
    pub(crate) fn purge_leaf(&mut self, index: &Index, key: &[u8]) -> Result<usize, TxnError> {
        let engine = self.engine;
        let state = self.slot.state();
        let change = engine.structure_change(state.id);
        let (owner, rec) = (&state.owner, &mut state.rec);
        let mut referenced = |key: &[u8]| {
            // The locks of settled epochs may be replaced by a table lock meanwhile, which is taken before they are released.
            engine.locks.is_referenced(engine.locks.names.of(index.id(), key))
                || owner.family_writes_unnamed(index.lock_table)
        };
        let leaf = index.tree().leaf(&engine.pool, key)?;
        let mut gone = 0;
        let nearly_empty;
        // Under a table lock the transaction's own ghosts, which a rollback needs, cannot be distinguished from ghosts
        // that no transaction needs.
        let may_go = !owner.writes_unnamed(index.lock_table) && !owner.family_writes_unnamed(index.lock_table);
        if leaf.page().ghosts() > 0 && may_go {
            let Some(mut leaf) = leaf.upgrade() else { return Ok(0) };
            gone = index.tree().purge(change, rec, &mut leaf, &mut referenced)?;
            nearly_empty = leaf.page().used_bytes() < PAGE_SIZE / 8;
            if gone == 0 {
                leaf.release_unchanged();
            }
        } else {
            nearly_empty = leaf.page().count() == 0 && leaf.is_valid();
            drop(leaf);
        }
        if nearly_empty {
            let limits = MergeLimits::PASSING;
            index.tree().merge(&mut Merger { change, rec, limits, waits: true, referenced: &mut referenced }, key)?;
        }
        Ok(gone)
    }

    /// Locks the row of `key` for writing and copies the parts `columns` of the row to the slot's buffer `before`.
    /// Returns the row's position, or `None` if there is no row.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub(crate) fn fetch_for_write(
        &mut self,
        index: &Index,
        key: &[u8],
        columns: &[Range<usize>],
    ) -> Result<Option<LeafSpot>, TxnError> {
        let found = self.fetch(index, key, AccessMode::Write, columns)?;
        self.engine.pool.points().at(&site::BEFORE_WRITE);
        Ok(found)
    }

    /// As [`Txn::fetch_for_write`], for a whole row that is also written if it does not exist: an absent key is not
    /// locked.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub(crate) fn fetch_for_put(&mut self, index: &Index, key: &[u8]) -> Result<Option<LeafSpot>, TxnError> {
        let found = self.fetch(index, key, AccessMode::Put, WHOLE)?;
        self.engine.pool.points().at(&site::BEFORE_WRITE);
        Ok(found)
    }

    /// Replaces the row of `key` by the content of the buffer `after`. The row is locked for writing, equals the buffer
    /// `before`, and was read at `spot`.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub(crate) fn store(&mut self, index: &Index, key: &[u8], spot: LeafSpot) -> Result<(), TxnError> {
        let state = self.slot.peek();
        if state.before.len() != state.after.len() {
            return self.store_resized(index, key);
        }
        self.store_columns(index, key, 0, spot)
    }

    /// Latches the leaf of a row that is locked for writing: at the position of the read or, if that is no longer
    /// valid, at the position that a new descent finds. Returns `None` if another writer latched the leaf first.
    #[inline]
    fn latch_row(
        &mut self,
        index: &Index,
        key: &[u8],
        spot: &mut LeafSpot,
    ) -> Result<Option<(FrameWrite<'db>, usize)>, TxnError> {
        let engine = self.engine;
        let LeafSpot { frame, version, position } = std::mem::replace(spot, LeafSpot::NONE);
        if version == Version::NEVER {
            return self.latch_row_anew(index, key);
        }
        let Some(leaf) = engine.pool.frame(frame).write_at(version) else {
            self.note_contention(index, key, LeafSpot { frame, version, position });
            return Ok(None);
        };
        debug_assert!(leaf.page().has_key(position.into(), key));
        Ok(Some((leaf, position.into())))
    }

    #[cold]
    fn latch_row_anew(&mut self, index: &Index, key: &[u8]) -> Result<Option<(FrameWrite<'db>, usize)>, TxnError> {
        let leaf = index.tree().find(&self.engine.pool, key)?;
        let (position, exact) = (leaf.position, leaf.exact);
        match leaf.read.upgrade() {
            Some(leaf) if !exact => Err(self.vanished(index, leaf)),
            leaf => Ok(leaf.map(|leaf| (leaf, position))),
        }
    }

    /// Writes `after` over the bytes from `at` on of the row of `key`. The row is locked for writing, has the first
    /// bytes of `before` there, and was read at `spot`. Equal bytes at both ends are not logged.
    ///
    /// # Errors
    /// See [`TxnError`].
    #[inline]
    pub(crate) fn store_columns(
        &mut self,
        index: &Index,
        key: &[u8],
        at: usize,
        mut spot: LeafSpot,
    ) -> Result<(), TxnError> {
        let state = self.slot.peek();
        let (from, to) = difference(&state.before[..state.after.len()], &state.after);
        if from == to {
            return Ok(());
        }
        let at = if is_mutant(Mutant::ShiftColumns) { 0 } else { at };
        if spot.version == Version::NEVER && self.is_large(index, key)? {
            return self.store_columns_of_large(index, key, at);
        }
        loop {
            let Some((mut leaf, position)) = self.latch_row(index, key, &mut spot)? else { continue };
            leaf.mark_dirty_at(|| self.engine.log.tail());
            self.begin_record(RecordKind::Data);
            let state = self.slot.state();
            let place = RowAt { page: leaf.frame().page_id(), tree: index.tree(), position };
            row_sections::put_patch(
                &mut state.rec,
                &place,
                key,
                &mut RowsBefore::none(),
                at + from,
                (&state.before[from..to], &state.after[from..to]),
            );
            let lsn = match self.append(leaf.page().lsn()) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(leaf);
                    refused.make_room(&self.engine.log)?;
                    continue;
                }
            };
            let mut page = leaf.page_mut();
            ops::patch(&mut page, position, at + from, &self.slot.peek().after[from..to]);
            page.set_lsn(lsn);
            return Ok(());
        }
    }

    #[cold]
    fn store_resized(&mut self, index: &Index, key: &[u8]) -> Result<(), TxnError> {
        let after = std::mem::take(&mut self.slot.state().after);
        let result = self.store_value(index, key, &after);
        self.slot.state().after = after;
        result
    }

    fn store_value(&mut self, index: &Index, key: &[u8], after: &[u8]) -> Result<(), TxnError> {
        if !fits_slot(key.len(), after.len()) || self.is_large(index, key)? {
            return self.store_large(index, key, after);
        }
        self.replace_value(index, key, (after, 0))
    }

    /// Replaces the content and the flags of the slot of a row that is locked for writing.
    pub(super) fn replace_value(&mut self, index: &Index, key: &[u8], after: (&[u8], u16)) -> Result<(), TxnError> {
        loop {
            let leaf = index.tree().find(&self.engine.pool, key)?;
            let (position, exact) = (leaf.position, leaf.exact);
            let spot = spot(&self.engine.pool, &leaf);
            let Some(leaf) = leaf.read.upgrade() else {
                self.note_contention(index, key, spot);
                continue;
            };
            if !exact {
                return Err(self.vanished(index, leaf));
            }
            let slot = leaf.page().slot(position);
            let before = &mut self.slot.state().before;
            before.clear();
            let _ = leaf.page().append_value(slot, before);
            match self.replace(index, key, after, slot.flags, position, leaf)? {
                LeafAttempt::Done => return Ok(()),
                LeafAttempt::Again => {}
                LeafAttempt::Full => self.make_room(index, key, after.0.len())?,
            }
        }
    }

    #[cold]
    fn store_columns_of_large(&mut self, index: &Index, key: &[u8], at: usize) -> Result<(), TxnError> {
        let after = std::mem::take(&mut self.slot.state().after);
        let result = self.store_part_of_large(index, key, at, &after);
        self.slot.state().after = after;
        result
    }

    /// Deletes the row of `key` by turning it into a ghost. Returns false if there is no row.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn delete(&mut self, index: &Index, key: &[u8]) -> Result<bool, TxnError> {
        let Some(spot) = self.fetch_for_write(index, key, NOTHING)? else { return Ok(false) };
        self.mark_deleted(index, key, spot)?;
        Ok(true)
    }

    /// Marks a row as deleted. The row is locked for writing and was read at `spot`.
    pub(crate) fn mark_deleted(&mut self, index: &Index, key: &[u8], spot: LeafSpot) -> Result<(), TxnError> {
        if spot.version == Version::NEVER && self.is_large(index, key)? {
            return self.delete_large(index, key);
        }
        self.mark_at(index, key, spot)
    }

    /// Marks the slot of a row as deleted. The row is locked for writing.
    pub(super) fn mark_slot_deleted(&mut self, index: &Index, key: &[u8]) -> Result<(), TxnError> {
        self.mark_at(index, key, LeafSpot::NONE)
    }

    #[inline]
    fn mark_at(&mut self, index: &Index, key: &[u8], mut spot: LeafSpot) -> Result<(), TxnError> {
        loop {
            let Some((mut leaf, position)) = self.latch_row(index, key, &mut spot)? else { continue };
            leaf.mark_dirty_at(|| self.engine.log.tail());
            self.begin_record(RecordKind::Data);
            let place = RowAt { page: leaf.frame().page_id(), tree: index.tree(), position };
            row_sections::put_mark(&mut self.slot.state().rec, &place, key, &mut RowsBefore::none(), true);
            let lsn = match self.append(leaf.page().lsn()) {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(leaf);
                    refused.make_room(&self.engine.log)?;
                    continue;
                }
            };
            let mut page = leaf.page_mut();
            ops::mark(&mut page, position, true);
            page.set_lsn(lsn);
            self.engine.pool.note_due(leaf.frame().page_id());
            return Ok(());
        }
    }

    /// Returns the error for a descent to a leaf that cannot contain the key: the pages are damaged.
    #[cold]
    fn misplaced(&self, index: &Index, leaf: FrameWrite<'_>) -> TxnError {
        let page = leaf.frame().page_id();
        leaf.release_unchanged();
        let error: StorageError =
            index.tree().damaged(&self.engine.pool, page, "is not the leaf of the keys that lead to it");
        error.into()
    }

    /// Returns the error for a row that vanished under the transaction's exclusive lock: the pages are damaged.
    #[cold]
    fn vanished(&self, index: &Index, leaf: FrameWrite<'_>) -> TxnError {
        let page = leaf.frame().page_id();
        leaf.release_unchanged();
        let error: StorageError = index.tree().damaged(&self.engine.pool, page, "lost a row that was locked");
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn difference_is_tight() {
        let rows = |n: usize| (0..n).map(|i| i as u8).collect::<Vec<_>>();
        for n in 0..80 {
            let a = rows(n);
            assert_eq!(
                {
                    let (f, t) = difference(&a, &a);
                    t - f
                },
                0
            );
            for i in 0..n {
                for j in i..n {
                    let mut b = a.clone();
                    b[i] ^= 1;
                    if j != i {
                        b[j] ^= 1;
                    }
                    assert_eq!(difference(&a, &b), (i, j + 1), "length {n}");
                }
            }
        }
    }
}
