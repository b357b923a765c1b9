//! `cargo xtask`: commands on the workspace beyond building it. `cargo xtask --help` lists them.

mod build;
mod dist;
mod peers;
mod picture;
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
    /// Runs a campaign that tries to make the engine lose or invent something.
    Torture(torture::TortureFlags),
    /// A process of `torture calls`.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    #[command(hide = true)]
    CallsLife,
    /// Tries inputs that no test contains on all code that takes bytes from outside.
    Fuzz(fuzz::FuzzFlags),
    /// The part of `fuzz` that it builds for itself.
    #[cfg(feature = "guided")]
    #[command(hide = true)]
    Guided(fuzz::guided::GuidedFlags),
    /// Builds `tpcc` with the profile of its own transactions, and shows what that is worth.
    Pgo(build::PgoFlags),
    /// Lays the code of that build out anew, with LLVM's BOLT, and shows what that is worth.
    Bolt(build::BoltFlags),
    /// Builds `tpcc` in every way that the compiler paper turns on and off, and shows what each is worth.
    AblateBuild(build::AblateFlags),
    /// Runs other embedded engines beside `storage`, under the same work: a table of ratios.
    Peers(peers::PeersFlags),
    /// Writes what a package of `tpcc` holds beside the program: man pages and completions.
    Dist(dist::DistFlags),
    /// Draws the pictures of README.md: the crates, and what `cargo xtask peers --json docs/peers.json` has found.
    Picture(picture::PictureFlags),
    /// Rules of the house that no compiler knows: order of modules, circles, dead files, names, links, commands.
    Tidy(tidy::TidyFlags),
    /// Latches, translation table and log reservations under every order of steps.
    Loom(checkers::Loom),
    /// Lock table, group commit and checkpoints under many random schedules.
    Shuttle(checkers::Shuttle),
    /// Units with unsafe code under the interpreter that knows the rules.
    Miri(checkers::Miri),
    /// Threads that meet, and a mixed load, under a sanitizer.
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
        Command::Dist(flags) => dist::run(&flags),
        Command::Picture(flags) => picture::run(&flags),
        Command::Tidy(flags) => tidy::run(&flags),
        Command::Loom(flags) => checkers::loom(&flags),
        Command::Shuttle(flags) => checkers::shuttle(&flags),
        Command::Miri(flags) => checkers::miri(&flags),
        Command::Sanitize(flags) => checkers::sanitize(&flags),
    }
}
