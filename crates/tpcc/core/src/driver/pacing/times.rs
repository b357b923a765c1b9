//! How long terminals key and think, and how soon they want their answers (5.2.5).

use std::time::Duration;

use crate::workload::generate::Random;
use crate::workload::generate::deck::{Deck, Kind};

/// Terminals of a warehouse (4.2.2).
pub const TERMINALS: u32 = 10;
/// Most New-Orders a minute and warehouse that these times allow: ten terminals, 45% of cycles of 20.99 s in the mean.
pub const MAXIMUM_PER_MIN: f64 = 12.86;
/// Of a hundred deferred Deliveries ninety are done so soon after they were queued (2.7.2.2).
pub const DEFERRED_LIMIT: Duration = Duration::from_secs(80);
/// By so much the mean of a kind's response times may be above its 90th percentile (5.2.5.6).
pub const MEAN_SLACK: Duration = Duration::from_millis(100);
/// No think time is longer than so many times its mean.
const LONGEST_THINK: f64 = 10.0;

/// What the specification asks of a kind of transaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asked {
    /// Time at the keyboard, always the same (5.2.5.2).
    pub keying: Duration,
    /// Time before the screen, mean (5.2.5.4).
    pub think_mean: Duration,
    /// Of a hundred answers ninety come so soon (5.2.5.3).
    pub limit: Duration,
}

/// Of a kind.
pub const fn asked(kind: Kind) -> Asked {
    let (keying, think, limit) = match kind {
        Kind::NewOrder => (18, 12, 5),
        Kind::Payment => (3, 12, 5),
        Kind::OrderStatus => (2, 10, 5),
        Kind::Delivery => (2, 5, 5),
        Kind::StockLevel => (2, 5, 20),
    };
    Asked {
        keying: Duration::from_secs(keying),
        think_mean: Duration::from_secs(think),
        limit: Duration::from_secs(limit),
    }
}

/// Draws a think time: negative exponential, cut at ten times its mean.
pub(super) fn think(random: &mut Random, mean: Duration) -> Duration {
    // In (0, 1], to 53 bits.
    let uniform = ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    mean.mul_f64((-uniform.ln()).min(LONGEST_THINK))
}

/// Seconds of a cycle with these cards where every answer comes at once, mean.
pub(super) fn mean_cycle_s() -> f64 {
    let cards = Deck::least_cards();
    let of = |(kind, cards): (Kind, usize)| {
        let Asked { keying, think_mean, .. } = asked(kind);
        cards as f64 * (keying + think_mean).as_secs_f64()
    };
    cards.map(of).iter().sum::<f64>() / cards.map(|(_, cards)| cards as f64).iter().sum::<f64>()
}

/// Most New-Orders a minute and warehouse with the cards that are dealt.
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
        let of = |(kind, share): (Kind, f64)| share * (asked(kind).keying + asked(kind).think_mean).as_secs_f64();
        let cycle: f64 = Kind::ALL.into_iter().zip(shares).map(of).sum();
        assert!((cycle - 20.99).abs() < 1e-9, "{cycle}");
        assert!((600.0 / cycle * 0.45 - MAXIMUM_PER_MIN).abs() < 0.005);
        // More Payments than the least share leave fewer New-Orders.
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
        // Of an exponential's values this part is longer than the mean, and than three times the mean.
        assert!((share(&|t| t > 12.0) - (-1.0_f64).exp()).abs() < 0.005);
        assert!((share(&|t| t > 36.0) - (-3.0_f64).exp()).abs() < 0.005);
        assert!(drawn.iter().all(|&t| t <= 120.0));
        assert!(share(&|t| t >= 120.0) < 0.001 && drawn.iter().any(|&t| t > 100.0));
    }
}
