//! Programs of the package `benches`, which are built with the features that they require.

use std::process::{Command, ExitCode};

/// Returns the command that builds and runs a program of `benches`. The caller adds the program's arguments.
pub(crate) fn of_benches(program: &str, features: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "benches",
        "--bin",
        program,
        "--features",
        features,
        "--",
    ]);
    command
}

/// Runs the command. Returns the exit status of the program.
pub(crate) fn run(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}
