//! The function NURand (2.1.6) and its constants.

use super::Random;

/// Constant A for C_LAST.
const A_LAST: u32 = 255;
/// Constant A for C_ID.
const A_CUSTOMER: u32 = 1_023;
/// Constant A for OL_I_ID.
const A_ITEM: u32 = 8_191;

/// Returns (((random(0..a) | random(low..high)) + c) mod (high - low + 1)) + low.
#[inline]
fn nurand(random: &mut Random, a: u32, c: u32, low: u32, high: u32) -> u32 {
    // `a + 1` is a power of two for every `a` in use.
    debug_assert!((a + 1).is_power_of_two());
    let left = (random.bits() >> 32) as u32 & a;
    let right = random.in_range(low, high);
    combine(left, right, c, low, high)
}

#[inline]
fn combine(left: u32, right: u32, c: u32, low: u32, high: u32) -> u32 {
    ((left | right) + c) % (high - low + 1) + low
}

/// The three constants C. All terminals of a run use the same constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Constant C for the numbers of last names, 0..=255.
    pub last: u32,
    /// Constant C for customer numbers, 0..=1023.
    pub customer: u32,
    /// Constant C for item numbers, 0..=8191.
    pub item: u32,
}

impl Constants {
    /// Draws the constants C of a load.
    pub fn for_load(random: &mut Random) -> Constants {
        Constants {
            last: random.in_range(0, A_LAST),
            customer: random.in_range(0, A_CUSTOMER),
            item: random.in_range(0, A_ITEM),
        }
    }

    /// Draws the constants of a run on data that was loaded with `c_load`. The distance between the two constants for last
    /// names must be legal (2.1.6.1); otherwise the names that a run requests often would differ from the frequent names of
    /// the load.
    pub fn for_run(random: &mut Random, c_load: u32) -> Constants {
        let mut constants = Self::for_load(random);
        // Every `c_load` in 0..=255 has at least 50 legal values.
        while !legal(c_load, constants.last) {
            constants.last = random.in_range(0, A_LAST);
        }
        constants
    }

    /// Draws the number of a last name, 0..names.
    #[inline]
    pub fn last_name(&self, random: &mut Random, names: u32) -> u32 {
        nurand(random, A_LAST, self.last, 0, names - 1)
    }

    /// Draws the number of a customer, 1..=customers.
    #[inline]
    pub fn customer(&self, random: &mut Random, customers: u32) -> u32 {
        nurand(random, A_CUSTOMER, self.customer, 1, customers)
    }

    /// Draws the number of an item, 1..=items.
    #[inline]
    pub fn item(&self, random: &mut Random, items: u32) -> u32 {
        nurand(random, A_ITEM, self.item, 1, items)
    }
}

/// Returns true if a run may use `c_run` on data loaded with `c_load`.
pub fn legal(c_load: u32, c_run: u32) -> bool {
    let delta = c_load.abs_diff(c_run);
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the frequencies of drawn values with the exact distribution, computed by enumeration for small parameters.
    #[test]
    fn frequencies_are_exact() {
        for (a, c, low, high) in [(255, 123, 0, 999), (255, 0, 0, 29), (1_023, 700, 1, 300), (15, 9, 1, 10)] {
            let span = (high - low + 1) as usize;
            let mut exact = vec![0u64; span];
            for left in 0..=a {
                for right in low..=high {
                    exact[(combine(left, right, c, low, high) - low) as usize] += 1;
                }
            }
            let pairs = (u64::from(a) + 1) * span as u64;
            let draws = 1_000_000u64;
            let mut random = Random::stream(u64::from(a), u64::from(c));
            let mut seen = vec![0u64; span];
            for _ in 0..draws {
                seen[(nurand(&mut random, a, c, low, high) - low) as usize] += 1;
            }
            for (value, (&seen, &exact)) in seen.iter().zip(&exact).enumerate() {
                let p = exact as f64 / pairs as f64;
                let deviation = (draws as f64 * p * (1.0 - p)).sqrt();
                let off = (seen as f64 - draws as f64 * p).abs();
                assert!(
                    off <= 5.5 * deviation + 1.0,
                    "A {a} C {c} value {value}: {seen}, expected {}",
                    draws as f64 * p
                );
            }
        }
    }

    #[test]
    fn every_load_has_a_legal_run() {
        for c_load in 0..=255 {
            assert!((0..=255).filter(|&c| legal(c_load, c)).count() >= 50, "{c_load}");
            let run = Constants::for_run(&mut Random::stream(c_load.into(), 0), c_load);
            assert!(legal(c_load, run.last));
        }
        assert!(legal(157, 223) && !legal(0, 96) && !legal(200, 88) && !legal(0, 64) && !legal(0, 120));
    }
}
