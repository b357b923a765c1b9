//! `cargo xtask contention`: measures two threads that write beside each other. Builds the program of `benches` and runs it.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

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
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "--package", "benches", "--bin", "contention"]);
    command.args(["--features", "contention", "--"]);
    if let Some(rounds) = flags.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(file) = &flags.json {
        command.arg("--json").arg(file);
    }
    match command.status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}
