//! Shortcuts: the leaf in which keys near a given key were last found.
//!
//! The shortcuts are a table of hints beside the trees, similar to InnoDB's adaptive hash index. A search for an existing
//! key consults the table first. A hit bypasses all levels above the leaf. No code relies on a hint, which may be stale or
//! belong to another key. A search that follows a hint checks that the page is a leaf of the tree and contains *exactly this
//! key*, which no other leaf can contain. If the check fails, the search descends from the root. (The page's prefix is part
//! of the key: after different prefixes, the keys of two leaves may have equal bytes.) The table is therefore not
//! updated when pages change, split or are evicted.
//!
//! Keys that differ only in their last few bits share an entry. If keys are numbers without gaps, an entry covers an eighth
//! to a quarter of a leaf's rows in most cases. The number of ignored bits is learnt for each index. Sixteen neighbouring
//! entries share a cache line, which is selected by a hash of the bits that their keys have in common.

use crate::base::sync::plain::{AtomicU8, AtomicU32, Ordering};
use std::io;

use crate::base::arena::{Arena, PageSize};
use crate::base::ids::{IndexId, PageId};
use crate::base::prefetch::prefetch_read;

/// Number of entries in a cache line.
const LINE: usize = 16;
/// Number of table entries per frame of the pool. The entries take 16 to 32 bytes of memory per frame, once touched; more in
/// the smallest pools, less in pools beyond 32 GiB.
const PER_FRAME: usize = 4;
const MIN_ENTRIES: usize = 1 << 10;
const MAX_ENTRIES: usize = 1 << 24;
/// Number of bits of an entry for the page number; no file has more pages. The bits above hold a tag that distinguishes keys
/// of one cache line.
const PAGE_BITS: u32 = 28;
/// Number of learnt bit counts. Indexes whose numbers are equal modulo this number share one, which costs only speed.
const BIT_COUNTS: usize = 256;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Table of hints that map keys to leaves. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shortcuts {
    /// Entries: a page number, and above it the tag of the keys.
    entries: Arena<AtomicU32>,
    /// Number of bits by which a hash is shifted to obtain a line number.
    shift: u32,
    /// Number of bits in which the keys of an entry may differ, plus one; 0 if nothing has been learnt. The position in this
    /// array is the index number modulo `BIT_COUNTS`.
    ignored_bits: [AtomicU8; BIT_COUNTS],
}

/// Position of a key's entry in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortcutEntry {
    at: u32,
    /// Tag of the key, shifted to its position above the bits of the page.
    tag: u32,
}

impl ShortcutEntry {
    /// Placeholder for calls that search for no key.
    pub(crate) const NONE: ShortcutEntry = ShortcutEntry { at: 0, tag: 0 };
}

/// Combines the halves of the product, so that each bit of the result depends on all bits of `a`.
#[inline]
fn mix(a: u64) -> u64 {
    let wide = u128::from(a) * u128::from(ODD);
    wide as u64 ^ (wide >> 64) as u64
}

impl Shortcuts {
    /// Creates a table for a pool of `frames` frames, in memory of this kind.
    ///
    /// # Errors
    /// Fails if the operating system refuses the address space.
    pub(super) fn new(frames: usize, memory: PageSize) -> io::Result<Shortcuts> {
        let entries = (frames * PER_FRAME).next_power_of_two().clamp(MIN_ENTRIES, MAX_ENTRIES);
        let shift = u64::BITS - (entries / LINE).trailing_zeros();
        Ok(Shortcuts {
            entries: Arena::new(entries, memory)?,
            shift,
            ignored_bits: [const { AtomicU8::new(0) }; BIT_COUNTS],
        })
    }

    /// Address range of the table.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.entries.range()
    }

    #[inline]
    fn ignored_bits_of(&self, index: IndexId) -> &AtomicU8 {
        &self.ignored_bits[index.0 as usize % BIT_COUNTS]
    }

    /// Computes the position of a key's entry and prefetches the entry.
    #[inline]
    pub(crate) fn entry_of(&self, index: IndexId, key: &[u8]) -> ShortcutEntry {
        let ignored = u32::from(self.ignored_bits_of(index).load(Ordering::Relaxed)).saturating_sub(1);
        let (lead, last) = match (key.split_last_chunk::<8>(), key.split_last_chunk::<4>()) {
            (Some((lead, last)), _) => (lead, u64::from_be_bytes(*last)),
            (None, Some((lead, last))) => (lead, u64::from(u32::from_be_bytes(*last))),
            (None, None) => (key, 0),
        };
        let seed = u64::from(index.0).wrapping_mul(ODD) ^ key.len() as u64;
        let lead = lead.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(ODD).rotate_left(29));
        let place = last >> ignored.min(63);
        let hash = mix(lead ^ (place / LINE as u64));
        let at = (hash >> self.shift) as usize * LINE + place as usize % LINE;
        if let Some(entry) = self.entries.as_slice().get(at) {
            prefetch_read(std::ptr::from_ref(entry).cast());
        }
        ShortcutEntry { at: at as u32, tag: (hash as u32) << PAGE_BITS }
    }

    /// Returns the leaf in which a key near this one was last found; [`PageId::NONE`] if the entry belongs to other keys.
    #[inline]
    pub(crate) fn leaf(&self, spot: ShortcutEntry) -> PageId {
        let entry = self.entries.as_slice().get(spot.at as usize).map_or(0, |entry| entry.load(Ordering::Relaxed));
        let page = entry ^ spot.tag;
        if page >> PAGE_BITS == 0 { PageId(page) } else { PageId::NONE }
    }

    /// Records that a key was found in `leaf`, which has `rows` rows.
    #[inline]
    pub(crate) fn learn(&self, index: IndexId, spot: ShortcutEntry, leaf: PageId, rows: usize) {
        if leaf.0 >> PAGE_BITS == 0
            && let Some(entry) = self.entries.as_slice().get(spot.at as usize)
        {
            entry.store(spot.tag | leaf.0, Ordering::Relaxed);
        }
        let fit = rows.checked_ilog2().unwrap_or(0).saturating_sub(2) as u8 + 1;
        let ignored = self.ignored_bits_of(index);
        // A change of the bit count invalidates all learnt entries, so small differences between leaves do not change it.
        if ignored.load(Ordering::Relaxed).abs_diff(fit) > 1 {
            ignored.store(fit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: IndexId = IndexId(7);

    fn find(shortcuts: &Shortcuts, key: u64) -> PageId {
        shortcuts.leaf(shortcuts.entry_of(INDEX, &key.to_be_bytes()))
    }

    fn learn(shortcuts: &Shortcuts, key: u64, leaf: u32, rows: usize) {
        shortcuts.learn(INDEX, shortcuts.entry_of(INDEX, &key.to_be_bytes()), PageId(leaf), rows);
    }

    #[test]
    fn neighbours_are_found_once_the_bits_are_learnt() {
        let shortcuts = Shortcuts::new(16, PageSize::Usual).unwrap();
        assert!(find(&shortcuts, 4000).is_none());
        learn(&shortcuts, 4000, 9, 40);
        // A quarter of 40 rows, rounded down to a power of two.
        learn(&shortcuts, 4000, 9, 40);
        assert_eq!((4000..4008).map(|key| find(&shortcuts, key)).collect::<Vec<_>>(), [PageId(9); 8]);
        assert!(find(&shortcuts, 3999).is_none() && find(&shortcuts, 4008).is_none());
        // A leaf with slightly fewer rows changes nothing.
        learn(&shortcuts, 5000, 10, 20);
        assert_eq!((find(&shortcuts, 4007), find(&shortcuts, 5007)), (PageId(9), PageId(10)));
    }

    #[test]
    fn indexes_and_leading_bytes_are_told_apart() {
        let shortcuts = Shortcuts::new(1 << 12, PageSize::Usual).unwrap();
        let key = |lead: u8, n: u64| [&[lead][..], &n.to_be_bytes()].concat();
        for lead in 0..100 {
            shortcuts.learn(INDEX, shortcuts.entry_of(INDEX, &key(lead, 1)), PageId(u32::from(lead) + 1), 1);
        }
        let known =
            |lead: &u8| shortcuts.leaf(shortcuts.entry_of(INDEX, &key(*lead, 1))) == PageId(u32::from(*lead) + 1);
        assert!((0..100).filter(known).count() > 90, "few share an entry");
        let elsewhere = |index: u32| shortcuts.leaf(shortcuts.entry_of(IndexId(index), &key(1, 1)));
        assert!((8..108).filter(|index| !elsewhere(*index).is_none()).count() < 10, "few take another's for theirs");
    }

    #[test]
    fn short_keys_have_neighbours_too() {
        let shortcuts = Shortcuts::new(1 << 12, PageSize::Usual).unwrap();
        let spot = |key: &[u8]| shortcuts.entry_of(INDEX, key);
        shortcuts.learn(INDEX, spot(&[0]), PageId(1), 64);
        shortcuts.learn(INDEX, spot(&16u32.to_be_bytes()), PageId(2), 64);
        let found: Vec<u32> = (14..33u32).map(|n| shortcuts.leaf(spot(&n.to_be_bytes())).0).collect();
        assert_eq!(found, [&[0; 2][..], &[2; 16], &[0]].concat());
        assert!(shortcuts.leaf(spot(&[])).is_none());
    }
}
