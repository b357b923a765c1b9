//! Flags of `tpcc compare`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::flags::JsonFlag;
use crate::cli::values::number;

/// `tpcc compare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Two saved results:          tpcc compare base.json new.json
Two sets of flags, interleaved: tpcc compare --run '--prefetch on' --run '--prefetch off' --rounds 7
A grid over base flags:     tpcc compare --run '--scheduler steps' --sweep team-size=1,4,16 --report grid.html

The one-second samples of a run are correlated: they are grouped into blocks, and the interval is \
wider where blocks are still correlated. Interleaved runs are compared round by round. Seeds, paths \
and durations do not count as settings.")]
pub(crate) struct CompareFlags {
    /// Base result: output of 'tpcc run --json', at most 128 MiB
    #[arg(value_name = "BASE.json")]
    pub(crate) base: Option<PathBuf>,
    /// New result: output of 'tpcc run --json'
    #[arg(value_name = "NEW.json")]
    pub(crate) new: Option<PathBuf>,
    /// Settings that may differ between saved results: keys of JSON 'config', or machine
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) may_differ: Vec<String>,
    /// Flags of 'tpcc run' as one argument, no spaces in values; given twice, base first; once with --sweep
    ///
    /// All runs share one database, which is loaded before the first run and grows; every second round has the reverse order.
    /// Flags with --data use a database of their own. All runs of a round have the same seed, unless the flags set one.
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, help_heading = "Load")]
    pub(crate) run: Vec<String>,
    /// A flag of 'tpcc run' and its values: team-size=1,4,16. Several flags make a grid
    #[arg(long, value_name = "FLAG=A,B,C", help_heading = "Load")]
    pub(crate) sweep: Vec<String>,
    /// Number of rounds [default: 7; 3 with --sweep]
    #[arg(long, value_name = "N", value_parser = number::<usize, 2, 1_000>, allow_negative_numbers = true)]
    #[arg(help_heading = "Load")]
    pub(crate) rounds: Option<usize>,
    /// Directory of the database of --run, kept and reused [default: a temporary one]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// With --sweep: write the grid to FILE as comma-separated values
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,
    /// With --run: write an HTML page with figures to FILE
    ///
    /// Of two --run: throughput by round, change of service times. Of a grid: throughput and New-Order p99 along one flag, with
    /// a line for each combination of the others. One file without scripts.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}
