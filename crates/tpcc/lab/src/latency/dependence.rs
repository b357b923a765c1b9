//! Measures the work that epochs repeat after a violation, by number of sub-epochs (TLS paper, figures 10 and 11). In the
//! measured loops, each iteration depends on a number of the previous iteration, at a variable position in its body.
//!
//! The loops run over an array in memory: the epochs of the engine's loops have no sub-epochs.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use speculate::{Forwarding, Options, Seen, Speculator, Store, Written};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;

/// Number of numbers that an iteration reads besides the one on which it depends.
pub const READS: usize = 32;
/// Number of iterations of a loop; each is an epoch.
const EPOCHS: usize = 8;
/// Number of numbers in the array. Number 0 is the one on which iterations depend.
const NUMBERS: u32 = 100_000;
/// Multiplications with each number that is read, about as much work as a search in a tree.
const ROUNDS: u32 = 200;

/// Measured cost of loops with a dependence.
#[derive(Clone, Copy, Debug)]
pub struct DependenceCost {
    /// Mean rewound work per violation, in microseconds.
    pub rewound_us: f64,
    /// Mean time of a loop, in microseconds.
    pub loop_us: f64,
}

/// An array of numbers. A number is its own stamp: the loops only increase numbers.
#[derive(Debug)]
pub struct Numbers(Vec<AtomicU64>);

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers((0..NUMBERS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Numbers {
    fn load(&self, key: u32) -> u64 {
        self.0[key as usize].load(Ordering::Relaxed)
    }
}

impl Store for Numbers {
    type Key = u32;
    type Value = u64;
    type Stamp = ();
    type Local = ();
    type Order = ();
    type Error = Infallible;

    fn peek(&self, (): &mut (), key: &u32) -> Result<(Option<u64>, ()), Infallible> {
        Ok((Some(self.load(*key)), ()))
    }

    fn confirm(&self, (): &mut (), seen: Seen<'_, Self>) -> Result<bool, Infallible> {
        Ok(seen.value == Some(&self.load(*seen.key)))
    }

    fn read(&self, (): &mut (), key: &u32) -> Result<Option<u64>, Infallible> {
        Ok(Some(self.load(*key)))
    }

    fn write(&self, (): &mut (), write: &Written<'_, Self>) -> Result<(), Infallible> {
        self.0[*write.key as usize].store(write.value.copied().unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }
}

/// Runs `loops` loops. Each iteration makes [`READS`] reads, and increases the shared number after the first `before` reads.
/// Each epoch has `sub_epochs` sub-epochs.
pub fn run(
    numbers: &Numbers,
    before: usize,
    sub_epochs: usize,
    loops: u32,
    seed: u64,
) -> Result<DependenceCost, Error> {
    // Without forwarding, a premature read is detected when the epoch is validated, so that each epoch except the first is
    // violated once.
    let options = Options::new().workers(2).forwarding(Forwarding::Never);
    let options = options.sub_epochs(sub_epochs, READS.div_ceil(sub_epochs).max(1));
    let mut speculator = Speculator::new(options).map_err(|error| Error::failed(error.to_string()))?;
    let mut random = Random::stream(seed, 2);
    let mut took = 0.0;
    for _ in 0..loops {
        let keys: Vec<u32> = (0..EPOCHS * READS).map(|_| random.in_range(1, NUMBERS - 1)).collect();
        let begun = Instant::now();
        let ran = speculator.run(
            numbers,
            &mut (),
            keys.chunks(READS),
            |epoch, keys| {
                for (i, key) in keys.iter().enumerate() {
                    if i == before {
                        let hot = epoch.get(&0)?.unwrap_or_default();
                        epoch.put(0, hot + 1);
                    }
                    let number = epoch.get(key)?.unwrap_or_default();
                    let work = (0..ROUNDS)
                        .fold(number, |hash, round| (hash ^ u64::from(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    std::hint::black_box(work);
                }
                Ok::<(), Infallible>(())
            },
            |(), ()| Ok(()),
        );
        ran.map_err(|error| Error::failed(format!("a loop with a dependence: {error:?}")))?;
        took += begun.elapsed().as_secs_f64();
    }
    let stats = speculator.take_stats();
    Ok(DependenceCost {
        rewound_us: stats.rewound_ns as f64 / 1e3 / stats.violations.max(1) as f64,
        loop_us: took * 1e6 / f64::from(loops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_increases_the_shared_number_once() {
        let numbers = Numbers::default();
        for before in [0, READS - 1] {
            run(&numbers, before, 8, 5, 1).unwrap();
        }
        assert_eq!(numbers.load(0), 2 * 5 * EPOCHS as u64);
    }
}
