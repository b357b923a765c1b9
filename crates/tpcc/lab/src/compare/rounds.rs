//! Runs of this program that alternate, round by round, on one database.
//!
//! A round runs each set of flags once, all with the same seed. Every other round runs them in reverse order, so that the
//! state that earlier runs leave in the database and on the machine affects all sets alike. Runs share the database with the
//! largest number of warehouses among them, loaded before the first run; rows that a run adds stay. A run whose flags name
//! its own database uses that database.

use std::path::Path;

use serde_json::Value;

use super::ratio::RatioInterval;
use super::saved::{Differences, SavedRun, differences};
use super::{ComparedRuns, LatencyPair, PairOfRates, Side, latencies};
use crate::reproduce::lab::Lab;
use tpcc_core::report::NOTICE;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;

/// A run: the arguments that a user would write after `tpcc run`, and their properties.
#[derive(Clone, PartialEq, Debug)]
pub struct RunSpec {
    /// Name of the run in the report.
    pub name: String,
    /// Arguments of `tpcc run`.
    pub args: Vec<String>,
    /// Number of warehouses to load for the run; `None` if its flags name a database of its own or another engine.
    pub warehouses: Option<u32>,
    /// True if the flags give a seed.
    pub is_seeded: bool,
    /// Duration of the run with its warm-up, seconds; `None` if the flags bound the run otherwise.
    pub seconds: Option<f64>,
}

/// Results of all runs. Each run has one result for each finished round.
pub(super) struct RoundResults {
    pub(super) runs: Vec<Vec<SavedRun>>,
    pub(super) interrupted: bool,
}

impl RoundResults {
    /// Returns the throughput of a run in each round.
    pub(super) fn rates(&self, run: usize) -> Vec<f64> {
        self.runs[run].iter().map(|saved| saved.throughput().unwrap_or(f64::NAN)).collect()
    }

    /// Returns a statistic of a run's service times in each round, in microseconds. Empty if a round has no such times.
    pub(super) fn times(&self, run: usize, kind: &str, key: &str) -> Vec<f64> {
        let all: Option<Vec<f64>> = self.runs[run].iter().map(|saved| saved.time_us(kind, key)).collect();
        all.unwrap_or_default()
    }
}

/// Executes all runs `rounds` times, in alternation. After Ctrl-C, returns the finished rounds if there are at least two.
pub(super) fn run_alternately(data: Option<&Path>, runs: &[RunSpec], rounds: usize) -> Result<RoundResults, Error> {
    let mut lab = Lab::open(data, false)?;
    if let Some(seconds) = runs.iter().map(|run| run.seconds).sum::<Option<f64>>() {
        let minutes = seconds * rounds as f64 / 60.0;
        lab.say(&format!("{} runs, about {minutes:.1} minutes beside loading and checks", runs.len() * rounds));
    }
    let database = runs.iter().filter_map(|run| run.warehouses).max().map(|most| lab.database(most)).transpose()?;
    let mut done = RoundResults { runs: vec![Vec::new(); runs.len()], interrupted: false };
    let first_seed = tpcc_core::workload::generate::fresh_seed();
    for round in 0..rounds {
        let mut found: Vec<(usize, SavedRun)> = Vec::new();
        for place in 0..runs.len() {
            let number = if round % 2 == 0 { place } else { runs.len() - 1 - place };
            let run = &runs[number];
            lab.say(&format!("round {} of {rounds}: {}", round + 1, run.name));
            let mut args = vec!["run".to_owned()];
            args.extend(run.args.iter().cloned());
            if let (Some(database), Some(warehouses)) = (&database, run.warehouses) {
                args.extend(["--data".to_owned(), database.display().to_string()]);
                if !run.args.iter().any(|word| word.starts_with("--warehouses")) {
                    args.extend(["--warehouses".to_owned(), warehouses.to_string()]);
                }
            }
            if !run.is_seeded {
                args.extend(["--seed".to_owned(), first_seed.wrapping_add(round as u64).to_string()]);
            }
            match lab.tpcc(&args) {
                Ok(value) if !interrupt::requested() => found.push((number, saved_run(&run.name, value)?)),
                Err(error) if !interrupt::requested() => return Err(error),
                _ => {
                    done.interrupted = true;
                    return match done.runs.first().is_some_and(|first| first.len() >= 2) {
                        true => Ok(done),
                        false => Err(Error::failed("interrupted before two rounds were done; nothing is compared")),
                    };
                }
            }
        }
        for (number, saved) in found {
            done.runs[number].push(saved);
        }
    }
    Ok(done)
}

/// Wraps the result of a run. Returns an error if the run completed no transaction.
fn saved_run(name: &str, value: Value) -> Result<SavedRun, Error> {
    let saved = SavedRun::of(name.to_owned(), value)?;
    match saved.throughput() {
        Some(_) => Ok(saved),
        None => Err(Error::failed(format!("'tpcc run {name}': completed no transaction; nothing is compared"))
            .help("let runs last longer")),
    }
}

/// Compares two runs that alternate.
pub fn compare(data: Option<&Path>, base: RunSpec, new: RunSpec, rounds: usize) -> Result<ComparedRuns, Error> {
    let runs = [base, new];
    let done = run_alternately(data, &runs, rounds)?;
    comparison(&done)
}

fn comparison(done: &RoundResults) -> Result<ComparedRuns, Error> {
    let (base, new) = (done.rates(0), done.rates(1));
    let ratio = RatioInterval::of_pairs(&base, &new).ok_or_else(|| {
        Error::failed("a run completed no transaction; nothing is compared").help("let runs last longer")
    })?;
    // The user chose both sets of flags: all differences are reported, and no difference is refused.
    let (first, second) = (&done.runs[0][0], &done.runs[1][0]);
    let Differences { mut forbidden, reported } = differences(first, second, &[])?;
    forbidden.extend(reported);
    let side = |number: usize, rates: &[f64]| {
        let runs = &done.runs[number];
        Side {
            name: runs[0].name.clone(),
            throughput_per_s: geometric_mean(rates),
            measured_s: runs.iter().map(SavedRun::measured_s).sum(),
            samples: rates.len(),
            commit: runs[0].commit(),
        }
    };
    Ok(ComparedRuns {
        schema: schema_of("compare"),
        notice: NOTICE.to_owned(),
        base: side(0, &base),
        new: side(1, &new),
        ratio,
        verdict: ratio.verdict(),
        method:
            "95% of Student's t on the mean logarithm of the ratio of each round; runs took turns, every other round \
                 backwards, with one seed a round, on one database that grows"
                .to_owned(),
        latencies: latencies(|kind, key| {
            let (base, new) = (done.times(0, kind, key), done.times(1, kind, key));
            let ratio = RatioInterval::of_pairs(&base, &new)?;
            Some(LatencyPair { base_us: geometric_mean(&base), new_us: geometric_mean(&new), ratio })
        }),
        differences: forbidden,
        remarks: Vec::new(),
        rounds: base.iter().zip(&new).map(|(&base, &new)| PairOfRates { base, new }).collect(),
        interrupted: done.interrupted,
    })
}

/// Returns the geometric mean of positive values.
pub(super) fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// Creates the results of rounds with these throughputs, for tests.
#[cfg(test)]
pub(super) fn rounds_of(runs: &[(&str, &[f64])], interrupted: bool) -> RoundResults {
    use super::saved::tests::{object, saved};
    let runs = runs.iter().map(|(name, rates)| rates.iter().map(|&rate| saved(name, object(&[rate]))).collect());
    RoundResults { runs: runs.collect(), interrupted }
}

#[cfg(test)]
mod tests {
    use super::super::ratio::SpeedVerdict;
    use super::*;

    #[test]
    fn a_run_that_completed_nothing_ends_the_comparison() {
        let mut object = super::super::saved::tests::object(&[1.0]);
        assert!(saved_run("--seed 1", object.clone()).is_ok());
        object["throughput_per_s"] = serde_json::json!(0.0);
        let error = saved_run("--seed 1", object).unwrap_err();
        assert!(error.to_string().contains("'tpcc run --seed 1': completed no transaction"), "{error}");
    }

    #[test]
    fn pairs_are_of_one_round_and_latencies_have_intervals() {
        let done = rounds_of(&[("a", &[100.0, 200.0, 50.0]), ("b", &[110.0, 221.0, 54.5])], true);
        let found = comparison(&done).unwrap();
        assert_eq!((found.verdict, found.interrupted, found.rounds.len()), (SpeedVerdict::Faster, true, 3));
        assert!((found.base.throughput_per_s - 100.0).abs() < 1e-9, "{}", found.base.throughput_per_s);
        assert_eq!(found.latencies["new-order"]["p50"].ratio.low, Some(1.0));
        assert_eq!((found.base.samples, found.base.measured_s), (3, Some(3.0)));
    }
}
