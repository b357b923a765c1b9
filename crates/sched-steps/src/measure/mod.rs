//! Benchmark of context switches: compares this crate with others, in one interleaved run.
//!
//! A *hop* is the switch from one running context to the next: a suspend and a resume in an asymmetric coroutine
//! library, one `yield_now` in an executor of futures. Every contestant runs the same body with [`POINTS`] points,
//! staggered as in STEPS: each context is suspended at point k, and the next one resumes behind point k - 1.

mod ours;
#[cfg(feature = "rivals")]
mod rivals;

pub use ours::{Shape, code_bytes, hops};
#[cfg(feature = "rivals")]
pub use rivals::{corosensei_hops, tokio_hops};

use std::time::Duration;

/// Number of points in the body that each contestant runs.
pub const POINTS: usize = 4;

/// Name of a contestant, and a function that executes the body `rounds` times on each of `contexts` contexts (arguments:
/// contexts, rounds). The function returns the time from the first to the last hop, and the number of hops.
pub type Contestant<'a> = (&'a str, &'a mut dyn FnMut(usize, usize) -> (Duration, u64));

/// Result of one contestant, in nanoseconds per hop.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the contestant.
    pub name: String,
    /// Number of contexts in the ring.
    pub contexts: usize,
    /// Median of the repetitions, in nanoseconds per hop.
    pub median_ns: f64,
    /// Minimum of the repetitions, in nanoseconds per hop.
    pub min_ns: f64,
    /// Maximum of the repetitions, in nanoseconds per hop.
    pub max_ns: f64,
}

/// Runs the contestants in turns, `repetitions` times with about `hops` hops each. Returns one `Figure` per contestant,
/// in the order of the contestants.
pub fn compare(contexts: usize, repetitions: usize, hops: usize, contestants: &mut [Contestant<'_>]) -> Vec<Figure> {
    let rounds = (hops / contexts / POINTS).max(8);
    let mut all: Vec<Vec<f64>> = contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..repetitions.max(1) {
        for ((_, run), figures) in contestants.iter_mut().zip(&mut all) {
            let (time, hops) = run(contexts, rounds);
            figures.push(time.as_secs_f64() * 1e9 / hops as f64);
        }
    }
    let figure = |((name, _), mut ns): (&Contestant<'_>, Vec<f64>)| {
        ns.sort_by(f64::total_cmp);
        let (median_ns, min_ns, max_ns) = (ns[ns.len() / 2], ns[0], ns[ns.len() - 1]);
        Figure { name: (*name).to_owned(), contexts, median_ns, min_ns, max_ns }
    };
    contestants.iter().zip(all).map(figure).collect()
}

/// Compares all shapes of this crate's hops, and with the feature `rivals` also the other crates, in rings of each size
/// in `sizes`. Calls `figure` with each result.
pub fn survey(sizes: &[usize], repetitions: usize, hops: usize, mut figure: impl FnMut(&Figure)) {
    for &contexts in sizes {
        let mut one = |n, rounds| self::hops(Shape::One, n, rounds);
        let mut staggered = |n, rounds| self::hops(Shape::Staggered, n, rounds);
        let mut called = |n, rounds| self::hops(Shape::Called, n, rounds);
        let mut deep = |n, rounds| self::hops(Shape::Deep, n, rounds);
        let mut contestants: Vec<Contestant<'_>> = vec![
            ("switch/hop/one", &mut one),
            ("switch/hop/staggered", &mut staggered),
            ("switch/hop/called", &mut called),
            ("switch/hop/deep", &mut deep),
        ];
        #[cfg(feature = "rivals")]
        let (mut corosensei, mut tokio) = (corosensei_hops, tokio_hops);
        #[cfg(feature = "rivals")]
        {
            contestants.push(("switch/corosensei", &mut corosensei));
            contestants.push(("switch/tokio-yield", &mut tokio));
        }
        compare(contexts, repetitions, hops, &mut contestants).iter().for_each(&mut figure);
    }
}
