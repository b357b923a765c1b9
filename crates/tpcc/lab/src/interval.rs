//! Ratios of means with intervals.

use tpcc_core::workload::generate::Random;

/// A ratio of means with a 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Number of bootstrap resamples.
const DRAWS: usize = 1_000;

impl Ratio {
    /// Computes the ratio of sums that were measured in pairs, one pair after the other. The interval is a bootstrap over
    /// the pairs, which are resampled with replacement.
    pub(crate) fn of(sums: &[f64], base: &[f64]) -> Ratio {
        let mut random = Random::stream(1, sums.len() as u64);
        let last = sums.len().saturating_sub(1) as u32;
        let mut drawn: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let (mut of, mut to) = (0.0, 0.0);
                for _ in sums {
                    let pair = random.in_range(0, last) as usize;
                    (of, to) = (of + sums[pair], to + base[pair]);
                }
                of / to
            })
            .collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let value = sums.iter().sum::<f64>() / base.iter().sum::<f64>();
        Ratio { value, low: drawn[DRAWS / 40], high: drawn[DRAWS - 1 - DRAWS / 40] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pairs_have_no_interval() {
        assert_eq!(Ratio::of(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), Ratio { value: 0.5, low: 0.5, high: 0.5 });
    }

    #[test]
    fn the_interval_holds_the_ratio_and_grows_with_the_noise() {
        let base: Vec<f64> = (0..100).map(|n| 100.0 + f64::from(n % 7)).collect();
        let width = |noise: f64| {
            let noisy: Vec<f64> =
                base.iter().enumerate().map(|(n, base)| base * (0.5 + noise * ((n % 10) as f64 - 4.5))).collect();
            let Ratio { value, low, high } = Ratio::of(&noisy, &base);
            assert!(low <= value && value <= high && (0.45..0.55).contains(&value), "{low} {value} {high}");
            high - low
        };
        assert!(width(0.001) < width(0.01) && width(0.01) < width(0.05));
    }
}
