//! Optimistic reads: rows are read without locks, and later locked at their cached positions.
//!
//! An optimistic read (*peek*) validates only the page that it read: the row may be uncommitted, and may change at any
//! time. A transaction can later lock the same row and check that it has not changed, without another search.

use std::ops::Range;

use super::catalog::CATALOG;
use super::columns::{WHOLE, append_columns, has_columns};
use super::index::{AccessMode, Index, LockAttempt};
use super::info::TableInfo;
use super::locate::{is_place, locate, remembered_at, spot, unchanged};
use super::write::difference;
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::{Lsn, PageId};
use crate::btree::Tree;
use crate::btree::group::{GROUP, KeyQuery, RowPart};
use crate::btree::ops;
use crate::btree::row_sections::{self, RowAt, RowsBefore};
use crate::btree::search::LeafAt;
use crate::buffer::frame::FrameWrite;
use crate::lock::{LockName, Prefix};
use crate::log::RecordKind;
use crate::page::PageRef;
use crate::txn::engine::Engine;
use crate::txn::positions::{LeafSpot, RememberedPosition};
use crate::txn::transaction::Txn;

/// Number of entries in the cache of announced positions.
const ANNOUNCED: usize = 64;

/// Cached positions of announced keys, indexed by low bits of the lock name. The position of a new key overwrites an
/// occupied entry.
#[derive(Debug)]
pub(crate) struct AnnouncedPositions(Box<[RememberedPosition; ANNOUNCED]>);

impl Default for AnnouncedPositions {
    fn default() -> AnnouncedPositions {
        AnnouncedPositions(Box::new([RememberedPosition::NONE; ANNOUNCED]))
    }
}

impl Engine {
    /// Prefetches the rows of these keys into the processor's caches, one group of keys at a time, and stores the
    /// positions of the rows in `announced`.
    pub(crate) fn announce<'k>(&self, announced: &mut AnnouncedPositions, keys: impl Iterator<Item = KeyQuery<'k>>) {
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            let mut group: [KeyQuery<'_>; GROUP] = [(CATALOG, &[], RowPart::to_read(0)); GROUP];
            let n = group.iter_mut().zip(&mut keys).map(|(to, key)| *to = key).count();
            let mut names = [LockName::NONE; GROUP];
            for (name, (tree, key, _)) in names.iter_mut().zip(&group[..n]) {
                *name = self.locks.name_ahead(tree.index, key);
            }
            let mut found = [None; GROUP];
            Tree::find_group(&self.pool, &group[..n], &mut found);
            for (name, found) in names.into_iter().zip(found) {
                let Some(hint) = found else { continue };
                announced.0[name.low_bits() % ANNOUNCED] = hint.remembered(&self.pool, name);
            }
        }
    }

    /// Copies the parts `columns` of the current row of `key`, perhaps uncommitted, to `row`. Returns true if the row
    /// exists, and the position of the key.
    ///
    /// # Errors
    /// An error if a page cannot be read or is damaged, or if a panic has left a partly changed page in memory.
    pub(crate) fn peek(
        &self,
        announced: &AnnouncedPositions,
        index: &Index,
        key: &[u8],
        columns: &[Range<usize>],
        row: &mut Vec<u8>,
    ) -> Result<(bool, RememberedPosition), StorageError> {
        self.poison.check_memory()?;
        let name = self.locks.names.of(index.id(), key);
        let remembered = Some(announced.0[name.low_bits() % ANNOUNCED]).filter(|remembered| remembered.name == name);
        loop {
            let leaf = locate(self, remembered, index, key)?;
            let page = leaf.read.page();
            row.clear();
            let mut there = false;
            if leaf.exact {
                let slot = page.slot(leaf.position);
                there = !slot.is_ghost();
                if slot.is_overflow() && there {
                    match self.peek_large(index, (name, key), columns, leaf, row)? {
                        Some(remembered) => return Ok((true, remembered)),
                        None => continue,
                    }
                }
                if there && !append_columns(page, (slot.value_at(), slot.value_len), columns, row) {
                    continue;
                }
            }
            if let Some(remembered) = remembered_at(&self.pool, name, &leaf) {
                return Ok((there, remembered));
            }
        }
    }

    /// As [`Engine::peek`], for a large row. Returns `None` if the row has changed since the slot was read.
    #[cold]
    fn peek_large(
        &self,
        index: &Index,
        (name, key): (LockName, &[u8]),
        columns: &[Range<usize>],
        leaf: LeafAt<'_>,
        row: &mut Vec<u8>,
    ) -> Result<Option<RememberedPosition>, StorageError> {
        let page = leaf.read.page();
        let mut stored = Vec::new();
        let copied = page.append_value(page.slot(leaf.position), &mut stored);
        let Some(remembered) = remembered_at(&self.pool, name, &leaf).filter(|_| copied) else { return Ok(None) };
        drop(leaf);
        if index.append_referred(&self.pool, key, &stored, columns, row)? {
            return Ok(Some(remembered));
        }
        // If the leaf has not changed, the missing value is damage.
        if unchanged(self, &remembered).is_some() { Err(index.dangling(&self.pool, key)) } else { Ok(None) }
    }

    /// Replaces references in the copied rows of a leaf by the large values. Returns false if a row has changed since
    /// the leaf was read, at `spot`.
    #[cold]
    fn resolve(&self, index: &Index, rows: &mut PeekedRows, spot: LeafSpot) -> Result<bool, StorageError> {
        let mut whole = Vec::new();
        for i in 0..rows.rows.len() {
            let PeekedRow { begin, middle, end, is_reference, .. } = rows.rows[i];
            let (key, value) = (rows.bytes[begin..middle].to_vec(), rows.bytes[middle..end].to_vec());
            let begin = whole.len();
            whole.extend_from_slice(&key);
            let middle = whole.len();
            if !is_reference {
                whole.extend_from_slice(&value);
            } else if !index.append_referred(&self.pool, &key, &value, WHOLE, &mut whole)? {
                let remembered = RememberedPosition { spot, ..RememberedPosition::NONE };
                return if unchanged(self, &remembered).is_some() {
                    Err(index.dangling(&self.pool, &key))
                } else {
                    Ok(false)
                };
            }
            rows.rows[i] = PeekedRow { begin, middle, end: whole.len(), ..rows.rows[i] };
        }
        rows.bytes = whole;
        Ok(true)
    }

    /// Calls `add` for the first `most` rows of `[from, to]`, perhaps uncommitted, and their positions, one leaf at a
    /// time, until `add` returns true.
    ///
    /// # Errors
    /// As for [`Engine::peek`].
    pub(crate) fn peek_range(
        &self,
        index: &Index,
        from: &[u8],
        to: &[u8],
        most: usize,
        leaf_rows: &mut PeekedRows,
        mut add: impl FnMut(&PeekedRows, (LeafSpot, PageId)) -> bool,
    ) -> Result<(), StorageError> {
        self.poison.check_memory()?;
        let mut from = from.to_vec();
        let mut left = most;
        let mut high = Vec::new();
        loop {
            let leaf = index.tree().find(&self.pool, &from)?;
            let page = leaf.read.page();
            leaf_rows.clear();
            high.clear();
            let is_last = !page.append_high(&mut high);
            let copied = leaf_rows.gather(page, leaf.position, to, left);
            let spot = (spot(&self.pool, &leaf), leaf.read.frame().page_id());
            if !copied || !leaf.read.is_valid() {
                continue;
            }
            drop(leaf);
            if leaf_rows.rows.iter().any(|row| row.is_reference) && !self.resolve(index, leaf_rows, spot.0)? {
                continue;
            }
            left -= leaf_rows.rows.len();
            if add(leaf_rows, spot) || left == 0 || is_last || high.as_slice() > to {
                return Ok(());
            }
            std::mem::swap(&mut from, &mut high);
        }
    }
}

/// Rows copied from one leaf.
#[derive(Debug, Default)]
pub(crate) struct PeekedRows {
    bytes: Vec<u8>,
    rows: Vec<PeekedRow>,
}

/// Offsets of one row in `PeekedRows::bytes` (start and end of the key, end of the row), and the row's slot.
#[derive(Clone, Copy, Debug)]
struct PeekedRow {
    begin: usize,
    middle: usize,
    end: usize,
    position: u16,
    /// The bytes of the row are a reference to a large value.
    is_reference: bool,
}

impl PeekedRows {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    /// Copies up to `most` rows of a leaf, from slot `position` on, with keys up to `to` (inclusive). Returns false if
    /// an offset leads out of the page, because the page is being changed.
    fn gather(&mut self, page: PageRef<'_>, position: usize, to: &[u8], most: usize) -> bool {
        for at in position..page.count() {
            if self.rows.len() == most {
                return true;
            }
            let begin = self.bytes.len();
            if !page.append_key(at, &mut self.bytes) {
                return false;
            }
            let middle = self.bytes.len();
            if self.bytes[begin..] > *to {
                self.bytes.truncate(begin);
                return true;
            }
            let slot = page.slot(at);
            if slot.is_ghost() {
                self.bytes.truncate(begin);
                continue;
            }
            if !page.append_value(slot, &mut self.bytes) {
                return false;
            }
            let (end, position, is_reference) = (self.bytes.len(), at as u16, slot.is_overflow());
            self.rows.push(PeekedRow { begin, middle, end, position, is_reference });
        }
        true
    }

    /// Returns the key, the row and the slot of each copied row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u16)> {
        let part = |&PeekedRow { begin, middle, end, position, .. }: &PeekedRow| {
            (&self.bytes[begin..middle], &self.bytes[middle..end], position)
        };
        self.rows.iter().map(part)
    }
}

/// Replacement for a row that was read optimistically.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplacementRow<'a> {
    pub(crate) key: &'a [u8],
    /// Position at which the row was read, if known.
    pub(crate) place: Option<RememberedPosition>,
    /// New content of the row.
    pub(crate) row: &'a [u8],
}

/// Maximum number of replaced rows in one log record.
pub(crate) const TOGETHER: usize = 16;

impl Txn<'_> {
    /// Locks the row of `key`, whose parts `columns` were read optimistically (at position `place`, if known). Returns
    /// true if the parts still equal `seen`, or if the row is still absent.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub(crate) fn confirm(
        &mut self,
        index: &Index,
        key: &[u8],
        place: Option<RememberedPosition>,
        (columns, seen): (&[Range<usize>], Option<&[u8]>),
        access: AccessMode,
    ) -> Result<bool, TxnError> {
        if let (Some(place), Some(seen)) = (place, seen) {
            self.intend(index, access)?;
            let engine = self.engine;
            let has_key = |leaf: LeafAt<'_>| is_place(leaf.read.page(), &place, index, key) && leaf.read.is_valid();
            let is_there = place.exact && unchanged(engine, &place).is_some_and(has_key);
            // If the cached position still contains the key, its lock name is the key's lock name.
            let name = if is_there { place.name } else { engine.locks.names.of(index.id(), key) };
            self.lock_name(index, name, access)?;
            loop {
                let leaf = match is_there.then(|| unchanged(engine, &place)).flatten() {
                    Some(leaf) => leaf,
                    None => locate(engine, Some(place), index, key)?,
                };
                let page = leaf.read.page();
                let slot = page.slot(leaf.position);
                if leaf.exact && slot.is_overflow() {
                    break;
                }
                let same = leaf.exact
                    && !slot.is_ghost()
                    && has_columns(page, (slot.value_at(), slot.value_len), columns, seen);
                if leaf.read.is_valid() {
                    if leaf.exact {
                        return Ok(same);
                    }
                    break;
                }
            }
        }
        // If the row is absent, `fetch` locks the absent key.
        let found = self.fetch(index, key, access, columns)?;
        Ok(found.map(|_| self.slot.peek().before.as_slice()) == seen)
    }

    /// Locks the row with this lock name. The caller holds the table's intention lock.
    #[inline]
    fn lock_name(&mut self, index: &Index, name: LockName, access: AccessMode) -> Result<(), TxnError> {
        let mode = self.key_mode(access);
        while self.try_lock(index, name, mode, Prefix::MIN)? == LockAttempt::MustWait {
            self.wait_for(index, name, mode, Prefix::MIN)?;
        }
        Ok(())
    }

    /// Replaces rows that were read optimistically, up to [`TOGETHER`] in one log record. Keys without a row are
    /// skipped. Returns the number of replaced rows.
    ///
    /// # Errors
    /// See [`TxnError`]. Rows written before the error stay changed: the caller rolls back to a savepoint.
    pub(crate) fn replace_rows(&mut self, table: &TableInfo, rows: &[ReplacementRow<'_>]) -> Result<usize, TxnError> {
        let (index, mut found) = (&table.primary, 0);
        self.intend(index, AccessMode::Write)?;
        for group in rows.chunks(TOGETHER) {
            for row in group {
                self.lock_name(index, self.engine.locks.names.of(index.id(), row.key), AccessMode::Write)?;
            }
            if self.replace_together(table, group)? {
                found += group.len();
                continue;
            }
            for ReplacementRow { key, row, .. } in group {
                let replaced = self.update_row(table, key, |old| {
                    old.clear();
                    old.extend_from_slice(row);
                })?;
                found += usize::from(replaced.is_some());
            }
        }
        Ok(found)
    }

    /// Latches the leaves of rows that are locked for writing, at their cached positions, and writes all rows in one
    /// log record. Returns false without writing if a leaf cannot be latched at once, if a row no longer exists,
    /// changes its length or affects an index, or if the log has no segment ready.
    fn replace_together(&mut self, table: &TableInfo, rows: &[ReplacementRow<'_>]) -> Result<bool, TxnError> {
        let index = &table.primary;
        // Number of leading bytes of a row on which no index depends.
        let free = table.secondaries.iter().map(|secondary| secondary.columns_from).min().unwrap_or(usize::MAX);
        debug_assert!(rows.len() <= TOGETHER);
        let engine = self.engine;
        let mut leaves: [Option<FrameWrite<'_>>; TOGETHER] = [const { None }; TOGETHER];
        // For each row: index of its leaf in `leaves`, and slot of the row.
        let mut places = [(0, 0); TOGETHER];
        for (i, ReplacementRow { key, place, row }) in rows.iter().enumerate() {
            let Some(place) = place else { return Ok(unlatch(leaves)) };
            let frame = engine.pool.frame(place.spot.frame);
            let of_frame =
                |leaf: &Option<FrameWrite<'_>>| leaf.as_ref().is_some_and(|leaf| std::ptr::eq(leaf.frame(), frame));
            let at = leaves[..i].iter().position(of_frame).unwrap_or(i);
            if at == i {
                leaves[i] = frame.try_write();
            }
            let Some(leaf) = &leaves[at] else { return Ok(unlatch(leaves)) };
            let (page, position) = (leaf.page(), usize::from(place.spot.position));
            let is_there = !frame.page_id().is_none()
                && !frame.is_unproved()
                && page.index() == index.id()
                && page.is_leaf()
                && page.has_key(position, key)
                && page.slot(position).flags == 0
                && page.slot(position).value_len == row.len();
            // A row that occurs twice in `rows` must be written twice, by two separate changes.
            if !is_there || places[..i].contains(&(at, position)) {
                return Ok(unlatch(leaves));
            }
            places[i] = (at, position);
        }
        self.begin_record(RecordKind::Data);
        let mut differences = [(0, 0); TOGETHER];
        let (mut before, mut sections) = (RowsBefore::none(), 0);
        for (i, ReplacementRow { key, row, .. }) in rows.iter().enumerate() {
            let (at, position) = places[i];
            let Some(leaf) = &leaves[at] else { continue };
            let value_at = leaf.page().slot(position).value_at();
            let old = &leaf.stable()[value_at..value_at + row.len()];
            let (from, to) = difference(old, row);
            differences[i] = (from, to);
            if from < to && to > free {
                return Ok(unlatch(leaves));
            }
            if from < to {
                let page = leaf.frame().page_id();
                let place = RowAt { page, tree: index.tree(), position };
                let bytes = (&old[from..to], &row[from..to]);
                row_sections::put_patch(&mut self.slot.state().rec, &place, key, &mut before, from, bytes);
                sections += 1;
            }
        }
        if sections == 0 {
            unlatch(leaves);
            return Ok(true);
        }
        let mut after = Lsn::ZERO;
        for leaf in leaves.iter_mut().flatten() {
            leaf.mark_dirty_at(|| engine.log.tail());
            after = after.max(leaf.page().lsn());
        }
        let lsn = match self.append_several(after, sections) {
            Ok(lsn) => lsn,
            Err(refused) => {
                unlatch(leaves);
                refused.make_room(&engine.log)?;
                return Ok(false);
            }
        };
        for (i, ReplacementRow { row, .. }) in rows.iter().enumerate() {
            let ((at, position), (from, to)) = (places[i], differences[i]);
            let Some(leaf) = leaves[at].as_mut().filter(|_| from < to) else { continue };
            let mut page = leaf.page_mut();
            ops::patch(&mut page, position, from, &row[from..to]);
            page.set_lsn(lsn);
        }
        Ok(true)
    }
}

/// Releases latches under which nothing was written. Always returns false.
fn unlatch(leaves: [Option<FrameWrite<'_>>; TOGETHER]) -> bool {
    leaves.into_iter().flatten().for_each(FrameWrite::release_unchanged);
    false
}
