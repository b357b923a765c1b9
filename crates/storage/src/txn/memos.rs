//! Remembered positions of announced keys, by lock name.

use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::LockName;

/// Number of sets of remembered positions, and number of positions per set.
const MEMOS: usize = 16;
const WAYS: usize = 4;

/// A slot of a leaf, valid as long as the frame's version is unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafSpot {
    pub(crate) frame: u32,
    pub(crate) version: Version,
    pub(crate) position: u16,
}

impl LeafSpot {
    /// Placeholder: no slot of any leaf.
    pub(crate) const NONE: LeafSpot = LeafSpot { frame: 0, version: Version::NEVER, position: 0 };
}

/// Position at which a key with this lock name was found. Several keys may share the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memo {
    pub(crate) name: LockName,
    pub(crate) spot: LeafSpot,
    /// Leaf that the frame held at that version.
    pub(crate) leaf: PageId,
    /// True if the key existed. Otherwise `spot` is the position at which it would be inserted.
    pub(crate) exact: bool,
}

impl Memo {
    /// Placeholder: no key.
    pub(crate) const NONE: Memo = Memo { name: LockName::NONE, spot: LeafSpot::NONE, leaf: PageId::NONE, exact: false };
}

/// Positions whose names have the same low bits.
#[derive(Clone, Copy, Debug)]
struct MemoSet {
    places: [Memo; WAYS],
    /// Index, modulo the number of entries, of the entry to overwrite next: the oldest.
    next: u8,
}

/// Remembered positions of a transaction's keys. They are hints: a position is compared with the key before use.
#[derive(Debug)]
pub(crate) struct Memos(Box<[MemoSet; MEMOS]>);

impl Default for Memos {
    fn default() -> Memos {
        Memos(Box::new([MemoSet { places: [Memo::NONE; WAYS], next: 0 }; MEMOS]))
    }
}

impl Memos {
    /// Returns the last position of a key with this name, if it is remembered.
    #[inline]
    pub(crate) fn get(&self, name: LockName) -> Option<Memo> {
        self.0[name.low_bits() % MEMOS].places.iter().find(|memo| memo.name == name).copied()
    }

    /// Remembers the position of a key.
    #[inline]
    pub(crate) fn remember(&mut self, memo: Memo) {
        // There are several entries per set, so that keys of a group seldom evict each other. The oldest entry is replaced.
        let MemoSet { places, next } = &mut self.0[memo.name.low_bits() % MEMOS];
        let at = places.iter().position(|place| place.name == memo.name).unwrap_or_else(|| {
            let oldest = usize::from(*next) % WAYS;
            *next = next.wrapping_add(1);
            oldest
        });
        places[at] = memo;
    }
}
