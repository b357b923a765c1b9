//! `cargo xtask contention`: measures two threads that write beside each other. Builds the program of `benches` and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::programs;

/// Flags of `cargo xtask contention`.
#[derive(Debug, Args)]
pub(crate) struct ContentionFlags {
    /// Number of rounds; in each, every operation is measured once in every way [default: 9].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Writes all results as JSON: operations per second (`same_leaf`, `append`) or microseconds, one number per round.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(flags: &ContentionFlags) -> ExitCode {
    let mut command = programs::of_benches("contention", "contention");
    if let Some(rounds) = flags.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(file) = &flags.json {
        command.arg("--json").arg(file);
    }
    programs::run(&mut command)
}
