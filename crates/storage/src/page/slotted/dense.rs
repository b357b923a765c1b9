//! Leaves whose keys are consecutive numbers. The slot of a key follows from its number, so a search reads the header and
//! one slot, without comparisons in between.
//!
//! After the page's prefix such keys are numbers of one to four bytes. The hints, whose slots are known, show that the
//! numbers are consecutive: there is no hole between the first and the last hint if the difference of the two hints equals
//! the difference of their slots. Keys before the first or after the last hint may have holes, and a page may change while
//! it is read. So a computed position counts only if its slot has exactly the key.

use super::super::access::PageRef;
use super::super::header::*;
use super::read::SlotRange;

/// Position of a key in a leaf, as determined by the leaf's header alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPlace {
    narrowed: SlotRange,
    /// Length of the key after the prefix, if the key is most probably in the slot `narrowed.from`; otherwise 0.
    len: u8,
}

impl LeafPlace {
    /// Position for a leaf that has not been searched yet.
    pub(crate) const NONE: LeafPlace = LeafPlace { narrowed: SlotRange::NONE, len: 0 };
}

impl PageRef<'_> {
    /// Returns the position of a key in a leaf, by the header, and prefetches the slots to search.
    #[inline(always)]
    pub(crate) fn place_in_leaf(self, key: &[u8]) -> LeafPlace {
        match self.slot_of_number(key) {
            Some(place) => {
                let at = SLOTS + usize::from(place.narrowed.from) * SLOT;
                self.prefetch(at);
                self.prefetch(at + SLOT - 1);
                place
            }
            None => LeafPlace { narrowed: self.narrow_out_of_line(key), len: 0 },
        }
    }

    /// Returns the slot with exactly this key, which must begin with the page's prefix.
    #[inline(always)]
    pub(crate) fn find_at(self, place: LeafPlace, key: &[u8]) -> Option<usize> {
        let LeafPlace { narrowed, len } = place;
        let (position, exact) = if len > 0 {
            let at = usize::from(narrowed.from);
            if self.head(at) == narrowed.head && self.slot_word(at, 4) >> 16 == u32::from(len) && at < self.count() {
                return Some(at);
            }
            self.lower_bound_out_of_line(key)
        } else {
            self.finish(narrowed, key)
        };
        exact.then_some(position)
    }

    #[inline(never)]
    fn narrow_out_of_line(self, key: &[u8]) -> SlotRange {
        self.narrow(key)
    }

    #[inline(never)]
    fn lower_bound_out_of_line(self, key: &[u8]) -> (usize, bool) {
        self.lower_bound(key)
    }

    /// Returns the position of a key if the keys of the page are consecutive numbers.
    #[inline(always)]
    fn slot_of_number(self, key: &[u8]) -> Option<LeafPlace> {
        let len = key.len().wrapping_sub(self.prefix_len());
        let last = u32::from_be_bytes(*key.last_chunk::<4>()?);
        if len.wrapping_sub(1) >= 4 || self.u16(SKIP) != 0 {
            return None;
        }
        // The head of a number with fewer than four bytes is padded with zeros.
        let shift = 32 - 8 * len as u32;
        let head = last << shift;
        let count = self.count();
        let (from, to) = (hint_slot(1, count), hint_slot(HINT_COUNT, count));
        let (low, high) = (self.u32(HINTS), self.u32(HINTS + 4 * (HINT_COUNT - 1)));
        if high.wrapping_sub(low) != ((to - from) as u32) << shift {
            return None;
        }
        // A key below the first hint lies before the slot of that hint.
        let at = (from as u32).wrapping_add_signed(head.wrapping_sub(low) as i32 >> shift);
        if at as usize >= count {
            return None;
        }
        let narrowed = SlotRange { head, from: at as u16, to: at as u16, is_outside: false };
        Some(LeafPlace { narrowed, len: len as u8 })
    }
}
