//! Lock names, and prefixes of keys that describe positions in gaps.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::base::ids::IndexId;

/// Lock name of one key of one index, or of the end of an index: index and key hashed into 64 bits by [`Names`].
///
/// Two keys with the same name share their locks: their transactions wait for each other more often than necessary, never
/// less often. A name identifies a key for locks only. Names are never stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct LockName(pub(super) u64);

const KEY_SEED: u64 = 0x243f_6a88_85a3_08d3;
const SUPREMUM_SEED: u64 = 0x1319_8a2e_0370_7344;
const INDEX_ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits of a name that select a region of the buckets.
const REGION: u64 = 0xF800_0000_0000_0000;

/// Returns the region bits of a key. Keys with the same first bytes fall into the same one of 32 regions of the buckets,
/// whatever their index. Workers on different parts of the key space (tenants, warehouses) then write different cache lines,
/// and the buckets of one worker are close together.
#[inline]
fn region(key: &[u8]) -> u64 {
    let first = key.first_chunk::<4>().map_or(0, |first| u64::from(u32::from_be_bytes(*first)));
    first.wrapping_mul(INDEX_ODD) & REGION
}

/// Hash function for the lock names of a database. The seed is specific to the database, so keys that share a name in one
/// database do not share it in another, and no client can compute colliding keys in advance.
#[derive(Debug)]
pub(crate) struct Names {
    seed: SharedSeed,
    /// Mask of the hash bits that a name contains.
    kept: u64,
}

/// Maximum number of hashed bits of a name.
pub(crate) const NAME_BITS: u32 = REGION.count_zeros();

impl Names {
    /// Creates the hash function from `seed`, with `bits` hashed bits: at most [`NAME_BITS`]. Tests use fewer
    /// bits, so that keys share names.
    pub(crate) const fn new(seed: u64, bits: u32) -> Names {
        Names { seed: SharedSeed::from_u64(seed), kept: if bits < NAME_BITS { (1 << bits) - 1 } else { !REGION } }
    }

    /// Returns the lock name of `key` in `index`.
    #[inline]
    pub(crate) fn of(&self, index: IndexId, key: &[u8]) -> LockName {
        let seed = KEY_SEED ^ u64::from(index.0).wrapping_mul(INDEX_ODD);
        let mut hasher = FoldHasher::with_seed(seed, &self.seed);
        hasher.write(key);
        LockName(hasher.finish() & self.kept | region(key))
    }

    /// Returns the lock name of the end of `index`. The gap below this name is above every key.
    #[inline]
    pub(crate) fn supremum(&self, index: IndexId) -> LockName {
        let seed = SUPREMUM_SEED ^ u64::from(index.0).wrapping_mul(INDEX_ODD);
        let mut hasher = FoldHasher::with_seed(seed, &self.seed);
        hasher.write(b"supremum");
        LockName(hasher.finish() & (self.kept | REGION))
    }
}

#[cfg(test)]
static OF_TESTS: Names = Names::new(1, NAME_BITS);

impl LockName {
    /// Name that marks an empty entry. The value is arbitrary.
    pub(crate) const NONE: LockName = LockName(0);

    /// Returns the low bits of the name, for small tables indexed by name.
    #[inline]
    pub(crate) fn low_bits(self) -> usize {
        self.0 as usize & 0xFFFF
    }

    /// Returns the lock name of `key` in `index`, in the database of the tests.
    #[cfg(test)]
    pub(crate) fn new(index: IndexId, key: &[u8]) -> LockName {
        OF_TESTS.of(index, key)
    }

    /// Returns the lock name of the end of `index`, in the database of the tests.
    #[cfg(test)]
    pub(crate) fn supremum(index: IndexId) -> LockName {
        OF_TESTS.supremum(index)
    }
}

impl std::fmt::Debug for LockName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockName({:016x})", self.0)
    }
}

/// The first 16 bytes of a key, padded with zeros, in the order of the keys: the low bound of a gap lock, or the position of
/// an insert.
///
/// Keys that differ only after byte 16 have the same prefix, so an insert may wait for a reader that stopped just above the
/// new key. An insert never passes a reader that has read the position of the new key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Prefix(u128);

impl Prefix {
    /// Prefix below every key. A gap lock with this low bound covers the whole gap.
    pub(crate) const MIN: Prefix = Prefix(0);

    /// Returns the prefix of `key`.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Prefix {
        if let Some(first) = key.first_chunk::<16>() {
            return Prefix(u128::from_be_bytes(*first));
        }
        if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
            // `last` overlaps `first` by 16 - len bytes. The shift has two steps because it may be 64 bits long.
            let half = 4 * (16 - key.len() as u32);
            let low = u64::from_be_bytes(*last) << half << half;
            return Prefix(u128::from(u64::from_be_bytes(*first)) << 64 | u128::from(low));
        }
        let high = key.iter().fold(0u64, |high, &byte| high << 8 | u64::from(byte));
        let shift = 64 - 8 * key.len() as u32;
        Prefix(u128::from(high.checked_shl(shift).unwrap_or(0)) << 64)
    }

    /// Creates a prefix from these bytes.
    #[inline]
    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Prefix {
        Prefix(u128::from_be_bytes(bytes))
    }

    /// Returns the bytes of the prefix.
    #[inline]
    #[cfg(test)]
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl std::fmt::Debug for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prefix({:032x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn prefix_is_the_zero_padded_key() {
        for len in 0..40 {
            let key: Vec<u8> = (0..len).map(|i| (i * 37 + 11) as u8).collect();
            let mut padded = [0; 16];
            for (to, from) in padded.iter_mut().zip(&key) {
                *to = *from;
            }
            assert_eq!(Prefix::of(&key).to_bytes(), padded, "length {len}");
            assert_eq!(Prefix::from_bytes(padded), Prefix::of(&key));
        }
    }

    #[test]
    fn prefixes_never_contradict_the_order_of_keys() {
        let keys: Vec<Vec<u8>> = (0..400u32)
            .map(|i| i.wrapping_mul(2654435761).to_be_bytes()[..(i % 5) as usize].repeat((i % 7) as usize))
            .collect();
        for a in &keys {
            for b in &keys {
                if a <= b {
                    assert!(Prefix::of(a) <= Prefix::of(b), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn names_spread_over_buckets() {
        // The test uses composite keys of several widths, in two indexes.
        let mut names = HashSet::new();
        let mut buckets = vec![0u32; 1 << 15];
        let mut add = |name: LockName| {
            assert!(names.insert(name), "two keys with one name");
            // Bits below the region bits, which keys with the same first bytes share on purpose.
            buckets[(name.0 << REGION.count_ones() >> 49) as usize] += 1;
        };
        for index in [IndexId(1), IndexId(2)] {
            add(LockName::supremum(index));
            for n in 0..16_000u32 {
                let (w, d, o) = (n / 4000, n / 400 % 10, n % 400);
                add(LockName::new(index, &n.to_be_bytes()));
                add(LockName::new(index, &[w << 16 | d, o].map(u32::to_be_bytes).concat()));
                add(LockName::new(index, &[w, d, o].map(u32::to_be_bytes).concat()));
                add(LockName::new(index, &[w, d, o, 7, 9].map(u32::to_be_bytes).concat()));
            }
        }
        let load = names.len() as f64 / buckets.len() as f64;
        let empty = buckets.iter().filter(|&&n| n == 0).count() as f64 / buckets.len() as f64;
        assert!(
            (empty - (-load).exp()).abs() < 0.01,
            "{empty} of the buckets empty, a random spread leaves {}",
            (-load).exp()
        );
    }
}
