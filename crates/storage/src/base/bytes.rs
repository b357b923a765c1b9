//! Copies and compares short byte strings: keys, columns, small rows. A general copy or compare call spends more time on
//! the dispatch by length than on the bytes, so these functions are inlined and use overlapping words.

use std::cmp::Ordering;

/// Copies `from` to `to`, like `copy_from_slice`. Optimised for slices of at most 32 bytes.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub(crate) fn copy_few(to: &mut [u8], from: &[u8]) {
    assert!(to.len() == from.len(), "as many bytes as there is room for");
    let len = from.len();
    if len > 32 {
        return to.copy_from_slice(from);
    }
    if !(copy_ends::<16>(to, from) || copy_ends::<8>(to, from) || copy_ends::<4>(to, from)) {
        for (to, from) in to.iter_mut().zip(from).take(3) {
            *to = *from;
        }
    }
}

/// Copies the first and the last `N` bytes. Returns false if `from` has fewer than `N` bytes.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return false };
    let (first, last) = (*first, *last);
    if let Some(to) = to.first_chunk_mut::<N>() {
        *to = first;
    }
    if let Some(to) = to.last_chunk_mut::<N>() {
        *to = last;
    }
    true
}

/// Returns the number of first bytes that two byte strings have in common.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let (Some(last_a), Some(last_b)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
        return a.iter().zip(b).take_while(|(a, b)| a == b).count();
    };
    let mut common = 0;
    for (word_a, word_b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        if word_a != word_b {
            return common + equal_bytes(word_a, word_b);
        }
        common += 8;
    }
    // The last word overlaps words that are equal.
    len - 8 + equal_bytes(last_a, last_b)
}

/// Returns the number of first bytes that two words have in common.
#[inline(always)]
fn equal_bytes(a: &[u8; 8], b: &[u8; 8]) -> usize {
    (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).trailing_zeros() as usize / 8
}

/// Sets `to` to the exclusive or of `a` and `b`. Optimised for slices of at most 16 bytes.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub(crate) fn xor_few(to: &mut [u8], a: &[u8], b: &[u8]) {
    assert!(to.len() == a.len() && a.len() == b.len(), "slices of one length");
    if !(8..=16).contains(&to.len()) {
        for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
            *to = a ^ b;
        }
        return;
    }
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |word| u64::from_ne_bytes(*word));
    let first = word(a.first_chunk()) ^ word(b.first_chunk());
    let last = word(a.last_chunk()) ^ word(b.last_chunk());
    // The last word may overlap the first one; the overlapping bytes are equal.
    if let Some(to) = to.first_chunk_mut() {
        *to = first.to_ne_bytes();
    }
    if let Some(to) = to.last_chunk_mut() {
        *to = last.to_ne_bytes();
    }
}

/// Compares two slices, like `a.cmp(b)`. Optimised for pairs of which the shorter slice has 8 to 16 bytes.
#[inline(always)]
pub(crate) fn compare_few(a: &[u8], b: &[u8]) -> Ordering {
    let common = a.len().min(b.len());
    if !(8..=16).contains(&common) {
        return a.cmp(b);
    }
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(|bytes| bytes.first_chunk::<8>()).map_or(0, |word| u64::from_be_bytes(*word))
    };
    // The last words may overlap the first words. They decide only if the first words are equal, and then the bytes in the
    // overlap are equal too.
    let (first, last) = ((word(a, 0), word(b, 0)), (word(a, common - 8), word(b, common - 8)));
    first.0.cmp(&first.1).then(last.0.cmp(&last.1)).then(a.len().cmp(&b.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_all_and_nothing_else() {
        let from: Vec<u8> = (1..=80).collect();
        for len in 0..80 {
            let mut to = [0; 81];
            copy_few(&mut to[1..=len], &from[..len]);
            assert_eq!((to[0], &to[1..=len], &to[len + 1..]), (0, &from[..len], &[0; 80][len..]));
        }
    }

    #[test]
    fn differences_are_exclusive_ors() {
        let (a, b): (Vec<u8>, Vec<u8>) = (0..80u8).map(|n| (n.wrapping_mul(37), n.wrapping_mul(91))).unzip();
        for len in 0..80 {
            let mut to = [0; 81];
            xor_few(&mut to[1..=len], &a[..len], &b[..len]);
            let expected: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).take(len).collect();
            assert_eq!((to[0], &to[1..=len], &to[len + 1..]), (0, &expected[..], &[0; 80][len..]));
        }
    }

    #[test]
    fn compares_as_slices_do() {
        let base: Vec<u8> = (0..24).map(|n| n * 11).collect();
        for (len, other) in (0..24).flat_map(|len| (0..24).map(move |other| (len, other))) {
            for differs in 0..24 {
                let mut b = base.clone();
                b[differs] ^= 0x81;
                for b in [&b[..other], &base[..other]] {
                    assert_eq!(compare_few(&base[..len], b), base[..len].cmp(b), "{len} {other} {differs}");
                }
            }
        }
    }

    #[test]
    fn a_common_prefix_ends_at_the_first_difference() {
        let a: Vec<u8> = (0..40).collect();
        for len in 0..a.len() {
            assert_eq!(common_prefix(&a[..len], &a[..len]), len);
            assert_eq!(common_prefix(&a, &a[..len]), len);
            for at in 0..len {
                let mut b = a[..len].to_vec();
                b[at..].iter_mut().for_each(|byte| *byte ^= 0x80);
                assert_eq!(common_prefix(&a[..len], &b), at, "length {len}");
            }
        }
    }
}
