//! Effect of switching behind prefetches on throughput (beyond the paper). Throughput of the standard mix by number of
//! warehouses, under threads without and with group prefetch, and under steps with points of either kind and of both.

use storage::PointKind;

use crate::footprint::place;
use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::{Lab, Timings};
use crate::reproduce::report::Series;
use tpcc_core::workload::error::Error;

/// A scheduler to compare: its label and its flags.
type SchedulerFlags = (&'static str, &'static str);

const PLAIN: SchedulerFlags = ("threads", "--scheduler threads --prefetch off");
const THREADS: SchedulerFlags = ("threads, group prefetch", "--scheduler threads");
const STEPS: SchedulerFlags = ("steps, default points", "--scheduler steps");
const BOTH: SchedulerFlags = ("steps, both", "--scheduler steps --ctx-points all");
const TEAM_OF_ONE: SchedulerFlags = ("steps, team of one", "--scheduler steps --team-size 1");

/// Measures the throughput under each scheduler, by number of warehouses.
pub(super) fn sweep(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let sizes: &[u32] = if lab.quick { &[1, 20] } else { &[1, 2, 5, 10, 20, 40] };
    let (seconds, rounds) = if lab.quick { (2, 3) } else { (6, 5) };
    let points_of = |kind, name: &str| {
        let path = lab.scratch().join(name);
        place::write_kind(&path, kind)?;
        Ok::<String, Error>(format!("--scheduler steps --prefetch off --ctx-points {}", path.display()))
    };
    let instructions = points_of(PointKind::Instruction, "points-instruction")?;
    let data = points_of(PointKind::Data, "points-data")?;
    let all: [(&str, &str); 7] = [
        PLAIN,
        THREADS,
        ("steps, instruction points", &instructions),
        ("steps, prefetch points", &data),
        BOTH,
        STEPS,
        TEAM_OF_ONE,
    ];
    let mut timings = Timings::default();
    let label = |way: &str, warehouses: u32, workers: u32| format!("{way}, {warehouses} warehouses, {workers} workers");
    for &warehouses in sizes {
        // One database for one warehouse, and one for all other sizes: a run may use fewer warehouses than are loaded.
        let loaded = match (warehouses, lab.quick) {
            (1, _) => 1,
            (_, true) => 20,
            (_, false) => 40,
        };
        let mut runs = Vec::new();
        for (way, flags) in all {
            // One warehouse fits the caches: there is no claim on the other schedulers at this size.
            if lab.quick && warehouses == 1 && ![THREADS.0, STEPS.0].contains(&way) {
                continue;
            }
            let how = format!("--workers 1 --warmup 1 --duration {seconds} {flags}");
            runs.push((label(way, warehouses, 1), lab.run_args(loaded, warehouses, &how)?));
        }
        if warehouses == 20 {
            let how = format!("--workers 2 --warmup 1 --duration {seconds} {}", STEPS.1);
            runs.push((label(STEPS.0, warehouses, 2), lab.run_args(loaded, warehouses, &how)?));
        }
        let runs: Vec<(&str, Vec<String>)> = runs.iter().map(|(label, args)| (label.as_str(), args.clone())).collect();
        timings.extend(lab.interleave(rounds, &runs)?);
    }
    for (way, _) in all {
        let mut series = Series::new(format!("steps-prefetch {way}"), "warehouses", "transactions/s, one worker");
        sizes.iter().for_each(|&n| series.push(n, timings.rate(&label(way, n, 1))));
        findings.series.push(series);
    }
    for (way, _) in [THREADS, STEPS] {
        // Under both schedulers the same terminals send requests. Each sends a request as soon as it has the previous
        // answer.
        let name = format!("steps-prefetch p99 {way}");
        let mut series = Series::new(name, "warehouses", "99th percentile of New-Order's response, us, one worker");
        sizes.iter().for_each(|&n| series.push(n, timings.response_p99(&label(way, n, 1))));
        findings.series.push(series);
    }
    let ratio = |a: (&str, u32, u32), b: (&str, u32, u32)| timings.ratio(&label(a.0, a.1, a.2), &label(b.0, b.1, b.2));
    let (plain, threads, steps) = (PLAIN.0, THREADS.0, STEPS.0);
    let note = "standard mix, one worker, async, rounds interleaved";
    findings.add_claim(claims::VS_THREADS_20.measured(ratio((steps, 20, 1), (plain, 20, 1)), note));
    findings.add_claim(claims::VS_PREFETCH_20.measured(ratio((steps, 20, 1), (threads, 20, 1)), note));
    findings.add_claim(claims::VS_THREADS_1.measured(ratio((steps, 1, 1), (threads, 1, 1)), note));
    findings.add_claim(claims::TWENTY_VS_ONE.measured(ratio((steps, 20, 1), (steps, 1, 1)), note));
    findings
        .add_claim(claims::TWO_WORKERS.measured(ratio((steps, 20, 2), (steps, 20, 1)), "20 warehouses, 2 workers / 1"));
    let one = ratio((TEAM_OF_ONE.0, 20, 1), (threads, 20, 1));
    let cost = one.map(|r| crate::reproduce::report::Spread { mid: 1.0 - r.mid, low: 1.0 - r.high, high: 1.0 - r.low });
    findings.add_claim(claims::TEAM_OF_ONE.measured(cost, "20 warehouses, against threads with group prefetch"));
    Ok(())
}
