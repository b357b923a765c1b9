//! Remembered positions of announced keys, indexed by lock name.

use crate::base::ids::PageId;
use crate::latch::Version;
use crate::lock::LockName;

/// Number of sets of remembered positions, and number of positions in each set.
const SETS: usize = 16;
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

/// Position at which a key with this lock name was found. Several keys may share a lock name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RememberedPosition {
    pub(crate) name: LockName,
    pub(crate) spot: LeafSpot,
    /// Number of the leaf that the frame held at the version of `spot`.
    pub(crate) leaf: PageId,
    /// True if the key existed. Otherwise `spot` is the position at which it would be inserted.
    pub(crate) exact: bool,
}

impl RememberedPosition {
    /// Placeholder: no key.
    pub(crate) const NONE: RememberedPosition =
        RememberedPosition { name: LockName::NONE, spot: LeafSpot::NONE, leaf: PageId::NONE, exact: false };
}

/// Set of remembered positions whose lock names have the same low bits.
#[derive(Clone, Copy, Debug)]
struct PositionSet {
    places: [RememberedPosition; WAYS],
    /// Index in `places`, modulo its length, of the oldest entry, which is overwritten next.
    next: u8,
}

/// Remembered positions of a transaction's keys. They are hints: a position is compared with the key before use.
#[derive(Debug)]
pub(crate) struct PositionCache(Box<[PositionSet; SETS]>);

impl Default for PositionCache {
    fn default() -> PositionCache {
        PositionCache(Box::new([PositionSet { places: [RememberedPosition::NONE; WAYS], next: 0 }; SETS]))
    }
}

impl PositionCache {
    /// Returns the last position of a key with this name, if it is remembered.
    #[inline]
    pub(crate) fn get(&self, name: LockName) -> Option<RememberedPosition> {
        self.0[name.low_bits() % SETS].places.iter().find(|remembered| remembered.name == name).copied()
    }

    /// Remembers the position of a key.
    #[inline]
    pub(crate) fn remember(&mut self, remembered: RememberedPosition) {
        // There are several entries per set, so that keys of a group seldom evict each other. The oldest entry is replaced.
        let PositionSet { places, next } = &mut self.0[remembered.name.low_bits() % SETS];
        let at = places.iter().position(|place| place.name == remembered.name).unwrap_or_else(|| {
            let oldest = usize::from(*next) % WAYS;
            *next = next.wrapping_add(1);
            oldest
        });
        places[at] = remembered;
    }
}
