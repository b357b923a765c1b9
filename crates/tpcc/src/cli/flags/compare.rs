//! Flags of comparisons.

use std::path::PathBuf;

use clap::Args;

use crate::cli::flags::JsonFlag;
use crate::cli::values::number;

/// `tpcc compare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Two saved results:          tpcc compare base.json new.json
Two sets of flags in turns: tpcc compare --run '--prefetch on' --run '--prefetch off' --rounds 7
A grid over base flags:     tpcc compare --run '--scheduler steps' --sweep team-size=1,4,16 --report grid.html

Samples of a second of one run depend on each other: they are put into blocks, and the interval is \
wider where blocks still do. Runs that take turns are compared round by round. Seeds, paths and how \
long was measured are no settings.")]
pub(crate) struct CompareFlags {
    /// What 'tpcc run --json' wrote, to compare with; at most 128 MiB
    #[arg(value_name = "BASE.json")]
    pub(crate) base: Option<PathBuf>,
    /// What 'tpcc run --json' wrote, to be compared
    #[arg(value_name = "NEW.json")]
    pub(crate) new: Option<PathBuf>,
    /// Settings in which saved results may differ, by their keys in JSON 'config'; machine, for other machines
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) may_differ: Vec<String>,
    /// Flags of 'tpcc run', in one word and without spaces in values; twice, the base first; once with --sweep
    ///
    /// Runs share a database that is loaded before the first, and grow it; every other round goes backwards. Flags that name
    /// --data bring their own. All runs of a round have one seed, unless the flags have.
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, help_heading = "Load")]
    pub(crate) run: Vec<String>,
    /// A flag of 'tpcc run' and the values that it takes: team-size=1,4,16. Several make a grid
    #[arg(long, value_name = "FLAG=A,B,C", help_heading = "Load")]
    pub(crate) sweep: Vec<String>,
    /// Times that all runs are made, in turns [default: 7; 3 with --sweep]
    #[arg(long, value_name = "N", value_parser = number::<usize, 2, 1_000>, allow_negative_numbers = true)]
    #[arg(help_heading = "Load")]
    pub(crate) rounds: Option<usize>,
    /// Directory for the database of --run, kept and used again [default: a temporary one]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// With --sweep: write the grid to FILE as comma-separated values
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,
    /// With --run: write a page with figures to FILE, as 'tpcc run --report' does
    ///
    /// Of two --run the throughput of each round and how service times changed; of a grid throughput and the 99th percentile
    /// of New-Order along one flag, with a line for each combination of the others. One HTML file that needs no network.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}
