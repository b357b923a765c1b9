//! `tpcc compare`: compares the throughput of two saved results, of two sets of flags whose runs alternate, or of a grid of
//! flags. Confidence intervals: [`ratio`].

pub mod page;
pub mod ratio;
pub mod rounds;
mod saved;
pub mod sweep;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use ratio::{RatioInterval, SpeedVerdict};
use saved::{Difference, SavedRun, differences, refuse};
use tpcc_core::report::NOTICE;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::deck::Kind;

/// One side of a comparison: a run or a set of runs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Side {
    /// File name, or flags.
    pub name: String,
    /// Transactions per second; the geometric mean of several runs.
    pub throughput_per_s: f64,
    /// Measured seconds of all runs.
    pub measured_s: Option<f64>,
    /// Number of one-second samples, or of runs, behind the interval.
    pub samples: usize,
    /// Commit of the sources; null outside git.
    pub commit: Option<String>,
}

/// A percentile of service times on both sides. Service times run from the first begin to the acknowledgement, in
/// microseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct LatencyPair {
    /// Percentile of the base side, microseconds; of several runs the geometric mean.
    pub base_us: f64,
    /// Percentile of the new side, microseconds; of several runs the geometric mean.
    pub new_us: f64,
    /// New over base; below 1 is faster. Single runs have no interval.
    pub ratio: RatioInterval,
}

/// Throughputs of a round.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct PairOfRates {
    /// Throughput of the base run, transactions a second.
    pub base: f64,
    /// Throughput of the new run, transactions a second.
    pub new: f64,
}

/// Output of `tpcc compare --json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc compare --json"))]
pub struct ComparedRuns {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Legal notice: the figures are not TPC-C results.
    pub notice: String,
    /// Base of the comparison.
    pub base: Side,
    /// Run or runs compared with the base.
    pub new: Side,
    /// Ratio of the throughputs.
    pub ratio: RatioInterval,
    /// Verdict of the interval of `ratio`.
    pub verdict: SpeedVerdict,
    /// Method of the interval, and its limits.
    pub method: String,
    /// Service times by transaction type, then by percentile: p50, p90, p99.
    pub latencies: BTreeMap<String, BTreeMap<String, LatencyPair>>,
    /// Settings and other properties in which the sides differ.
    pub differences: Vec<Difference>,
    /// Remarks, such as an early end of a run.
    pub remarks: Vec<String>,
    /// Throughputs of each round; empty for saved results.
    pub rounds: Vec<PairOfRates>,
    /// True if a signal (Ctrl-C) ended the comparison; the figures cover the rounds until then.
    pub interrupted: bool,
}

/// Percentiles of a saved run, with their JSON keys.
const PERCENTILES: [(&str, &str); 3] = [("p50", "p50_us"), ("p90", "p90_us"), ("p99", "p99_us")];

/// Compares two saved runs. Settings in `may_differ` may differ.
pub fn files(base: &Path, new: &Path, may_differ: &[String]) -> Result<ComparedRuns, Error> {
    let (base, new) = (SavedRun::read(base)?, SavedRun::read(new)?);
    let found = differences(&base, &new, may_differ)?;
    refuse(&base, &new, &found.forbidden)?;
    let side = |run: &SavedRun| {
        let rate = run.throughput().ok_or_else(|| {
            Error::failed(format!("{}: nothing was measured", run.name))
                .help("compare runs that completed transactions")
        })?;
        let (name, samples) = (run.name.clone(), run.samples().len());
        Ok::<_, Error>(Side {
            name,
            throughput_per_s: rate,
            measured_s: run.measured_s(),
            samples,
            commit: run.commit(),
        })
    };
    let sides = (side(&base)?, side(&new)?);
    let ratio = RatioInterval::of_samples(&base.samples(), &new.samples()).ok_or_else(|| {
        match [&base, &new].into_iter().find(|run| run.samples().len() < 2) {
            Some(short) => {
                Error::failed(format!("{}: too short: an interval needs two samples of a second", short.name))
                    .help("run it for longer: --duration 10")
            }
            None => Error::failed(format!(
                "{}, {}: the samples of a second are no rates that have a ratio",
                base.name, new.name
            ))
            .help("compare runs that completed transactions, as 'tpcc run --json' wrote them"),
        }
    })?;
    let mut remarks = Vec::new();
    for run in [&base, &new] {
        remarks.extend(run.ended_early().map(|how| format!("{} {how}: figures until then", run.name)));
    }
    Ok(ComparedRuns {
        schema: schema_of("compare"),
        notice: NOTICE.to_owned(),
        ratio,
        verdict: ratio.verdict(),
        method:
            "95% of Student's t on the logarithm of the ratio, over at most ten blocks of one-second samples, wider \
                 where neighbouring blocks are alike; single runs: what differs from run to run is not in it, \
                 'tpcc compare --run' shows that"
                .to_owned(),
        latencies: latencies(|kind, key| {
            let (base_us, new_us) = (base.time_us(kind, key)?, new.time_us(kind, key)?);
            let ratio = Some(new_us / base_us).filter(|ratio| base_us > 0.0 && ratio.is_finite())?;
            Some(LatencyPair { base_us, new_us, ratio: RatioInterval::alone(ratio) })
        }),
        differences: found.reported,
        remarks,
        rounds: Vec::new(),
        interrupted: false,
        base: sides.0,
        new: sides.1,
    })
}

/// Calls `of` for each percentile of each transaction type. Omits transaction types without percentiles.
fn latencies(of: impl Fn(&str, &str) -> Option<LatencyPair>) -> BTreeMap<String, BTreeMap<String, LatencyPair>> {
    let kinds = Kind::ALL.into_iter().map(|kind| {
        let all = PERCENTILES.into_iter().filter_map(|(name, key)| Some((name.to_owned(), of(kind.name(), key)?)));
        (kind.name().to_owned(), all.collect::<BTreeMap<_, _>>())
    });
    kinds.filter(|(_, all)| !all.is_empty()).collect()
}

/// Formats a comparison for a terminal.
pub fn text(comparison: &ComparedRuns) -> String {
    text::comparison(comparison)
}

/// Formats a grid for a terminal.
pub fn sweep_text(sweep: &sweep::Sweep) -> String {
    text::sweep(sweep)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::saved::tests::object;
    use super::*;

    fn compare(name: &str, base: &Value, new: &Value, may_differ: &[&str]) -> Result<ComparedRuns, Error> {
        let path = |side| std::env::temp_dir().join(format!("tpcc-compare-{}-{name}-{side}", std::process::id()));
        let (a, b) = (path("a"), path("b"));
        std::fs::write(&a, base.to_string()).unwrap();
        std::fs::write(&b, new.to_string()).unwrap();
        let may_differ: Vec<String> = may_differ.iter().map(|&name| name.to_owned()).collect();
        let compared = files(&a, &b, &may_differ);
        std::fs::remove_file(&a).unwrap();
        std::fs::remove_file(&b).unwrap();
        compared
    }

    const STEADY: [f64; 6] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];

    #[test]
    fn equal_faster_and_slower_runs_are_told_apart() {
        let base = object(&STEADY);
        let same = compare("same", &base, &base, &[]).unwrap();
        assert_eq!((same.verdict, same.ratio.value), (SpeedVerdict::NoDifferenceSeen, 1.0));
        assert!(text(&same).contains("no difference seen"), "{}", text(&same));
        let more = object(&STEADY.map(|rate| 1.2 * rate));
        let up = compare("up", &base, &more, &[]).unwrap();
        assert!(up.verdict == SpeedVerdict::Faster && (up.ratio.value - 1.2).abs() < 1e-9, "{:?}", up.ratio);
        assert!(text(&up).contains("1.200") && text(&up).contains("faster"), "{}", text(&up));
        assert_eq!(compare("down", &more, &base, &[]).unwrap().verdict, SpeedVerdict::Slower);
        assert!(same.latencies["new-order"]["p99"].ratio == RatioInterval::alone(1.0));
        assert!(!same.latencies.contains_key("payment"), "nothing is known of it");
    }

    #[test]
    fn unlike_short_and_interrupted_runs() {
        let base = object(&STEADY);
        let mut other = base.clone();
        other["config"]["workers"] = json!(1);
        other["interrupted"] = json!(true);
        assert_eq!(compare("unlike", &base, &other, &[]).unwrap_err().status(), 2);
        let told = compare("told", &base, &other, &["workers"]).unwrap();
        assert_eq!(told.differences[0].name, "workers");
        assert!(text(&told).contains("workers (2, 1)") && text(&told).contains("ended by a signal"), "{}", text(&told));
        let error = compare("short", &base, &object(&[1000.0]), &[]).unwrap_err();
        assert!(error.status() == 1 && error.to_string().contains("too short"), "{error}");
        let mut none = base.clone();
        none["throughput_per_s"] = json!(null);
        assert!(compare("none", &none, &base, &[]).unwrap_err().to_string().contains("nothing was measured"));
    }
}
