//! Search of the hint keys: seven heads in half a cache line, compared all at once.

#![allow(unsafe_code)]

use super::access::PageRef;
use super::layout::{HINT_COUNT, HINTS};

/// Mask of the seven hints among the eight words that are read at once. The last word is another field.
const HINT_BITS: u32 = (1 << HINT_COUNT) - 1;

/// Returns the number of hints below `head`. Hints are in ascending order.
#[inline]
pub(crate) fn below(page: PageRef<'_>, head: u32) -> usize {
    below_in(page.words(HINTS), head)
}

/// SSE2 belongs to every x86-64 processor. It compares signed words, so both sides have their highest bit flipped.
#[cfg(all(target_arch = "x86_64", target_endian = "little", not(miri)))]
#[inline]
fn below_in(hints: [u32; 8], head: u32) -> usize {
    // SAFETY: SSE2 is part of the x86-64 baseline, so every processor this runs on has it.
    unsafe { below_sse2(hints, head) }
}

#[cfg(all(target_arch = "x86_64", target_endian = "little", not(miri)))]
#[inline]
#[target_feature(enable = "sse2")]
fn below_sse2(hints: [u32; 8], head: u32) -> usize {
    use std::arch::x86_64::{
        _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi32, _mm_set1_epi32,
    };
    let flip = |word: u32| (word ^ 1 << 31) as i32;
    let wanted = _mm_set1_epi32(flip(head));
    let four =
        |at: usize| _mm_set_epi32(flip(hints[at + 3]), flip(hints[at + 2]), flip(hints[at + 1]), flip(hints[at]));
    let below = [four(0), four(4)].map(|four| _mm_cmpgt_epi32(wanted, four));
    // The lower eight bits of the mask are the eight comparisons; the upper eight bits repeat them. Hints ascend, so the
    // hints below `head` set the lowest bits.
    let halves = _mm_packs_epi32(below[0], below[1]);
    let mask = _mm_movemask_epi8(_mm_packs_epi16(halves, halves)) as u32;
    (mask & HINT_BITS).trailing_ones() as usize
}

#[cfg(not(all(target_arch = "x86_64", target_endian = "little", not(miri))))]
#[inline]
fn below_in(hints: [u32; 8], head: u32) -> usize {
    hints[..HINT_COUNT].iter().filter(|h| u32::from_le(**h) < head).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_agrees_with_counting() {
        let mut rng = fastrand::Rng::with_seed(12345);
        for round in 0..2000 {
            let mut hints = [0u32; 8];
            for hint in &mut hints {
                // Few distinct values from both halves of the range, so that equal hints are common.
                *hint = if round % 2 == 0 { rng.u32(..16) << 28 } else { rng.u32(..) };
            }
            // Only the hints are sorted: the last word is another field.
            hints[..HINT_COUNT].sort_unstable();
            let mut heads = hints.to_vec();
            heads.extend([0, u32::MAX, rng.u32(..), hints[3].wrapping_add(1)]);
            for head in heads {
                let below = hints[..HINT_COUNT].iter().filter(|h| **h < head).count();
                assert_eq!(below_in(hints.map(u32::to_le), head), below, "{hints:?} {head}");
            }
        }
    }
}
