//! Hidden flags of the child processes that `tpcc` starts and traces. They are not part of the interface.

use clap::Args;

use crate::cli::values::number;
use tpcc_core::workload::settings::Latches;

/// Traced program.
#[derive(Args, Debug)]
pub(crate) struct TracedFlags {
    /// Run as the traced program
    #[arg(long, hide = true)]
    pub(crate) traced: bool,
    /// Read one page over and over instead of running transactions
    #[arg(long, hide = true, requires = "traced")]
    pub(crate) page_reads: bool,
    /// Kind of page latch
    #[arg(long, value_name = "KIND", default_value = "optimistic", requires = "traced", hide = true)]
    pub(crate) latches: Latches,
    /// Number of warehouses
    #[arg(long, value_name = "N", default_value_t = 1, requires = "traced", hide = true)]
    #[arg(value_parser = number::<u32, 1, 1_000_000>)]
    pub(crate) of_warehouses: u32,
    /// Terminals per warehouse
    #[arg(long, value_name = "N", default_value_t = 10, requires = "traced", hide = true)]
    #[arg(value_parser = number::<u32, 1, 1_000>)]
    pub(crate) of_terminals: u32,
    /// Minimum number of transactions before those that are traced
    #[arg(long, value_name = "N", default_value_t = 0, requires = "traced", hide = true)]
    #[arg(value_parser = number::<u64, 0, 1_000_000_000>)]
    pub(crate) after: u64,
    /// Tell the record locks of each transaction
    #[arg(long, requires = "traced", hide = true)]
    pub(crate) holds: bool,
}
