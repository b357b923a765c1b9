//! Flags of a server that speaks PostgreSQL's protocol.

use clap::Args;

use crate::cli::values::number;
use tpcc_pg::dialect::Dialect;

/// How a server is used.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct RemoteFlags {
    /// Connections at once, each with a thread of its own, with --engine postgres://.. [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 1_024>, allow_negative_numbers = true)]
    pub(crate) connections: Option<usize>,
    /// Whose SQL the server speaks, with --engine postgres://.. [default: postgres]
    #[arg(long, value_name = "postgres|cockroach|yugabyte", hide_possible_values = true)]
    pub(crate) sql_dialect: Option<Dialect>,
}
