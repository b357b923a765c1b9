//! Keying times, think times and response time limits of paced terminals (5.2.5).

use std::time::Duration;

use crate::workload::generate::Random;
use crate::workload::generate::deck::{Deck, Kind};

/// Number of terminals per warehouse (4.2.2).
pub const TERMINALS: u32 = 10;
/// Maximum number of New-Orders per minute and warehouse with these times: ten terminals, 45% of the cycles, mean cycle of
/// 20.99 s.
pub const MAXIMUM_PER_MIN: f64 = 12.86;
/// Limit of the time from queueing to completion of deferred Deliveries, at the 90th percentile (2.7.2.2).
pub const DEFERRED_LIMIT: Duration = Duration::from_secs(80);
/// Maximum excess of the mean response time of a kind over its 90th percentile (5.2.5.6).
pub const MEAN_SLACK: Duration = Duration::from_millis(100);
/// Maximum think time, as a multiple of its mean.
const LONGEST_THINK: f64 = 10.0;

/// Requirements of the specification for a kind of transaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KindRequirements {
    /// Keying time, constant (5.2.5.2).
    pub keying: Duration,
    /// Mean think time (5.2.5.4).
    pub think_mean: Duration,
    /// Limit of the 90th percentile of the response times (5.2.5.3).
    pub limit: Duration,
}

/// Returns the requirements for a kind of transaction.
pub const fn requirements(kind: Kind) -> KindRequirements {
    let (keying, think, limit) = match kind {
        Kind::NewOrder => (18, 12, 5),
        Kind::Payment => (3, 12, 5),
        Kind::OrderStatus => (2, 10, 5),
        Kind::Delivery => (2, 5, 5),
        Kind::StockLevel => (2, 5, 20),
    };
    KindRequirements {
        keying: Duration::from_secs(keying),
        think_mean: Duration::from_secs(think),
        limit: Duration::from_secs(limit),
    }
}

/// Draws a think time from the negative exponential distribution, truncated at ten times its mean.
pub(super) fn think(random: &mut Random, mean: Duration) -> Duration {
    // Random number, uniform in (0, 1], with 53 bits.
    let uniform = ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    mean.mul_f64((-uniform.ln()).min(LONGEST_THINK))
}

/// Returns the mean duration of a terminal's cycle in seconds, for the smallest deck and responses that take no time.
pub(super) fn mean_cycle_s() -> f64 {
    let cards = Deck::least_cards();
    let of = |(kind, cards): (Kind, usize)| {
        let KindRequirements { keying, think_mean, .. } = requirements(kind);
        cards as f64 * (keying + think_mean).as_secs_f64()
    };
    cards.map(of).iter().sum::<f64>() / cards.map(|(_, cards)| cards as f64).iter().sum::<f64>()
}

/// Returns the maximum number of New-Orders per minute and warehouse with the smallest deck.
pub fn deck_maximum_per_min() -> f64 {
    let cards = Deck::least_cards();
    let all: usize = cards.iter().map(|(_, cards)| cards).sum();
    let orders: usize = cards.iter().filter(|(kind, _)| *kind == Kind::NewOrder).map(|(_, cards)| cards).sum();
    60.0 * f64::from(TERMINALS) / mean_cycle_s() * orders as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specified_shares_allow_the_specified_maximum() {
        let shares = [0.45, 0.43, 0.04, 0.04, 0.04];
        let of = |(kind, share): (Kind, f64)| {
            share * (requirements(kind).keying + requirements(kind).think_mean).as_secs_f64()
        };
        let cycle: f64 = Kind::ALL.into_iter().zip(shares).map(of).sum();
        assert!((cycle - 20.99).abs() < 1e-9, "{cycle}");
        assert!((600.0 / cycle * 0.45 - MAXIMUM_PER_MIN).abs() < 0.005);
        // In the deck, Payments exceed their minimum share, so the share of New-Orders is lower than in the specification's
        // maximum.
        assert!((12.59..12.61).contains(&deck_maximum_per_min()), "{}", deck_maximum_per_min());
    }

    #[test]
    fn think_times_are_exponential_and_end_at_ten_means() {
        let mut random = Random::stream(1, 1);
        let mean = Duration::from_secs(12);
        let n = 200_000;
        let drawn: Vec<f64> = (0..n).map(|_| think(&mut random, mean).as_secs_f64()).collect();
        let average = drawn.iter().sum::<f64>() / f64::from(n);
        assert!((average / 12.0 - 1.0).abs() < 0.01, "{average}");
        let share = |of: &dyn Fn(f64) -> bool| drawn.iter().filter(|&&t| of(t)).count() as f64 / f64::from(n);
        // Expected fractions of exponential values above the mean, and above three times the mean.
        assert!((share(&|t| t > 12.0) - (-1.0_f64).exp()).abs() < 0.005);
        assert!((share(&|t| t > 36.0) - (-3.0_f64).exp()).abs() < 0.005);
        assert!(drawn.iter().all(|&t| t <= 120.0));
        assert!(share(&|t| t >= 120.0) < 0.001 && drawn.iter().any(|&t| t > 100.0));
    }
}
