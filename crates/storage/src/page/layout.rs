//! Where everything lies in a page, in bytes from its begin. See `FORMAT.md`.

use crate::base::ids::PAGE_SIZE;

/// CRC-32C of all bytes after this field.
pub(crate) const CRC: usize = 0;
/// The page's own number: a page read from the wrong place is noticed.
pub(crate) const ID: usize = 4;
/// LSN of the last change.
pub(crate) const LSN: usize = 8;
/// What the page is: see [`Kind`](super::header::Kind).
pub(crate) const KIND: usize = 16;
/// Distance from the leaves.
pub(crate) const LEVEL: usize = 17;
/// See [`flags`].
pub(crate) const FLAGS: usize = 18;
/// The index that the page belongs to.
pub(crate) const INDEX: usize = 20;
/// Slots in use.
pub(crate) const COUNT: usize = 24;
/// Lowest byte of the heap, which grows down from the page's end.
pub(crate) const HEAP_START: usize = 26;
/// Bytes of the heap that no slot and no fence refers to.
pub(crate) const HEAP_FREE: usize = 28;
/// Bytes that all keys of the page share.
pub(crate) const PREFIX_LEN: usize = 30;
/// Where the low fence lies.
pub(crate) const LOW_OFFSET: usize = 32;
/// Bytes of the low fence.
pub(crate) const LOW_LEN: usize = 34;
/// Where the high fence lies.
pub(crate) const HIGH_OFFSET: usize = 36;
/// Bytes of the high fence.
pub(crate) const HIGH_LEN: usize = 38;
/// A leaf's right neighbour.
pub(crate) const RIGHT: usize = 40;
/// An inner page's last child.
pub(crate) const UPPER: usize = 44;
/// How often rows have left the page by split, merge or purge: a version for optimistic access.
pub(crate) const SPLITS: usize = 48;
/// Ghost slots.
pub(crate) const GHOSTS: usize = 52;
/// Slot of the last insert.
pub(crate) const LAST_INSERT: usize = 54;
/// Length of the run of ascending inserts that ended there.
pub(crate) const RUN: usize = 56;
/// Bytes behind the prefix that all keys on this page share by chance, at most 4: heads begin behind them.
pub(crate) const SKIP: usize = 58;
/// Those bytes, like a head.
pub(crate) const SHARED: usize = 60;
/// The hint keys: 16 times 4 bytes, a cache line of their own.
pub(crate) const HINTS: usize = 64;
/// The slots.
pub(crate) const SLOTS: usize = 128;

/// Hint keys of a page.
pub(crate) const HINT_COUNT: usize = 16;

/// Bytes of a slot.
pub(crate) const SLOT: usize = 12;
/// Bytes of a record before its key: the row's version.
pub(crate) const RECORD_HEAD: usize = 4;
/// Most slots a page can have.
pub(crate) const MAX_SLOTS: usize = (PAGE_SIZE - SLOTS) / SLOT - 1;
/// Fewer slots than this are searched without hints.
pub(crate) const HINTS_FROM: usize = 2 * HINT_COUNT;

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
