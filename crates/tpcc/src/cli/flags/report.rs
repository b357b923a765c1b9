//! Flags of pages and of other files that results go to.

use std::path::PathBuf;

use clap::Args;

/// What `tpcc run` writes beside JSON.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct RunFileFlags {
    /// Write a page with figures to FILE, to be opened in a browser: throughput over time, latency, where time goes
    ///
    /// One file that needs no network and no script. 'tpcc report' makes it again from what --json has saved.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write a line for each second to FILE: throughput, p99, victims, log, checkpoints, pages
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the times of all transactions to FILE as an HdrHistogram log (V2), by type, in nanoseconds
    ///
    /// Tags: new-order is from begin to answer, new-order-response from when the terminal was ready.
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
}

/// Where `tpcc reproduce` keeps results.
#[cfg(feature = "lab")]
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct KeepFlags {
    /// Keep results in DIR: DIR/ID/ with JSON, CSV and SVG of each experiment, and DIR/index.html, the page of all of them
    /// [default with all: tpcc-reproduce]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on: what has a result of this build and these settings in DIR is not run again
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
    /// What --json of 'tpcc run' or 'tpcc reproduce' has written, of at most 128 MiB
    #[arg(value_name = "FILE.json", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE.html", default_value = "report.html", help_heading = "Output")]
    pub(crate) out: PathBuf,
}
