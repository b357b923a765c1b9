//! Offsets of the fields of a page, in bytes from its start. See `FORMAT.md`.

use crate::base::ids::PAGE_SIZE;

/// CRC-32C of all bytes after this field.
pub(crate) const CRC: usize = 0;
/// Number of the page itself, which detects a page read from the wrong place.
pub(crate) const ID: usize = 4;
/// Kind of the page: see [`Kind`](super::header::Kind).
pub(crate) const KIND: usize = 8;
/// Level of the page: its distance from the leaves.
pub(crate) const LEVEL: usize = 9;
/// Number of slots in use.
pub(crate) const COUNT: usize = 10;
/// Index that the page belongs to.
pub(crate) const INDEX: usize = 12;
/// Length of the prefix that all keys of the page share.
pub(crate) const PREFIX_LEN: usize = 16;
/// Number of bytes after the prefix, at most 4, that all keys of this page share by chance. Heads begin after these bytes.
pub(crate) const SKIP: usize = 18;
/// The skipped bytes, which all keys share, in the form of a head.
pub(crate) const SHARED: usize = 20;
/// In a leaf, a copy of a prefix of at most [`LEAD_BYTES`] bytes, so that a search need not read the fence.
pub(crate) const LEAD: usize = 24;
/// Last child of an inner page, at the same offset.
pub(crate) const UPPER: usize = LEAD;
/// The hint keys: 7 times 4 bytes. In memory a cache line begins here.
pub(crate) const HINTS: usize = 32;
/// Number of times that rows have left the page by a split, merge or purge. Serves as a version for optimistic access.
pub(crate) const SPLITS: usize = 60;
/// LSN of the last change.
pub(crate) const LSN: usize = 64;
/// Right neighbour of a leaf.
pub(crate) const RIGHT: usize = 72;
/// Flags of the page: see [`flags`].
pub(crate) const FLAGS: usize = 76;
/// Lowest byte of the heap, which grows down from the page's end.
pub(crate) const HEAP_START: usize = 78;
/// Number of bytes of the heap that no slot and no fence refers to.
pub(crate) const HEAP_FREE: usize = 80;
/// Number of ghost slots.
pub(crate) const GHOSTS: usize = 82;
/// Offset of the low fence.
pub(crate) const LOW_OFFSET: usize = 84;
/// Length of the low fence.
pub(crate) const LOW_LEN: usize = 86;
/// Offset of the high fence.
pub(crate) const HIGH_OFFSET: usize = 88;
/// Length of the high fence.
pub(crate) const HIGH_LEN: usize = 90;
/// Position of the slot of the last insert.
pub(crate) const LAST_INSERT: usize = 92;
/// Length of the run of ascending inserts that ended at that slot.
pub(crate) const RUN: usize = 94;
/// The slots. In memory a cache line begins here.
pub(crate) const SLOTS: usize = 96;

/// Maximum length, in bytes, of a prefix that a leaf keeps in its header, next to the fields that a search reads first.
pub(crate) const LEAD_BYTES: usize = HINTS - LEAD;
/// Number of hint keys of a page.
pub(crate) const HINT_COUNT: usize = 7;

/// Returns the slot whose head is hint `i - 1` on a page of `count` slots: the start of part `i` of eight equal parts of
/// the slots, counted from 0. The count is rounded down to a multiple of 4, so that three of four appended rows move no
/// hint.
#[inline]
pub(crate) const fn hint_slot(i: usize, count: usize) -> usize {
    i * (count & !3) / (HINT_COUNT + 1)
}

/// Size of a slot in bytes.
pub(crate) const SLOT: usize = 12;
/// Bytes of a record before its key: the row's version.
pub(crate) const RECORD_HEAD: usize = 4;
/// Maximum number of slots of a page.
pub(crate) const MAX_SLOTS: usize = (PAGE_SIZE - SLOTS) / SLOT - 1;
/// Bits of the header's flags.
pub(crate) mod flags {
    /// There is no low fence.
    pub(crate) const LOW_INFINITE: u16 = 1;
    /// There is no high fence.
    pub(crate) const HIGH_INFINITE: u16 = 2;
}

/// Bit of a slot's flags: the row is a ghost (deleted), but its key still separates two gaps.
pub(crate) const GHOST: u16 = 1;
/// Bit of a slot's flags: the value is stored elsewhere, and the record contains a reference to it.
pub(crate) const OVERFLOW: u16 = 2;

/// Masks of the shared bytes at the start of a head, indexed by the number of shared bytes.
pub(crate) const SHARED_MASK: [u32; 5] = [0, 0xFF00_0000, 0xFFFF_0000, 0xFFFF_FF00, 0xFFFF_FFFF];
