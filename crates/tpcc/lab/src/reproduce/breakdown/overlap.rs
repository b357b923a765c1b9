//! Cost of a miss on an out-of-order core beside other work. It is less than the latency, because the core continues.
//!
//! The cost is measured by loops that have the counts of some code: a number of instructions without stalls
//! ([`filler::mixed`]), then reads of a few lines of one level, whose addresses depend on no read. The time of the same loop
//! with lines of the first level is subtracted. No figure that the model explains is an input.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};

use super::events::Events;
use super::small_pages::SmallPages;
use crate::filler;
use tpcc_core::workload::generate::Random;

/// Number of lines that are read together. Rows of the tables whose pages miss (item, district, stock, customer) have 2 to
/// 11 lines.
const GROUP_LINES: usize = 4;
/// Size of a line and of a small page, in words of eight bytes.
const LINE: usize = 8;
const PAGE: usize = 512;
/// Number of pages whose lines are read before the lines of other pages. A first-level translation buffer holds this number
/// of pages.
const WINDOW: usize = 32;
/// Sizes in bytes of blocks that fit into the first, second and third level of cache, and of a block that fits into none.
const LEVELS: [usize; 4] = [16 << 10, 512 << 10, 3 << 20, 128 << 20];
/// Approximate duration of a measurement, in nanoseconds.
const MEASUREMENT_NS: f64 = 2e7;
/// Number of measurements of each cost. The minimum counts, because disturbances only add time.
const REPETITIONS: usize = 5;

/// Costs of events beside other work, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ExposedCosts {
    /// Cost of an instruction at the issue width of the core.
    pub instruction: f64,
    /// Cost of a line of code from the second level, in straight-line code.
    pub fetch: f64,
    /// Cost of a read from the second level, from the third level, and from memory.
    pub reads: [f64; 3],
    /// Cost of an address translation that hits the second translation buffer, and of one that misses both buffers.
    pub pages: [f64; 2],
}

impl ExposedCosts {
    /// Measures the costs at the density of these events, in a few seconds. Returns `None` on targets without code for the
    /// measurement.
    pub(crate) fn measure(events: &Events) -> Option<ExposedCosts> {
        let _small = SmallPages::force();
        (filler::ROUND > 0).then(|| {
            let [d1, d2, d3] = events.misses;
            let apart = |misses: f64| if misses > 0.0 { events.instructions / misses } else { f64::INFINITY };
            let reads = [apart(d1 - d2), apart(d2 - d3), apart(d3)];
            let [first, both] = events.pages;
            ExposedCosts {
                instruction: instruction_ns(),
                fetch: fetch_ns(),
                reads: std::array::from_fn(|level| read_ns(LEVELS[level + 1], reads[level])),
                pages: [page_ns(384, apart(first - both)), page_ns(8 << 10, apart(both))],
            }
        })
    }

    /// Returns the costs as JSON for a report.
    pub(crate) fn json(&self) -> Value {
        let ExposedCosts { instruction, fetch, reads: [second, third, memory], pages: [second_tlb, walk] } = self;
        json!({
            "instruction_ns": instruction, "fetch_ns": fetch, "l2_ns": second, "l3_ns": third, "memory_ns": memory,
            "second_tlb_ns": second_tlb, "walk_ns": walk,
        })
    }

    /// Formats the costs for a sentence.
    pub(crate) fn in_words(&self) -> String {
        let ExposedCosts { instruction, fetch, reads: [second, third, memory], pages: [second_tlb, walk] } = self;
        format!(
            "beside other work: instruction {instruction:.3} ns, line of code {fetch:.1}, L2 {second:.1}, L3 {third:.1}, \
             memory {memory:.0}, second TLB {second_tlb:.1}, walk {walk:.1}"
        )
    }
}

/// Returns the minimum time of a repetition in nanoseconds. `work(n)` repeats the measured operation `n` times.
fn least(mut work: impl FnMut(u64)) -> f64 {
    let mut time = |n: u64| {
        let begun = Instant::now();
        work(n);
        begun.elapsed().as_secs_f64() * 1e9 / n as f64
    };
    let guess = time(256).max(0.1);
    let n = ((MEASUREMENT_NS / guess) as u64).max(1);
    (0..REPETITIONS).map(|_| time(n)).fold(f64::INFINITY, f64::min)
}

fn instruction_ns() -> f64 {
    const ROUNDS: u64 = 1000;
    let mut memory = [0; 8];
    least(|n| (0..n).for_each(|_| filler::mixed(ROUNDS, &mut memory))) / (ROUNDS * filler::ROUND) as f64
}

/// Measures the time of a 64-byte line of code, in code that is larger than the first level, in nanoseconds.
fn fetch_ns() -> f64 {
    least(|n| (0..n).for_each(|_| filler::run())) / filler::LINES as f64
}

/// Measures the cost of a read from a block of `bytes` bytes, in nanoseconds. There is one read every `apart` instructions,
/// in groups of [`GROUP_LINES`].
fn read_ns(bytes: usize, apart: f64) -> f64 {
    let rounds = rounds(apart * GROUP_LINES as f64);
    let of = |bytes: usize| {
        let groups = bytes / (8 * LINE * GROUP_LINES);
        // Each window of pages is read completely before the next window, so that all translations are present.
        let order = order(groups, WINDOW * PAGE / (LINE * GROUP_LINES));
        grouped(&order, LINE * GROUP_LINES, GROUP_LINES, rounds)
    };
    ((of(bytes) - of(LEVELS[0])) / GROUP_LINES as f64).max(0.0)
}

/// Measures the cost of a read of a line in one of `pages` pages, in nanoseconds. There is one read every `apart`
/// instructions.
fn page_ns(pages: usize, apart: f64) -> f64 {
    let order = order(pages, pages);
    // Baseline: the same number of adjacent lines, which are in the same level of the caches and in few pages.
    let near = grouped(&order, LINE, 1, rounds(apart));
    (grouped(&order, PAGE + LINE, 1, rounds(apart)) - near).max(0.0)
}

/// Returns the numbers from 0 to `count` - 1, shuffled within windows of `window` numbers.
fn order(count: usize, window: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut random = Random::stream(11, count as u64);
    order.chunks_mut(window.max(1)).for_each(|window| random.shuffle(window));
    order
}

/// Returns the number of rounds of [`filler::mixed`] that have `instructions` instructions, up to a limit. Reads at a
/// distance of the limit do not overlap in any core.
fn rounds(instructions: f64) -> u64 {
    (instructions.min(8192.0) / filler::ROUND.max(1) as f64).max(1.0) as u64
}

/// Measures one turn in nanoseconds: `rounds` rounds of instructions, then reads of `group_lines` consecutive lines of the
/// next group. Groups are `stride` words apart.
fn grouped(order: &[u32], stride: usize, group_lines: usize, rounds: u64) -> f64 {
    let block = vec![1_u64; order.len() * stride + group_lines * LINE];
    let (mut at, mut sum, mut memory) = (0, 0, [0; 8]);
    least(|n| {
        for _ in 0..n {
            filler::mixed(rounds, &mut memory);
            let group = order[at] as usize * stride;
            at = if at + 1 == order.len() { 0 } else { at + 1 };
            sum += (0..group_lines).map(|line| block[group + line * LINE]).sum::<u64>();
        }
        black_box(sum);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_near_costs_less_than_what_lies_far() {
        if filler::ROUND == 0 {
            return;
        }
        let near = grouped(&order(64, 64), LINE * GROUP_LINES, GROUP_LINES, 4);
        let far = grouped(&order(1 << 18, 1 << 18), LINE * GROUP_LINES, GROUP_LINES, 4);
        assert!(near > 0.0 && near < far, "{near} ns, {far} ns");
        assert!(instruction_ns() > 0.0 && fetch_ns() > 0.0);
    }
}
