//! `cargo xtask`: what is done with the workspace beyond building it. `cargo xtask --help` lists it.

mod sim;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "What is done with the workspace beyond building it")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a campaign that tries to make the engine lose or invent something.
    Torture(torture::Flags),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Torture(flags) => torture::run(&flags),
    }
}
