//! Flags of a server that speaks PostgreSQL's protocol.

use clap::Args;

use crate::cli::values::number;
use tpcc_pg::dialect::Dialect;

/// Connections to a server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct RemoteFlags {
    /// Concurrent connections, one thread each, with --engine postgres://.. [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 1_024>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) connections: Option<usize>,
    /// SQL dialect of the server, with --engine postgres://.. [default: postgres]
    ///
    /// cockroach and yugabyte are untested: they have not met a server of their own.
    #[arg(long, value_name = "postgres|cockroach|yugabyte", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) sql_dialect: Option<Dialect>,
}
