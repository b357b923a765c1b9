//! Costs of this machine's caches, translation buffers and branches, measured by pointer chasing: each read depends on the
//! previous one, so that reads do not overlap.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};

use super::small_pages::SmallPages;
use tpcc_core::workload::generate::Random;

/// Size of a line and of a small page, in bytes.
const LINE: usize = 64;
const PAGE: usize = 4096;
/// Number of pages whose lines are visited before the lines of other pages. A first-level translation buffer holds this
/// number of pages, so that page walks are rare.
const WINDOW: usize = 32;
/// Number of steps of a measurement, and number of measurements.
const STEPS: usize = 1 << 20;
const REPETITIONS: usize = 5;

/// Costs of events in nanoseconds. A latency is the time from the address to the value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Probe {
    /// Duration of a cycle.
    pub cycle: f64,
    pub l1: f64,
    pub l2: f64,
    pub l3: f64,
    pub memory: f64,
    /// Cost of a mispredicted branch.
    pub branch: f64,
    /// Cost of a translation that is in the second-level translation buffer, but not in the first.
    pub second_tlb: f64,
    /// Cost of a page walk: the translation is in neither buffer.
    pub walk: f64,
}

impl Probe {
    /// Measures the costs, in about a second.
    pub(crate) fn measure() -> Probe {
        let _small = SmallPages::force();
        let by_lines = |bytes: usize| chase(&lines(bytes));
        let (l1, l2) = (by_lines(16 << 10), by_lines(512 << 10));
        // One line of each page is read: 384 lines fit into the first level of the cache, 8,192 into the second.
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

    /// Returns the costs as JSON for a report.
    pub(crate) fn json(&self) -> Value {
        let Probe { cycle, l1, l2, l3, memory, branch, second_tlb, walk } = self;
        json!({
            "cycle_ns": cycle, "l1_ns": l1, "l2_ns": l2, "l3_ns": l3, "memory_ns": memory, "branch_miss_ns": branch,
            "second_tlb_ns": second_tlb, "walk_ns": walk,
        })
    }

    /// Formats the costs for a sentence.
    pub(crate) fn in_words(&self) -> String {
        let Probe { cycle, l1, l2, l3, memory, branch, second_tlb, walk } = self;
        format!(
            "probe: cycle {cycle:.2} ns, L1 {l1:.1}, L2 {l2:.1}, L3 {l3:.1}, memory {memory:.0}, branch miss {branch:.1}, \
             second TLB {second_tlb:.1}, walk {walk:.1}"
        )
    }
}

/// Returns the minimum of several measurements, because disturbances only add time.
fn least(mut ns: impl FnMut() -> f64) -> f64 {
    (0..REPETITIONS).map(|_| ns()).fold(f64::INFINITY, f64::min)
}

/// Creates a chain through all lines of a block, window by window of pages. Lines are in random order within each window.
fn lines(bytes: usize) -> Chain {
    let words = LINE / size_of::<u32>();
    let mut order: Vec<usize> = (0..bytes / LINE).collect();
    let mut random = Random::stream(7, bytes as u64);
    order.chunks_mut(WINDOW * PAGE / LINE).for_each(|window| random.shuffle(window));
    chain(&order.iter().map(|line| line * words).collect::<Vec<_>>(), bytes / size_of::<u32>())
}

/// Creates a chain through one line of each of `count` pages, in random order. The lines are in different sets of the cache.
fn pages(count: usize) -> Chain {
    let words = PAGE / size_of::<u32>();
    let mut order: Vec<usize> = (0..count).collect();
    Random::stream(8, count as u64).shuffle(&mut order);
    let places: Vec<usize> = order.iter().map(|page| page * words + page % (PAGE / LINE) * (LINE / 4)).collect();
    chain(&places, count * words)
}

/// Chain of memory words: each word of the chain holds the index of the next one. Also has the index of the first word.
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

/// Measures the time of a step through a chain, in nanoseconds.
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

/// Measures the duration of a cycle, in nanoseconds. On every processor of the last ten years, a multiplication takes three
/// cycles and an exclusive-or takes one. Each operation depends on the previous one.
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

/// Measures the cost of a mispredicted branch, in nanoseconds. Half of the random branches are mispredicted, and none of the
/// regular ones.
fn branch() -> f64 {
    let mut random = Random::stream(9, 0);
    let bits: Vec<bool> = (0..STEPS).map(|_| random.in_range(0, 1) == 1).collect();
    let regular = vec![true; STEPS];
    let time = |bits: &[bool]| {
        least(|| {
            let begun = Instant::now();
            let mut sum = 0_u64;
            for bit in bits {
                // `black_box` keeps the compiler from replacing the branch by unconditional code.
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
