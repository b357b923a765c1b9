//! The command line, as typed. [`crate::config`] resolves it.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::Error;
use crate::generate::deck::Mix;
use crate::txn::Steps;

/// A workload derived from TPC-C, on a storage engine of its own.
///
/// Not a TPC-C result: DEVIATIONS.md says where and why it differs.
#[derive(Parser, Debug)]
#[command(name = "tpcc", version, disable_help_subcommand = true, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Load if needed, run the mix, check, and print what was measured
    Run(Run),
    /// Fill a directory with warehouses
    Load(Load),
    /// Check the twelve consistency conditions
    Check(Check),
}

/// `tpcc run`.
#[derive(Args, Debug)]
#[command(after_help = "Derived from TPC-C; not a TPC-C result (deviations: DEVIATIONS.md).")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) data: Data,
    #[command(flatten)]
    pub(crate) work: Work,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) transactions: Transactions,
    #[command(flatten)]
    pub(crate) scheduling: Scheduling,
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Check the consistency conditions after the run
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = "Output")]
    pub(crate) check: Switch,
}

/// `tpcc load`.
#[derive(Args, Debug)]
pub(crate) struct Load {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Delete what the directory holds, then load
    #[arg(long, help_heading = "Data")]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Seed of everything random [default: a new one, printed]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Load")]
    pub(crate) seed: Option<u64>,
}

/// `tpcc check`.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Directory of the database [default: tpcc-data]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// Also prove the structure of trees, indexes and free pages
    #[arg(long, help_heading = "Data")]
    pub(crate) structure: bool,
    #[command(flatten)]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where the data is, and how much.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct Data {
    /// Directory of the database [default: tpcc-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Warehouses [default: what is loaded, or 1]
    ///
    /// One warehouse is about 100 MB. A run may use fewer than are loaded.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) warehouses: Option<i64>,
}

/// What is asked of the engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct Work {
    /// Terminals in all [default: 10 per warehouse]
    ///
    /// No keying or think time: a terminal asks again as soon as it has its answer. Each has a home warehouse, served by
    /// worker (warehouse mod workers).
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) terminals: Option<i64>,
    /// Seconds measured [default: 10, or no limit with --transactions]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) duration: Option<f64>,
    /// Seconds before that are not counted [default: 2, or 0 with --transactions]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) warmup: Option<f64>,
    /// Measure exactly N completed transactions of all terminals together
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) transactions: Option<i64>,
    /// Shares of the five transactions
    ///
    /// Dealt from a deck of 200 cards per terminal, so that the shares are exact.
    #[arg(long, value_enum, default_value = "standard", value_name = "MIX")]
    pub(crate) mix: Mix,
    /// Seed of everything random [default: a new one, printed]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
}

/// The engine and what it promises.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Engine {
    /// storage, or floor: ordered maps without any service, the yardstick
    #[arg(long, value_enum, default_value = "storage", value_name = "ENGINE", hide_possible_values = true)]
    pub(crate) engine: EngineKind,
    /// MiB of the buffer pool, at least 16 [default: 1024]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub(crate) buffer_pool: Option<i64>,
    /// Who flushes, cleans and checkpoints: threads of their own, or the workers (inline) [default: threads]
    ///
    /// `inline` makes a run under Valgrind deterministic.
    #[arg(long, value_enum, value_name = "threads|inline", hide_possible_values = true)]
    pub(crate) background: Option<Background>,
    /// MiB of log between checkpoints [default: 2048]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub(crate) checkpoint_mib: Option<i64>,
    /// Checksums of pages; off for measurement only [default: on]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub(crate) page_checksums: Option<Switch>,
}

/// How transactions are run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Transactions {
    /// When an answer leaves: sync, when it is on disk; async, at once [default: sync]
    ///
    /// With async a crash may lose the last commits, never consistency.
    #[arg(long, value_enum, value_name = "sync|async", hide_possible_values = true)]
    pub(crate) durability: Option<Durability>,
    /// Isolation of all five transactions [default: serializable]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) isolation: Option<Isolation>,
    /// How readers of a page keep writers away [default: optimistic]
    #[arg(long, value_enum, value_name = "optimistic|plain", hide_possible_values = true)]
    pub(crate) latches: Option<Latches>,
    /// Announce groups of rows, so that their cache misses overlap [default: on]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub(crate) prefetch: Option<Switch>,
    /// Read the database into the pool before the warm-up, if it fits [default: on]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub(crate) preload: Option<Switch>,
    /// Order of steps in a transaction: hot-last, contended rows late; spec, as written
    #[arg(long, value_enum, default_value = "hot-last", value_name = "hot-last|spec", hide_possible_values = true)]
    pub(crate) order: Steps,
}

/// Who runs next.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct Scheduling {
    /// How transactions share a worker: threads, one after the other
    #[arg(long, value_enum, default_value = "threads", value_name = "SCHEDULER", hide_possible_values = true)]
    pub(crate) scheduler: Scheduler,
}

/// What of the machine is used.
#[derive(Args, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct Machine {
    /// Threads [default: cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) workers: Option<i64>,
}

/// Where figures go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Write everything to FILE as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

macro_rules! choice {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
        pub(crate) enum $name {
            $($(#[$vdoc])* #[value(name = $text)] $variant),*
        }

        impl $name {
            /// As typed and as printed.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text),*
                }
            }
        }
    )*};
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

choice! {
    /// Which engine.
    EngineKind { Storage = "storage", Floor = "floor" }
    /// When a commit is answered.
    Durability { Sync = "sync", Async = "async" }
    /// What a transaction may see of others.
    Isolation {
        /// as if one ran after the other
        Serializable = "serializable",
        /// rows read stay, new ones may appear
        RepeatableRead = "repeatable-read",
        /// only committed rows are seen
        ReadCommitted = "read-committed",
    }
    /// Kind of page latch.
    Latches { Optimistic = "optimistic", Plain = "plain" }
    /// Who drives the engine's services.
    Background { Threads = "threads", Inline = "inline" }
    /// Who runs transactions.
    Scheduler { Threads = "threads" }
}

impl Switch {
    /// Whether it is on.
    pub(crate) fn is_on(self) -> bool {
        self == Switch::On
    }
}

/// What the command line comes to.
pub(crate) enum Parsed {
    /// A command to carry out.
    Command(Box<Command>),
    /// Help or version, to print.
    Text(clap::Error),
}

/// Parses the command line.
pub(crate) fn parse() -> Result<Parsed, Error> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Parsed::Command(Box::new(cli.command))),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Parsed::Text(error))
        }
        Err(error) => Err(in_our_words(&error)),
    }
}

/// The flag first, what to do second.
fn in_our_words(error: &clap::Error) -> Error {
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    // "--mix <MIX>" without its placeholder.
    let flag = text(ContextKind::InvalidArg).map(|arg| arg.split([' ', '=']).next().unwrap_or_default().to_owned());
    let value = text(ContextKind::InvalidValue);
    let choices = text(ContextKind::ValidValue);
    match (error.kind(), flag, value) {
        (ErrorKind::InvalidValue, Some(flag), Some(value)) if value.is_empty() => {
            Error::usage(format!("{flag}: needs a value")).help(one_of(choices, &flag))
        }
        (ErrorKind::InvalidValue, Some(flag), Some(value)) => {
            Error::usage(format!("{flag} {value}: not one of its values, or not built yet"))
                .help(one_of(choices, &flag))
        }
        (ErrorKind::ValueValidation, Some(flag), Some(value)) => {
            Error::usage(format!("{flag} {value}: not a number in its range")).help("'tpcc run --help' gives the units")
        }
        (ErrorKind::UnknownArgument, Some(flag), _) => Error::usage(format!("{flag}: no such flag, or not built yet"))
            .help(match text(ContextKind::SuggestedArg) {
                Some(other) => format!("did you mean {other}?"),
                None => "'tpcc run -h' lists the flags".to_owned(),
            }),
        (ErrorKind::ArgumentConflict, Some(flag), _) => {
            Error::usage(format!("{flag}: given twice")).help("pass it once")
        }
        (ErrorKind::InvalidSubcommand, ..) => {
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            Error::usage(format!("{name}: no such command, or not built yet")).help("one of run, load, check")
        }
        (ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ..) => {
            Error::usage("no command given").help("one of run, load, check; 'tpcc run' loads and runs one warehouse")
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Error::usage(line).help("'tpcc -h' shows how to call it")
        }
    }
}

fn one_of(choices: Option<String>, flag: &str) -> String {
    match choices {
        Some(choices) if !choices.is_empty() => format!("one of {choices}"),
        _ => format!("'tpcc run --help' explains {flag}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
