//! Flags of the laboratory's commands: experiments, measurements and tools.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use storage::MAX_LOOP_THREADS;
use tpcc_core::checkers::history::Params;
use tpcc_core::workload::generate::deck::Mix;
use tpcc_core::workload::generate::fresh_seed;
use tpcc_core::workload::settings::{Durability, HistoryForm, Isolation, Partition, Switch, SwitchPoints};
use tpcc_lab::footprint::geometry::Geometry;
use tpcc_lab::latency::{LatencyMix, LatencySpeculate, Way};
use tpcc_lab::tenants::{Access, TenantMix, TenantPolicy};

use super::compare::CompareFlags;
use super::report::{KeepFlags, ReportFlags};
use super::shell::ShellFlags;
use super::traced::TracedFlags;
use super::{DirectoryFlag, EngineFlags, JsonFlag, LatchFlags, SchedulingFlags, SeedFlag};
use crate::cli::values::lab::{geometry, probability, up_to};
use crate::cli::values::{MAX_MIB, MIN_POOL_MIB, ctx_points, number, seconds, seed};

/// Commands of the laboratory: experiments, measurements and tools. A build without the feature `lab` has none of them.
#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// Measure the instruction cache footprint of operations and propose switch points
    Footprint(FootprintFlags),
    /// Rerun an experiment of a paper
    Reproduce(ReproduceFlags),
    /// Compare two runs with a confidence interval, or run a grid of flags
    Compare(CompareFlags),
    /// Make an HTML page from the output of --json
    Report(ReportFlags),
    /// Measure one transaction on one core and with its loop in epochs on several
    Latency(LatencyFlags),
    /// Compare scheduling policies for several databases in one process
    Tenants(TenantsFlags),
    /// Run the index fetches of the STEPS paper's microbenchmark
    IndexFetch(IndexFetchFlags),
    /// Record the history of a random concurrent workload, for isolation checkers
    History(HistoryFlags),
    /// Run interleaved transactions by hand or by script, one request per line
    Shell(ShellFlags),
}

/// `tpcc footprint`.
#[derive(Args, Debug)]
#[command(
    after_help = "Runs transactions step by step (ptrace) and their trace through a simulated cache. Needs Linux on x86-64."
)]
pub(crate) struct FootprintFlags {
    /// Directory of the database [default: a temporary one with one warehouse]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// Mix of the traced transactions
    #[arg(long, default_value = "standard", value_name = "MIX", help_heading = "Load")]
    pub(crate) mix: Mix,
    #[command(flatten)]
    pub(crate) random: SeedFlag,
    /// Prefix of the names of operations to show: 'fetch', 'update stock', 'commit'
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    pub(crate) operation: Option<String>,
    /// Instruction cache: bytes, ways, bytes per line; powers of two
    ///
    /// A switch point is proposed before a stretch of code exceeds this cache (STEPS, VLDB 2004, 3.1.2).
    #[arg(long, value_name = "SIZE,WAYS,LINE", default_value = "32768,8,64", value_parser = geometry)]
    #[arg(help_heading = "Machine")]
    pub(crate) geometry: Geometry,
    /// Prefetch groups of rows, as 'tpcc run --prefetch'
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = "Engine")]
    pub(crate) prefetch: Switch,
    /// Write the proposed points to FILE, for 'tpcc run --ctx-points FILE'
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) place: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) traced: TracedFlags,
}

/// `tpcc index-fetch`.
#[derive(Args, Debug)]
#[command(after_help = "Fibers of one thread read rows by their keys on a table in memory (STEPS, VLDB 2004, 3.2).")]
pub(crate) struct IndexFetchFlags {
    /// Number of fibers
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = up_to::<256>, allow_negative_numbers = true)]
    pub(crate) threads: u64,
    /// Fetches per fiber
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = up_to::<1_000_000_000>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) fetches: u64,
    /// Switch points, as 'tpcc run --ctx-points'
    #[arg(long, value_name = "FILE|all|none", default_value = "all", value_parser = ctx_points)]
    pub(crate) ctx_points: SwitchPoints,
    /// Evict the instruction cache before each round
    #[arg(long)]
    pub(crate) cold: bool,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc latency`.
#[derive(Args, Debug)]
#[command(after_help = "\
Runs each transaction in four variants, interleaved, on copies of the database in memory (about 1 GB per warehouse in all);
the directory is not changed. All variants must leave the same rows. After the TLS paper (TOCS 2008).")]
pub(crate) struct LatencyFlags {
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    /// Transaction
    #[arg(long, default_value = "new-order", value_name = "MIX", help_heading = "Load")]
    pub(crate) mix: LatencyMix,
    /// Number of transactions of each variant
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = number::<u64, 1, { i64::MAX }>)]
    #[arg(allow_negative_numbers = true, help_heading = "Load")]
    pub(crate) transactions: u64,
    #[command(flatten)]
    pub(crate) random: SeedFlag,
    /// Threads of a loop, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<usize, 1, { MAX_LOOP_THREADS as i64 }>)]
    #[arg(allow_negative_numbers = true, help_heading = "Speculation")]
    pub(crate) epoch_workers: usize,
    /// Speculation: on, always; auto, if measured to be faster
    #[arg(long, value_name = "on|auto", default_value = "on", hide_possible_values = true)]
    #[arg(help_heading = "Speculation")]
    pub(crate) speculate: LatencySpeculate,
    /// Iterations of an epoch [default: divided evenly among the threads]
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 1_000>, allow_negative_numbers = true)]
    #[arg(help_heading = "Speculation")]
    #[arg(hide_short_help = true)]
    pub(crate) grain: Option<usize>,
    /// Probability of an injected violation, for each row that an epoch uses
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability, allow_negative_numbers = true)]
    #[arg(help_heading = "Speculation")]
    #[arg(hide_short_help = true)]
    pub(crate) inject_violations: f64,
    /// Simulate the transaction on 1, 2, 4 and 8 processors from its traces (four more copies of the database)
    #[arg(long, help_heading = "Speculation")]
    pub(crate) simulate: bool,
    /// Run one way alone, to count its instructions under Valgrind:
    /// sequential, sequential-prefetch, tls-seq, speculative
    #[arg(long, value_name = "WAY", hide_possible_values = true, help_heading = "Load")]
    #[arg(hide_short_help = true, conflicts_with = "simulate")]
    pub(crate) only: Option<Way>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc tenants`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each tenant is a database in memory and a sibling group of the scheduler; policies run interleaved on the same databases. A
row has 100 bytes and a key of 8, about 128 bytes in its page. After the ITAS paper (AJIT 2009).")]
pub(crate) struct TenantsFlags {
    /// Number of tenants, a database each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<usize, 1, 1_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Load")]
    pub(crate) tenants: usize,
    /// Terminals per tenant, a fiber each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<usize, 1, 1_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Load")]
    pub(crate) terminals_per_tenant: usize,
    /// Rows per tenant [default: 8192, about 1 MiB]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 100_000_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Load")]
    pub(crate) rows: Option<u64>,
    /// Distribution of row accesses [default: uniform]
    #[arg(long, value_name = "uniform|gaussian", hide_possible_values = true, help_heading = "Load")]
    pub(crate) access: Option<Access>,
    /// Transaction mix
    #[arg(long, value_name = "MIX", default_value = "point", help_heading = "Load")]
    pub(crate) mix: TenantMix,
    /// Number of background loop programs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<usize, 0, 1_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Load")]
    pub(crate) background: usize,
    /// Duration of each policy's measurement, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds::<100>, allow_negative_numbers = true)]
    #[arg(help_heading = "Load")]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) random: SeedFlag,
    /// Policies to compare: fair, tas, packed, itas, auto
    #[arg(long, value_name = "LIST", default_value = "fair,tas,packed,itas,auto", value_delimiter = ',')]
    #[arg(hide_possible_values = true, help_heading = "Scheduling")]
    pub(crate) policy: Vec<TenantPolicy>,
    /// Worker threads, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<usize, 1, 64>)]
    #[arg(allow_negative_numbers = true, help_heading = "Scheduling")]
    #[arg(hide_short_help = true)]
    pub(crate) workers: usize,
    /// Time slice, in microseconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::<u64, 1, 1_000_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Scheduling")]
    pub(crate) slice_us: u64,
    /// Maximum number of consecutive siblings (agg_limit)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number::<u32, 0, 1_000_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Scheduling")]
    pub(crate) agg_limit: u32,
    /// Maximum virtual runtime lead of a preferred sibling, in microseconds (agg_bonus)
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number::<u64, 0, 3_600_000_000>)]
    #[arg(allow_negative_numbers = true, help_heading = "Scheduling")]
    pub(crate) agg_bonus_us: u64,
    /// Write a scheduling trace to FILE, for Perfetto or Chrome's tracing page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc reproduce`.
#[derive(Args, Debug)]
#[command(after_help = "Counts come from Cachegrind (valgrind), times from interleaved runs without it.")]
pub(crate) struct ReproduceFlags {
    /// Experiment, paper (all its experiments), or all; see --list
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// List the experiments
    #[arg(long)]
    pub(crate) list: bool,
    /// Fewer points, shorter runs
    #[arg(long, help_heading = "Load")]
    pub(crate) quick: bool,
    /// Directory of databases, kept and reused [default: a temporary one]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepFlags,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc history`.
#[derive(Args, Debug)]
#[command(after_help = "Format of the output: tpcc history --help")]
#[command(after_long_help = "\
One line of JSON per transaction:
  {\"id\":7,\"session\":2,\"status\":\"ok\",\"ops\":[[\"a\",3,57],[\"r\",4,[12,31]]],\"start\":1200,\"end\":98000}
status    ok committed; fail rolled back, voluntarily or as a deadlock victim (not retried; another transaction
          follows); info answered with an error
ops       [\"a\",row,number] appended; [\"r\",row,[numbers]] read, [] if there is no row; register form:
          [\"w\",row,version] written; [\"r\",row,version] read, null if never written. A range read is a read of each of
          its rows. A delete writes an odd version, which a read of the absent row returns.
start end nanoseconds on one clock, taken before begin and after the answer
A row whose list is full (128 numbers) is replaced by the row N numbers further. The last transaction of session 0
reads all rows after all others have ended.")]
#[command(next_help_heading = "Load")]
pub(crate) struct HistoryFlags {
    /// Directory of the database, created if absent; an earlier history in it is deleted
    #[arg(long, value_name = "DIR", default_value = "tpcc-history", help_heading = "Data")]
    pub(crate) data: PathBuf,
    /// Concurrent sessions, 1 to 100
    #[arg(long, value_name = "N", default_value = "8", value_parser = number::<u32, 1, { Params::MOST_SESSIONS as i64 }>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) sessions: u32,
    /// Transactions per session
    #[arg(long, value_name = "N", default_value = "500", value_parser = number::<u64, 1, { i64::MAX }>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) transactions: u64,
    /// Size of the working set, in rows; a tenth of it gets almost half of the accesses
    #[arg(long, value_name = "N", default_value = "20", value_parser = number::<u64, 1, { Params::MOST_KEYS as i64 }>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) keys: u64,
    /// Form of the history: list-append (appends to lists) or register (writes and deletes of versions)
    #[arg(long, default_value = "list-append", value_name = "FORM")]
    pub(crate) form: HistoryForm,
    /// Percentage of transactions that roll back voluntarily
    #[arg(long, value_name = "P", default_value = "5", value_parser = number::<u32, 0, 100>)]
    #[arg(allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) abort_percent: u32,
    /// Seed of the random number generator [default: random, printed]
    ///
    /// A seed repeats the transactions, not their interleaving, which depends on the machine.
    #[arg(long, value_name = "N", default_value_t = fresh_seed(), hide_default_value = true, value_parser = seed)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Isolation level of all transactions
    #[arg(long, default_value = "serializable", value_name = "LEVEL", help_heading = "Engine")]
    pub(crate) isolation: Isolation,
    /// Durability of a commit: sync, acknowledged when it is on disk; async, acknowledged at once
    #[arg(long, default_value = "async", value_name = "sync|async", hide_possible_values = true)]
    #[arg(help_heading = "Engine")]
    pub(crate) durability: Durability,
    #[command(flatten)]
    pub(crate) latches: LatchFlags,
    /// Size of the buffer pool, in MiB, at least 16
    #[arg(long, value_name = "MIB", default_value = "64", value_parser = number::<u64, MIN_POOL_MIB, MAX_MIB>)]
    #[arg(allow_negative_numbers = true, help_heading = "Engine")]
    #[arg(hide_short_help = true)]
    pub(crate) buffer_pool: u64,
    #[command(flatten)]
    pub(crate) scheduling: SchedulingFlags,
    /// Run the steps of each transaction as a loop on two threads (list-append, serializable)
    #[arg(
        long,
        value_name = "on|off",
        default_value = "off",
        hide_possible_values = true,
        help_heading = "Speculation"
    )]
    pub(crate) speculate: Switch,
    /// Threads of the sessions, with --scheduler steps or itas [default: cores]
    ///
    /// With --scheduler threads every session has a thread of its own.
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, { i64::MAX }>, allow_negative_numbers = true)]
    #[arg(help_heading = "Scheduling")]
    #[arg(hide_short_help = true)]
    pub(crate) workers: Option<u64>,
    /// Partitioning among the threads: none, or server (frames of the pool)
    ///
    /// The sessions of a history share all rows, so there is no client partitioning.
    #[arg(long, value_name = "none|server", default_value = "none", hide_possible_values = true)]
    #[arg(help_heading = "Scheduling")]
    #[arg(hide_short_help = true)]
    pub(crate) partition: Partition,
    /// Write the history to FILE
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) out: PathBuf,
}
