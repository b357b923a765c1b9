//! Rounds, medians and ratios with their intervals; as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::Operation;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of these keys.
    pub schema: &'static str,
    /// The processor, and how many of it.
    pub machine: String,
    /// Rounds, in each of which every engine did every operation once, in turns.
    pub rounds: usize,
    /// Seconds of one measurement.
    pub seconds: f64,
    /// Rows of the tables, of 100 bytes under keys of 8.
    pub rows: u64,
    /// What `low` and `high` are.
    pub interval: String,
    /// Each engine's own figures.
    pub engines: BTreeMap<&'static str, EngineReport>,
    /// By engine and operation: its time over that of `storage` round by round; above 1 `storage` is faster.
    pub ratios: BTreeMap<&'static str, BTreeMap<&'static str, Spread>>,
}

/// One engine's figures.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    /// Of its crate.
    pub version: String,
    /// How it was set.
    pub settings: &'static str,
    /// How many of the twelve consistency conditions hold after the mix; none without the mix.
    pub conditions: Option<usize>,
    /// Tries of the mix that were rolled back for others' transactions, and run again.
    pub conflicts: u64,
    /// By operation: nanoseconds of one.
    pub operations: BTreeMap<&'static str, Spread>,
}

/// A median over rounds and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Rounds from which on the outermost value at each end is left out.
const ENOUGH: usize = 7;

impl Spread {
    /// Of the values of all rounds; none without any.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(match sorted.len() {
            n if n >= ENOUGH => Spread { median, low: sorted[1], high: sorted[n - 2] },
            _ => Spread { median, low: first, high: last },
        })
    }

    /// What the interval of so many rounds is, and how sure: the chance that as many fair coins do not all, or all but one,
    /// fall on one side.
    pub fn interval(rounds: usize) -> String {
        let (which, outside) = if rounds >= ENOUGH {
            ("second smallest to second largest", 2.0 * (rounds as f64 + 1.0) / 2f64.powi(rounds as i32))
        } else {
            ("smallest to largest", 2.0 / 2f64.powi(rounds as i32))
        };
        format!("{which} of {rounds} rounds; holds the median with {:.1}%", 100.0 * (1.0 - outside).max(0.0))
    }
}

/// Times by engine and operation, a value a round.
pub type Times = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// The spread of each operation of an engine.
pub fn spreads(times: &Times, engine: &str) -> BTreeMap<&'static str, Spread> {
    let own = times.iter().filter(|((name, _), _)| *name == engine);
    own.filter_map(|((_, operation), values)| Some((*operation, Spread::of(values)?))).collect()
}

/// The ratio of each operation of an engine to that of `base`.
pub fn ratios(times: &Times, engine: &'static str, base: &'static str) -> BTreeMap<&'static str, Spread> {
    let own = times.iter().filter(|((name, _), _)| *name == engine);
    own.filter_map(|((_, operation), values)| {
        let ratios: Vec<f64> =
            values.iter().zip(times.get(&(base, *operation))?).map(|(own, base)| own / base).collect();
        Some((*operation, Spread::of(&ratios)?))
    })
    .collect()
}

/// The version of a crate in the lock file that this program was built with; that of a workspace member as well.
pub fn version(package: &str) -> String {
    let lock = include_str!("../../../Cargo.lock");
    let name = format!("name = \"{package}\"\nversion = \"");
    lock.split_once(&name).and_then(|(_, rest)| rest.split_once('"')).map_or_else(String::new, |(v, _)| v.to_owned())
}

/// As a table of a terminal: our own times, and for each other engine the ratio to them.
pub fn text(report: &Report) -> String {
    let mut text = format!("machine   {}\ninterval  {}\n", report.machine, report.interval);
    for (name, engine) in &report.engines {
        let _ = write!(text, "{name:<9} {}; {}", engine.version, engine.settings);
        let _ = match engine.conditions {
            Some(held) => writeln!(text, "; after the mix {held} of 12 conditions hold"),
            None => writeln!(text),
        };
    }
    let ours = report.engines.get("storage");
    let _ = write!(text, "\n{:<26}{:>13}", "", "storage");
    for name in report.ratios.keys() {
        let _ = write!(text, "{name:>24}");
    }
    let _ = writeln!(text, "\n{:<26}{:>13}{:>24}", "", "one takes", "times as long");
    for operation in Operation::ALL {
        let id = operation.id();
        let Some(own) = ours.and_then(|ours| ours.operations.get(id)) else { continue };
        let _ = write!(text, "{id:<26}{:>13}", shown(own.median));
        for ratios in report.ratios.values() {
            let cell = ratios.get(id).map_or_else(
                || "-".to_owned(),
                |ratio| format!("{} [{}, {}]", digits(ratio.median), digits(ratio.low), digits(ratio.high)),
            );
            let _ = write!(text, "{cell:>24}");
        }
        text.push('\n');
    }
    text
}

fn digits(ratio: f64) -> String {
    if ratio >= 100.0 {
        format!("{ratio:.0}")
    } else if ratio >= 10.0 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.2}")
    }
}

fn shown(ns: f64) -> String {
    if ns >= 1e6 {
        format!("{:.2} ms", ns / 1e6)
    } else if ns >= 1e4 {
        format!("{:.1} us", ns / 1e3)
    } else {
        format!("{ns:.0} ns")
    }
}
