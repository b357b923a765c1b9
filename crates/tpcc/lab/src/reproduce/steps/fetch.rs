//! Index fetches (3.2): N threads, each of which repeatedly reads a row by key, on one table of 100,000 rows of 25 integers.
//! Figures 2a, 5, 8 and 9.
//!
//! The paper's operation has 45 KiB of code, and misses in caches of 16 to 64 KiB. The code of our operation is a fraction
//! of this size, so that the caches here are smaller in proportion. The cache of figures 2, 5 and 8 has the largest power of
//! two that is at most half the size of the operation's code. The size of the code is counted, not assumed: it is the number
//! of lines that one fetch misses after other code has filled the cache.

use serde_json::json;

use crate::filler;
use crate::footprint::geometry::Geometry;
use crate::reproduce::Results;
use crate::reproduce::cachegrind::{Counts, DataCaches, saved_share};
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::{CountSpec, Lab};
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Team size of the paper's comparisons.
const TEAM_SIZE: u32 = 10;
/// Number of fetches of each thread, in the short and in the long run.
const FETCHES: (u64, u64) = (400, 2400);
/// Geometry of a cache that certainly holds the code of an operation.
const LARGE_CACHE: &str = "65536,8,64";

/// Parameters of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FetchRun {
    threads: u32,
    /// True if threads switch at context-switch points.
    live: bool,
    /// True if other code empties the cache before each round.
    cold: bool,
}

fn count_of(run: FetchRun, i1: Geometry) -> CountSpec {
    let points = if run.live { "all" } else { "none" };
    let cold = if run.cold { " --cold" } else { "" };
    let args = format!("index-fetch --threads {} --ctx-points {points}{cold}", run.threads);
    CountSpec {
        args: args.split_whitespace().map(str::to_owned).collect(),
        length_flag: "--fetches",
        lengths: FETCHES,
        work_per_unit: f64::from(run.threads),
        i1,
        data_caches: DataCaches::DEFAULT,
        warehouses: None,
    }
}

/// Counts the events of a fetch in each of `runs`; `None` if nothing can be counted.
fn count(lab: &mut Lab, runs: &[(FetchRun, Geometry)]) -> Result<Option<Vec<Counts>>, Error> {
    let what: Vec<CountSpec> = runs.iter().map(|(run, i1)| count_of(*run, *i1)).collect();
    let Some(mut counts) = lab.count(&what)? else { return Ok(None) };
    for ((run, _), counts) in runs.iter().zip(&mut counts) {
        // The other code misses all its lines each time that it runs: for every fiber, or for the first fiber of a round
        // only.
        let rounds = if !run.cold {
            0.0
        } else if run.live {
            1.0 / f64::from(run.threads)
        } else {
            1.0
        };
        counts.i1 -= rounds * filler::LINES as f64;
    }
    Ok(Some(counts))
}

fn large_cache() -> Result<Geometry, Error> {
    LARGE_CACHE.parse().map_err(Error::failed)
}

/// Size of the code of a fetch in lines, and cache geometry for the figures.
struct FetchCode {
    lines: f64,
    i1: Geometry,
}

fn code(lab: &mut Lab, findings: &mut Results) -> Result<Option<FetchCode>, Error> {
    let cold = FetchRun { threads: 1, live: false, cold: true };
    let Some(counts) = count(lab, &[(cold, large_cache()?)])? else { return Ok(None) };
    let lines = counts.first().map_or(0.0, |counts| counts.i1);
    let bytes = (lines * 64.0) as u32;
    let half = 1 << (bytes / 2).max(1024).ilog2();
    let Some(i1) = Geometry::new(half, 8, 64) else { return Ok(None) };
    findings.config.insert("index_fetch_code_bytes".into(), json!(bytes));
    findings.config.insert("index_fetch_cache".into(), json!(i1.to_string()));
    lab.say(&format!("an index fetch runs through {bytes} bytes of code; counted in {}", i1.in_words()));
    Ok(Some(FetchCode { lines, i1 }))
}

fn uncounted(lab: &Lab) -> String {
    lab.uncountable.clone().unwrap_or_else(|| "nothing was counted".to_owned())
}

fn threads(lab: &Lab) -> &'static [u32] {
    if lab.quick { &[1, 2, 5, 10] } else { &[1, 2, 3, 4, 5, 6, 8, 10, 16] }
}

/// Instruction misses of a round, by number of threads.
type ByThreads = Vec<(u32, f64)>;

/// Counts the instruction misses of a round, in which each thread makes one fetch, by number of threads.
fn by_threads(
    lab: &mut Lab,
    name: &str,
    i1: Geometry,
    live: bool,
    cold: bool,
) -> Result<Option<(Series, ByThreads)>, Error> {
    let all = threads(lab);
    let runs: Vec<_> = all.iter().map(|&threads| (FetchRun { threads, live, cold }, i1)).collect();
    let Some(counts) = count(lab, &runs)? else { return Ok(None) };
    let mut series = Series::new(name, "threads", &format!("instruction misses of a round, {}", i1.in_words()));
    let values: ByThreads = all.iter().zip(&counts).map(|(n, counts)| (*n, counts.i1 * f64::from(*n))).collect();
    values.iter().for_each(|(n, misses)| series.push_exact(*n, Some(*misses)));
    Ok(Some((series, values)))
}

/// Returns the additional misses of each thread beyond the first, with ten threads.
fn extra_misses(values: &[(u32, f64)]) -> Option<f64> {
    let at = |threads| values.iter().find(|(n, _)| *n == threads).map(|(_, misses)| *misses);
    Some((at(TEAM_SIZE)? - at(1)?) / f64::from(TEAM_SIZE - 1))
}

/// Counts Figure 2a: instruction misses of a round by number of threads. Ten threads cost little more than one.
pub(super) fn fig2(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let Some(code) = code(lab, findings)? else {
        findings.add_claim(claims::FETCH_EXTRA.missing(uncounted(lab)));
        return Ok(());
    };
    for (live, name) in [(false, "steps-fig2 no switching"), (true, "steps-fig2 switching")] {
        let Some((series, values)) = by_threads(lab, name, code.i1, live, false)? else { continue };
        findings.series.push(series);
        if let (true, Some(extra)) = (live, extra_misses(&values)) {
            let note = format!(
                "a fetch runs through {:.0} lines; cache of {}, warm; from 1 to {TEAM_SIZE} threads",
                code.lines,
                code.i1.in_words()
            );
            findings.add_claim(claims::FETCH_EXTRA.exact(extra, note));
        }
    }
    Ok(())
}

/// Counts Figure 5: instruction misses of a round by number of threads, after other code has run before each round.
pub(super) fn fig5(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let Some(code) = code(lab, findings)? else {
        findings.add_claim(claims::FETCH_PER_THREAD.missing(uncounted(lab)));
        return Ok(());
    };
    // Additional misses of a thread after other code, without and with switching.
    let (mut alone, mut in_team) = (None, None);
    for (live, cold, name) in [
        (false, true, "steps-fig5 no switching, cold"),
        (true, true, "steps-fig5 switching, cold"),
        (false, false, "steps-fig5 no switching, warm"),
        (true, false, "steps-fig5 switching, warm"),
    ] {
        if let Some((series, values)) = by_threads(lab, name, code.i1, live, cold)? {
            findings.series.push(series);
            match (live, cold) {
                (false, true) => alone = extra_misses(&values),
                (true, true) => in_team = extra_misses(&values),
                _ => {}
            }
        }
    }
    findings.add_claim(match (alone.filter(|alone| *alone > 0.0), in_team) {
        (Some(alone), Some(in_team)) => {
            let note = format!(
                "other code before each round; cache of {}; {alone:.1} misses without switching, {in_team:.1} with; the \
                 paper's 985 and 33",
                code.i1.in_words()
            );
            claims::FETCH_PER_THREAD.exact(in_team / alone, note)
        }
        _ => claims::FETCH_PER_THREAD.missing(uncounted(lab)),
    });
    Ok(())
}

/// Measures Figure 8: all counts, and the time, with ten threads.
pub(super) fn fig8(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let Some(code) = code(lab, findings)? else {
        for spec in FIGURE_8 {
            findings.add_claim(spec.missing(uncounted(lab)));
        }
        return Ok(());
    };
    let run = |live, cold| FetchRun { threads: TEAM_SIZE, live, cold };
    let runs = [run(false, false), run(true, false), run(false, true), run(true, true)].map(|run| (run, code.i1));
    let Some(counts) = count(lab, &runs)? else { return Ok(()) };
    let [off, on, off_cold, on_cold] = counts[..] else { return Ok(()) };
    let label = format!("with switching, per cent of without; {}", code.i1.in_words());
    let mut series = Series::new("steps-fig8 warm", "event", &label);
    let mut cold = Series::new("steps-fig8 cold", "event", &label);
    for (event, of) in EVENTS {
        let percent = |off: f64, on: f64| (off > 0.0).then(|| 100.0 * on / off);
        series.push_exact(*event, percent(of(&off), of(&on)));
        cold.push_exact(*event, percent(of(&off_cold), of(&on_cold)));
    }
    let times = time(lab, if lab.quick { 3 } else { 7 })?;
    series.push("time", times.map(|t| Spread { mid: 100.0 * t.mid, low: 100.0 * t.low, high: 100.0 * t.high }));
    cold.push("time", None);
    // Values in the paper's text: misses on the Pentium III, mispredictions on both processors.
    let mut paper = Series::new("steps-fig8 paper, Pentium III", "event", &label);
    paper.push_exact("L1-I misses", Some(34.0));
    paper.push_exact("mispredicted branches", Some(36.0));
    findings.series.extend([series, cold, paper]);
    let note = format!(
        "{TEAM_SIZE} threads, {}; {:.1} misses a fetch become {:.1}; with other code before each round {:.1} become {:.1}",
        code.i1.in_words(),
        off.i1,
        on.i1,
        off_cold.i1,
        on_cold.i1
    );
    findings.add_claim(match saved_share(off.i1, on.i1) {
        Some(saved) => claims::FETCH_I1.exact(saved, note),
        None => claims::FETCH_I1.missing(note),
    });
    findings.add_claim(claims::FIG8_MISPREDICTIONS.exact_or(
        saved_share(off.mispredicts, on.mispredicts),
        in_words(off.mispredicts, on.mispredicts),
        "no branch was mispredicted without switching",
    ));
    for (spec, of) in ADDED {
        let (off, on) = (of(&off), of(&on));
        let added = (off > 0.0).then(|| on / off - 1.0);
        findings.add_claim(spec.exact_or(added, in_words(off, on), "nothing was counted without switching"));
    }
    let gain = times.map(|t| Spread { mid: 1.0 / t.mid, low: 1.0 / t.high, high: 1.0 / t.low });
    findings.add_claim(claims::FIG8_SPEED.measured(gain, format!("{TEAM_SIZE} threads, rounds interleaved")));
    Ok(())
}

/// Claims of figure 8.
const FIGURE_8: [ClaimSpec; 6] = [
    claims::FETCH_I1,
    claims::FIG8_MISPREDICTIONS,
    claims::FIG8_INSTRUCTIONS,
    claims::FIG8_BRANCHES,
    claims::FIG8_L1D,
    claims::FIG8_SPEED,
];

/// Claim on an event that switching adds, and function that returns its count.
type AddedEvent = (ClaimSpec, fn(&Counts) -> f64);

/// Claims of figure 8 on events that switching adds.
const ADDED: [AddedEvent; 3] = [
    (claims::FIG8_INSTRUCTIONS, |counts| counts.instructions),
    (claims::FIG8_BRANCHES, |counts| counts.branches),
    (claims::FIG8_L1D, |counts| counts.d1),
];

/// Formats the counts of a fetch without and with switching.
fn in_words(off: f64, on: f64) -> String {
    format!("{TEAM_SIZE} threads, warm, every point live; {off:.1} a fetch become {on:.1}")
}

/// Name of a count, and function that returns its value.
type Event = (&'static str, fn(&Counts) -> f64);

/// Counts in figures 8, 10 and 11.
pub(super) const EVENTS: &[Event] = &[
    ("L1-I misses", |counts| counts.i1),
    ("L1-D misses", |counts| counts.d1),
    ("instructions", |counts| counts.instructions),
    ("branches", |counts| counts.branches),
    ("mispredicted branches", |counts| counts.mispredicts),
];

/// Measures the time of a fetch with switching, relative to a fetch without switching.
fn time(lab: &mut Lab, rounds: usize) -> Result<Option<Spread>, Error> {
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let mut ns = [0.0; 2];
        for (ns, points) in ns.iter_mut().zip(["none", "all"]) {
            let args = format!("index-fetch --threads {TEAM_SIZE} --ctx-points {points} --fetches 100000");
            let json = lab.tpcc(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>())?;
            *ns = json["ns_per_fetch"].as_f64().unwrap_or(f64::NAN);
        }
        ratios.push(ns[1] / ns[0]);
    }
    Ok(Spread::of(ratios))
}

/// Counts Figure 9: instruction misses in caches of three sizes around the size of the operation's code, from direct-mapped
/// to fully associative.
pub(super) fn fig9(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let Some(code) = code(lab, findings)? else { return Ok(()) };
    let sizes: Vec<u32> =
        if lab.quick { vec![code.i1.bytes()] } else { vec![code.i1.bytes() / 2, code.i1.bytes(), 2 * code.i1.bytes()] };
    for bytes in sizes {
        let lines = bytes / code.i1.line();
        let ways: Vec<u32> = [1, 2, 4, 8, lines].into_iter().filter(|ways| *ways <= lines).collect();
        let caches: Vec<Geometry> =
            ways.iter().filter_map(|ways| Geometry::new(bytes, *ways, code.i1.line())).collect();
        let runs: Vec<(FetchRun, Geometry)> = caches
            .iter()
            .flat_map(|i1| [false, true].map(|live| (FetchRun { threads: TEAM_SIZE, live, cold: false }, *i1)))
            .collect();
        let Some(counts) = count(lab, &runs)? else { return Ok(()) };
        for (live, what) in [(0, "no switching"), (1, "switching")] {
            let name = format!("steps-fig9 {} B, {what}", bytes);
            let mut series = Series::new(name, "ways", "instruction misses of a fetch");
            for (pair, i1) in counts.chunks(2).zip(&caches) {
                let x = if i1.ways() == lines { "full".to_owned() } else { i1.ways().to_string() };
                series.push_exact(x, pair.get(live).map(|counts| counts.i1));
            }
            findings.series.push(series);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_further_thread_is_what_ten_add_to_one() {
        assert_eq!(extra_misses(&[(1, 100.0), (2, 105.0), (10, 145.0)]), Some(5.0));
        assert_eq!(extra_misses(&[(1, 100.0)]), None);
    }
}
