//! Last names of customers (4.3.2.3).

use crate::workload::schema::text::Text;

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// Returns the last name of `number` (0..=999), which consists of one syllable per digit.
pub fn last_name(number: u32) -> Text<16> {
    let mut name = [0; 15];
    let mut len = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name[len..len + syllable.len()].copy_from_slice(syllable);
        len += syllable.len();
    }
    Text::new(&name[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_numbers() {
        assert_eq!(last_name(371).as_bytes(), b"PRICALLYOUGHT");
        assert_eq!(last_name(0).as_bytes(), b"BARBARBAR");
        assert_eq!(last_name(40).as_bytes(), b"BARPRESBAR");
        assert_eq!(last_name(999).as_bytes(), b"EINGEINGEING");
        let mut all: Vec<_> = (0..1000).map(|n| last_name(n).padded()).collect();
        assert_eq!(all.iter().map(|n| n.iter().filter(|&&b| b != 0).count()).max(), Some(15));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }
}
