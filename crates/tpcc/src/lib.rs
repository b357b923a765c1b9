//! `tpcc`: a workload derived from TPC-C, and the engines it runs on. Not a TPC-C result.

mod cli;
mod doors;
mod driver;
mod engines;
mod lab;
mod report;
mod workload;

use std::process::ExitCode;

use cli::cmd::{self, Ended};
use cli::flags::{self, Command, Parsed};
use cli::interrupt;
use workload::error::Error;

#[doc(hidden)]
pub use doors::acid;
pub use doors::history;

/// Status of a run or check that failed.
const FAILED: u8 = 1;

/// The command line, for a fuzzer.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod fuzzing {
    use crate::cli::flags::{self, Command, Parsed};
    use crate::cli::resolve;
    use crate::workload::error::Error;

    /// The command line, for those who hold its words against it.
    pub fn command() -> clap::Command {
        <flags::Cli as clap::CommandFactory>::command()
    }

    /// Parses words as the command line and resolves what it says; an error must say something.
    pub fn command_line(words: &[String]) {
        let parsed = flags::parse_from(std::iter::once("tpcc".to_owned()).chain(words.iter().cloned()).map(Into::into));
        let resolved: Result<(), Error> = match parsed {
            Ok(Parsed::Command(command)) => match *command {
                Command::Run(flags) => resolve::run(flags).map(drop),
                Command::Load(flags) => resolve::load(flags).map(drop),
                Command::Check(flags) => resolve::check(flags).map(drop),
                Command::Copy(flags) => resolve::copy(flags).map(drop),
                Command::Verify(flags) => resolve::verify(flags).map(drop),
                Command::Shell(flags) => resolve::shell(flags).map(drop),
                // A file of points would be read.
                Command::History(flags) if flags.scheduling.ctx_points.is_none() => resolve::history(flags).map(drop),
                _ => Ok(()),
            },
            Ok(Parsed::Text(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = resolved {
            assert!(!error.to_string().trim().is_empty(), "an error says what is wrong");
            assert_eq!(error.status(), 2, "what is wrong with the command line is a usage error");
        }
    }
}

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
        Command::Copy(flags) => cmd::copy::run(flags),
        Command::History(flags) => cmd::history::run(flags),
        Command::Verify(flags) => cmd::verify::run(flags),
        Command::Shell(flags) => cmd::shell::run(flags),
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

fn fail(error: &Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(error.status())
}
