//! Where everything lies in a page, in bytes from its begin. See `FORMAT.md`.

use crate::base::ids::PAGE_SIZE;

/// CRC-32C of all bytes after this field.
pub(crate) const CRC: usize = 0;
/// The page's own number: a page read from the wrong place is noticed.
pub(crate) const ID: usize = 4;
/// What the page is: see [`Kind`](super::header::Kind).
pub(crate) const KIND: usize = 8;
/// Distance from the leaves.
pub(crate) const LEVEL: usize = 9;
/// Slots in use.
pub(crate) const COUNT: usize = 10;
/// The index that the page belongs to.
pub(crate) const INDEX: usize = 12;
/// Bytes that all keys of the page share.
pub(crate) const PREFIX_LEN: usize = 16;
/// Bytes behind the prefix that all keys on this page share by chance, at most 4: heads begin behind them.
pub(crate) const SKIP: usize = 18;
/// Those bytes, like a head.
pub(crate) const SHARED: usize = 20;
/// In a leaf, a prefix of at most [`LEAD_BYTES`] bytes, so that a search need not look at the fence.
pub(crate) const LEAD: usize = 24;
/// An inner page's last child, in the same place.
pub(crate) const UPPER: usize = LEAD;
/// The hint keys: 7 times 4 bytes. In memory a cache line begins here.
pub(crate) const HINTS: usize = 32;
/// How often rows have left the page by split, merge or purge: a version for optimistic access.
pub(crate) const SPLITS: usize = 60;
/// LSN of the last change.
pub(crate) const LSN: usize = 64;
/// A leaf's right neighbour.
pub(crate) const RIGHT: usize = 72;
/// See [`flags`].
pub(crate) const FLAGS: usize = 76;
/// Lowest byte of the heap, which grows down from the page's end.
pub(crate) const HEAP_START: usize = 78;
/// Bytes of the heap that no slot and no fence refers to.
pub(crate) const HEAP_FREE: usize = 80;
/// Ghost slots.
pub(crate) const GHOSTS: usize = 82;
/// Where the low fence lies.
pub(crate) const LOW_OFFSET: usize = 84;
/// Bytes of the low fence.
pub(crate) const LOW_LEN: usize = 86;
/// Where the high fence lies.
pub(crate) const HIGH_OFFSET: usize = 88;
/// Bytes of the high fence.
pub(crate) const HIGH_LEN: usize = 90;
/// Slot of the last insert.
pub(crate) const LAST_INSERT: usize = 92;
/// Length of the run of ascending inserts that ended there.
pub(crate) const RUN: usize = 94;
/// The slots. In memory a cache line begins here.
pub(crate) const SLOTS: usize = 96;

/// Longest prefix that is kept beside the fields that a search reads first.
pub(crate) const LEAD_BYTES: usize = HINTS - LEAD;
/// Hint keys of a page.
pub(crate) const HINT_COUNT: usize = 7;

/// The slot whose head is hint `i - 1` on a page of `count` slots: where the `i`-th of eight equal parts of them begins.
/// The count is rounded down to a multiple of 4, so that three of four appended rows move no hint.
#[inline]
pub(crate) const fn hint_slot(i: usize, count: usize) -> usize {
    i * (count & !3) / (HINT_COUNT + 1)
}

/// Bytes of a slot.
pub(crate) const SLOT: usize = 12;
/// Bytes of a record before its key: the row's version.
pub(crate) const RECORD_HEAD: usize = 4;
/// Most slots a page can have.
pub(crate) const MAX_SLOTS: usize = (PAGE_SIZE - SLOTS) / SLOT - 1;
/// Bits of the header's flags.
pub(crate) mod flags {
    /// There is no low fence.
    pub(crate) const LOW_INFINITE: u16 = 1;
    /// There is no high fence.
    pub(crate) const HIGH_INFINITE: u16 = 2;
}

/// Bit of a slot's flags: the row is deleted, its key still separates two gaps.
pub(crate) const GHOST: u16 = 1;
/// Bit of a slot's flags: the value lies elsewhere, and the slot holds a reference to it.
pub(crate) const OVERFLOW: u16 = 2;

/// The first bytes of a head, as many as are shared.
pub(crate) const SHARED_MASK: [u32; 5] = [0, 0xFF00_0000, 0xFFFF_0000, 0xFFFF_FF00, 0xFFFF_FFFF];
