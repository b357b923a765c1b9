//! Throughput of the tuner (the paper's future work) compared with fixed bonuses; its adaptation to a change of the working
//! sets; and the cost of a scheduling decision.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use itas::auto::{Mode, TunerSettings};
use itas::{Aggregation, Board, CoreSettings, Groups, Scheduler, Stops};

use super::load::{AccessPattern, Memory, MemoryLoad, ScheduledLoad, SchedulingMode};
use super::memory::{rates, run_rounds, spread};
use crate::interval::Ratio;
use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, SEED};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Fixed values of agg_bonus, in microseconds.
const BONUSES_US: [u64; 6] = [50, 200, 500, 1_000, 2_000, 5_000];
const SLICE: Duration = Duration::from_micros(50);
const ROUNDS: usize = 7;
/// Share of the blocks that is read in the phases with small sets, in thousandths.
const SMALL_SHARE: usize = 60;

fn load() -> MemoryLoad {
    MemoryLoad { groups: 8, siblings: 8, block_bytes: 768 << 10, shared: true, pattern: AccessPattern::Reads }
}

/// Compares the throughput of the tuner with fixed bonuses.
pub(super) fn tuner(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let load = load();
    let mut memory = Memory::new(load, SEED);
    let fixed = |us: u64| Aggregation { bonus: Duration::from_micros(us), limit: 100_000 };
    let settings = TunerSettings::default();
    let mut modes = vec![SchedulingMode::Tuned(settings)];
    modes.extend(BONUSES_US.map(|us| SchedulingMode::Fixed(Mode::Tas, fixed(us))));
    let mut scheduled =
        modes.iter().map(|mode| ScheduledLoad::new(&load, *mode, SLICE, 2)).collect::<Result<Vec<_>, _>>()?;
    lab.say("reads of sets of 768 KiB, tuned and with six fixed bonuses");
    // Warm-up: the runtime keeps the parameters that the tuner finds.
    memory.run(&mut scheduled[0], Duration::from_millis(500), std::thread::sleep)?;
    let length = Duration::from_millis(if lab.quick { 200 } else { 1_000 });
    let runs = run_rounds(&mut memory, &mut scheduled, ROUNDS, length)?;
    let tuned = rates(&runs[0]);
    let mut series = Series::new("itas-tuner fixed bonus", "us of agg_bonus", "throughput, tuned = 1");
    let mut best: Option<(u64, Ratio)> = None;
    for (us, runs) in BONUSES_US.iter().zip(&runs[1..]) {
        let against = Ratio::of(&rates(runs), &tuned);
        series.push(*us as f64, Some(spread(against)));
        let ratio = Ratio::of(&tuned, &rates(runs));
        if best.as_ref().is_none_or(|(_, least)| ratio.value < least.value) {
            best = Some((*us, ratio));
        }
    }
    findings.series.push(series);
    if let Some((us, ratio)) = best {
        let note = format!("the best fixed bonus of {} was {us} us", BONUSES_US.len());
        findings.add_claim(claims::TUNER.measured(Some(spread(ratio)), note));
    }
    reconverges(lab, &mut memory, findings)
}

/// Measures the time that the tuner needs after the sets become small, and large again, while the load runs.
fn reconverges(lab: &mut Lab, memory: &mut Memory, findings: &mut Results) -> Result<(), Error> {
    const SAMPLE: Duration = Duration::from_millis(5);
    lab.say("the sets become small, and large again, under a tuner");
    let mut scheduled = ScheduledLoad::new(&load(), SchedulingMode::Tuned(TunerSettings::default()), SLICE, 2)?;
    let parameters = scheduled.parameters();
    let phase = Duration::from_millis(if lab.quick { 1_000 } else { 3_000 });
    let share = Arc::clone(&memory.share);
    let mut phases: Vec<Vec<(f64, f64)>> = Vec::new();
    memory.run(&mut scheduled, 5 * phase, |_| {
        for small in [false, true, false, true, false] {
            share.store(if small { SMALL_SHARE } else { 1000 }, Ordering::Relaxed);
            let (begun, mut limits) = (Instant::now(), Vec::new());
            while begun.elapsed() < phase {
                std::thread::sleep(SAMPLE);
                let limit = parameters().map_or(0, |aggregation| aggregation.limit);
                limits.push((begun.elapsed().as_secs_f64() * 1e3, f64::from(limit)));
            }
            phases.push(limits);
        }
    })?;
    let mut series = Series::new("itas-tuner phases", "ms", "agg_limit; the sets change at each step of the phases");
    let phase_ms = phase.as_secs_f64() * 1e3;
    for (n, limits) in phases.iter().enumerate() {
        for (ms, limit) in smooth(limits).into_iter().step_by(4) {
            series.push(n as f64 * phase_ms + ms, Some(Spread::exact(limit)));
        }
    }
    findings.series.push(series);
    // The first phase begins without parameters. Each other phase begins with a change of the sets.
    let times: Vec<f64> = phases[1..].iter().map(|limits| converged_ms(&smooth(limits))).collect();
    let worst = times.iter().copied().fold(0.0, f64::max);
    let found: Vec<String> = phases.iter().map(|limits| format!("{:.0}", settled(&smooth(limits)))).collect();
    let note = format!("the longest of {} changes; limits of the phases: {}", times.len(), found.join(", "));
    findings.add_claim(claims::RECONVERGES.exact(worst, note));
    Ok(())
}

/// Returns the medians of five consecutive samples, because single intervals may be probes with more slices in a row.
fn smooth(limits: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let middle = |five: &[(f64, f64)]| {
        let mut values: Vec<f64> = five.iter().map(|(_, limit)| *limit).collect();
        values.sort_unstable_by(f64::total_cmp);
        (five[4].0, values[2])
    };
    limits.windows(5).map(middle).collect()
}

/// Returns the median limit of the last half of a phase.
fn settled(limits: &[(f64, f64)]) -> f64 {
    let mut late: Vec<f64> = limits[limits.len() / 2..].iter().map(|(_, limit)| *limit).collect();
    late.sort_unstable_by(f64::total_cmp);
    late.get(late.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the time from which five consecutive limits are within half of the settled limit, or within two slices of it, in
/// milliseconds.
fn converged_ms(limits: &[(f64, f64)]) -> f64 {
    let settled = settled(limits);
    let near = |limit: f64| (limit - settled).abs() <= (0.5 * settled).max(2.0);
    limits.windows(5).find(|five| five.iter().all(|(_, limit)| near(*limit))).map_or(f64::INFINITY, |five| five[0].0)
}

/// Measures the cost of a scheduling decision among 64 groups of 8 fibers.
pub(super) fn decision(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    const GROUPS: u32 = 64;
    const FIBERS: u32 = 8;
    const DECISIONS: u64 = 100_000;
    lab.say("decisions among 64 groups of 8 fibers");
    let mut series = Series::new("itas-decision", "policy", "ns a decision");
    let mut worst: Option<Spread> = None;
    for mode in [Mode::Fair, Mode::Tas, Mode::Itas] {
        let groups = Groups::new();
        let (board, mut ids) = (Arc::new(Board::new(1)), Vec::new());
        for n in 0..GROUPS {
            let added = groups.add(&n.to_string(), itas::DEFAULT_WEIGHT, Aggregation::default());
            ids.push(added.map_err(|error| Error::failed(error.to_string()))?);
        }
        let mut scheduler = Scheduler::new(0, Arc::new(groups), board, mode.policy(), CoreSettings::default());
        for fiber in 0..GROUPS * FIBERS {
            let arrived = scheduler.arrive(0, fiber, ids[(fiber % GROUPS) as usize]);
            arrived.map_err(|error| Error::failed(error.to_string()))?;
        }
        let mut now = 0;
        let mut decide = |decisions: u64| {
            for _ in 0..decisions {
                now += 50_000;
                scheduler.stop(now, Stops::Preempted);
                std::hint::black_box(scheduler.pick(now));
            }
        };
        decide(DECISIONS / 4);
        let times = (0..11).map(|_| {
            let begun = Instant::now();
            decide(DECISIONS);
            begun.elapsed().as_secs_f64() * 1e9 / DECISIONS as f64
        });
        let times = Spread::of(times);
        series.push(mode.name(), times);
        worst = [worst, times].into_iter().flatten().max_by(|a, b| a.mid.total_cmp(&b.mid));
    }
    findings.series.push(series);
    findings.add_claim(
        claims::PICK_NEXT.measured(worst, "the slowest of fair, tas and itas: a fiber stops and the next is chosen"),
    );
    Ok(())
}
