//! `tpcc`: a workload derived from TPC-C, and the engines it runs on. Not a TPC-C result.
//!
//! The [`guide`] has four pages: rerun a paper, measure a mechanism, read an ablation, run the workload on another engine.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

/// Guides to reproductions of papers, to measurements, and to engines of other crates.
pub mod guide {
    #[doc = include_str!("../guide/rerun_a_paper.md")]
    pub mod rerun_a_paper {}

    #[doc = include_str!("../guide/measure_a_mechanism.md")]
    pub mod measure_a_mechanism {}

    #[doc = include_str!("../lab/src/reproduce/itanium/README.md")]
    pub mod read_an_ablation {}

    #[doc = include_str!("../guide/bring_an_engine.md")]
    pub mod bring_an_engine {}
}

mod cli;

/// Examples of the workspace's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct WorkspaceReadme;

use std::ffi::OsString;
use std::hint::black_box;
use std::process::ExitCode;

use clap::Parser;
use cli::cmd::{self, Outcome};
use cli::error::usage_error;
#[cfg(feature = "lab")]
use cli::flags::LabCommand;
use cli::flags::{Cli, Command};
use cli::interrupt;
use tpcc_core::report::build::{self, BuildFacts};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::streams;

/// Exit status of a command whose check failed.
const FAILED: u8 = 1;

/// Parser of the command line, for a fuzzer and for checks of documents.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod fuzzing {
    use clap::{CommandFactory, Parser};

    use crate::cli::error::usage_error;
    use crate::cli::flags::{Cli, Command, LabCommand};
    use crate::cli::resolve::{self, on_disk};
    use tpcc_core::workload::error::Error;

    /// Returns the definition of the command line, to which documents and help texts are compared.
    pub fn command() -> clap::Command {
        Cli::command()
    }

    /// Parses `words` as a command line and resolves the settings.
    ///
    /// # Panics
    /// If an error has an empty message, or is not a usage error.
    pub fn command_line(words: &[String]) {
        let resolved: Result<(), Error> =
            match Cli::try_parse_from(std::iter::once("tpcc").chain(words.iter().map(String::as_str))) {
                Ok(cli) => match cli.command {
                    Command::Run(f) => resolve::run(f).map(drop),
                    Command::Load(f) => {
                        on_disk("load", f.directory.data.as_deref(), &f.engine, f.machine.workers).map(drop)
                    }
                    Command::Check(f) => {
                        on_disk("check", f.directory.data.as_deref(), &f.engine, f.machine.workers).map(drop)
                    }
                    Command::Copy(f) => on_disk("copy", f.directory.data.as_deref(), &f.engine, Some(1)).map(drop),
                    Command::Compact(f) => {
                        on_disk("compact", f.directory.data.as_deref(), &f.engine, Some(1)).map(drop)
                    }
                    Command::Verify(f) => {
                        on_disk("verify", f.directory.data.as_deref(), &f.engine, f.machine.workers).map(drop)
                    }
                    Command::InLab(LabCommand::Latency(f)) => resolve::lab::latency(&f).map(drop),
                    Command::InLab(LabCommand::Tenants(f)) => resolve::lab::tenants(&f).map(drop),
                    Command::InLab(LabCommand::Shell(f)) => {
                        on_disk("shell", f.data.as_deref(), &f.engine, Some(1)).map(drop)
                    }
                    // With --ctx-points, resolving reads a file.
                    Command::InLab(LabCommand::History(f)) if f.scheduling.ctx_points.is_none() => {
                        resolve::lab::history(f).map(drop)
                    }
                    _ => Ok(()),
                },
                Err(error) if error.use_stderr() => Err(usage_error(&error, words.first().map_or("", String::as_str))),
                Err(_) => Ok(()),
            };
        if let Err(error) = resolved {
            assert!(!error.to_string().trim().is_empty(), "an error says what is wrong");
            assert_eq!(error.status(), 2, "what is wrong with the command line is a usage error");
        }
    }
}

/// Parses the command line, executes the command, and returns its exit status.
pub fn main() -> ExitCode {
    build::declare(built());
    let words: Vec<OsString> = std::env::args_os().collect();
    let command = match Cli::try_parse_from(&words) {
        Ok(cli) => cli.command,
        Err(error) => return report_parse_error(&error, &words),
    };
    if command.handles_signals() {
        interrupt::install();
    }
    let outcome = match command {
        Command::Run(flags) => cmd::run_anywhere(flags),
        Command::Load(flags) => cmd::load_anywhere(&flags),
        Command::Check(flags) => cmd::check_anywhere(&flags),
        Command::Copy(flags) => cmd::copy::run(&flags),
        Command::Compact(flags) => cmd::compact::run(&flags),
        Command::Verify(flags) => cmd::verify::run(&flags),
        #[cfg(feature = "lab")]
        Command::InLab(command) => in_lab(command),
    };
    let status = match outcome.and_then(|outcome| streams::print_error().map_or(Ok(outcome), Err)) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::CheckFailed) => ExitCode::from(FAILED),
        Err(error) => fail(&error),
    };
    interrupt::status().unwrap_or(status)
}

/// Returns the properties of this build, as recorded by `build.rs`.
fn built() -> BuildFacts {
    // `black_box` hides these texts from the optimiser. Otherwise the program's code would depend on the state of the tree, and
    // a profile would not fit another build of the same sources.
    black_box(BuildFacts {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("TPCC_BUILD_COMMIT"),
        dirty: env!("TPCC_BUILD_DIRTY"),
        rustc: env!("TPCC_BUILD_RUSTC"),
        flags: env!("TPCC_BUILD_FLAGS"),
        profile: env!("TPCC_BUILD_PROFILE"),
        built_with: env!("TPCC_BUILD_WITH"),
        target: env!("TPCC_BUILD_TARGET"),
    })
}

/// Executes a command of the laboratory.
#[cfg(feature = "lab")]
fn in_lab(command: LabCommand) -> Result<Outcome, Error> {
    match command {
        LabCommand::Footprint(flags) => cmd::footprint::run(flags),
        LabCommand::Reproduce(flags) => cmd::reproduce::run(flags),
        LabCommand::Compare(flags) => cmd::compare::run(&flags),
        LabCommand::Report(flags) => cmd::report::run(&flags),
        LabCommand::Latency(flags) => cmd::latency::run(&flags),
        LabCommand::Tenants(flags) => cmd::tenants::run(&flags),
        LabCommand::IndexFetch(flags) => cmd::index_fetch::run(flags),
        LabCommand::History(flags) => cmd::history::run(flags),
        LabCommand::Shell(flags) => cmd::shell::run(flags),
    }
}

/// Prints a help text, the version, or the error of the command line, and returns the exit status.
fn report_parse_error(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if error.use_stderr() {
        return fail(&usage_error(error, words.get(1).and_then(|word| word.to_str()).unwrap_or_default()));
    }
    streams::record_print_result(error.print());
    streams::print_error().map_or(ExitCode::SUCCESS, |error| fail(&error))
}

fn fail(error: &Error) -> ExitCode {
    streams::say(error);
    ExitCode::from(error.status())
}
