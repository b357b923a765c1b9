//! Random strings (4.3.2.2, 4.3.2.7). A load writes about 60 MB of random strings per warehouse. For speed, characters are
//! therefore taken two at a time from tables that are indexed by bits of one random number.

use super::Random;
use crate::workload::schema::text::Text;

/// Characters of random strings: letters, digits and two more characters. There are 64, so that six random bits select a
/// character without bias.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";

/// Table of two characters for each 12-bit number.
static PAIRS: [[u8; 2]; 4096] = {
    let mut pairs = [[0; 2]; 4096];
    let mut i = 0;
    while i < 4096 {
        pairs[i] = [ALPHABET[i >> 6], ALPHABET[i & 63]];
        i += 1;
    }
    pairs
};

/// Table of four digits for each number below 10,000.
static DIGITS: [[u8; 4]; 10_000] = {
    let mut digits = [[0; 4]; 10_000];
    let mut i = 0;
    while i < 10_000 {
        let n = i as u32;
        digits[i] =
            [b'0' + (n / 1000) as u8, b'0' + (n / 100 % 10) as u8, b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8];
        i += 1;
    }
    digits
};

/// String that a tenth of the values of I_DATA and S_DATA contain.
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

impl Random {
    /// Fills `out` with random characters.
    #[inline]
    pub fn letters(&mut self, out: &mut [u8]) {
        let mut chunks = out.chunks_exact_mut(10);
        for chunk in &mut chunks {
            let mut bits = self.bits();
            for pair in chunk.chunks_exact_mut(2) {
                pair.copy_from_slice(&PAIRS[(bits & 4095) as usize]);
                bits >>= 12;
            }
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let mut bits = self.bits();
            for c in rest {
                *c = ALPHABET[(bits & 63) as usize];
                bits >>= 6;
            }
        }
    }

    /// Returns an a-string of `low..=high` characters.
    #[inline]
    pub fn text<const N: usize>(&mut self, low: u32, high: u32) -> Text<N> {
        let len = self.in_range(low, high) as usize;
        Text::filled(len, |out| self.letters(out))
    }

    /// Returns an a-string of exactly N characters.
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.letters(&mut out);
        out
    }

    /// Returns two random letters.
    pub fn state(&mut self) -> [u8; 2] {
        [0; 2].map(|_: u8| ALPHABET[self.in_range(0, 51) as usize])
    }

    /// Returns four random digits, then 11111.
    pub fn zip(&mut self) -> [u8; 9] {
        let mut zip = [b'1'; 9];
        zip[..4].copy_from_slice(&DIGITS[self.in_range(0, 9_999) as usize]);
        zip
    }

    /// Returns an n-string of 16 digits.
    pub fn phone(&mut self) -> [u8; 16] {
        let mut phone = [0; 16];
        for part in phone.chunks_exact_mut(4) {
            part.copy_from_slice(&DIGITS[self.in_range(0, 9_999) as usize]);
        }
        phone
    }

    /// Returns an a-string of 26..=50 characters. One in ten contains ORIGINAL at a random position.
    #[inline]
    pub fn data(&mut self) -> Text<50> {
        let len = self.in_range(26, 50) as usize;
        Text::filled(len, |out| {
            self.letters(out);
            if self.percent(10) {
                let at = self.in_range(0, (len - ORIGINAL.len()) as u32) as usize;
                out[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
            }
        })
    }
}

/// Returns true if `data` contains ORIGINAL. The first and the last letter are compared at all positions, eight positions at
/// once, without a branch that could be mispredicted. One text in a hundred without ORIGINAL has both letters at matching
/// positions by chance, so a match is then compared completely.
#[inline]
pub fn is_original(data: &Text<50>) -> bool {
    const SPAN: usize = ORIGINAL.len() - 1;
    const ONES: u64 = u64::MAX / 255;
    const FIRST: u64 = ONES * ORIGINAL[0] as u64;
    const LAST: u64 = ONES * ORIGINAL[SPAN] as u64;
    /// Start offsets of the groups of eight positions. The last two groups overlap.
    const STRETCHES: [usize; 6] = [0, 8, 16, 24, 32, 35];
    let bytes = data.padded();
    let eight = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |eight| u64::from_ne_bytes(*eight));
    let may_be = STRETCHES.iter().fold(0, |may_be, &at| {
        // A byte of `wrong` is zero if both letters match at its position.
        let wrong = (eight(at) ^ FIRST) | (eight(at + SPAN) ^ LAST);
        may_be | (wrong.wrapping_sub(ONES) & !wrong & (ONES << 7))
    });
    may_be != 0 && data.as_bytes().windows(ORIGINAL.len()).any(|place| place == ORIGINAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_is_found_wherever_it_is() {
        for len in 8..=50 {
            for at in 0..=len - 8 {
                let mut data = vec![b'I'; len];
                assert!(!is_original(&Text::new(&data)));
                data[at..at + 8].copy_from_slice(ORIGINAL);
                assert!(is_original(&Text::new(&data)), "{len} {at}");
                data[at + 3] = b'x';
                assert!(!is_original(&Text::new(&data)));
            }
        }
        assert!(!is_original(&Text::new(b"ORIGINA")) && !is_original(&Text::EMPTY));
    }

    #[test]
    fn a_tenth_is_original() {
        let mut random = Random::stream(9, 9);
        let n = (0..100_000).filter(|_| is_original(&random.data())).count();
        // The expected count is 10,000, with a standard deviation of 95. The bounds are five standard deviations away.
        assert!((9_525..=10_475).contains(&n), "{n}");
    }

    #[test]
    fn strings_have_their_lengths_and_characters() {
        let mut random = Random::stream(1, 2);
        let mut lengths = [false; 25];
        let mut characters = [0u32; 256];
        for _ in 0..20_000 {
            let text: Text<24> = random.text(14, 24);
            lengths[text.as_bytes().len()] = true;
            text.as_bytes().iter().for_each(|&c| characters[usize::from(c)] += 1);
        }
        assert!((0..25).all(|n| lengths[n] == (14..=24).contains(&n)), "{lengths:?}");
        let total: u32 = characters.iter().sum();
        for &c in ALPHABET {
            let n = characters[usize::from(c)];
            assert!(n.abs_diff(total / 64) < total / 64 / 10, "{c} {n}");
        }
        assert_eq!(total, ALPHABET.iter().map(|&c| characters[usize::from(c)]).sum::<u32>());
        assert!(random.phone().iter().all(u8::is_ascii_digit));
        assert!(random.zip().ends_with(b"11111") && random.zip()[..4].iter().all(u8::is_ascii_digit));
        assert!(random.state().iter().all(u8::is_ascii_alphabetic));
    }
}
