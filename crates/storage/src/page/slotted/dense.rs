//! Leaves whose keys are numbers without holes: a key's slot follows from its number, so that a search reads the header
//! and one slot, and compares nothing on the way.
//!
//! Behind the page's prefix such keys are numbers of one to four bytes. Whether they follow each other is seen in the
//! hints, whose slots are known: between the first and the last of them there is no hole if their difference is that of
//! their slots. What lies outside of the two may have holes, and a page may change while it is read, so a place counts
//! only if its slot has exactly the key.

use super::super::access::PageRef;
use super::super::header::*;
use super::read::Narrowed;

/// Where a key of a leaf lies, as far as its header tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPlace {
    narrowed: Narrowed,
    /// Not 0: most probably in the slot to which this is narrowed, and so long is the key behind the prefix.
    len: u8,
}

impl LeafPlace {
    /// For a leaf that has not been looked at yet.
    pub(crate) const NONE: LeafPlace = LeafPlace { narrowed: Narrowed::NONE, len: 0 };
}

impl PageRef<'_> {
    /// Where a key lies in a leaf, by the header; prefetches the slots to look at.
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

    /// The slot of exactly this key, which shares the page's prefix.
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
    fn narrow_out_of_line(self, key: &[u8]) -> Narrowed {
        self.narrow(key)
    }

    #[inline(never)]
    fn lower_bound_out_of_line(self, key: &[u8]) -> (usize, bool) {
        self.lower_bound(key)
    }

    /// The slot where a key lies if keys are numbers without holes.
    #[inline(always)]
    fn slot_of_number(self, key: &[u8]) -> Option<LeafPlace> {
        let len = key.len().wrapping_sub(self.prefix_len());
        let last = u32::from_be_bytes(*key.last_chunk::<4>()?);
        if len.wrapping_sub(1) >= 4 || self.u16(SKIP) != 0 {
            return None;
        }
        // A head of fewer than four bytes is padded with zeros.
        let shift = 32 - 8 * len as u32;
        let head = last << shift;
        let count = self.count();
        let (from, to) = (hint_slot(1, count), hint_slot(HINT_COUNT, count));
        let (low, high) = (self.u32(HINTS), self.u32(HINTS + 4 * (HINT_COUNT - 1)));
        if high.wrapping_sub(low) != ((to - from) as u32) << shift {
            return None;
        }
        // A key below the first hint lies before its slot.
        let at = (from as u32).wrapping_add_signed(head.wrapping_sub(low) as i32 >> shift);
        if at as usize >= count {
            return None;
        }
        let narrowed = Narrowed { head, from: at as u16, to: at as u16, is_outside: false };
        Some(LeafPlace { narrowed, len: len as u8 })
    }
}
