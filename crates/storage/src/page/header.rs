//! Page header: the fields of every page, and the checksum.

use super::access::{PageMut, PageRef};
pub(crate) use super::layout::*;
use crate::base::checksum::crc32c;
use crate::base::ids::{IndexId, Lsn, PAGE_SIZE, PageId};
use crate::base::mutant::{Mutant, is_mutant};

/// Kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Page that was never written, or that was freed and is part of the free list.
    Free = 0,
    /// B+tree leaf.
    Leaf = 1,
    /// B+tree inner page.
    Inner = 2,
    /// The allocator's page, page 1.
    Meta = 3,
}

/// Fields that every page has.
impl PageRef<'_> {
    /// Returns the LSN of the last change.
    #[inline]
    pub(crate) fn lsn(self) -> Lsn {
        Lsn(self.u64(LSN))
    }

    /// Returns the number of the page itself.
    pub(crate) fn id(self) -> PageId {
        PageId(self.u32(ID))
    }

    /// Returns the kind; `None` if it is unknown.
    pub(crate) fn kind(self) -> Option<Kind> {
        Some(match self.u8(KIND) {
            0 => Kind::Free,
            1 => Kind::Leaf,
            2 => Kind::Inner,
            3 => Kind::Meta,
            _ => return None,
        })
    }

    /// Returns the index that the page belongs to.
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

/// Writes the checksum. Afterwards the bytes are ready for the disk.
pub(crate) fn seal(bytes: &mut [u8; PAGE_SIZE]) {
    let crc = crc32c(&bytes[CRC + 4..]);
    bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the LSN of a page whose bytes may be unaligned.
pub(crate) fn lsn_of(bytes: &[u8; PAGE_SIZE]) -> Lsn {
    Lsn(bytes[LSN..].first_chunk().map_or(0, |lsn| u64::from_le_bytes(*lsn)))
}

/// Returns a description, as a clause, of the damage of bytes that were read from the place of page `id`; `None` if the page
/// is intact.
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
