//! Flags of paced terminals.

use std::path::PathBuf;

use clap::Args;

use tpcc_core::workload::settings::Pacing;

/// How soon terminals ask again.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct PacingFlags {
    /// How soon a terminal asks again: none, as soon as it has its answer; spec, after keying and think times as specified,
    /// with deferred Delivery (5.2, 2.7)
    ///
    /// spec: ten terminals a warehouse. Keying takes 18, 3, 2, 2 and 2 s, thinking 12, 12, 10, 5 and 5 s in the mean, cut at
    /// ten times that; the menu takes no time. Cards come from a deck of 23 for each warehouse (10, 10, 1, 1, 1). Starts are
    /// spread over a cycle of 21 s; warm up for three of them or more. [--warmup default: 60, --duration default: 60]
    #[arg(long, value_name = "none|spec", default_value = "none", hide_possible_values = true)]
    pub(crate) pacing: Pacing,
    /// With --pacing spec: where the results of deferred Deliveries go; replaced by each run [default: DATA.deliveries]
    ///
    /// A line for each that is done: when it was queued and done in microseconds since 1970, warehouse, carrier, and for each
    /// district the order delivered, - where there was none (2.7.2).
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) delivery_results: Option<PathBuf>,
}
