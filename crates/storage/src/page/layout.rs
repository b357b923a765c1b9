//! Where everything lies in a page, in bytes from its begin. See `FORMAT.md`.

use crate::base::ids::PAGE_SIZE;

/// CRC-32C of all bytes after this field.
pub(crate) const CRC: usize = 0;
/// The page's own number: a page read from the wrong place is noticed.
pub(crate) const ID: usize = 4;
/// LSN of the last change.
pub(crate) const LSN: usize = 8;
/// See [`flags`].
pub(crate) const FLAGS: usize = 16;
/// Lowest byte of the heap, which grows down from the page's end.
pub(crate) const HEAP_START: usize = 18;
/// Bytes of the heap that no slot and no fence refers to.
pub(crate) const HEAP_FREE: usize = 20;
/// Ghost slots.
pub(crate) const GHOSTS: usize = 22;
/// Where the low fence lies.
pub(crate) const LOW_OFFSET: usize = 24;
/// Bytes of the low fence.
pub(crate) const LOW_LEN: usize = 26;
/// Where the high fence lies.
pub(crate) const HIGH_OFFSET: usize = 28;
/// Bytes of the high fence.
pub(crate) const HIGH_LEN: usize = 30;
/// A leaf's right neighbour.
pub(crate) const RIGHT: usize = 32;
/// How often rows have left the page by split, merge or purge: a version for optimistic access.
pub(crate) const SPLITS: usize = 36;
/// Slot of the last insert.
pub(crate) const LAST_INSERT: usize = 40;
/// Length of the run of ascending inserts that ended there.
pub(crate) const RUN: usize = 42;

/// The search line: all that a search reads before the slots, in one cache line, which begins with the kind.
pub(crate) const SEARCH: usize = 64;
/// What the page is: see [`Kind`](super::header::Kind).
pub(crate) const KIND: usize = SEARCH;
/// Distance from the leaves.
pub(crate) const LEVEL: usize = 65;
/// Slots in use.
pub(crate) const COUNT: usize = 66;
/// The index that the page belongs to.
pub(crate) const INDEX: usize = 68;
/// Bytes that all keys of the page share.
pub(crate) const PREFIX_LEN: usize = 72;
/// Bytes behind the prefix that all keys on this page share by chance, at most 4: heads begin behind them.
pub(crate) const SKIP: usize = 74;
/// Those bytes, like a head.
pub(crate) const SHARED: usize = 76;
/// In a leaf, a prefix of at most [`LEAD_BYTES`] bytes, so that a search need not look at the fence.
pub(crate) const LEAD: usize = 80;
/// An inner page's last child, in the same place.
pub(crate) const UPPER: usize = LEAD;
/// The hint keys: 8 times 4 bytes.
pub(crate) const HINTS: usize = 96;
/// The slots.
pub(crate) const SLOTS: usize = 128;

/// Longest prefix that is kept in the search line.
pub(crate) const LEAD_BYTES: usize = HINTS - LEAD;
/// Hint keys of a page.
pub(crate) const HINT_COUNT: usize = 8;

/// The slot whose head is hint `i - 1` on a page of `count` slots: of the slots, rounded down to a multiple of 4 so that
/// three of four appended rows move no hint, the `i`-th of nine parts begins there.
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

/// The first bytes of a head, as many as are shared.
pub(crate) const SHARED_MASK: [u32; 5] = [0, 0xFF00_0000, 0xFFFF_0000, 0xFFFF_FF00, 0xFFFF_FFFF];
