//! Report of a comparison: rounds, medians, and ratios with their intervals, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::Operation;

/// Report of all results of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of the report's JSON schema.
    pub schema: &'static str,
    /// Number and model of the processors.
    pub machine: String,
    /// Number of rounds. In each round, the engines take turns, and every engine does every operation once.
    pub rounds: usize,
    /// Duration of one measurement, in seconds.
    pub seconds: f64,
    /// Number of rows of each table. A row has 100 bytes, a key 8 bytes.
    pub rows: u64,
    /// Meaning of the ends `low` and `high` of an interval.
    pub interval: String,
    /// Results of each engine, by name.
    pub engines: BTreeMap<&'static str, EngineReport>,
    /// Ratios, by engine and operation: time of the engine divided by the time of `storage` in the same round. If a ratio is
    /// above 1, `storage` is faster.
    pub ratios: BTreeMap<&'static str, BTreeMap<&'static str, Spread>>,
}

/// Results of one engine.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    /// Version of the engine's library crate.
    pub version: String,
    /// Settings of the engine.
    pub settings: &'static str,
    /// Number of the twelve consistency conditions that hold after the standard mix; `None` if the mix was not run.
    pub conditions: Option<usize>,
    /// Number of transactions of the standard mix that were rolled back because of conflicts, and retried.
    pub conflicts: u64,
    /// Nanoseconds per operation, by name of the operation.
    pub operations: BTreeMap<&'static str, Spread>,
}

/// Median over all rounds, with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median over all rounds.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Minimum number of rounds with which the interval excludes the smallest and the largest value.
const MIN_ROUNDS: usize = 7;

impl Spread {
    /// Computes the spread of the values of all rounds; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(match sorted.len() {
            n if n >= MIN_ROUNDS => Spread { median, low: sorted[1], high: sorted[n - 2] },
            _ => Spread { median, low: first, high: last },
        })
    }

    /// Describes the interval for `rounds` rounds, with its confidence level. This is the level of the sign test: the
    /// probability that `rounds` tosses of a fair coin do not all have the same result. If the interval excludes the
    /// outermost values, it is the probability that at least two tosses differ from the others.
    pub fn interval(rounds: usize) -> String {
        let (which, outside) = if rounds >= MIN_ROUNDS {
            ("second smallest to second largest", 2.0 * (rounds as f64 + 1.0) / 2f64.powi(rounds as i32))
        } else {
            ("smallest to largest", 2.0 / 2f64.powi(rounds as i32))
        };
        format!("{which} of {rounds} rounds; holds the median with {:.1}%", 100.0 * (1.0 - outside).max(0.0))
    }
}

/// Times by engine and operation: one value, in nanoseconds per operation, for each round.
pub type Times = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// Returns the spread of the times of each operation of an engine.
pub fn spreads(times: &Times, engine: &str) -> BTreeMap<&'static str, Spread> {
    let own = times.iter().filter(|((name, _), _)| *name == engine);
    own.filter_map(|((_, operation), values)| Some((*operation, Spread::of(values)?))).collect()
}

/// Returns, for each operation, the ratio of an engine's time to the time of the engine `base`.
pub fn ratios(times: &Times, engine: &'static str, base: &'static str) -> BTreeMap<&'static str, Spread> {
    let own = times.iter().filter(|((name, _), _)| *name == engine);
    own.filter_map(|((_, operation), values)| {
        let ratios: Vec<f64> =
            values.iter().zip(times.get(&(base, *operation))?).map(|(own, base)| own / base).collect();
        Some((*operation, Spread::of(&ratios)?))
    })
    .collect()
}

/// Returns the version of a crate in the lock file with which this program was built.
pub fn version(package: &str) -> String {
    let lock = include_str!("../../../Cargo.lock");
    let name = format!("name = \"{package}\"\nversion = \"");
    lock.split_once(&name).and_then(|(_, rest)| rest.split_once('"')).map_or_else(String::new, |(v, _)| v.to_owned())
}

/// Formats the report as a text table of the times of `storage`, and of the ratios of the other engines' times to them.
pub fn text(report: &Report) -> String {
    let mut text = format!("machine   {}\ninterval  {}\n", report.machine, report.interval);
    for (name, engine) in &report.engines {
        let _ = write!(text, "{name:<9} {}; {}", engine.version, engine.settings);
        let _ = match engine.conditions {
            Some(held) => writeln!(text, "; after the mix {held} of 12 conditions hold"),
            None => writeln!(text),
        };
    }
    let storage = report.engines.get("storage");
    let _ = write!(text, "\n{:<26}{:>13}", "", "storage");
    for name in report.ratios.keys() {
        let _ = write!(text, "{name:>24}");
    }
    let _ = writeln!(text, "\n{:<26}{:>13}{:>24}", "", "one takes", "times as long");
    for operation in Operation::ALL {
        let id = operation.id();
        let Some(own) = storage.and_then(|storage| storage.operations.get(id)) else { continue };
        let _ = write!(text, "{id:<26}{:>13}", format_ns(own.median));
        for ratios in report.ratios.values() {
            let cell = ratios.get(id).map_or_else(
                || "-".to_owned(),
                |ratio| {
                    format!(
                        "{} [{}, {}]",
                        format_ratio(ratio.median),
                        format_ratio(ratio.low),
                        format_ratio(ratio.high)
                    )
                },
            );
            let _ = write!(text, "{cell:>24}");
        }
        text.push('\n');
    }
    text
}

fn format_ratio(ratio: f64) -> String {
    if ratio >= 100.0 {
        format!("{ratio:.0}")
    } else if ratio >= 10.0 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.2}")
    }
}

fn format_ns(ns: f64) -> String {
    if ns >= 1e6 {
        format!("{:.2} ms", ns / 1e6)
    } else if ns >= 1e4 {
        format!("{:.1} us", ns / 1e3)
    } else {
        format!("{ns:.0} ns")
    }
}
