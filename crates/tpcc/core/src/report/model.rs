//! JSON objects that `--json` writes. Other tools depend on their keys. Each object names its schema by the `$id` of a file
//! in `schema/`; the number in the `$id` changes when a key is renamed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build;
use super::machine::Machine;
use super::pacing::PacedRun;
use crate::workload::counters::{
    KindCounters, LatchCounters, LeafCounters, LogCounters, OperationCounters, PoolCounters, SpeculationCounters,
    TeamCounters, WorkCounters,
};
use crate::workload::waits::Waits;

/// `$id` of the schema of a command's object.
pub fn schema_of(command: &str) -> String {
    format!("tpcc-{command}/1")
}

/// Build and command line of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Provenance {
    /// Version of the package.
    pub version: String,
    /// Commit of the sources; null outside git.
    pub commit: Option<String>,
    /// True if the sources differed from the commit; null outside git.
    pub dirty: Option<bool>,
    /// Compiler and its version.
    pub rustc: Option<String>,
    /// Compiler flags.
    pub flags: String,
    /// Build profile: debug or release.
    pub profile: String,
    /// Build options beyond the profile: profile feedback or a code layout; null for a plain build.
    pub built_with: Option<String>,
    /// Target triple of the build.
    pub target: String,
    /// Command line of the process.
    pub command: Vec<String>,
}

impl Provenance {
    /// Provenance of this process.
    pub fn here() -> Provenance {
        let facts = build::facts();
        let text = str::to_owned;
        let known = |known: &str| Some(text(known)).filter(|known| !known.is_empty());
        Provenance {
            version: text(facts.version),
            commit: known(facts.commit),
            dirty: facts.dirty.parse().ok(),
            rustc: known(facts.rustc),
            flags: text(facts.flags),
            profile: text(facts.profile),
            built_with: known(facts.built_with),
            target: text(facts.target),
            command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        }
    }

    /// Summary line such as "0.1.0 (4f2a9c1), release, profile feedback".
    pub fn line(&self) -> String {
        let commit = match (&self.commit, self.dirty) {
            (Some(commit), Some(true)) => format!(" ({commit}, changed)"),
            (Some(commit), _) => format!(" ({commit})"),
            (None, _) => String::new(),
        };
        let with = self.built_with.as_ref().map_or(String::new(), |with| format!(", {with}"));
        format!("{}{commit}, {}{with}", self.version, self.profile)
    }
}

/// Text of `--version` after the program's name: [`Provenance::line`].
pub fn version() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| Provenance::here().line());
    &LINE
}

/// Settings as resolved; null if not applicable to the engine or the command.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Config {
    /// Command: run, load, check, copy or verify.
    pub command: String,
    /// Engine: storage, floor or postgres.
    pub engine: String,
    /// Host, port and database of the server; null for engines other than postgres, as are the next three.
    pub server: Option<String>,
    /// Version that the server reports.
    pub server_version: Option<String>,
    /// SQL dialect of the server: postgres, cockroach or yugabyte.
    pub sql_dialect: Option<String>,
    /// Number of concurrent connections.
    pub connections: Option<usize>,
    /// Directory of the database.
    pub data: Option<String>,
    /// Number of warehouses in use.
    pub warehouses: Option<u32>,
    /// Number of warehouses in the database.
    pub warehouses_loaded: Option<u32>,
    /// Number of worker threads.
    pub workers: Option<usize>,
    /// Total number of terminals.
    pub terminals: Option<u32>,
    /// Requested duration of the measurement, seconds.
    pub duration_s: Option<f64>,
    /// Duration of the warm-up, which is not counted, seconds.
    pub warmup_s: Option<f64>,
    /// Requested number of measured transactions.
    pub transactions: Option<u64>,
    /// Transaction mix.
    pub mix: Option<String>,
    /// Pacing of terminals: none (next request directly after the response) or spec (keying and think times).
    pub pacing: Option<String>,
    /// Durability: sync or async.
    pub durability: Option<String>,
    /// Isolation level of all five transactions.
    pub isolation: Option<String>,
    /// Kind of page latch.
    pub latches: Option<String>,
    /// Reader words per hot latch, as requested; null if the number of cores determines it.
    pub latch_words: Option<usize>,
    /// Resources partitioned among the workers: none, client, server or both.
    pub partition: Option<String>,
    /// True if each worker was pinned to a core of its own.
    pub pin: Option<bool>,
    /// Use of large pages: on, off, try or code.
    pub large_pages: Option<String>,
    /// True if groups of rows are prefetched.
    pub prefetch: Option<bool>,
    /// True if the database is read into the buffer pool before the run.
    pub preload: Option<bool>,
    /// Minimum delay added to each page read, microseconds.
    pub read_delay_us: Option<u64>,
    /// Size of the buffer pool, MiB.
    pub buffer_pool_mib: Option<u64>,
    /// Executor of the engine's background services: threads or inline.
    pub background: Option<String>,
    /// Log volume between checkpoints, MiB.
    pub checkpoint_mib: Option<u64>,
    /// True if pages have checksums.
    pub page_checksums: Option<bool>,
    /// Order of the steps in a transaction.
    pub order: Option<String>,
    /// Scheduler of a worker's transactions: threads, steps or itas.
    pub scheduler: Option<String>,
    /// Maximum number of concurrent transactions of a worker; null with the scheduler threads.
    pub team_size: Option<usize>,
    /// Scheduling policy of fibers: fair, tas or itas; null unless the scheduler is itas.
    pub policy: Option<String>,
    /// Length of a time slice, microseconds; null unless the scheduler is itas.
    pub slice_us: Option<u64>,
    /// Unit of work that a team executes together: transaction or operation (one statement); null unless the scheduler is
    /// steps, and if no switch points are selected.
    pub teams: Option<String>,
    /// Admission order of terminal transactions: fifo (arrival) or batched (by kind).
    pub admission: Option<String>,
    /// Switch points of a team: built-in, all, none or a file; null unless the scheduler is steps.
    pub ctx_points: Option<String>,
    /// Loops on several threads: on, off or auto.
    pub speculate: Option<String>,
    /// Number of threads per worker that execute a loop; null if loops run on one.
    pub epoch_workers: Option<usize>,
    /// Source of dates: real or logical.
    pub clock: Option<String>,
    /// True if hardware and operating system counters were read.
    pub counters: Option<bool>,
    /// True if the consistency conditions are checked.
    pub check: Option<bool>,
    /// Seed of the random number generators.
    pub seed: Option<u64>,
    /// Seed of the load.
    pub load_seed: Option<u64>,
    /// Constant C for last names (2.1.6) with which the data was loaded. The constant of the run has a legal distance to
    /// it.
    pub c_load: Option<u32>,
}

/// Number of aborts by cause and table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Aborts {
    /// Cause: deadlock, validation, timeout, serialization or connection.
    pub cause: String,
    /// Table of the conflict; null if the engine does not know.
    pub table: Option<String>,
    /// Number of aborts.
    pub count: u64,
}

/// Counts and times of one kind of transaction. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Transaction {
    /// Number of completed and of rolled-back transactions, and their run time.
    #[serde(flatten)]
    pub counters: KindCounters,
    /// Mean service time (first begin to acknowledgement), microseconds.
    pub mean_us: Option<f64>,
    /// Median of the service time, microseconds.
    pub p50_us: Option<f64>,
    /// 90th percentile of the service time, microseconds.
    pub p90_us: Option<f64>,
    /// 99th percentile of the service time, microseconds.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of the service time, microseconds.
    pub p999_us: Option<f64>,
    /// Longest service time, microseconds.
    pub max_us: Option<f64>,
    /// Median of the response time (terminal ready to acknowledgement), microseconds.
    pub response_p50_us: Option<f64>,
    /// 90th percentile of the response time, microseconds.
    pub response_p90_us: Option<f64>,
    /// 99th percentile of the response time, microseconds.
    pub response_p99_us: Option<f64>,
    /// Service and response times at fixed quantiles.
    pub curve: Curve,
}

/// Times by quantile. All lists have the same length.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Curve {
    /// Quantiles, from 0 to 1; 1 is the slowest transaction.
    pub share: Vec<f64>,
    /// Service time: first begin to acknowledgement, microseconds.
    pub service_us: Vec<Option<f64>>,
    /// Response time: terminal ready to acknowledgement, microseconds.
    pub response_us: Vec<Option<f64>>,
}

/// Fractions that the input generator drew; null if nothing was drawn.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Generator {
    /// Fraction of New-Orders with an unused item number.
    pub rollback: Option<f64>,
    /// Fraction of order lines supplied by another warehouse.
    pub remote_lines: Option<f64>,
    /// Fraction of Payments by customers of another warehouse.
    pub remote_payments: Option<f64>,
    /// Fraction of Payments and Order-Statuses that select the customer by last name.
    pub by_name: Option<f64>,
    /// Mean number of lines per order.
    pub lines_per_order: Option<f64>,
    /// True if all values are within the specification's bands or four standard deviations, whichever is wider.
    pub as_specified: bool,
}

/// Figures of each full second of the measurement. All lists have the same length.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(rename = "Series"))]
pub struct ThroughputSeries {
    /// End of the second, seconds since the start of the measurement.
    pub t_s: Vec<f64>,
    /// Completed transactions per second.
    pub throughput_per_s: Vec<f64>,
    /// 99th percentile of the service times (paced terminals: response times), rounded up by at most 1/8, microseconds;
    /// null without transactions.
    pub p99_us: Vec<Option<f64>>,
    /// Number of aborts.
    pub aborted: Vec<u64>,
    /// Bytes appended to the log; null for an engine without one.
    pub log_bytes: Vec<Option<u64>>,
    /// Checkpoints completed in the second; null for an engine without a log.
    pub checkpoints: Vec<Option<u64>>,
    /// Pages read from disk; null for an engine without a pool.
    pub page_reads: Vec<Option<u64>>,
    /// Pages written to the data files; null for an engine without a pool.
    pub page_writes: Vec<Option<u64>>,
}

/// Log figures of the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Log {
    /// Bytes, flushes and checkpoints during the measurement.
    #[serde(flatten)]
    pub counters: LogCounters,
    /// Mean log bytes per completed transaction.
    pub bytes_per_transaction: Option<f64>,
    /// True if log writes bypass the cache of the operating system (`O_DIRECT`).
    pub direct: Option<bool>,
}

/// Buffer pool figures of the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Pool {
    /// Hits, reads, evictions and writes of pages during the measurement.
    #[serde(flatten)]
    pub counters: PoolCounters,
    /// Hits divided by hits and reads; null without either.
    pub hit_rate: Option<f64>,
}

/// Result of one rule of the consistency check.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Rule {
    /// Number of the condition, or name of the rule.
    pub id: String,
    /// Text of the rule.
    pub text: String,
    /// True if the rule holds.
    pub holds: bool,
    /// Number of violations.
    pub broken: u64,
    /// Keys of the first violations.
    pub first: Vec<String>,
}

/// Result of the consistency check.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Check {
    /// True if all rules hold; null if not checked.
    pub passed: Option<bool>,
    /// Number of the twelve consistency conditions that hold.
    pub conditions_held: Option<usize>,
    /// Duration of the check, seconds; null when not checked.
    pub seconds: Option<f64>,
    /// Results by rule: the twelve conditions first, then the additional rules.
    pub rules: Vec<Rule>,
}

/// A page that violates a structural rule.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Finding {
    /// Name of the rule.
    pub rule: String,
    /// File that holds the page.
    pub file: String,
    /// Number of the page in its file.
    pub page: u32,
    /// Description of the violation.
    pub what: String,
}

/// Result of the structure check.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Structure {
    /// True if the check was complete and found no violation.
    pub passed: bool,
    /// Number of pages in use, those of the free list included.
    pub pages: u64,
    /// Number of pages of the free list, included in `pages`.
    pub free_pages: u64,
    /// Number of rows of all tables, including internal tables of the engine.
    pub rows: u64,
    /// Number of entries of secondary indexes.
    pub entries: u64,
    /// Duration of the check, seconds.
    pub seconds: f64,
    /// Violations, at most the first 1,000.
    pub findings: Vec<Finding>,
    /// Number of further violations.
    pub more: u64,
}

/// Mean count of an event per transaction.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct EventMean {
    /// Events in user code; null if not counted.
    pub user: Option<f64>,
    /// Events in the kernel on behalf of the program; null if not counted.
    pub kernel: Option<f64>,
}

/// Operating system counters of the worker threads over the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct SoftwareEvents {
    /// Source: perf_event_open, or getrusage and /proc if that is refused.
    pub source: String,
    /// CPU time, milliseconds.
    pub task_clock_ms: f64,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Context switches, voluntary and involuntary.
    pub context_switches: u64,
    /// Migrations from one CPU to another; null if the system does not report them.
    pub migrations: Option<u64>,
}

/// Hardware and operating system counters of the workers over the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct EventCounters {
    /// Mean counts by transaction type and for all types: cycles, instructions, l1i_misses, l1d_misses, llc_misses,
    /// dtlb_misses, itlb_misses, branch_misses, stalled_cycles_frontend, stalled_cycles_backend. Null if not available: see
    /// `reasons`.
    #[serde(flatten)]
    pub transactions: BTreeMap<String, BTreeMap<String, Option<EventMean>>>,
    /// Operating system counters of the worker threads.
    pub software: SoftwareEvents,
    /// Fraction of the time that a counter ran. Below 1 counters were multiplexed, and their values are estimates.
    pub ran: BTreeMap<String, f64>,
    /// Reasons why counters are not available, by counter, with a remedy if there is one.
    pub reasons: BTreeMap<String, String>,
}

/// Memory of one purpose.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Region {
    /// Reserved address space, bytes.
    pub bytes: u64,
    /// Resident memory in pages of any size, bytes.
    pub resident_bytes: u64,
    /// Resident memory in large pages, bytes, as reported by the system (AnonHugePages, FilePmdMapped and ShmemPmdMapped).
    pub given_bytes: u64,
}

/// Large pages at the end of the run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct LargePagesReport {
    /// Setting: on, off, try or code.
    pub asked: String,
    /// Memory of the whole process in large pages, bytes; null if the system does not report it.
    pub given_bytes: Option<u64>,
    /// Memory by region: frames, page_table and shortcuts of the buffer pool, log_ring, lock_table, stacks (only with
    /// fibers), code (only if requested).
    pub regions: BTreeMap<String, Region>,
    /// Reason why the system provides no large pages; null if it provides some, or if none were requested.
    pub reason: Option<String>,
}

/// Team statistics of one operation (Table 4 of the paper).
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct TeamOperation {
    /// Name of the operation, for example "fetch STOCK".
    pub name: String,
    /// Number of transactions that began the operation, of teams, strays and waits.
    #[serde(flatten)]
    pub counters: OperationCounters,
    /// Mean number of team members on entry.
    pub mean_in: Option<f64>,
    /// Mean number of team members that ended the operation in their team; the others were strays.
    pub mean_out: Option<f64>,
    /// Mean number of other teams that ran while a member waited for its own.
    pub mean_launches_waited: Option<f64>,
}

/// Team statistics of all workers over the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Steps {
    /// Maximum number of concurrent transactions of a worker.
    pub team_size: usize,
    /// Launches of teams and waits of transactions.
    #[serde(flatten)]
    pub counters: TeamCounters,
    /// Mean number of team members.
    pub mean_team: Option<f64>,
    /// Mean number of transactions that were ready to run when a team was chosen.
    pub mean_ready: Option<f64>,
    /// Statistics by operation.
    pub operations: Vec<TeamOperation>,
}

/// Early end of a run and its cause: false if it ran to its end, true if a signal ended it (Ctrl-C), an error message if it
/// failed. The figures cover the time until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[serde(untagged)]
pub enum Interrupted {
    /// True if a signal ended the run.
    ByUser(bool),
    /// Error message of the failure.
    Failed(String),
}

/// Statistics of sibling groups over all workers. Each warehouse has a group.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Siblings {
    /// Number of scheduling decisions for a fiber of the same warehouse.
    pub switches_within: u64,
    /// Number of scheduling decisions for a fiber of another warehouse.
    pub switches_between: u64,
    /// Number of decisions for a fiber that did not have the highest priority.
    pub preferred: u64,
    /// Number of policy decisions that were overruled so that no fiber waits longer than the bound.
    pub overruled: u64,
    /// Longest wait of a ready fiber, microseconds.
    pub max_wait_us: f64,
    /// Proven maximum of such a wait, on the worker where it is largest, microseconds.
    pub wait_bound_us: f64,
    /// Largest ratio of a wait to the wait bound of its worker.
    pub wait_to_bound: f64,
}

/// Object that `tpcc run --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc run --json"))]
pub struct Run {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Notice that the figures are derived from TPC-C and are no TPC-C result.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// Early end of the run and its cause; false if it ran to its end.
    pub interrupted: Interrupted,
    /// Duration of the measurement, seconds.
    pub measured_s: f64,
    /// Completed transactions per second, rolled-back ones included.
    pub throughput_per_s: Option<f64>,
    /// Completed New-Orders per minute, rolled-back ones included.
    pub new_orders_per_min: Option<f64>,
    /// Number of committed transactions.
    pub committed: u64,
    /// Number of transactions completed by a rollback: New-Orders with an unused item number.
    pub rolled_back: u64,
    /// Number of aborts; each was retried.
    pub aborted: u64,
    /// Aborts by cause and table.
    pub aborts: Vec<Aborts>,
    /// Figures by transaction type: new-order, payment, order-status, delivery, stock-level.
    pub transactions: BTreeMap<String, Transaction>,
    /// Counts over the transactions of all kinds.
    #[serde(flatten)]
    pub counters: WorkCounters,
    /// Fractions that the input generator drew.
    pub generator: Generator,
    /// Figures of each full second of the measurement.
    pub series: ThroughputSeries,
    /// Figures of paced terminals; null without `--pacing spec`.
    pub pacing: Option<PacedRun>,
    /// Team statistics; null unless the scheduler is steps.
    pub steps: Option<Steps>,
    /// Statistics of sibling groups; null unless the scheduler is itas.
    pub siblings: Option<Siblings>,
    /// Counters of loops on several threads; null if loops run on one.
    pub speculation: Option<SpeculationCounters>,
    /// Log figures; null for an engine without a log.
    pub log: Option<Log>,
    /// Buffer pool figures; null for an engine without a buffer pool.
    pub pool: Option<Pool>,
    /// Latch statistics; null without superlatches (`--latches super`).
    pub latches: Option<LatchCounters>,
    /// Contention for leaves since the database was opened; null for an engine without leaves.
    pub leaf: Option<Leaf>,
    /// Waits during the measurement; null for an engine that does not count them.
    pub waits: Option<Waits>,
    /// Hardware and operating system counters; null without `--counters on`.
    #[serde(rename = "counters")]
    pub events: Option<EventCounters>,
    /// Large pages; null for the floor, and if the system does not report them.
    pub large_pages: Option<LargePagesReport>,
    /// Peak resident memory of the process, bytes; null if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
    /// Result of the consistency check after the run.
    pub check: Check,
    /// Number of rows of each table, from the check; null if not checked.
    pub rows: Option<BTreeMap<String, u64>>,
}

/// Contention for leaves: writers of different rows of one leaf.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Leaf {
    /// Counters of all tables.
    #[serde(flatten)]
    pub counters: LeafCounters,
    /// Counters of each table with contention.
    pub tables: BTreeMap<String, LeafCounters>,
}

/// Object that `tpcc load --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc load --json"))]
pub struct Load {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Notice that the figures are derived from TPC-C and are no TPC-C result.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// Always false: an interrupted load writes no object.
    pub interrupted: bool,
    /// Time until all data was on disk, seconds.
    pub load_s: f64,
    /// Duration of the whole command, including the deletion of `--replace` and, on a server, connecting, seconds.
    pub elapsed_s: f64,
    /// Number of rows of all tables.
    pub loaded_rows: u64,
    /// Peak resident memory of the process, bytes; null if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
}

/// Object that `tpcc check --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc check --json"))]
pub struct Checked {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Notice that the figures are derived from TPC-C and are no TPC-C result.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// Always false: an interrupted check writes no object.
    pub interrupted: bool,
    /// Result of the consistency check.
    pub check: Check,
    /// Result of the structure check; null without `--structure`. If it has findings, the conditions are not checked.
    pub structure: Option<Structure>,
    /// Digest of all rows in hexadecimal, equal for databases with the same rows; null without `--fingerprint`, and if the
    /// structure check has findings.
    pub fingerprint: Option<String>,
    /// Number of rows of each table; null if the conditions are not checked.
    pub rows: Option<BTreeMap<String, u64>>,
    /// Peak resident memory of the process, bytes; null if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
}

/// Object that `tpcc copy --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc copy --json"))]
pub struct Copied {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Notice that the figures are derived from TPC-C and are no TPC-C result.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// Directory of the copy.
    pub to: String,
    /// Time from opening the database until the whole copy was on disk, seconds.
    pub copy_s: f64,
    /// Number of copied pages, of 8 KiB each.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// Log sequence number up to which the copy is complete.
    pub end_lsn: u64,
    /// Peak resident memory of the process, bytes; null if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
}

/// Object that `tpcc compact --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc compact --json"))]
pub struct Compacted {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Notice that the figures are derived from TPC-C and are no TPC-C result.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// Time from opening the database until it was closed, seconds.
    pub compact_s: f64,
    /// Size of the data file before, bytes.
    pub bytes_before: u64,
    /// Size of the data file after, bytes.
    pub bytes_after: u64,
    /// Number of moved pages, of 8 KiB each.
    pub pages_moved: u64,
    /// Peak resident memory of the process, bytes; null if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
}

/// Comparison of a file of acknowledgements with the database.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Acks {
    /// Path of the file of acknowledgements, as given.
    pub file: String,
    /// Numbers of the runs in the file.
    pub runs: Vec<u32>,
    /// Number of acknowledged transactions that write; each was looked up.
    pub read_write: u64,
    /// Number of acknowledged transactions that only read.
    pub read_only: u64,
    /// Number of acknowledged orders that were rolled back.
    pub rolled_back: u64,
    /// True if the last line was incomplete, and was skipped.
    pub torn: bool,
    /// Number of looked-up transactions that are not in the database.
    pub missing: u64,
    /// First missing transactions, with the corresponding content of the database.
    pub first_missing: Vec<String>,
}

/// Object that `tpcc verify --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc verify --json"))]
pub struct Verified {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Notice that the figures are derived from TPC-C and are no TPC-C result.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// True if everything acknowledged is in the database and every rule holds.
    pub passed: bool,
    /// Acknowledgements, and those whose transactions are missing from the database.
    pub acks: Acks,
    /// Result of the structure check. If it has findings, the conditions are not checked.
    pub structure: Structure,
    /// Result of the consistency check.
    pub check: Check,
    /// Number of rows of each table; null if the conditions are not checked.
    pub rows: Option<BTreeMap<String, u64>>,
    /// Peak resident memory of the process, bytes; null if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::counters::WaitCounters;

    /// Checks that the schema has a description and a unit for each counter.
    #[test]
    fn the_schema_lists_each_counter() {
        fn listed<C: Default + Serialize>(schema: &serde_json::Value, part: &str) {
            let keys = serde_json::to_value(C::default()).unwrap();
            for key in keys.as_object().unwrap().keys() {
                let of = schema.pointer(&format!("{part}/properties/{key}")).unwrap_or_else(|| panic!("{part}: {key}"));
                for word in ["description", "unit"] {
                    assert!(of[word].as_str().is_some_and(|text| !text.is_empty()), "{part}: {key}: {of}");
                }
            }
        }
        let schema = serde_json::to_value(schemars::schema_for!(Run)).unwrap();
        listed::<WorkCounters>(&schema, "");
        listed::<KindCounters>(&schema, "/$defs/Transaction");
        listed::<LogCounters>(&schema, "/$defs/Log");
        listed::<PoolCounters>(&schema, "/$defs/Pool");
        listed::<LatchCounters>(&schema, "/$defs/LatchCounters");
        listed::<LeafCounters>(&schema, "/$defs/Leaf");
        listed::<WaitCounters>(&schema, "/$defs/WaitCounters");
        listed::<SpeculationCounters>(&schema, "/$defs/SpeculationCounters");
        listed::<TeamCounters>(&schema, "/$defs/Steps");
        listed::<OperationCounters>(&schema, "/$defs/TeamOperation");
    }

    #[test]
    fn the_schema_files_are_true() {
        for (name, schema) in [
            ("run", schemars::schema_for!(Run)),
            ("load", schemars::schema_for!(Load)),
            ("check", schemars::schema_for!(Checked)),
            ("compact", schemars::schema_for!(Compacted)),
            ("copy", schemars::schema_for!(Copied)),
            ("verify", schemars::schema_for!(Verified)),
        ] {
            crate::report::schemas::assert_published(name, schema);
        }
    }
}
