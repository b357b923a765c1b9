//! A grid: runs of every combination of the values of some flags over one base command. The runs alternate.

use std::path::Path;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::ratio::RatioInterval;
use super::rounds::{RoundResults, RunSpec, geometric_mean, run_alternately};
use tpcc_core::report::NOTICE;
use tpcc_core::report::model::schema_of;
use tpcc_core::workload::error::Error;

/// A flag and its values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SweepAxis {
    /// Name of the flag without dashes.
    pub flag: String,
    /// Values of the flag, in the order of the combinations.
    pub values: Vec<String>,
}

/// Results of one combination.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Cell {
    /// Value of each axis, in the order of the axes.
    pub values: Vec<String>,
    /// Transactions per second: geometric mean of the rounds.
    pub throughput_per_s: f64,
    /// Throughput of the slowest round, transactions a second.
    pub throughput_min: f64,
    /// Throughput of the quickest round, transactions a second.
    pub throughput_max: f64,
    /// Ratio to the first combination, paired by round; no interval with one round.
    pub ratio: RatioInterval,
    /// 99th percentile of New-Order service times, microseconds; null without New-Orders.
    pub new_order_p99_us: Option<f64>,
    /// Transactions per second of each round.
    pub rounds: Vec<f64>,
}

/// Output of `tpcc compare --sweep --json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc compare --sweep --json"))]
pub struct Sweep {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Legal notice: the figures are not TPC-C results.
    pub notice: String,
    /// Flags common to all runs.
    pub base: String,
    /// Flags that vary between runs, with their values.
    pub axes: Vec<SweepAxis>,
    /// Results of all combinations; the last axis varies fastest.
    pub cells: Vec<Cell>,
    /// Number of finished rounds.
    pub rounds: usize,
    /// Method of the intervals.
    pub method: String,
    /// True if a signal (Ctrl-C) ended the sweep; the figures cover the rounds until then.
    pub interrupted: bool,
}

/// Returns all combinations of the values of the axes; the last axis varies fastest.
pub fn combinations(axes: &[SweepAxis]) -> Vec<Vec<String>> {
    axes.iter().fold(vec![Vec::new()], |all, axis| {
        let with = |before: &Vec<String>| {
            axis.values.iter().map(|value| before.iter().chain([value]).cloned().collect()).collect::<Vec<_>>()
        };
        all.iter().flat_map(with).collect()
    })
}

/// Runs the grid. `runs` has one run for each combination, in the order of [`combinations`].
pub fn sweep(
    data: Option<&Path>,
    base: String,
    axes: Vec<SweepAxis>,
    runs: &[RunSpec],
    rounds: usize,
) -> Result<Sweep, Error> {
    let done = run_alternately(data, runs, rounds)?;
    Ok(summarize(base, axes, &done))
}

fn summarize(base: String, axes: Vec<SweepAxis>, done: &RoundResults) -> Sweep {
    let first = done.rates(0);
    let cells = combinations(&axes).into_iter().enumerate().map(|(number, values)| {
        let rounds = done.rates(number);
        let p99 = done.times(number, "new-order", "p99_us");
        let mean = geometric_mean(&rounds);
        Cell {
            values,
            throughput_per_s: mean,
            throughput_min: rounds.iter().copied().fold(f64::INFINITY, f64::min),
            throughput_max: rounds.iter().copied().fold(0.0, f64::max),
            ratio: RatioInterval::of_pairs(&first, &rounds)
                .unwrap_or_else(|| RatioInterval::alone(mean / geometric_mean(&first))),
            new_order_p99_us: (!p99.is_empty()).then(|| geometric_mean(&p99)),
            rounds,
        }
    });
    Sweep {
        schema: schema_of("sweep"),
        notice: NOTICE.to_owned(),
        cells: cells.collect(),
        base,
        axes,
        rounds: first.len(),
        method: "ratios to the first combination: 95% of Student's t on the mean logarithm of the ratio of each round; runs \
                 took turns, every other round backwards, with one seed a round, on one database that grows"
            .to_owned(),
        interrupted: done.interrupted,
    }
}

impl Sweep {
    /// Returns the grid as comma-separated values with a header line.
    pub fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let mut csv: String = self.axes.iter().map(|axis| quoted(&axis.flag) + ",").collect();
        csv += "throughput_per_s,throughput_min,throughput_max,ratio,ratio_low,ratio_high,new_order_p99_us\n";
        for cell in &self.cells {
            cell.values.iter().for_each(|value| csv += &(quoted(value) + ","));
            csv += &format!(
                "{},{},{},{},{},{},{}\n",
                cell.throughput_per_s,
                cell.throughput_min,
                cell.throughput_max,
                cell.ratio.value,
                number(cell.ratio.low),
                number(cell.ratio.high),
                number(cell.new_order_p99_us),
            );
        }
        csv
    }
}

#[cfg(test)]
mod tests {
    use super::super::rounds::rounds_of;
    use super::*;

    fn axis(flag: &str, values: &[&str]) -> SweepAxis {
        SweepAxis { flag: flag.to_owned(), values: values.iter().map(|&value| value.to_owned()).collect() }
    }

    #[test]
    fn a_grid_has_every_combination_once() {
        let axes = [axis("a", &["1", "2"]), axis("b", &["x", "y", "z"])];
        let all: Vec<String> = combinations(&axes).into_iter().map(|cell| cell.concat()).collect();
        assert_eq!(all, ["1x", "1y", "1z", "2x", "2y", "2z"]);
        assert_eq!(combinations(&[]), [Vec::<String>::new()]);
    }

    #[test]
    fn cells_are_held_against_the_first_one() {
        let done = rounds_of(&[("1", &[100.0, 120.0]), ("2", &[150.0, 180.0])], false);
        let found = summarize("--workers 1".to_owned(), vec![axis("mix", &["standard", "a,\"b\""])], &done);
        assert_eq!((found.cells[0].ratio.value, found.rounds), (1.0, 2));
        let second = &found.cells[1];
        assert!((second.ratio.value - 1.5).abs() < 1e-9 && second.ratio.low.is_some(), "{:?}", second.ratio);
        assert_eq!((second.throughput_min, second.throughput_max), (150.0, 180.0));
        let csv = found.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("mix,throughput_per_s,") && lines[2].starts_with("\"a,\"\"b\"\"\","), "{csv}");
        assert!(lines.iter().all(|line| line.matches(',').count() >= 7), "{csv}");
        let once =
            summarize(String::new(), vec![axis("mix", &["a", "b"])], &rounds_of(&[("1", &[1.0]), ("2", &[2.0])], true));
        assert!(once.interrupted && once.cells[1].ratio.low.is_none());
    }
}
