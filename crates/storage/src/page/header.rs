//! The page header: field offsets, and the checksum. See `FORMAT.md`.

use super::access::{PageMut, PageRef};
use crate::base::checksum::crc32c;
use crate::base::ids::{IndexId, Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};

/// CRC-32C of all bytes after this field.
pub(crate) const CRC: usize = 0;
/// The page's own number: a page read from the wrong place is noticed.
pub(crate) const ID: usize = 4;
/// LSN of the last change.
pub(crate) const LSN: usize = 8;
/// What the page is: see [`Kind`].
pub(crate) const KIND: usize = 16;
/// Distance from the leaves.
pub(crate) const LEVEL: usize = 17;
/// See `slotted::flags`.
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

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Never written, or given back: part of the free list.
    Free = 0,
    /// B+tree leaf.
    Leaf = 1,
    /// B+tree inner page.
    Inner = 2,
    /// Page 1, the allocator's.
    Meta = 3,
}

/// Fields that every page has.
impl PageRef<'_> {
    /// LSN of the last change.
    #[inline]
    pub(crate) fn lsn(self) -> Lsn {
        Lsn(self.u64(LSN))
    }

    /// The page's own number.
    pub(crate) fn id(self) -> PageId {
        PageId(self.u32(ID))
    }

    /// The kind, if it is one we know.
    pub(crate) fn kind(self) -> Option<Kind> {
        Some(match self.u8(KIND) {
            0 => Kind::Free,
            1 => Kind::Leaf,
            2 => Kind::Inner,
            3 => Kind::Meta,
            _ => return None,
        })
    }

    /// The index the page belongs to.
    pub(crate) fn index(self) -> IndexId {
        IndexId(self.u32(INDEX))
    }
}

impl PageMut<'_> {
    /// Sets the LSN of the last change.
    #[inline]
    pub(crate) fn set_lsn(&mut self, lsn: Lsn) {
        self.put_u64(LSN, lsn.0);
    }
}

/// Writes the checksum; the bytes are then ready for the disk.
pub(crate) fn seal(bytes: &mut [u8; PAGE_SIZE]) {
    let crc = crc32c(&bytes[CRC + 4..]);
    bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

/// What is wrong with bytes read from the place of page `id`, as a clause; `None` if nothing.
pub(crate) fn damage(bytes: &[u8; PAGE_SIZE], id: PageId, checksums: bool) -> Option<String> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if checksums && word(CRC) != crc32c(&bytes[CRC + 4..]) && !is_mutant(Mutant::SkipPageChecksum) {
        return Some("fails its checksum".into());
    }
    if word(ID) != id.0 {
        return Some(format!("says it is page {}", word(ID)));
    }
    None
}
