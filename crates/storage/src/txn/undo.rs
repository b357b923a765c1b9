//! Undoing one section of a data record: by key, with a compensation record that is never undone itself.
//!
//! The same code serves a rollback while running and the undo pass of restart. It takes no locks: the
//! running transaction still holds its own, and at restart nobody else is there.

use crate::base::error::StorageError;
use crate::base::ids::{Lsn, TxnId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::ops::{self, Place, Section, Sections};
use crate::btree::{MAX_KEY, MAX_ROW, Pages, Tree};
use crate::buffer::frame::FrameWrite;
use crate::log::{RecordBuf, RecordKind, Unlogged};

/// A transaction being rolled back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) txn: TxnId,
    /// Its newest record.
    pub(crate) last: Lsn,
}

/// Undoes what the victim did after `savepoint`, following its records back (ARIES section 6.4). `bytes` is scratch.
///
/// # Errors
/// When a page or the log cannot be read, or there is no space for a split. What was undone stays undone.
pub(crate) fn roll_back(
    pages: Pages<'_>,
    rec: &mut RecordBuf,
    bytes: &mut Vec<u8>,
    victim: &mut Victim,
    savepoint: Lsn,
) -> Result<(), StorageError> {
    let mut at = victim.last;
    while at > savepoint {
        let record = pages.log.read_at(at, bytes)?;
        let next = match RecordKind::from(record.kind) {
            Some(RecordKind::Data) => {
                let sections: Vec<_> = Sections::new(record.body).collect();
                for (i, section) in sections.iter().enumerate().rev() {
                    let next = if i == 0 { record.prev } else { at };
                    let undoing = Undoing { txn: victim.txn, last: victim.last, next };
                    if undo(pages, section, rec, undoing)? && !is_mutant(Mutant::SkipCompensation) {
                        victim.last = rec.start();
                    }
                }
                record.prev
            }
            // Its first word says where undo goes on: what it undid is not undone twice.
            Some(RecordKind::Compensation) => {
                record.body.first_chunk().map_or(record.prev, |b| Lsn(u64::from_le_bytes(*b)))
            }
            _ => record.prev,
        };
        // Undo only goes back: a chain that does not would never end.
        if next >= at {
            return Err(pages.log.damaged_at(at, "names a later one as its transaction's record before"));
        }
        at = next;
    }
    Ok(())
}

/// What a compensation record needs to know of its transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undoing {
    pub(crate) txn: TxnId,
    /// The transaction's newest record.
    pub(crate) last: Lsn,
    /// Where undo goes on after this section.
    pub(crate) next: Lsn,
}

/// Undoes a section; `rec` then holds the compensation record. False if there was nothing to undo: a
/// record with several sections is undone from its end, and after a crash begun again; the sections that
/// were undone before are recognised by their effect.
///
/// # Errors
/// When a page cannot be read, or there is no space for a split.
pub(crate) fn undo(
    pages: Pages<'_>,
    section: &Section<'_>,
    rec: &mut RecordBuf,
    undoing: Undoing,
) -> Result<bool, StorageError> {
    let (tree, key) = match section {
        Section::Insert { at, .. }
        | Section::Patch { at, .. }
        | Section::Replace { at, .. }
        | Section::Mark { at, .. } => (at.tree, at.key),
        // The other sections are redo only.
        _ => return Ok(false),
    };
    let longest = match section {
        Section::Replace { before, .. } => before.len(),
        _ => 0,
    };
    if key.len() > MAX_KEY || longest > MAX_ROW {
        return Err(pages.log.damaged_at(undoing.last, "tells of a row that is too long"));
    }
    if is_mutant(Mutant::SkipIndexUndo)
        && matches!(section, Section::Insert { value, .. } if !value.is_empty() && key.ends_with(value))
    {
        // An entry of an index ends with what it leads to.
        return Ok(false);
    }
    loop {
        let leaf = tree.find(pages.pool, key)?;
        let (position, exact) = (leaf.position, leaf.exact);
        let Some(leaf) = leaf.read.upgrade() else { continue };
        let ghost = exact && leaf.page().slot(position).is_ghost();
        let place = Place { page: leaf.frame().page_id(), tree, position, key };
        rec.begin(RecordKind::Compensation as u8, undoing.txn, undoing.last);
        rec.put_u64(undoing.next.0);
        match *section {
            Section::Insert { .. } if exact && !ghost => ops::put_mark(rec, &place, true),
            // Undone before the crash, and the ghost perhaps taken out since.
            Section::Insert { .. } => {
                leaf.release_unchanged();
                return Ok(false);
            }
            _ if !exact => return Err(missing(pages, tree, leaf)),
            Section::Mark { ghost, .. } => ops::put_mark(rec, &place, !ghost),
            Section::Patch { offset, before, after, .. } => {
                if leaf.page().slot(position).value_len < offset + before.len() {
                    return Err(missing(pages, tree, leaf));
                }
                ops::put_patch(rec, &place, offset, after, before);
            }
            Section::Replace { before, was_ghost, after, is_ghost, .. } => {
                let slot = leaf.page().slot(position);
                let grows = before.len().saturating_sub(slot.value_len);
                if grows > 0 && leaf.page().free_bytes() < grows + crate::page::slotted::RECORD_HEAD {
                    leaf.release_unchanged();
                    tree.split(pages, rec, key, 0, before.len(), &mut |_| true)?;
                    continue;
                }
                ops::put_replace(rec, &place, (after, is_ghost), (before, was_ghost));
            }
            _ => unreachable!("redo-only sections returned above"),
        }
        match write(pages, rec, leaf) {
            Ok(()) => return Ok(true),
            Err(refused) => refused.make_room(pages.log)?,
        }
    }
}

/// Appends the compensation record, does what it says and lets go of the leaf.
fn write(pages: Pages<'_>, rec: &mut RecordBuf, mut leaf: FrameWrite<'_>) -> Result<(), Unlogged> {
    leaf.mark_dirty(pages.log.tail());
    let lsn = if is_mutant(Mutant::SkipCompensation) {
        leaf.page().lsn()
    } else {
        pages.log.append_undo(pages.slot, rec, leaf.page().lsn())?
    };
    for section in ops::Sections::new(rec.body().get(8..).unwrap_or_default()) {
        let done = ops::apply(&section, &mut leaf.page_mut());
        debug_assert!(done, "a section built for this page fits it");
    }
    leaf.page_mut().set_lsn(lsn);
    Ok(())
}

#[cold]
fn missing(pages: Pages<'_>, tree: Tree, leaf: FrameWrite<'_>) -> StorageError {
    let page = leaf.frame().page_id();
    leaf.release_unchanged();
    tree.damaged(pages.pool, page, "lacks a row that the log says it has")
}
