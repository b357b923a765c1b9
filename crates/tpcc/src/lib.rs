//! `tpcc`: a workload derived from TPC-C, and the engines it runs on. Not a TPC-C result.

mod check;
mod cmd;
mod config;
mod database;
mod driver;
mod engine;
mod error;
mod filler;
mod flags;
mod floor;
mod footprint;
mod generate;
mod glue;
mod index_fetch;
mod interrupt;
mod load;
mod ops;
mod progress;
mod report;
mod reproduce;
mod schema;
mod space;
mod txn;

use std::process::ExitCode;

use cmd::Ended;
use flags::{Command, Parsed};

/// Status of a run or check that failed.
const FAILED: u8 = 1;

/// The command: parses the command line, does what it says, gives the exit status.
pub fn main() -> ExitCode {
    let command = match flags::parse() {
        Ok(Parsed::Command(command)) => command,
        Ok(Parsed::Text(text)) => {
            // A reader who has gone away is no failure.
            let _ = text.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&error),
    };
    interrupt::install();
    let ended = match *command {
        Command::Run(flags) => cmd::run::run(flags),
        Command::Load(flags) => cmd::load::run(flags),
        Command::Check(flags) => cmd::check::run(flags),
        Command::Footprint(flags) => cmd::footprint::run(flags),
        Command::Reproduce(flags) => cmd::reproduce::run(flags),
        Command::IndexFetch(flags) => cmd::index_fetch::run(flags),
    };
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::CheckFailed) => ExitCode::from(FAILED),
        Err(error) => fail(&error),
    }
}

fn fail(error: &error::Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(error.status())
}
