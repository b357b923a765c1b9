//! CRC-32C (Castagnoli), the checksum of all files.
//!
//! The method depends on the length of the input. Log records of 60-300 bytes use the CPU's CRC instruction, which can add a
//! record piece by piece at no extra cost. Log records of statements on several rows, 400-1000 bytes, use three checksums
//! computed in parallel, which hides the latency of the instruction. Pages of 8 KiB use folding with wide carry-less
//! multiplications (`crc-fast`), which is much faster than the instruction but has a long set-up.
#![allow(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

/// Minimum length in bytes of an input for three checksums computed in parallel.
const THREE_FROM: usize = 3 * PART;
/// Minimum length in bytes of an input for folding. For a shorter input the set-up of folding takes longer than the CRC
/// instruction takes for all bytes.
const FOLD_FROM: usize = 1536;
/// Length in bytes of each of the three parts whose checksums are computed in parallel.
const PART: usize = 128;

/// Returns the checksum of a page or any other whole block.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() >= FOLD_FROM { crc_fast::crc32_iscsi(bytes) } else { Crc::new().bytes(bytes).finish() }
}

/// State of a CRC-32C computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Crc::new()
    }
}

impl Crc {
    /// Returns the state before the first byte.
    #[inline]
    pub(crate) fn new() -> Crc {
        Crc(!0)
    }

    /// Returns the state after `bytes`.
    #[inline]
    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Crc {
        if bytes.len() >= FOLD_FROM { self.fold(bytes) } else { Crc(short(self.0, bytes)) }
    }

    /// Returns the state after the bytes of `words`, the lowest byte of each first.
    #[inline]
    #[must_use]
    pub(crate) fn words<const N: usize>(self, words: [u64; N]) -> Crc {
        Crc(short(self.0, words.map(u64::to_le_bytes).as_flattened()))
    }

    /// Returns the checksum.
    #[inline]
    pub(crate) fn finish(self) -> u32 {
        !self.0
    }

    #[inline(never)]
    fn fold(self, bytes: &[u8]) -> Crc {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.0));
        digest.update(bytes);
        Crc(digest.get_state() as u32)
    }
}

/// Returns the state after a short piece. `state` is the raw (inverted) state.
#[inline]
fn short(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        if bytes.len() >= THREE_FROM && std::arch::is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the checks above found both CPU features.
            return unsafe { three(state, bytes) };
        }
        // SAFETY: the check above found SSE 4.2 (the check is one cached load).
        return unsafe { instruction(state, bytes) };
    }
    table(state, bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn instruction(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(state);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    rest.iter().fold(wide as u32, |state, byte| _mm_crc32_u8(state, *byte))
}

/// Like [`instruction`], but computes the checksums of three parts in parallel: the CPU can start a CRC instruction in each
/// cycle, and each instruction takes three cycles.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline(never)]
fn three(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::_mm_crc32_u64;
    let (blocks, rest) = bytes.as_chunks::<{ 3 * PART }>();
    let mut state = state;
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        let (mut a, mut b, mut c) = (u64::from(state), 0, 0);
        for i in 0..PART / 8 {
            a = _mm_crc32_u64(a, word(i));
            b = _mm_crc32_u64(b, word(i + PART / 8));
            c = _mm_crc32_u64(c, word(i + 2 * PART / 8));
        }
        state = followed_by::<{ BEHIND[1] }>(a) ^ followed_by::<{ BEHIND[0] }>(b) ^ c as u32;
    }
    instruction(state, rest)
}

/// Returns the state after a number of zero bytes, which is the product of the state and a power of x. `ZEROS` is the
/// constant for that number of bytes, from `BEHIND`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn followed_by<const ZEROS: u32>(state: u64) -> u32 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64};
    let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(state as i64), _mm_cvtsi64_si128(i64::from(ZEROS)));
    // The instruction multiplies by x^32, and the product of two reflected numbers has one more factor x. So the exponent in
    // `ZEROS` is less by 33.
    _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64) as u32
}

/// Constants for the zero bytes of one part and of two parts after a state: x^(8 n - 33), reflected, for n bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BEHIND: [u32; 2] = [power_of_x(8 * PART - 33), power_of_x(16 * PART - 33)];

/// Returns x^n modulo the polynomial, reflected.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const fn power_of_x(n: usize) -> u32 {
    let mut power = 1 << 31;
    let mut i = 0;
    while i < n {
        power = if power & 1 == 1 { (power >> 1) ^ POLYNOMIAL } else { power >> 1 };
        i += 1;
    }
    power
}

/// The Castagnoli polynomial, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Returns the state after `bytes`, by table lookup. For CPUs without the CRC instruction and for Miri.
fn table(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| (state >> 8) ^ TABLE[(state as u8 ^ byte) as usize])
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut entry = index as u32;
        let mut bit = 0;
        while bit < 8 {
            entry = if entry & 1 == 1 { (entry >> 1) ^ POLYNOMIAL } else { entry >> 1 };
            bit += 1;
        }
        table[index] = entry;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 7) as u8).collect()
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(!table(!0, b"123456789"), 0xE306_9283);
    }

    #[test]
    fn every_way_gives_the_same_sum() {
        // Miri is slow and uses the table for all lengths, so it skips the longest ones.
        let lens = [0, 1, 7, 8, 9, 63, 64, 255, 383, 384, 385, 767, 768, 1000, 1535, 1536, 4096, 8192, 100_001];
        for len in lens.into_iter().take(if cfg!(miri) { 14 } else { lens.len() }) {
            let data = bytes(len);
            let expected = !table(!0, &data);
            assert_eq!(crc32c(&data), expected, "whole, {len} bytes");
            for cut in [0, len.min(1), len / 3, len / 2, len] {
                let (a, b) = data.split_at(cut);
                assert_eq!(Crc::new().bytes(a).bytes(b).finish(), expected, "{len} bytes cut at {cut}");
            }
        }
    }

    #[test]
    fn a_word_is_its_bytes_from_the_lowest() {
        let word = 0x0102_0304_0506_0708_u64;
        assert_eq!(Crc::new().words([word]).finish(), crc32c(&word.to_le_bytes()));
        assert_eq!(Crc::new().words([word, !word]), Crc::new().words([word]).words([!word]));
    }
}
