//! Flags of paced terminals.

use std::path::PathBuf;

use clap::Args;

use tpcc_core::workload::settings::Pacing;

/// Keying and think times of terminals.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct PacingFlags {
    /// Pacing of terminals: none, or spec (keying and think times, deferred Delivery; 5.2, 2.7)
    ///
    /// spec: ten terminals per warehouse. Keying takes 18, 3, 2, 2 and 2 s; think times have a mean of 12, 12, 10, 5 and 5 s
    /// and at most ten times that; the menu takes no time. Each warehouse has a deck of 23 cards (10, 10, 1, 1, 1). Terminals
    /// start over a cycle of 21 s: the warm-up should last three cycles. [--warmup default: 60, --duration default: 60]
    #[arg(long, value_name = "none|spec", default_value = "none", hide_possible_values = true)]
    pub(crate) pacing: Pacing,
    /// File of the results of deferred Deliveries, with --pacing spec; replaced by each run [default: DATA.deliveries]
    ///
    /// One line for each Delivery: times of queuing and completion in microseconds since 1970, warehouse, carrier, and the order
    /// delivered in each district, - if there was none (2.7.2).
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    #[arg(hide_short_help = true)]
    pub(crate) delivery_results: Option<PathBuf>,
}
