//! Searching the hint keys: sixteen heads in one cache line, compared all at once.

#![allow(unsafe_code)]

use super::access::PageRef;
use super::layout::{HINT_COUNT, HINTS};

/// How many hints are below `head`, and how many are not above it. Hints ascend.
#[inline]
pub(crate) fn ranks(page: PageRef<'_>, head: u32) -> (usize, usize) {
    ranks_in(page.line(HINTS), head)
}

/// SSE2 belongs to every x86-64 processor. It compares signed words, so both sides have their highest bit flipped.
#[cfg(all(target_arch = "x86_64", target_endian = "little", not(miri)))]
#[inline]
fn ranks_in(hints: [u32; HINT_COUNT], head: u32) -> (usize, usize) {
    // SAFETY: SSE2 is part of the x86-64 baseline, so every processor this runs on has it.
    unsafe { ranks_sse2(hints, head) }
}

#[cfg(all(target_arch = "x86_64", target_endian = "little", not(miri)))]
#[inline]
#[target_feature(enable = "sse2")]
fn ranks_sse2(hints: [u32; HINT_COUNT], head: u32) -> (usize, usize) {
    use std::arch::x86_64::{
        __m128i, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi32, _mm_set1_epi32,
    };
    let flip = |word: u32| (word ^ 1 << 31) as i32;
    let wanted = _mm_set1_epi32(flip(head));
    let four =
        |at: usize| _mm_set_epi32(flip(hints[at + 3]), flip(hints[at + 2]), flip(hints[at + 1]), flip(hints[at]));
    let all = [four(0), four(4), four(8), four(12)];
    let mask = |word: [__m128i; 4]| {
        let (low, high) = (_mm_packs_epi32(word[0], word[1]), _mm_packs_epi32(word[2], word[3]));
        _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
    };
    // A bit per hint; because hints ascend, hints below `head` set the low bits and greater ones the high bits.
    let below = mask(all.map(|four| _mm_cmpgt_epi32(wanted, four)));
    let above = mask(all.map(|four| _mm_cmpgt_epi32(four, wanted)));
    (below.trailing_ones() as usize, (above | 1 << HINT_COUNT).trailing_zeros() as usize)
}

#[cfg(not(all(target_arch = "x86_64", target_endian = "little", not(miri))))]
#[inline]
fn ranks_in(hints: [u32; HINT_COUNT], head: u32) -> (usize, usize) {
    let below = hints.iter().filter(|h| u32::from_le(**h) < head).count();
    let upto = hints.iter().filter(|h| u32::from_le(**h) <= head).count();
    (below, upto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_with_counting() {
        let mut x = 12345u32;
        for round in 0..2000 {
            let mut hints = [0u32; HINT_COUNT];
            for hint in &mut hints {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Few values, so that equal ones are common; both halves of the range.
                *hint = if round % 2 == 0 { (x >> 28) << 28 } else { x };
            }
            hints.sort_unstable();
            let mut heads = hints.to_vec();
            heads.extend([0, u32::MAX, x, hints[3].wrapping_add(1)]);
            for head in heads {
                let below = hints.iter().filter(|h| **h < head).count();
                let upto = hints.iter().filter(|h| **h <= head).count();
                assert_eq!(ranks_in(hints.map(u32::to_le), head), (below, upto), "{hints:?} {head}");
            }
        }
    }
}
