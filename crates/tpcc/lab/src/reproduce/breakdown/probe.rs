//! What this machine's caches, translation buffers and branches cost, measured by chasing pointers: each read depends on the one
//! before, so that none overlaps.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};

use super::small_pages::SmallPages;
use tpcc_core::workload::generate::Random;

/// Bytes of a line and of a small page.
const LINE: usize = 64;
const PAGE: usize = 4096;
/// Pages whose lines are visited in one go: as many as a first-level translation buffer holds, so that walks are rare.
const WINDOW: usize = 32;
/// Steps of a measurement, and measurements.
const STEPS: usize = 1 << 20;
const TIMES: usize = 5;

/// Costs in nanoseconds. A latency is the whole time from the address to the value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Probe {
    /// A cycle.
    pub cycle: f64,
    pub l1: f64,
    pub l2: f64,
    pub l3: f64,
    pub memory: f64,
    /// A branch that was predicted wrong.
    pub branch: f64,
    /// A page that the second-level translation buffer has and the first has not.
    pub second_tlb: f64,
    /// A page that neither has: the walk.
    pub walk: f64,
}

impl Probe {
    /// Measures, in about a second.
    pub(crate) fn measure() -> Probe {
        let _small = SmallPages::insist();
        let by_lines = |bytes: usize| chase(&lines(bytes));
        let (l1, l2) = (by_lines(16 << 10), by_lines(512 << 10));
        // One line a page: so many lines fit the first, and then the second level.
        let (near, far) = (chase(&pages(384)), chase(&pages(8 << 10)));
        Probe {
            cycle: cycle(),
            l1,
            l2,
            l3: by_lines(3 << 20),
            memory: by_lines(128 << 20),
            branch: branch(),
            second_tlb: (near - l1).max(0.0),
            walk: (far - l2).max(0.0),
        }
    }

    /// For a report.
    pub(crate) fn json(&self) -> Value {
        let Probe { cycle, l1, l2, l3, memory, branch, second_tlb, walk } = self;
        json!({
            "cycle_ns": cycle, "l1_ns": l1, "l2_ns": l2, "l3_ns": l3, "memory_ns": memory, "branch_miss_ns": branch,
            "second_tlb_ns": second_tlb, "walk_ns": walk,
        })
    }

    /// For a sentence.
    pub(crate) fn in_words(&self) -> String {
        let Probe { cycle, l1, l2, l3, memory, branch, second_tlb, walk } = self;
        format!(
            "probe: cycle {cycle:.2} ns, L1 {l1:.1}, L2 {l2:.1}, L3 {l3:.1}, memory {memory:.0}, branch miss {branch:.1}, \
             second TLB {second_tlb:.1}, walk {walk:.1}"
        )
    }
}

/// The least of several times: what others take on the machine only adds.
fn least(mut ns: impl FnMut() -> f64) -> f64 {
    (0..TIMES).map(|_| ns()).fold(f64::INFINITY, f64::min)
}

/// A chain of places through all lines of a block, window by window of pages, in random order within each.
fn lines(bytes: usize) -> Chain {
    let words = LINE / size_of::<u32>();
    let mut order: Vec<usize> = (0..bytes / LINE).collect();
    let mut random = Random::stream(7, bytes as u64);
    order.chunks_mut(WINDOW * PAGE / LINE).for_each(|window| random.shuffle(window));
    chain(&order.iter().map(|line| line * words).collect::<Vec<_>>(), bytes / size_of::<u32>())
}

/// A chain of places through one line of each of so many pages, in random order. The lines lie in different sets.
fn pages(count: usize) -> Chain {
    let words = PAGE / size_of::<u32>();
    let mut order: Vec<usize> = (0..count).collect();
    Random::stream(8, count as u64).shuffle(&mut order);
    let places: Vec<usize> = order.iter().map(|page| page * words + page % (PAGE / LINE) * (LINE / 4)).collect();
    chain(&places, count * words)
}

/// Memory in which each place holds the next one, and where to begin.
struct Chain {
    memory: Vec<u32>,
    begin: usize,
}

fn chain(places: &[usize], words: usize) -> Chain {
    let mut memory = vec![0; words];
    for (place, next) in places.iter().zip(places.iter().cycle().skip(1)) {
        memory[*place] = *next as u32;
    }
    Chain { memory, begin: places.first().copied().unwrap_or(0) }
}

/// Nanoseconds of a step.
fn chase(chain: &Chain) -> f64 {
    let mut at = chain.begin;
    let mut walk = |steps: usize| {
        for _ in 0..steps {
            at = chain.memory[at] as usize;
        }
        black_box(at);
    };
    walk(chain.memory.len().min(2 * STEPS));
    least(|| {
        let begun = Instant::now();
        walk(STEPS);
        begun.elapsed().as_secs_f64() * 1e9 / STEPS as f64
    })
}

/// A multiplication takes three cycles and an exclusive or one, on every processor of the last ten years; each waits for the
/// one before.
fn cycle() -> f64 {
    const CYCLES: f64 = 4.0;
    let mut chain = black_box(1_u64);
    let factor = black_box(0x9e37_79b9_7f4a_7c15_u64);
    least(|| {
        let begun = Instant::now();
        for _ in 0..STEPS {
            chain = chain.wrapping_mul(factor) ^ factor;
        }
        black_box(chain);
        begun.elapsed().as_secs_f64() * 1e9 / (STEPS as f64 * CYCLES)
    })
}

/// Half of the random branches are predicted wrong, none of the regular ones.
fn branch() -> f64 {
    let mut random = Random::stream(9, 0);
    let bits: Vec<bool> = (0..STEPS).map(|_| random.within(0, 1) == 1).collect();
    let regular = vec![true; STEPS];
    let time = |bits: &[bool]| {
        least(|| {
            let begun = Instant::now();
            let mut sum = 0_u64;
            for bit in bits {
                // What the compiler cannot look through cannot be made unconditional.
                if *bit {
                    sum = black_box(sum + 1);
                } else {
                    sum = black_box(sum ^ 3);
                }
            }
            black_box(sum);
            begun.elapsed().as_secs_f64() * 1e9 / bits.len() as f64
        })
    };
    (2.0 * (time(&bits) - time(&regular))).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_pass_every_place_once() {
        for (chain, places) in [(lines(64 << 10), 1024), (pages(100), 100)] {
            let begun = chain.begin;
            let mut at = begun;
            let mut seen = 0;
            loop {
                at = chain.memory[at] as usize;
                seen += 1;
                if at == begun || seen > places {
                    break;
                }
            }
            assert_eq!(seen, places);
        }
    }
}
