//! TPC-C (4.3): Payment alone (figure 10), team sizes (table 4), the mix without Delivery (figure 11).
//!
//! "Off" is the same binary with the same fibers and no live point: transactions of a team run one after the other, each to
//! its end.

use super::fetch::EVENTS;
use crate::footprint::geometry::Geometry;
use crate::reproduce::Results;
use crate::reproduce::cachegrind::{Counts, DataCaches, saved_share};
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::{CountSpec, Lab, SEED};
use crate::reproduce::report::{Claim, Series, Spread};
use tpcc_core::workload::error::Error;

/// Numbers of transactions of the short and of the long counted run.
const LENGTHS: (u64, u64) = (1_000, 5_000);
/// Minimum number of misses per transaction that shows an effect. With fewer misses, a cache is too large.
const FEW: f64 = 20.0;

/// Counts of a mix at a number of warehouses, with points off and with points on. The cache is the first that has enough
/// misses with points off.
struct MixCounts {
    warehouses: u32,
    i1: Geometry,
    off: Counts,
    on: Counts,
}

fn count_mix(lab: &mut Lab, mix: &str, loaded: u32, warehouses: u32) -> Result<Option<MixCounts>, Error> {
    let pool = 256 + 200 * loaded;
    let run = |points: &str, i1: Geometry| {
        let args = format!(
            "run --warehouses {warehouses} --workers 1 --mix {mix} --warmup 0 --seed {SEED} --durability async \
             --buffer-pool {pool} --check off --background inline --scheduler steps {points}"
        );
        CountSpec {
            args: args.split_whitespace().map(str::to_owned).collect(),
            length_flag: "--transactions",
            lengths: LENGTHS,
            work_per_unit: 1.0,
            i1,
            data_caches: DataCaches::DEFAULT,
            warehouses: Some(loaded),
        }
    };
    let small = Geometry::new(16 << 10, 8, 64);
    for i1 in [Some(Geometry::DEFAULT), small].into_iter().flatten() {
        lab.say(&format!("counting {mix} at {warehouses} warehouses in {}", i1.in_words()));
        let Some(counts) = lab.count(&[run("--ctx-points none", i1), run("", i1)])? else { return Ok(None) };
        let [off, on] = counts[..] else { return Ok(None) };
        if off.i1 >= FEW || Some(i1) == small {
            return Ok(Some(MixCounts { warehouses, i1, off, on }));
        }
    }
    Ok(None)
}

/// Returns the number of warehouses to load, and the numbers of warehouses to measure.
fn sizes(lab: &Lab, all: &'static [u32]) -> (u32, &'static [u32]) {
    if lab.quick { (20, &[20]) } else { (all.iter().copied().max().unwrap_or(20), all) }
}

/// Measures the throughput of a mix with points, relative to the mix without points, over interleaved rounds.
fn speedup(lab: &mut Lab, mix: &str, loaded: u32, warehouses: u32) -> Result<Option<Spread>, Error> {
    let (seconds, rounds) = if lab.quick { (2, 3) } else { (6, 5) };
    let how =
        |points: &str| format!("--workers 1 --mix {mix} --warmup 1 --duration {seconds} --scheduler steps {points}");
    let off = lab.run_args(loaded, warehouses, &how("--ctx-points none"))?;
    let on = lab.run_args(loaded, warehouses, &how(""))?;
    let (off_label, on_label) = (format!("{mix}, points off"), format!("{mix}, points on"));
    let timings = lab.interleave(rounds, &[(&off_label, off), (&on_label, on)])?;
    Ok(timings.ratio(&on_label, &off_label))
}

/// Values of the paper's bars that are in its text, in per cent of Shore without Steps.
struct PaperBars {
    /// Name of the bars, such as "10 warehouses".
    of: &'static str,
    /// Remaining events or remaining time in per cent, by name.
    left: &'static [(&'static str, f64)],
}

/// Figure 10 of the paper: 60 to 65% fewer instruction misses, 41 to 45% fewer mispredictions, 16 to 39% faster. Gains are
/// larger at more warehouses.
const FIGURE_10: &[PaperBars] = &[
    PaperBars {
        of: "10 warehouses",
        left: &[("L1-I misses", 40.0), ("mispredicted branches", 59.0), ("time", 100.0 / 1.16)],
    },
    PaperBars {
        of: "30 warehouses",
        left: &[("L1-I misses", 35.0), ("mispredicted branches", 55.0), ("time", 100.0 / 1.39)],
    },
];

/// Figure 11 of the paper: 56% fewer instruction misses.
const FIGURE_11: &[PaperBars] = &[PaperBars { of: "10 warehouses", left: &[("L1-I misses", 44.0)] }];

/// Measures figure 10 or 11: events with points relative to events without points, by number of warehouses.
fn relative(
    lab: &mut Lab,
    findings: &mut Results,
    figure: &str,
    mix: &str,
    all: &'static [u32],
    paper: &[PaperBars],
) -> Result<(Vec<MixCounts>, Option<Spread>), Error> {
    let (loaded, sizes) = sizes(lab, all);
    let (mut all, mut at_twenty) = (Vec::new(), None);
    for &warehouses in sizes {
        let counted = count_mix(lab, mix, loaded, warehouses)?;
        let time = speedup(lab, mix, loaded, warehouses)?;
        let cache = counted.as_ref().map_or(String::new(), |counted| format!("; {}", counted.i1.in_words()));
        let label = format!("points on, per cent of off{cache}");
        let mut series = Series::new(format!("{figure} {warehouses} warehouses"), "event", &label);
        for (event, of) in EVENTS {
            let share = counted.as_ref().filter(|c| of(&c.off) > 0.0).map(|c| 100.0 * of(&c.on) / of(&c.off));
            series.push_exact(*event, share);
        }
        series.push("time", time.map(|t| Spread { mid: 100.0 / t.mid, low: 100.0 / t.high, high: 100.0 / t.low }));
        findings.series.push(series);
        // Values of the paper are only in the figure of the first number of warehouses, whose label names the cache.
        if all.is_empty() {
            for bars in paper {
                let mut series = Series::new(format!("{figure} paper, {}", bars.of), "event", &label);
                bars.left.iter().for_each(|(event, left)| series.push_exact(*event, Some(*left)));
                findings.series.push(series);
            }
        }
        all.extend(counted);
        if warehouses == 20 {
            at_twenty = time;
        }
    }
    Ok((all, at_twenty))
}

/// Returns the counts with the smallest reduction.
fn worst(counted: &[MixCounts], of: fn(&Counts) -> f64) -> Option<&MixCounts> {
    let left = |counted: &MixCounts| of(&counted.on) / of(&counted.off).max(f64::MIN_POSITIVE);
    counted.iter().max_by(|a, b| left(a).total_cmp(&left(b)))
}

fn reduction(spec: ClaimSpec, counted: &[MixCounts], why: &str, of: fn(&Counts) -> f64) -> Claim {
    let Some(counted) = worst(counted, of) else { return spec.missing(why) };
    let (off, on) = (of(&counted.off), of(&counted.on));
    let (warehouses, i1) = (counted.warehouses, counted.i1.in_words());
    let note = format!("{warehouses} warehouses, {i1}; {off:.1} a transaction become {on:.1}");
    match saved_share(off, on) {
        Some(saved) => spec.exact(saved, note),
        None => spec.missing(note),
    }
}

/// Measures figure 10: Payment alone, with points off and on.
pub(super) fn fig10(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (counted, time) = relative(lab, findings, "steps-fig10", "payment", &[10, 20, 30], FIGURE_10)?;
    let why = lab.uncountable.clone().unwrap_or_default();
    findings.add_claim(reduction(claims::PAYMENT_I1, &counted, &why, |counts| counts.i1));
    findings.add_claim(reduction(claims::PAYMENT_MISPREDICTS, &counted, &why, |counts| counts.mispredicts));
    findings.add_claim(match worst(&counted, |counts| counts.instructions) {
        Some(counted) => claims::INSTRUCTIONS.exact(
            counted.on.instructions / counted.off.instructions - 1.0,
            format!("Payment: {:.0} a transaction become {:.0}", counted.off.instructions, counted.on.instructions),
        ),
        None => claims::INSTRUCTIONS.missing(why),
    });
    findings.add_claim(claims::PAYMENT_TIME.measured(time, "20 warehouses, one worker, rounds interleaved"));
    Ok(())
}

/// Measures figure 11: the mix without Delivery, with points off and on.
pub(super) fn fig11(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (counted, time) = relative(lab, findings, "steps-fig11", "no-delivery", &[10, 20], FIGURE_11)?;
    let why = lab.uncountable.clone().unwrap_or_default();
    findings.add_claim(reduction(claims::MIX_I1, &counted, &why, |counts| counts.i1));
    findings.add_claim(claims::MIX_TIME.measured(time, "no-delivery, 20 warehouses, one worker, rounds interleaved"));
    Ok(())
}

/// Measures Table 4: number of threads that enter a team, and number of threads that leave it with the others, by operation.
pub(super) fn table4(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (loaded, sizes) = sizes(lab, &[10, 20, 30]);
    for &warehouses in sizes {
        let how = "--workers 1 --mix payment --warmup 1 --duration 3 --scheduler steps --teams operation";
        let args = lab.run_args(loaded, warehouses, how)?;
        lab.say(&format!("team sizes of Payment at {warehouses} warehouses"));
        let json = lab.tpcc(&args)?;
        let operations = json["steps"]["operations"].as_array().map_or(&[][..], Vec::as_slice);
        for (key, what, unit) in [
            ("mean_in", "in", "threads of a team"),
            ("mean_out", "out", "threads of a team"),
            ("strays", "strays", "threads in all"),
        ] {
            let name = format!("steps-table4 {warehouses} warehouses, {what}");
            let mut series = Series::new(name, "operation", unit);
            for operation in operations {
                series.push_exact(operation["name"].as_str().unwrap_or("?"), operation[key].as_f64());
            }
            findings.series.push(series);
        }
        let mut series = Series::new("steps-table4 ready threads", "warehouses", "threads ready to run, mean");
        series.push_exact(warehouses, json["steps"]["mean_ready"].as_f64());
        findings.series.push(series);
    }
    Ok(())
}
