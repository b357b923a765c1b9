//! Generators of the random values of clauses 2.1.6 and 4.3.2, and of transaction inputs.

pub mod deck;
pub mod input;
pub mod name;
pub mod nurand;
pub mod string;

use rand_core::Rng;
use rand_pcg::Pcg64;

/// A stream of random numbers. The algorithm is fixed, so that a seed gives the same data in every version.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

impl Random {
    /// Returns the random stream of `seed` with number `place`. Each table of a warehouse and each terminal has its own
    /// number.
    pub fn stream(seed: u64, place: u64) -> Random {
        // Both halves of the state are hashed, because seeds and places are small numbers that differ in few bits.
        let state = (u128::from(hash64(seed)) << 64) | u128::from(hash64(seed ^ hash64(place)));
        Random(Pcg64::new(state, u128::from(hash64(place ^ 0x5d58_8b65_6c07_8965))))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform number from the closed range, without bias (Lemire's method).
    #[inline]
    pub fn in_range(&mut self, low: u32, high: u32) -> u32 {
        debug_assert!(low <= high);
        let span = high.wrapping_sub(low).wrapping_add(1);
        if span == 0 {
            return self.bits() as u32;
        }
        let mut product = u64::from(self.bits() as u32) * u64::from(span);
        if (product as u32) < span {
            let reject_below = span.wrapping_neg() % span;
            while (product as u32) < reject_below {
                product = u64::from(self.bits() as u32) * u64::from(span);
            }
        }
        low + (product >> 32) as u32
    }

    /// Returns true with a probability of `percent` in 100.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.in_range(1, 100) <= percent
    }

    /// Shuffles the values. Each order is equally likely.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            let other = self.in_range(0, last as u32) as usize;
            values.swap(last, other);
        }
    }
}

/// Returns a hash of `x`. Each bit of the result depends on all bits of `x` (the finaliser of SplitMix64).
pub fn hash64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a seed that differs between calls and between runs.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // 32 bits are enough to distinguish runs, and short enough to be typed.
    u64::from(std::collections::hash_map::RandomState::new().build_hasher().finish() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_closed_and_even() {
        let mut random = Random::stream(1, 1);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[random.in_range(3, 9) as usize - 3] += 1;
        }
        for n in seen {
            // The expected count is 10,000, with a standard deviation of 93. The bounds are five standard deviations away.
            assert!((9_535..=10_465).contains(&n), "{seen:?}");
        }
        assert_eq!(random.in_range(5, 5), 5);
    }

    #[test]
    fn streams_differ_and_repeat() {
        let take = |seed, place| {
            let mut r = Random::stream(seed, place);
            [r.bits(), r.bits(), r.bits()]
        };
        assert_eq!(take(42, 7), take(42, 7));
        let mut all: Vec<_> = (0..50).flat_map(|s| (0..50).map(move |p| (s, p))).map(|(s, p)| take(s, p)[0]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2_500);
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut values: Vec<u32> = (1..=3000).collect();
        Random::stream(3, 3).shuffle(&mut values);
        assert_ne!(values[..20], (1..=20).collect::<Vec<_>>()[..]);
        values.sort_unstable();
        assert!(values.iter().copied().eq(1..=3000));
    }
}
