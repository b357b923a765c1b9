//! The JSON objects that `--json` writes. Their keys are relied on by later tools. Each names its schema, by the `$id` of a
//! file in `schema/`; the number there changes when a key is renamed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build;
use super::machine::Machine;
use super::pacing::PacedRun;
use crate::workload::counters::{
    KindCounters, LatchCounters, LogCounters, OperationCounters, PoolCounters, SpeculationCounters, TeamCounters,
    WorkCounters,
};

/// The `$id` of the schema of what a command writes.
pub fn schema_of(command: &str) -> String {
    format!("tpcc-{command}/1")
}

/// What the program was built from and called with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Provenance {
    /// Version of the package.
    pub version: String,
    /// Commit of the sources; null outside git.
    pub commit: Option<String>,
    /// Whether the sources differed from the commit; null outside git.
    pub dirty: Option<bool>,
    /// Compiler.
    pub rustc: Option<String>,
    /// Compiler flags.
    pub flags: String,
    /// Build profile: debug or release.
    pub profile: String,
    /// What was built in beyond that: profile feedback, a layout; null for a plain build.
    pub built_with: Option<String>,
    /// What it was built for.
    pub target: String,
    /// The command line.
    pub command: Vec<String>,
}

impl Provenance {
    /// This program, as it was called.
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

    /// "0.1.0 (4f2a9c1), release, profile feedback".
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

/// What `--version` prints behind the name: [`Provenance::line`].
pub fn version() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| Provenance::here().line());
    &LINE
}

/// Every setting as resolved; null where it means nothing for the engine or the command.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Config {
    /// run, load, check, copy or verify.
    pub command: String,
    /// storage, floor or postgres.
    pub engine: String,
    /// Host, port and database; null but with the engine postgres, as the next three.
    pub server: Option<String>,
    /// As the server calls itself.
    pub server_version: Option<String>,
    /// Whose SQL it speaks: postgres, cockroach or yugabyte.
    pub sql_dialect: Option<String>,
    /// Connections at once.
    pub connections: Option<usize>,
    /// Directory of the database.
    pub data: Option<String>,
    /// Warehouses that take part.
    pub warehouses: Option<u32>,
    /// Warehouses loaded.
    pub warehouses_loaded: Option<u32>,
    /// Threads.
    pub workers: Option<usize>,
    /// Terminals in all.
    pub terminals: Option<u32>,
    /// Seconds measured, as asked.
    pub duration_s: Option<f64>,
    /// Seconds not counted.
    pub warmup_s: Option<f64>,
    /// Transactions measured, as asked.
    pub transactions: Option<u64>,
    /// Shares of the five transactions.
    pub mix: Option<String>,
    /// How soon a terminal asked again: none, as soon as it had its answer, or spec, after keying and thinking.
    pub pacing: Option<String>,
    /// sync or async.
    pub durability: Option<String>,
    /// Isolation level of all five transactions.
    pub isolation: Option<String>,
    /// Kind of page latch.
    pub latches: Option<String>,
    /// Reader words of hot latches, as asked for; null where the number of cores decides.
    pub latch_words: Option<usize>,
    /// What was divided among the workers: none, client, server or both; null with the scheduler itas, whose policy decides.
    pub partition: Option<String>,
    /// Whether each worker stayed on a core of its own.
    pub pin: Option<bool>,
    /// Which memory asked for large pages: on, off, try or code.
    pub large_pages: Option<String>,
    /// Whether groups of rows are announced.
    pub prefetch: Option<bool>,
    /// Whether the database is read into the pool before the run.
    pub preload: Option<bool>,
    /// Microseconds by which each read of pages was delayed, at least.
    pub read_delay_us: Option<u64>,
    /// MiB of the buffer pool.
    pub buffer_pool_mib: Option<u64>,
    /// Who drives the engine's services.
    pub background: Option<String>,
    /// MiB of log between checkpoints.
    pub checkpoint_mib: Option<u64>,
    /// Whether pages carry checksums.
    pub page_checksums: Option<bool>,
    /// Order of steps in a transaction.
    pub order: Option<String>,
    /// How transactions share a worker.
    pub scheduler: Option<String>,
    /// Transactions of a worker under way at once; null with the scheduler threads.
    pub team_size: Option<usize>,
    /// Which fiber is next: fair, tas, packed or itas; null but with the scheduler itas.
    pub policy: Option<String>,
    /// Time of a slice, in microseconds; null but with the scheduler itas.
    pub slice_us: Option<u64>,
    /// What a team does together: whole transactions or one statement at a time; null but with the scheduler
    /// steps, and where it switches nowhere.
    pub teams: Option<String>,
    /// In which order terminals' transactions are admitted: fifo, as they arrive, or batched, by kind.
    pub admission: Option<String>,
    /// Where a team switches: built-in, all, none or a file; null but with the scheduler steps.
    pub ctx_points: Option<String>,
    /// Whether loops of transactions ran ahead of them: on, off or auto.
    pub speculate: Option<String>,
    /// Threads of each worker that a loop ran on; null without speculation.
    pub epoch_workers: Option<usize>,
    /// What dates are made of: real or logical.
    pub clock: Option<String>,
    /// Whether counters of the processor and the system were read.
    pub counters: Option<bool>,
    /// Whether the consistency conditions are checked.
    pub check: Option<bool>,
    /// Seed of everything random.
    pub seed: Option<u64>,
    /// Seed of the load.
    pub load_seed: Option<u64>,
    /// C of the last names, of the load and of the run.
    pub c_load: Option<u32>,
}

/// Victims of one cause on one table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Aborts {
    /// deadlock, validation, timeout, serialization or connection.
    pub cause: String,
    /// Null where the engine does not know.
    pub table: Option<String>,
    /// How many.
    pub count: u64,
}

/// Figures of one kind of transaction. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Transaction {
    /// Number of completed and of rolled-back transactions, and their run time.
    #[serde(flatten)]
    pub counters: KindCounters,
    /// From first begin to acknowledgement, as all without `response`.
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
    /// From when the terminal was ready to acknowledgement.
    pub response_p50_us: Option<f64>,
    /// 90th percentile of the response time, microseconds.
    pub response_p90_us: Option<f64>,
    /// 99th percentile of the response time, microseconds.
    pub response_p99_us: Option<f64>,
    /// Service and response times at fixed shares of the transactions.
    pub curve: Curve,
}

/// Times by the share of transactions that were no slower. All lists have one length.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Curve {
    /// From 0 to 1; 1 is the slowest.
    pub share: Vec<f64>,
    /// From first begin to acknowledgement, in microseconds.
    pub service_us: Vec<Option<f64>>,
    /// From when the terminal was ready to acknowledgement, in microseconds.
    pub response_us: Vec<Option<f64>>,
}

/// What the generator drew, as fractions; null where nothing was drawn.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Generator {
    /// New-Orders with an unused item number.
    pub rollback: Option<f64>,
    /// Order lines supplied by another warehouse.
    pub remote_lines: Option<f64>,
    /// Payments of customers of another warehouse.
    pub remote_payments: Option<f64>,
    /// Payments and Order-Statuses by last name.
    pub by_name: Option<f64>,
    /// Lines of an order, mean.
    pub lines_per_order: Option<f64>,
    /// Whether all are within the specification's bands, or four deviations where fewer were drawn.
    pub as_specified: bool,
}

/// What happened in each whole second of the run. All lists have one length.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(rename = "Series"))]
pub struct ThroughputSeries {
    /// End of the second, since measuring began.
    pub t_s: Vec<f64>,
    /// Completed in it, per second.
    pub throughput_per_s: Vec<f64>,
    /// Within this 99 of 100 of its transactions were answered, from begin to acknowledgement, to an eighth; null if there
    /// were none.
    pub p99_us: Vec<Option<f64>>,
    /// Victims in it.
    pub aborted: Vec<u64>,
    /// Bytes appended to the log; null for an engine without one.
    pub log_bytes: Vec<Option<u64>>,
    /// Checkpoints that ended in it; null for an engine without a log.
    pub checkpoints: Vec<Option<u64>>,
    /// Pages read from disk; null for an engine without a pool.
    pub page_reads: Vec<Option<u64>>,
    /// Pages written to the data files; null for an engine without a pool.
    pub page_writes: Vec<Option<u64>>,
}

/// The log while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Log {
    /// Bytes, flushes and checkpoints of the measured time.
    #[serde(flatten)]
    pub counters: LogCounters,
    /// Bytes of log for each completed transaction, mean.
    pub bytes_per_transaction: Option<f64>,
    /// Whether it is written past the system's cache (`O_DIRECT`).
    pub direct: Option<bool>,
}

/// The buffer pool while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Pool {
    /// Hits, reads, evictions and writes of pages in the measured time.
    #[serde(flatten)]
    pub counters: PoolCounters,
    /// Hits over hits and reads; null without either.
    pub hit_rate: Option<f64>,
}

/// A rule of the checker.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Rule {
    /// Number of the condition, or name of the rule.
    pub id: String,
    /// What must hold.
    pub text: String,
    /// Whether it does.
    pub holds: bool,
    /// How often it does not.
    pub broken: u64,
    /// The first keys for which it does not.
    pub first: Vec<String>,
}

/// The check.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Check {
    /// Null when not checked.
    pub passed: Option<bool>,
    /// Of the twelve.
    pub conditions_held: Option<usize>,
    /// Duration of the check, seconds; null when not checked.
    pub seconds: Option<f64>,
    /// Conditions first, then the rules of our own.
    pub rules: Vec<Rule>,
}

/// A page that breaks a rule of structure.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Finding {
    /// Name of the rule.
    pub rule: String,
    /// File that holds the page.
    pub file: String,
    /// Number of the page in its file.
    pub page: u32,
    /// How it is broken.
    pub what: String,
}

/// The structure check.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Structure {
    /// True if the check was complete and found nothing.
    pub passed: bool,
    /// Pages in use.
    pub pages: u64,
    /// Of these, free ones.
    pub free_pages: u64,
    /// Rows of all tables, those of the engine's own included.
    pub rows: u64,
    /// Entries of secondary indexes.
    pub entries: u64,
    /// Duration of the check, seconds.
    pub seconds: f64,
    /// Broken rules, at most the first 1,000.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more: u64,
}

/// Mean of a transaction.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct EventMean {
    /// In the program; null where it is not counted.
    pub user: Option<f64>,
    /// In the system, on behalf of the program; null where it is not counted.
    pub kernel: Option<f64>,
}

/// What the system counted of the workers' threads while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct SoftwareEvents {
    /// perf_event_open, or getrusage and /proc where that is refused.
    pub source: String,
    /// Time on processors, in milliseconds.
    pub task_clock_ms: f64,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Context switches, voluntary and involuntary.
    pub context_switches: u64,
    /// Moves from one processor to another; null where the system does not say.
    pub migrations: Option<u64>,
}

/// What the processor and the system counted of the workers while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct EventCounters {
    /// By type, and all: cycles, instructions, l1i_misses, l1d_misses, llc_misses, dtlb_misses, itlb_misses, branch_misses,
    /// stalled_cycles_frontend, stalled_cycles_backend. Each null where it cannot be had: see `reasons`.
    #[serde(flatten)]
    pub transactions: BTreeMap<String, BTreeMap<String, Option<EventMean>>>,
    /// Counts of the operating system for the workers' threads.
    pub software: SoftwareEvents,
    /// Share of the time that a counter ran. Below 1 counters took turns (multiplexing), and figures are estimates.
    pub ran: BTreeMap<String, f64>,
    /// Why counters are not there, by name, and what to do where something can be done.
    pub reasons: BTreeMap<String, String>,
}

/// Memory of one purpose.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Region {
    /// Addresses reserved, in bytes.
    pub bytes: u64,
    /// Memory given, in pages of any size, in bytes.
    pub resident_bytes: u64,
    /// Memory given in large pages, in bytes, as the system says (AnonHugePages, FilePmdMapped and ShmemPmdMapped).
    pub given_bytes: u64,
}

/// Large pages of memory, at the end of the run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct LargePagesReport {
    /// on, off, try or code.
    pub asked: String,
    /// Memory of the whole process that lies in large pages, in bytes; null where the system does not say.
    pub given_bytes: Option<u64>,
    /// By region: frames, page_table and shortcuts of the pool, log_ring, lock_table, stacks (of fibers; left out without),
    /// code (left out unless asked for).
    pub regions: BTreeMap<String, Region>,
    /// Why the system gives none; null where it gives some, and where none were asked for.
    pub reason: Option<String>,
}

/// What the teams did in one operation (the paper's Table 4).
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct TeamOperation {
    /// Its name: "fetch STOCK".
    pub name: String,
    /// Transactions that began it, teams, strays and waits.
    #[serde(flatten)]
    pub counters: OperationCounters,
    /// Members of a team on entry, mean.
    pub mean_in: Option<f64>,
    /// Members that ended it in their team, mean: the others were strays.
    pub mean_out: Option<f64>,
    /// Other teams that ran while a member waited for its own, mean.
    pub mean_launches_waited: Option<f64>,
}

/// What teams of transactions did while measuring, all workers together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Steps {
    /// Transactions of a worker under way at once.
    pub team_size: usize,
    /// Launches of teams and waits of transactions.
    #[serde(flatten)]
    pub counters: TeamCounters,
    /// Members of a team, mean.
    pub mean_team: Option<f64>,
    /// Transactions that could have run when a team was chosen, mean.
    pub mean_ready: Option<f64>,
    /// By operation.
    pub operations: Vec<TeamOperation>,
}

/// Whether a run ended early, and why: false if it ran to its end, true if a signal ended it (Ctrl-C), a text if something
/// failed. The figures are of the time until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[serde(untagged)]
pub enum Interrupted {
    /// Whether by the user.
    ByUser(bool),
    /// What failed.
    Failed(String),
}

/// What fibers of sibling groups, one for each warehouse, did on all workers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Siblings {
    /// Choices after which a fiber of the same warehouse ran.
    pub switches_within: u64,
    /// Choices after which a fiber of another warehouse ran.
    pub switches_between: u64,
    /// Choices of a fiber that had not the highest priority.
    pub preferred: u64,
    /// Choices of the policy that were overruled so that no fiber waits beyond the bound.
    pub overruled: u64,
    /// The longest wait of a fiber that could run, in microseconds.
    pub max_wait_us: f64,
    /// How long one waits at most, by proof, on the worker where that is longest, in microseconds.
    pub wait_bound_us: f64,
    /// The largest part of its bound that a wait reached on a worker.
    pub wait_to_bound: f64,
}

/// What `tpcc run --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
#[cfg_attr(any(test, feature = "schemas"), schemars(title = "tpcc run --json"))]
pub struct Run {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// What the figures are, and are not.
    pub notice: String,
    /// Build of the program, and its command line.
    pub provenance: Provenance,
    /// Machine that the command ran on.
    pub machine: Machine,
    /// Settings as resolved.
    pub config: Config,
    /// Early end of the run and its cause; false if it ran to its end.
    pub interrupted: Interrupted,
    /// Seconds measured.
    pub measured_s: f64,
    /// Completed transactions, rolled-back ones included.
    pub throughput_per_s: Option<f64>,
    /// New-Orders a minute, rolled-back ones included.
    pub new_orders_per_min: Option<f64>,
    /// Committed transactions.
    pub committed: u64,
    /// Transactions completed by rolling back: New-Orders with an unused item number.
    pub rolled_back: u64,
    /// Victims, all run again.
    pub aborted: u64,
    /// Victims by cause and table.
    pub aborts: Vec<Aborts>,
    /// By type: new-order, payment, order-status, delivery, stock-level.
    pub transactions: BTreeMap<String, Transaction>,
    /// Counts over the transactions of all kinds.
    #[serde(flatten)]
    pub counters: WorkCounters,
    /// Shares that the generator drew.
    pub generator: Generator,
    /// Figures of each measured second.
    pub series: ThroughputSeries,
    /// Null but with `--pacing spec`.
    pub pacing: Option<PacedRun>,
    /// Null but with the scheduler steps.
    pub steps: Option<Steps>,
    /// Null but with the scheduler itas.
    pub siblings: Option<Siblings>,
    /// Null without speculation.
    pub speculation: Option<SpeculationCounters>,
    /// Log while measuring; null for an engine without one.
    pub log: Option<Log>,
    /// Buffer pool while measuring; null for an engine without one.
    pub pool: Option<Pool>,
    /// Null but with superlatches (`--latches super`).
    pub latches: Option<LatchCounters>,
    /// Null without `--counters on`.
    #[serde(rename = "counters")]
    pub events: Option<EventCounters>,
    /// Null for the floor, and where the system does not say.
    pub large_pages: Option<LargePagesReport>,
    /// Peak resident memory of the process, bytes; null where the system does not say.
    pub peak_rss_bytes: Option<u64>,
    /// Result of the consistency check after the run.
    pub check: Check,
    /// Rows of each table, as checked; null when not checked.
    pub rows: Option<BTreeMap<String, u64>>,
}

/// What `tpcc load --json` writes.
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
    /// Until everything was on disk.
    pub load_s: f64,
    /// The whole command, with what `--replace` deleted and, on a server, connecting.
    pub elapsed_s: f64,
    /// Rows of all tables.
    pub loaded_rows: u64,
    /// Peak resident memory of the process, bytes; null where the system does not say.
    pub peak_rss_bytes: Option<u64>,
}

/// What `tpcc check --json` writes.
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
    /// Null without `--structure`. With findings the conditions are not checked.
    pub structure: Option<Structure>,
    /// Null without `--fingerprint`. A digest of all rows in hexadecimal: equal for databases that hold the same rows.
    /// With findings in the structure it is not made.
    pub fingerprint: Option<String>,
    /// Rows of each table; null where the conditions are not checked.
    pub rows: Option<BTreeMap<String, u64>>,
    /// Peak resident memory of the process, bytes; null where the system does not say.
    pub peak_rss_bytes: Option<u64>,
}

/// What `tpcc copy --json` writes.
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
    /// From opening the database until all of the copy was on disk, seconds.
    pub copy_s: f64,
    /// Pages copied, of 8 KiB each.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// Position in the log up to which the copy has everything.
    pub end_lsn: u64,
    /// Peak resident memory of the process, bytes; null where the system does not say.
    pub peak_rss_bytes: Option<u64>,
}

/// What `tpcc compact --json` writes.
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
    /// From opening the database until it was closed, seconds.
    pub compact_s: f64,
    /// Bytes of the data file before.
    pub bytes_before: u64,
    /// Bytes of the data file after.
    pub bytes_after: u64,
    /// Pages that went to another place, of 8 KiB each.
    pub pages_moved: u64,
    /// Peak resident memory of the process, bytes; null where the system does not say.
    pub peak_rss_bytes: Option<u64>,
}

/// What a file of acknowledgements says, against the database.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Acks {
    /// Path of the file of acknowledgements, as given.
    pub file: String,
    /// Runs they are of.
    pub runs: Vec<u32>,
    /// Acknowledged transactions that write; each was looked for.
    pub read_write: u64,
    /// Acknowledged transactions that only read.
    pub read_only: u64,
    /// Acknowledged orders that were rolled back.
    pub rolled_back: u64,
    /// Whether the last line had no end, and was passed over.
    pub torn: bool,
    /// How many of those looked for are not in the database.
    pub missing: u64,
    /// The first of them, and what the database has instead.
    pub first_missing: Vec<String>,
}

/// What `tpcc verify --json` writes.
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
    /// Whether everything acknowledged is there and every rule holds.
    pub passed: bool,
    /// Acknowledgements and the transactions missing from the database.
    pub acks: Acks,
    /// With findings the conditions are not checked.
    pub structure: Structure,
    /// Result of the consistency check.
    pub check: Check,
    /// Rows of each table; null where the conditions are not checked.
    pub rows: Option<BTreeMap<String, u64>>,
    /// Peak resident memory of the process, bytes; null where the system does not say.
    pub peak_rss_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each counter's key has its sentence and unit in the schema.
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
