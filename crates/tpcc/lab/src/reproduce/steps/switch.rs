//! Cost of a context switch: nanoseconds of a hop between members of a team, including its checks, by size of the team and
//! by position of the points. Compared with libraries in common use.

use sched_steps::measure::{self, Contestant, Figure, Shape, compare};

use crate::reproduce::Results;
use crate::reproduce::claims;
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Numbers of members of the measured teams.
const SIZES: [usize; 6] = [2, 10, 16, 64, 300, 1000];
/// Team sizes of the claim.
const CLAIMED: std::ops::RangeInclusive<usize> = 10..=300;

const OURS: &str = "hop, staggered points";
const COROSENSEI: &str = "corosensei";
const TOKIO: &str = "tokio yield_now";

/// Measures the cost of a hop and of a switch in other libraries; the contestants alternate.
pub(super) fn switch(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (repetitions, hops) = if lab.quick { (7, 400_000) } else { (15, 3_000_000) };
    let mut figures: Vec<Figure> = Vec::new();
    for contexts in SIZES {
        lab.say(&format!("timing switches of {contexts}"));
        let mut one = |n, rounds| measure::hops(Shape::One, n, rounds);
        let mut staggered = |n, rounds| measure::hops(Shape::Staggered, n, rounds);
        let mut deep = |n, rounds| measure::hops(Shape::Deep, n, rounds);
        let mut contestants: Vec<Contestant<'_>> =
            vec![("hop, one point", &mut one), (OURS, &mut staggered), ("hop, eight calls deep", &mut deep)];
        #[cfg(feature = "rivals")]
        let (mut corosensei, mut tokio) = (measure::corosensei_hops, measure::tokio_hops);
        #[cfg(feature = "rivals")]
        {
            contestants.push((COROSENSEI, &mut corosensei));
            contestants.push((TOKIO, &mut tokio));
        }
        figures.extend(compare(contexts, repetitions, hops, &mut contestants));
        if tpcc_core::workload::interrupt::requested() {
            return Err(crate::reproduce::child::interrupted());
        }
    }
    for name in ["hop, one point", OURS, "hop, eight calls deep", COROSENSEI, TOKIO] {
        let of: Vec<&Figure> = figures.iter().filter(|figure| figure.name == name).collect();
        if !of.is_empty() {
            let mut series = Series::new(format!("steps-switch {name}"), "team size", "ns a switch");
            let spread = |f: &Figure| Spread { mid: f.median_ns, low: f.min_ns, high: f.max_ns };
            of.iter().for_each(|figure| series.push(figure.contexts as u32, Some(spread(figure))));
            findings.series.push(series);
        }
    }
    let ours: Vec<&Figure> = figures.iter().filter(|f| f.name == OURS && CLAIMED.contains(&f.contexts)).collect();
    let worst = ours.iter().map(|figure| figure.median_ns).max_by(f64::total_cmp);
    findings.add_claim(match worst {
        Some(ns) => claims::HOP_NS.exact(ns, "the slowest of teams of 10, 16, 64 and 300; four points, staggered"),
        None => claims::HOP_NS.missing("the system gives no stacks"),
    });
    for (spec, rival) in [(claims::HOP_VS_COROSENSEI, COROSENSEI), (claims::HOP_VS_TOKIO, TOKIO)] {
        let ratios = ours.iter().filter_map(|hop| {
            let other = figures.iter().find(|f| f.name == rival && f.contexts == hop.contexts)?;
            Some(other.median_ns / hop.median_ns)
        });
        findings.add_claim(match ratios.min_by(f64::total_cmp) {
            Some(times) => spec.exact(times, "the least of teams of 10 to 300, taken in turns"),
            None => spec.missing("built without the feature 'rivals'"),
        });
    }
    let bytes = measure::code_bytes();
    findings.add_claim(match bytes {
        0 => claims::SWITCH_CODE.missing("no machine code of ours on this target"),
        bytes => claims::SWITCH_CODE.exact(bytes as f64, "machine code of the inlined hop"),
    });
    Ok(())
}
