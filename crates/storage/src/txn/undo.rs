//! Undo of the sections of data records. Undo finds rows by key, and appends for each section a compensation record, which
//! is never undone itself.
//!
//! A rollback of a running transaction and the undo pass of restart use the same code. The code takes no locks: the running
//! transaction still holds its own locks, and at restart there is no other transaction.

use crate::base::error::StorageError;
use crate::base::ids::{Lsn, SlotId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::ops::{self, PageChange, PageChanges};
use crate::btree::row_sections::{self, KeyBuffer, RowAt, RowChange, RowSection, RowsBefore};
use crate::btree::search::LeafAt;
use crate::btree::{MAX_KEY, MAX_VALUE, StructureChange, Tree};
use crate::buffer::frame::{Frame, FrameWrite};
use crate::latch::Version;
use crate::log::{AppendError, BackwardReader, RecordBuf, RecordKind, UNDO_HEAD};

/// Number of bytes of log for the undo of each further section of a record, in addition to the section's own bytes: the head
/// of a compensation record, its padding, and the fields that the section omits because other sections contain them.
pub(crate) const UNDO_PER_SECTION: u64 = 88;

/// A transaction being rolled back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    /// Slot of the transaction.
    pub(crate) slot: SlotId,
    /// LSN of the transaction's newest record that is in effect. It may be a compensation record if the transaction has been
    /// partly undone.
    pub(crate) last: Lsn,
}

/// Result of a rollback.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UndoResult {
    /// LSN of the victim's newest record that is in effect, at or before the savepoint. Zero if there is none.
    pub(crate) last_in_effect: Lsn,
    /// Number of bytes of log that were reserved for the undo of the undone records.
    pub(crate) owed: u64,
    /// Number of rows that the undone records had shortened.
    pub(crate) shortened: u64,
}

/// Undoes the victim's changes after `savepoint`, following its records backwards (ARIES, section 6.4). `bytes` is a scratch
/// buffer.
///
/// Reads only the records that it undoes: a record names, as its predecessor, the newest record that was in effect when it
/// was appended, and a compensation record names the record with which undo continues.
///
/// # Errors
/// Fails if a page or the log cannot be read, or if there is no space for a split. Changes undone before the error stay
/// undone.
pub(crate) fn roll_back(
    change: StructureChange<'_>,
    rec: &mut RecordBuf,
    bytes: &mut Vec<u8>,
    victim: &mut Victim,
    savepoint: Lsn,
) -> Result<UndoResult, StorageError> {
    let mut records = BackwardReader::new(change.log, bytes, savepoint);
    let mut undone = UndoResult::default();
    let mut rollback = Rollback { change, rec, victim, leaf: None, shortened: 0 };
    // Positions of the sections of a record, except the first one. Nearly all records have one section.
    let mut others = Vec::new();
    let mut at = rollback.victim.last;
    // Number of sections of the record at `at` that remain to be undone; 0 for all.
    let mut remaining = 0;
    // A record that has been undone in part is undone completely: the result names whole records.
    while at > savepoint || remaining != 0 {
        let record = records.read(at)?;
        let next = match RecordKind::from(record.kind) {
            Some(RecordKind::Data) => {
                let mut sections = PageChanges::new(record.body);
                let first = sections.next();
                others.clear();
                let mut place = sections.place();
                while sections.next().is_some() {
                    others.push(place);
                    place = sections.place();
                }
                let not_undone = if remaining == 0 { others.len() } else { (remaining - 1).min(others.len()) };
                for (before, place) in others[..not_undone].iter().enumerate().rev() {
                    let Ok(remaining) = u8::try_from(before + 1) else {
                        return Err(change.log.damaged_at(at, "has more sections than a record may have"));
                    };
                    if let Some(section) = sections.at(*place) {
                        rollback.section(&section, UndoPosition { record: at, remaining })?;
                    }
                }
                if let Some(section) = first {
                    rollback.section(&section, UndoPosition { record: record.prev, remaining: 0 })?;
                }
                remaining = 0;
                undone.owed += record.end.0 - at.0 + UNDO_HEAD + others.len() as u64 * UNDO_PER_SECTION;
                record.prev
            }
            // Changes that this record undid are not undone twice.
            Some(RecordKind::Compensation) => match record.body.first_chunk() {
                Some(word) => {
                    let position = UndoPosition::decode(u64::from_le_bytes(*word));
                    remaining = usize::from(position.remaining);
                    position.record
                }
                None => record.prev,
            },
            _ => record.prev,
        };
        // Undo only moves backwards. Without this check a damaged chain could cause an endless loop.
        if next >= at {
            return Err(change.log.damaged_at(at, "names a later one as its transaction's record before"));
        }
        at = next;
    }
    Ok(UndoResult { last_in_effect: at, shortened: rollback.shortened, ..undone })
}

/// Position at which undo continues after a compensation record.
#[derive(Clone, Copy, Debug)]
struct UndoPosition {
    record: Lsn,
    /// Number of sections of the record that remain to be undone, the first ones; 0 for all.
    remaining: u8,
}

impl UndoPosition {
    /// Returns the position as the first word of a compensation record: see [`RecordKind::Compensation`].
    fn encoded(self) -> u64 {
        self.record.0 >> 3 << 8 | u64::from(self.remaining)
    }

    fn decode(word: u64) -> UndoPosition {
        UndoPosition { record: Lsn(word >> 8 << 3), remaining: word as u8 }
    }
}

/// Leaf of the row that was undone last, in its state after the undo. Rows that were written one after the other are often
/// neighbours, so the next row is searched in this leaf before the tree is descended.
struct LastLeaf<'p> {
    tree: Tree,
    frame: &'p Frame,
    version: Version,
}

/// A rollback in progress.
struct Rollback<'a> {
    change: StructureChange<'a>,
    rec: &'a mut RecordBuf,
    victim: &'a mut Victim,
    leaf: Option<LastLeaf<'a>>,
    /// Number of undone rows that the victim had shortened.
    shortened: u64,
}

impl<'a> Rollback<'a> {
    /// Undoes a section. `next` is the position at which undo continues.
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if there is no space for a split.
    fn section(&mut self, section: &PageChange<'_>, next: UndoPosition) -> Result<(), StorageError> {
        let change = self.change;
        let mut buffer = KeyBuffer::new();
        let PageChange::Row(row) = *section else {
            // The other sections are redo-only.
            return Ok(());
        };
        let (tree, key) = (row.at.tree, row.key.whole(&mut buffer));
        let (longest, is_shorter) = match row.change {
            RowChange::Replace { before: (before, _), after: (after, _), .. } => {
                (before.len(), after.len() < before.len())
            }
            _ => (0, false),
        };
        if key.len() > MAX_KEY || longest > MAX_VALUE {
            return Err(change.log.damaged_at(self.victim.last, "tells of a row that is too long"));
        }
        if is_mutant(Mutant::SkipIndexUndo)
            && matches!(row.change, RowChange::Insert { value, .. } if !value.is_empty() && key.ends_with(value))
        {
            // The section inserts an index entry: the entry's key ends with the row's key, which is the entry's value.
            return Ok(());
        }
        loop {
            let leaf = self.find(tree, key)?;
            let (position, exact) = (leaf.position, leaf.exact);
            let Some(leaf) = leaf.read.upgrade() else { continue };
            let ghost = exact && leaf.page().slot(position).is_ghost();
            let at = RowAt { page: leaf.frame().page_id(), tree, position };
            let back = match row.change {
                _ if !exact => return Err(missing(change, tree, leaf)),
                RowChange::Insert { .. } if ghost => return Err(missing(change, tree, leaf)),
                RowChange::Insert { .. } => RowChange::Mark { ghost: true },
                RowChange::Mark { ghost } => RowChange::Mark { ghost: !ghost },
                RowChange::Patch { offset, difference } => {
                    if leaf.page().slot(position).value_len < offset + difference.len() {
                        return Err(missing(change, tree, leaf));
                    }
                    RowChange::Patch { offset, difference }
                }
                RowChange::Replace { before, after } => {
                    let slot = leaf.page().slot(position);
                    let grows = before.0.len().saturating_sub(slot.value_len);
                    if grows > 0 && leaf.page().free_bytes() < grows + crate::page::layout::RECORD_HEAD {
                        leaf.release_unchanged();
                        tree.split(change, self.rec, key, 0, before.0.len(), &mut |_| true)?;
                        continue;
                    }
                    RowChange::Replace { before: after, after: before }
                }
            };
            match self.write(RowSection { at, key: key.into(), change: back }, key, next, leaf) {
                Ok(()) => {
                    self.shortened += u64::from(is_shorter);
                    return Ok(());
                }
                Err(refused) => refused.make_room(change.log)?,
            }
        }
    }

    /// Finds the leaf of a key and the key's position in the leaf. The caller validates the guard before it relies on the
    /// result.
    #[inline]
    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<LeafAt<'a>, StorageError> {
        let pool = self.change.pool;
        // The remembered leaf is used at most once: if it is not the leaf of the key, the next change remembers another
        // leaf.
        if let Some(last) = self.leaf.take()
            && last.tree == tree
        {
            let read = last.frame.read(pool.latches());
            // If the version is unchanged, the frame still holds the remembered page, with the same fences.
            if read.version() == last.version && read.page().covers(key) {
                let (position, exact) = read.page().lower_bound(key);
                return Ok(LeafAt { read, position, exact });
            }
        }
        tree.find(pool, key)
    }

    /// Appends the compensation record, applies the change to the leaf, and unlatches the leaf.
    fn write(
        &mut self,
        section: RowSection<'_>,
        key: &[u8],
        next: UndoPosition,
        mut leaf: FrameWrite<'a>,
    ) -> Result<(), AppendError> {
        let log = self.change.log;
        self.rec.begin(RecordKind::Compensation, self.victim.slot, self.victim.last);
        self.rec.put_u64(next.encoded());
        let at = &section.at;
        match section.change {
            RowChange::Mark { ghost } => row_sections::put_mark(self.rec, at, key, &mut RowsBefore::none(), ghost),
            RowChange::Patch { offset, difference } => {
                row_sections::put_patch_back(self.rec, at, key, offset, difference);
            }
            RowChange::Replace { before, after } => row_sections::put_replace(self.rec, at, key, before, after),
            RowChange::Insert { .. } => unreachable!("no compensation record inserts a row"),
        }
        leaf.mark_dirty_at(|| log.tail());
        let lsn = if is_mutant(Mutant::SkipCompensation) {
            leaf.page().lsn()
        } else {
            self.victim.last = log.append_undo(self.change.slot, self.rec, leaf.page().lsn())?;
            self.victim.last
        };
        let done = ops::apply(&PageChange::Row(section), &mut leaf.page_mut());
        debug_assert!(done, "a section built for this page fits it");
        leaf.page_mut().set_lsn(lsn);
        self.change.pool.note_ghosts_of(&leaf);
        let frame = leaf.frame();
        self.leaf = Some(LastLeaf { tree: at.tree, frame, version: leaf.release() });
        Ok(())
    }
}

#[cold]
fn missing(change: StructureChange<'_>, tree: Tree, leaf: FrameWrite<'_>) -> StorageError {
    let page = leaf.frame().page_id();
    leaf.release_unchanged();
    tree.damaged(change.pool, page, "lacks a row that the log says it has")
}
