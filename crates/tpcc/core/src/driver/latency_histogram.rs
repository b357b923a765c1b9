//! Histogram of a worker's transaction times while the run is in progress, for progress lines and samples. Values are
//! rounded by up to 1/8, so that an update is cheap.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of bits after the leading 1 bit that select the histogram class of a value. The values of a class differ by less
/// than 1/8.
const BITS: u32 = 3;
/// Number of histogram classes for 64-bit values.
const CLASSES: usize = ((64 - BITS as usize) << BITS) + (1 << BITS);

/// Number of recorded times in each class. Only one thread records times.
pub(super) struct LatencyHistogram([AtomicU32; CLASSES]);

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram([const { AtomicU32::new(0) }; CLASSES])
    }
}

impl LatencyHistogram {
    /// Records a time, in nanoseconds.
    #[inline]
    pub(super) fn add(&self, ns: u64) {
        if let Some(count) = self.0.get(class(ns)) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }
}

#[inline]
fn class(ns: u64) -> usize {
    if ns < 1 << BITS {
        return ns as usize;
    }
    let shift = u64::BITS - 1 - ns.leading_zeros() - BITS;
    ((shift as usize) << BITS) + (ns >> shift) as usize
}

/// Returns the largest value of a class.
fn largest(class: usize) -> u64 {
    if class < 2 << BITS {
        return class as u64;
    }
    let shift = (class >> BITS) - 1;
    let leading = (class - (shift << BITS)) as u64;
    (((u128::from(leading) + 1) << shift) - 1) as u64
}

/// Counts of each class at the previous query.
pub(super) struct HistogramSnapshot(Box<[u32; CLASSES]>);

impl Default for HistogramSnapshot {
    fn default() -> Self {
        HistogramSnapshot(Box::new([0; CLASSES]))
    }
}

impl HistogramSnapshot {
    /// Returns a quantile (`share` from 0 to 1) of the times recorded since the previous query, in nanoseconds, rounded up
    /// by at most 1/8. `None` if no times were recorded.
    pub(super) fn quantile_ns<'a>(
        &mut self,
        all: impl Iterator<Item = &'a LatencyHistogram>,
        share: f64,
    ) -> Option<u64> {
        let mut now = Box::new([0_u32; CLASSES]);
        for histogram in all {
            for (sum, count) in now.iter_mut().zip(&histogram.0) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        let before = std::mem::replace(&mut self.0, now);
        let new = || self.0.iter().zip(before.iter()).map(|(now, before)| u64::from(now.wrapping_sub(*before)));
        let wanted = (new().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let at = new().position(|count| {
            seen += count;
            wanted > 0 && seen >= wanted
        })?;
        Some(largest(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_class_that_is_an_eighth_wide() {
        let mut last = 0;
        for shift in 0..64 {
            for low in 0..32_u64 {
                let ns = (1_u64 << shift) + ((u128::from(low) << shift) / 32) as u64;
                let class = class(ns);
                assert!(class < CLASSES && class >= last, "{ns}");
                last = class;
                assert!(largest(class) >= ns && largest(class) - ns <= ns / 8, "{ns}: {}", largest(class));
                assert!(class == 0 || largest(class - 1) < ns, "{ns}");
            }
        }
        assert_eq!((class(0), class(u64::MAX), largest(CLASSES - 1)), (0, CLASSES - 1, u64::MAX));
    }

    #[test]
    fn only_what_is_new_counts() {
        let (a, b, mut snapshot) =
            (LatencyHistogram::default(), LatencyHistogram::default(), HistogramSnapshot::default());
        assert_eq!(snapshot.quantile_ns([&a, &b].into_iter(), 0.99), None);
        for _ in 0..989 {
            a.add(1_000);
        }
        for _ in 0..11 {
            b.add(1_000_000);
        }
        let p99 = snapshot.quantile_ns([&a, &b].into_iter(), 0.99).unwrap();
        assert!((1_000_000..1_125_000).contains(&p99), "{p99}");
        assert_eq!(snapshot.quantile_ns([&a, &b].into_iter(), 0.99), None);
        a.add(50);
        assert_eq!(snapshot.quantile_ns([&a, &b].into_iter(), 0.5).map(|ns| ns / 10), Some(5));
    }
}
