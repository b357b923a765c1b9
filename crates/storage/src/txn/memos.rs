//! Where announced keys were found: places remembered by the names of their locks.

use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::LockName;

/// Remembered positions, where announced keys were found: so many sets of so many.
const MEMOS: usize = 16;
const WAYS: usize = 4;

/// A slot of a leaf, valid as long as the frame's version stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafSpot {
    pub(crate) frame: u32,
    pub(crate) version: Version,
    pub(crate) position: u16,
}

impl LeafSpot {
    /// No slot of any leaf.
    pub(crate) const NONE: LeafSpot = LeafSpot { frame: 0, version: Version::NEVER, position: 0 };
}

/// Where a key of this name was found; several keys may share the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memo {
    pub(crate) name: LockName,
    pub(crate) spot: LeafSpot,
    /// The leaf that the frame held at that version.
    pub(crate) leaf: PageId,
    /// Whether the key existed; otherwise the spot is where it would lie.
    pub(crate) exact: bool,
}

impl Memo {
    /// No key's.
    pub(crate) const NONE: Memo = Memo { name: LockName::NONE, spot: LeafSpot::NONE, leaf: PageId::NONE, exact: false };
}

/// Positions whose names have the same low bits.
#[derive(Clone, Copy, Debug)]
struct MemoSet {
    places: [Memo; WAYS],
    /// The place, modulo their number, that is overwritten next: the oldest.
    next: u8,
}

/// Some places of a transaction's keys. A hint: a place is compared with the key before it is used.
#[derive(Debug)]
pub(crate) struct Memos(Box<[MemoSet; MEMOS]>);

impl Default for Memos {
    fn default() -> Memos {
        Memos(Box::new([MemoSet { places: [Memo::NONE; WAYS], next: 0 }; MEMOS]))
    }
}

impl Memos {
    /// Where a key of this name was found last, if remembered.
    #[inline]
    pub(crate) fn get(&self, name: LockName) -> Option<Memo> {
        self.0[name.low_bits() % MEMOS].places.iter().find(|memo| memo.name == name).copied()
    }

    /// Remembers where a key was found.
    #[inline]
    pub(crate) fn remember(&mut self, memo: Memo) {
        // Several places per set, so that keys of a group seldom evict each other; the oldest goes.
        let MemoSet { places, next } = &mut self.0[memo.name.low_bits() % MEMOS];
        let at = places.iter().position(|place| place.name == memo.name).unwrap_or_else(|| {
            let oldest = usize::from(*next) % WAYS;
            *next = next.wrapping_add(1);
            oldest
        });
        places[at] = memo;
    }
}
