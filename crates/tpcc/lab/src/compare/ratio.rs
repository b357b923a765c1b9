//! Ratios with 95% intervals, from the samples of two runs or from pairs of runs.
//!
//! **Samples of a run** depend on each other: a checkpoint or a full cache slows several in a row. They are grouped
//! into at most ten blocks of equal length, whose means depend less on each other (batch means). The remaining
//! correlation `r` of each block with the next, corrected for the small number of blocks, widens the interval by the
//! factor `sqrt((1 + r) / (1 - r))`. The interval is Student's t interval on the logarithm of the ratio, with degrees
//! of freedom after Welch and Satterthwaite. It covers the variance within the two runs, not the variance between runs.
//!
//! **Pairs of runs** that alternate: Student's t interval on the mean logarithm of the ratios of the pairs. Drift from round
//! to round affects both runs of a pair.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of blocks into which a series is divided.
const MOST_BLOCKS: usize = 10;
/// Upper bound of the estimated correlation of neighbouring blocks. Above this bound, a series contains hardly one
/// independent block.
const MOST_CORRELATION: f64 = 0.9;

/// A ratio and its 95% interval, by the method of the comparison. Without samples for an interval there is none.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "RatioWithin"))]
pub struct RatioInterval {
    /// New over base.
    pub value: f64,
    /// Lower end of the 95% interval; null without one.
    pub low: Option<f64>,
    /// Upper end of the 95% interval; null without one.
    pub high: Option<f64>,
}

/// Verdict of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "FasterOrNot"))]
pub enum SpeedVerdict {
    /// Interval above 1.
    #[serde(rename = "faster")]
    Faster,
    /// Interval below 1.
    #[serde(rename = "slower")]
    Slower,
    /// Interval that includes 1, or no interval.
    #[serde(rename = "no difference seen")]
    NoDifferenceSeen,
}

impl SpeedVerdict {
    /// Returns the name of the verdict, as printed and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            SpeedVerdict::Faster => "faster",
            SpeedVerdict::Slower => "slower",
            SpeedVerdict::NoDifferenceSeen => "no difference seen",
        }
    }
}

impl RatioInterval {
    /// Creates a ratio without an interval.
    pub(super) fn alone(value: f64) -> RatioInterval {
        RatioInterval { value, low: None, high: None }
    }

    /// Computes the ratio of the throughputs of two runs from their samples. Returns `None` if a run has fewer than two
    /// samples or a mean that is not above 0, or if the ratio or an end of its interval is not finite.
    pub(super) fn of_samples(base: &[f64], new: &[f64]) -> Option<RatioInterval> {
        let (a, b) = (SeriesMean::of(base)?, SeriesMean::of(new)?);
        let variance = a.variance + b.variance;
        // Degrees of freedom after Welch and Satterthwaite. Two series without any variance need no interval.
        let freedom = match variance > 0.0 {
            true => variance.powi(2) / (a.variance.powi(2) / a.freedom + b.variance.powi(2) / b.freedom),
            false => f64::INFINITY,
        };
        RatioInterval::around((b.mean / a.mean).ln(), variance.sqrt(), freedom)
    }

    /// Computes the ratio of values that were measured in pairs, one pair per round. Returns `None` if there are fewer than
    /// two pairs, or if the logarithm of a ratio is not finite.
    pub(super) fn of_pairs(base: &[f64], new: &[f64]) -> Option<RatioInterval> {
        let logs: Vec<f64> = base.iter().zip(new).map(|(base, new)| (new / base).ln()).collect();
        if logs.len() < 2 || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let (n, mean) = (logs.len() as f64, mean(&logs));
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0) / n;
        RatioInterval::around(mean, variance.sqrt(), n - 1.0)
    }

    /// Creates the ratio with this logarithm, and its interval. Returns `None` if the ratio or an end of its interval is not
    /// finite.
    fn around(log: f64, deviation: f64, freedom: f64) -> Option<RatioInterval> {
        let reach = student(freedom) * deviation;
        let [value, low, high] = [log, log - reach, log + reach].map(f64::exp);
        let are_numbers = [value, low, high].iter().all(|end| end.is_finite());
        are_numbers.then_some(RatioInterval { value, low: Some(low), high: Some(high) })
    }

    /// Returns the verdict for a quantity of which more is better.
    pub(super) fn verdict(&self) -> SpeedVerdict {
        match (self.low, self.high) {
            (Some(low), _) if low > 1.0 => SpeedVerdict::Faster,
            (_, Some(high)) if high < 1.0 => SpeedVerdict::Slower,
            _ => SpeedVerdict::NoDifferenceSeen,
        }
    }
}

/// Mean of a series and its uncertainty.
struct SeriesMean {
    mean: f64,
    /// Variance of the logarithm of the mean.
    variance: f64,
    freedom: f64,
}

impl SeriesMean {
    fn of(samples: &[f64]) -> Option<SeriesMean> {
        let length = samples.len().div_ceil(MOST_BLOCKS).max(1);
        // Samples beyond the last full block contribute to the mean, but not to the variance.
        let blocks: Vec<f64> = samples.chunks_exact(length).map(mean).collect();
        let mean_of_all = mean(samples);
        if blocks.len() < 2 || !mean_of_all.is_finite() || mean_of_all <= 0.0 {
            return None;
        }
        let n = blocks.len() as f64;
        let middle = mean(&blocks);
        let squares: f64 = blocks.iter().map(|block| (block - middle).powi(2)).sum();
        let neighbours: f64 = blocks.windows(2).map(|two| (two[0] - middle) * (two[1] - middle)).sum();
        let seen = if squares > 0.0 { neighbours / squares } else { 0.0 };
        // With few blocks, the correlation is underestimated by about this term.
        let correlation = (seen + (1.0 + 3.0 * seen.max(0.0)) / n).clamp(0.0, MOST_CORRELATION);
        let of_mean = squares / (n - 1.0) / n * (1.0 + correlation) / (1.0 - correlation);
        Some(SeriesMean { mean: mean_of_all, variance: of_mean / mean_of_all.powi(2), freedom: n - 1.0 })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the two-sided 95% quantile of Student's t distribution. Degrees of freedom are rounded down to a tabulated
/// number.
fn student(freedom: f64) -> f64 {
    const TO_30: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match freedom {
        more if more >= 121.0 => 1.980,
        more if more >= 61.0 => 2.000,
        more if more >= 31.0 => 2.040,
        few => TO_30[(few as usize).clamp(1, 30) - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpcc_core::workload::generate::Random;

    /// Returns nearly normal noise: the sum of twelve uniform numbers.
    fn noise(random: &mut Random) -> f64 {
        (0..12).map(|_| f64::from(random.in_range(0, 1_000_000)) / 1e6).sum::<f64>() - 6.0
    }

    /// Returns a series with this mean, in which neighbouring samples have the correlation `keep`.
    fn series(random: &mut Random, n: usize, mean: f64, spread: f64, keep: f64) -> Vec<f64> {
        let mut state = noise(random);
        let fresh = (1.0 - keep * keep).sqrt();
        (0..n)
            .map(|_| {
                state = keep * state + fresh * noise(random);
                mean + spread * state
            })
            .collect()
    }

    /// Returns the percentage of pairs of series with equal means that are reported as different.
    fn false_alarms(n: usize, keep: f64) -> usize {
        let mut random = Random::stream(7, n as u64);
        (0..400)
            .filter(|_| {
                let base = series(&mut random, n, 1_000.0, 30.0, keep);
                let new = series(&mut random, n, 1_000.0, 30.0, keep);
                RatioInterval::of_samples(&base, &new).unwrap().verdict() != SpeedVerdict::NoDifferenceSeen
            })
            .count()
            / 4
    }

    #[test]
    fn equal_runs_are_seldom_told_apart_also_where_samples_depend_on_each_other() {
        assert!(false_alarms(10, 0.0) <= 8, "{}", false_alarms(10, 0.0));
        assert!(false_alarms(60, 0.0) <= 8, "{}", false_alarms(60, 0.0));
        assert!(false_alarms(60, 0.7) <= 12, "{}", false_alarms(60, 0.7));
        // An interval that assumes independent samples would be too narrow.
        let mut random = Random::stream(7, 1);
        let dependent = series(&mut random, 1_000, 1_000.0, 30.0, 0.9);
        let wide = SeriesMean::of(&dependent).unwrap().variance;
        let n = dependent.len() as f64;
        let narrow = dependent.iter().map(|x| (x - mean(&dependent)).powi(2)).sum::<f64>() / n / n / 1e6;
        assert!(wide > 3.0 * narrow, "{wide} {narrow}");
    }

    #[test]
    fn a_difference_beyond_the_noise_is_seen_in_both_directions() {
        let mut random = Random::stream(9, 9);
        let base = series(&mut random, 30, 1_000.0, 20.0, 0.3);
        let new = series(&mut random, 30, 1_100.0, 20.0, 0.3);
        let up = RatioInterval::of_samples(&base, &new).unwrap();
        assert!(up.verdict() == SpeedVerdict::Faster && (up.value - 1.1).abs() < 0.03, "{up:?}");
        assert!(up.low.unwrap() < up.value && up.value < up.high.unwrap());
        assert_eq!(RatioInterval::of_samples(&new, &base).unwrap().verdict(), SpeedVerdict::Slower);
    }

    #[test]
    fn pairs_that_drift_together_are_told_apart() {
        let base = [100.0, 150.0, 80.0, 120.0];
        let new = [110.0, 164.0, 88.5, 131.5];
        assert_eq!(RatioInterval::of_pairs(&base, &new).unwrap().verdict(), SpeedVerdict::Faster);
        assert_eq!(
            RatioInterval::of_pairs(&base, &base),
            Some(RatioInterval { value: 1.0, low: Some(1.0), high: Some(1.0) })
        );
        let mixed = [90.0, 170.0, 79.0, 122.0];
        assert_eq!(RatioInterval::of_pairs(&base, &mixed).unwrap().verdict(), SpeedVerdict::NoDifferenceSeen);
    }

    #[test]
    fn too_few_samples_give_no_interval() {
        assert_eq!(RatioInterval::of_samples(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(RatioInterval::of_samples(&[0.0, 0.0], &[1.0, 2.0]), None);
        assert_eq!(RatioInterval::of_pairs(&[1.0], &[1.0]), None);
        assert_eq!(RatioInterval::of_pairs(&[1.0, 0.0], &[1.0, 1.0]), None);
        for extreme in [5e-324, 1e308, f64::MAX, -1.0, f64::NAN, f64::INFINITY] {
            for other in [1.0, 5e-324, f64::MAX] {
                let found = RatioInterval::of_samples(&[extreme, extreme, 1.0], &[other, other]);
                assert!(found.is_none_or(|found| found.value.is_finite()), "{extreme} {other} {found:?}");
                let found = RatioInterval::of_pairs(&[extreme, extreme], &[other, other]);
                assert!(found.is_none_or(|found| found.value.is_finite()), "{extreme} {other} {found:?}");
            }
        }
        assert_eq!(RatioInterval::alone(2.0).verdict(), SpeedVerdict::NoDifferenceSeen);
        assert_eq!(RatioInterval::of_samples(&[5.0, 5.0], &[10.0, 10.0]).unwrap().low, Some(2.0));
        assert!((student(1.0), student(9.9), student(1e9)) == (12.706, 2.262, 1.980));
    }
}
