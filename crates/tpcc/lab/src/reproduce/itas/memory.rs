//! Figure 4: time of the memory program by size of its blocks; and reads of a set as large as this process's share of
//! the L3.

use std::ops::RangeInclusive;
use std::time::Duration;

use itas::Aggregation;
use itas::auto::Mode;

use super::load::{AccessPattern, Memory, MemoryLoad, MemoryRun, ScheduledLoad, SchedulingMode, read_ns};
use super::oltp::claim_waits;
use crate::interval::Ratio;
use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Sizes of a block, in KiB.
const BLOCKS_KIB: [usize; 10] = [16, 64, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536];
const BLOCKS_KIB_QUICK: [usize; 5] = [16, 256, 1_024, 4_096, 8_192];
const GROUPS: usize = 8;
const SIBLINGS: usize = 8;
const WORKERS: usize = 2;
/// Value of agg_limit in the paper. There a core has 25 siblings of a group, and each runs four times in a row of its group.
/// With the four siblings here each runs 25 times.
const LIMIT: u32 = 100;
/// Number of rounds. Each round measures every scheduling mode once.
const ROUNDS: usize = 7;
/// Sizes of a common block, in KiB, at which the paper reports its largest effect.
pub(super) const BEST_KIB: RangeInclusive<usize> = 512..=4_096;
/// Maximum memory of the blocks of this process, in bytes.
const MOST_BYTES: usize = 2 << 30;

/// Runs a load under several scheduling modes in turn. Returns the runs of each mode, in the order of the rounds.
pub(super) fn run_rounds(
    memory: &mut Memory,
    scheduled: &mut [ScheduledLoad],
    rounds: usize,
    length: Duration,
) -> Result<Vec<Vec<MemoryRun>>, Error> {
    let mut runs: Vec<Vec<MemoryRun>> = scheduled.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..scheduled.len() {
            let at = (round + turn) % scheduled.len();
            let run = memory.run(&mut scheduled[at], length, std::thread::sleep)?;
            runs[at].push(run);
        }
    }
    Ok(runs)
}

/// Returns the operations per second of each run.
pub(super) fn rates(runs: &[MemoryRun]) -> Vec<f64> {
    runs.iter().map(|run| run.operations_per_s).collect()
}

pub(super) fn spread(ratio: Ratio) -> Spread {
    Spread { mid: ratio.value, low: ratio.low, high: ratio.high }
}

/// Measures Figure 4: time of a pass over a block, by size of the block.
pub(super) fn fig4(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let sizes: &[usize] = if lab.quick { &BLOCKS_KIB_QUICK } else { &BLOCKS_KIB };
    let modes = [Mode::Fair, Mode::Tas, Mode::Packed, Mode::Itas];
    // Times under itas by size of a common block.
    let mut global: Vec<(usize, Spread)> = Vec::new();
    for shared in [true, false] {
        let name = if shared { "global" } else { "local" };
        let mut series: Vec<Series> = modes[1..]
            .iter()
            .map(|mode| {
                let name = format!("itas-fig4 {name}, {}", mode.name());
                Series::new(name, "KiB of a block", "time of a pass, fair = 1")
            })
            .collect();
        for &kib in sizes {
            let load = MemoryLoad {
                groups: GROUPS,
                siblings: SIBLINGS,
                block_bytes: kib << 10,
                shared,
                pattern: AccessPattern::Writes,
            };
            let blocks = if shared { GROUPS } else { GROUPS * SIBLINGS };
            if blocks * load.block_bytes > MOST_BYTES {
                continue;
            }
            lab.say(&format!("memory program, {name}, blocks of {kib} KiB"));
            let mut memory = Memory::new(load, SEED);
            // A fiber yields after each pass that takes a slice or longer.
            let slice = Duration::from_micros(1);
            let aggregation = Aggregation { bonus: Duration::from_secs(1), limit: LIMIT };
            let mut scheduled = modes
                .iter()
                .map(|mode| ScheduledLoad::new(&load, SchedulingMode::Fixed(*mode, aggregation), slice, WORKERS))
                .collect::<Result<Vec<_>, _>>()?;
            let length = Duration::from_millis(if lab.quick { 60 } else { 300 });
            let runs = run_rounds(&mut memory, &mut scheduled, ROUNDS, length)?;
            claim_waits(runs.iter().flatten().map(|run| run.wait_to_bound), findings);
            let fair = rates(&runs[0]);
            for ((series, runs), mode) in series.iter_mut().zip(&runs[1..]).zip(&modes[1..]) {
                // Time is the inverse of the rate.
                let time = spread(Ratio::of(&fair, &rates(runs)));
                series.push(kib as f64, Some(time));
                if shared && *mode == Mode::Itas {
                    global.push((kib, time));
                }
            }
        }
        findings.series.extend(series);
    }
    let of_paper = |(kib, _): &&(usize, Spread)| BEST_KIB.contains(kib);
    let best = global.iter().filter(of_paper).min_by(|a, b| a.1.mid.total_cmp(&b.1.mid));
    let worst = global.iter().max_by(|a, b| a.1.mid.total_cmp(&b.1.mid));
    for (spec, found) in [(claims::FIG4_GLOBAL, best), (claims::FIG4_WORST, worst)] {
        findings.add_claim(match found {
            Some((kib, time)) => spec.measured(Some(*time), format!("blocks of {kib} KiB, {WORKERS} workers, writes")),
            None => spec.missing("no block of this size was measured"),
        });
    }
    Ok(())
}

/// Measures random reads. The set of each group is as large as this process's current share of the L3.
pub(super) fn l3_share(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let mut latencies = Series::new("itas-l3 reads", "MiB", "ns a read that depends on the one before");
    let sizes_kib = [256, 512, 1_024, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 65_536];
    let points: Vec<(usize, f64)> = sizes_kib.iter().map(|kib| (kib << 10, read_ns(kib << 10))).collect();
    for (bytes, ns) in &points {
        latencies.push(*bytes as f64 / f64::from(1 << 20), Some(Spread::exact(*ns)));
    }
    findings.series.push(latencies);
    let share = l3_share_of(&points);
    lab.say(&format!("this process has about {:.1} MiB of the L3", share as f64 / f64::from(1 << 20)));
    let load = MemoryLoad { groups: 4, siblings: 8, block_bytes: share, shared: true, pattern: AccessPattern::Reads };
    let mut memory = Memory::new(load, SEED);
    let aggregation = Aggregation { bonus: Duration::from_secs(1), limit: 32 };
    let mut scheduled = [Mode::Tas, Mode::Itas, Mode::Fair]
        .iter()
        .map(|mode| {
            ScheduledLoad::new(&load, SchedulingMode::Fixed(*mode, aggregation), Duration::from_micros(500), WORKERS)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let length = Duration::from_millis(if lab.quick { 500 } else { 2_000 });
    let runs = run_rounds(&mut memory, &mut scheduled, ROUNDS, length)?;
    let after = read_ns(share);
    let mut series = Series::new("itas-l3 throughput", "policy", "reads, fair = 1");
    let fair = rates(&runs[2]);
    for (name, runs) in [("tas", &runs[0]), ("itas", &runs[1])] {
        series.push(name, Some(spread(Ratio::of(&rates(runs), &fair))));
    }
    findings.series.push(series);
    let ratio = spread(Ratio::of(&rates(&runs[1]), &rates(&runs[0])));
    let note = format!(
        "sets of {:.1} MiB, 4 groups; a read of such a set took {:.1} ns before and {after:.1} after",
        share as f64 / f64::from(1 << 20),
        points.iter().find(|(bytes, _)| *bytes >= share).map_or(0.0, |(_, ns)| *ns),
    );
    findings.add_claim(claims::ITAS_VS_TAS.measured(Some(ratio), note));
    Ok(())
}

/// Returns the largest size of a set, in bytes, for which the time of a read is closer to the L3 than to memory.
fn l3_share_of(points: &[(usize, f64)]) -> usize {
    // Time of a read in a set that is larger than the private caches, and smaller than any share of the L3.
    let l3 = points.iter().find(|(bytes, _)| *bytes == 3 << 20).map_or(0.0, |(_, ns)| *ns);
    let memory = points.last().map_or(0.0, |(_, ns)| *ns);
    let nearer = points.iter().take_while(|(_, ns)| *ns < (l3 + memory) / 2.0);
    nearer.last().map_or(1 << 20, |(bytes, _)| *bytes)
}
