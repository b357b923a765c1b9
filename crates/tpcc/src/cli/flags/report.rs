//! Flags of HTML pages and of other result files.

use std::path::PathBuf;

use clap::Args;

/// Files that `tpcc run` writes beside JSON.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct RunFileFlags {
    /// Write an HTML page with figures to FILE
    ///
    /// Throughput over time, latency, breakdown of time; one file without scripts. 'tpcc report' makes it from the output of
    /// --json, too.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write one line per second to FILE (CSV): throughput, p99, aborts, log, checkpoints, pages
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub(crate) csv: Option<PathBuf>,
    /// Write the latencies of all transactions to FILE (HdrHistogram log V2), by type, in nanoseconds
    ///
    /// Tags: new-order, from begin to answer; new-order-response, from the time when the terminal was ready.
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = true)]
    pub(crate) hdr: Option<PathBuf>,
}

/// Result directory of `tpcc reproduce`.
#[cfg(feature = "lab")]
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct KeepFlags {
    /// Write results to DIR: JSON, CSV and SVG of each experiment in DIR/ID/, all of them in DIR/index.html
    /// [default with all: tpcc-reproduce]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Continue: skip experiments that have a result of this build and these settings in DIR
    #[arg(long)]
    pub(crate) resume: bool,
    /// With --out: only these experiments or papers
    #[arg(long, value_name = "ID,ID", value_delimiter = ',', help_heading = "Load")]
    pub(crate) only: Vec<String>,
}

/// `tpcc report`.
#[cfg(feature = "lab")]
#[derive(Args, Debug)]
#[command(
    after_help = "Files of 'tpcc reproduce' may be several, which make one page; of 'tpcc run' one makes a page."
)]
pub(crate) struct ReportFlags {
    /// Output of --json of 'tpcc run' or 'tpcc reproduce', at most 128 MiB
    #[arg(value_name = "FILE.json", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// File of the page
    #[arg(long, value_name = "FILE.html", default_value = "report.html", help_heading = "Output")]
    pub(crate) out: PathBuf,
}
