//! `cargo xtask`: development commands of the workspace. `cargo xtask --help` lists them.

mod build;
mod contention;
mod dist;
mod peers;
mod picture;
mod programs;
mod tidy;

use std::process::ExitCode;

use campaigns::{checkers, fuzz, torture};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "What is done with the workspace beyond building it")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a campaign that tries to make the engine lose or invent data.
    Torture(torture::TortureFlags),
    /// Child process of `torture calls`.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    #[command(hide = true)]
    CallsLife,
    /// Fuzzes all code that takes bytes from outside, with inputs that no test contains.
    Fuzz(fuzz::FuzzFlags),
    /// Guided part of `fuzz`, which `fuzz` builds for itself.
    #[cfg(feature = "guided")]
    #[command(hide = true)]
    Guided(fuzz::guided::GuidedFlags),
    /// Builds `tpcc` with the profile of its own transactions, and measures the effect.
    Pgo(build::PgoFlags),
    /// Changes the code layout of that build with LLVM's BOLT, and measures the effect.
    Bolt(build::BoltFlags),
    /// Builds `tpcc` with the options of the compiler paper on and off, and measures the effect of each.
    AblateBuild(build::AblateFlags),
    /// Compares other embedded engines with `storage` under the same work: a table of ratios.
    Peers(peers::PeersFlags),
    /// Measures two threads that write beside each other, against one thread that does the same work.
    Contention(contention::ContentionFlags),
    /// Writes the files of a `tpcc` package beside the program: man pages and completions.
    Dist(dist::DistFlags),
    /// Makes the generated documents: the pictures of README.md, and docs/COMMANDS.md.
    Picture(picture::PictureFlags),
    /// Checks project rules that no compiler checks: order of modules, cycles, dead files, names, links, commands.
    Tidy(tidy::TidyFlags),
    /// Checks latches, translation table and log reservations under every order of steps.
    Loom(checkers::Loom),
    /// Checks lock table, group commit and checkpoints under many random schedules.
    Shuttle(checkers::Shuttle),
    /// Runs units with unsafe code in the interpreter that detects undefined behaviour.
    Miri(checkers::Miri),
    /// Runs concurrent tests and a mixed load under a sanitizer.
    Sanitize(checkers::Sanitize),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Torture(flags) => torture::run(&flags),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Command::CallsLife => {
            torture::calls::child();
            ExitCode::SUCCESS
        }
        Command::Fuzz(flags) => fuzz::run(&flags),
        #[cfg(feature = "guided")]
        Command::Guided(flags) => fuzz::guided::run(&flags),
        Command::Pgo(flags) => build::pgo(&flags),
        Command::Bolt(flags) => build::bolt(&flags),
        Command::AblateBuild(flags) => build::ablate(&flags),
        Command::Peers(flags) => peers::run(&flags),
        Command::Contention(flags) => contention::run(&flags),
        Command::Dist(flags) => dist::run(&flags),
        Command::Picture(flags) => picture::run(&flags),
        Command::Tidy(flags) => tidy::run(&flags),
        Command::Loom(flags) => checkers::loom(&flags),
        Command::Shuttle(flags) => checkers::shuttle(&flags),
        Command::Miri(flags) => checkers::miri(&flags),
        Command::Sanitize(flags) => checkers::sanitize(&flags),
    }
}
