//! Measures two threads that write beside each other, against one thread that does the same work, in interleaved rounds.
//! `cargo xtask contention` builds and runs this program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use benches::contention::{Contention, Placement};
use clap::Parser;
use storage::TxnError;

#[derive(Debug, Parser)]
#[command(name = "contention", about = "Two writing threads beside each other, against one")]
struct Flags {
    /// Number of rounds; in each, every operation is measured once in every way
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of each measurement of operations per second, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    milliseconds: u64,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Results by operation and way, one number per round.
type Results = BTreeMap<&'static str, BTreeMap<&'static str, Vec<f64>>>;

/// Number of turns of an operation whose duration is measured.
const REPEATS: usize = 5000;

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), String> {
    let subject = Contention::open()?;
    let mut results = Results::new();
    for round in 0..flags.rounds {
        measure(&subject, flags, round, &mut results).map_err(|error| error.to_string())?;
    }
    print!("{}", text(&results));
    if let Some(file) = &flags.json {
        let json = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
        std::fs::write(file, json + "\n").map_err(|error| format!("--json {}: {error}", file.display()))?;
    }
    Ok(())
}

/// Measures each operation once in each way. Every other round has the opposite order.
fn measure(subject: &Contention, flags: &Flags, round: u32, results: &mut Results) -> Result<(), TxnError> {
    type Measurement<'a> = (&'static str, &'static str, Box<dyn Fn() -> Result<f64, TxnError> + 'a>);
    let time = Duration::from_millis(flags.milliseconds);
    let mut all: Vec<Measurement<'_>> = vec![
        ("same_leaf", "one", Box::new(|| subject.updates(1, Placement::SameLeaf, time))),
        ("same_leaf", "two", Box::new(|| subject.updates(2, Placement::SameLeaf, time))),
        ("same_leaf", "far", Box::new(|| subject.updates(2, Placement::FarLeaves, time))),
        ("append", "one", Box::new(|| subject.appends(1, time))),
        ("append", "two", Box::new(|| subject.appends(2, time))),
        ("scattered_updates", "one", Box::new(|| subject.scattered_updates(1, REPEATS))),
        ("scattered_updates", "two", Box::new(|| subject.scattered_updates(2, REPEATS))),
        ("runs_into_one_leaf", "one", Box::new(|| subject.runs_into_one_leaf(1, REPEATS))),
        ("runs_into_one_leaf", "two", Box::new(|| subject.runs_into_one_leaf(2, REPEATS))),
    ];
    if round % 2 == 1 {
        all.reverse();
    }
    for (operation, way, run) in all {
        results.entry(operation).or_default().entry(way).or_default().push(run()?);
    }
    Ok(())
}

/// Formats the medians, and the medians of the ratios within a round.
fn text(results: &Results) -> String {
    let mut text = String::new();
    for (operation, ways) in results {
        let per_second = ["same_leaf", "append"].contains(operation);
        for (way, values) in ways {
            let median = median(values.clone());
            let shown = if per_second { format!("{:.2}M/s", median / 1e6) } else { format!("{median:.1} us") };
            text += &format!("{operation:20} {way:5} {shown:>10}");
            if let (Some(one), false) = (ways.get("one"), *way == "one") {
                let mut ratios: Vec<f64> = values.iter().zip(one).map(|(value, one)| value / one).collect();
                ratios.sort_unstable_by(f64::total_cmp);
                let (low, high) = (ratios[ratios.len() / 5], ratios[ratios.len() - 1 - ratios.len() / 5]);
                text += &format!("   / one: {:.2}  ({low:.2} to {high:.2})", ratios[ratios.len() / 2]);
            }
            text += "\n";
        }
    }
    text
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
