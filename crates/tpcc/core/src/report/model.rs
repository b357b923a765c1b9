//! The JSON objects that `--json` writes. Their keys are relied on by later tools. Each names its schema, by the `$id` of a
//! file in `schema/`; the number there changes when a key is renamed.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::LazyLock;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::pacing::PacedRun;
use crate::workload::counters::{
    KindCounters, LatchCounters, LogCounters, OperationCounters, PoolCounters, SpeculationCounters, TeamCounters,
    WorkCounters,
};

/// The `$id` of the schema of what a command writes.
pub(crate) fn schema_of(command: &str) -> String {
    format!("tpcc-{command}/1")
}

/// What the program was built from and called with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Provenance {
    /// Version of the package.
    pub(crate) version: String,
    /// Commit of the sources; null outside git.
    pub(crate) commit: Option<String>,
    /// Whether the sources differed from the commit; null outside git.
    pub(crate) dirty: Option<bool>,
    /// Compiler.
    pub(crate) rustc: Option<String>,
    /// Compiler flags.
    pub(crate) flags: String,
    /// Build profile: debug or release.
    pub(crate) profile: String,
    /// What was built in beyond that: profile feedback, a layout; null for a plain build.
    pub(crate) built_with: Option<String>,
    /// What it was built for.
    pub(crate) target: String,
    /// The command line.
    pub(crate) command: Vec<String>,
}

impl Provenance {
    /// This program, as it was called.
    pub(crate) fn here() -> Provenance {
        // The optimiser must not see these texts: the program's code would depend on the state of the tree, and a profile would
        // not fit a build of the same sources.
        let text = |text: &'static str| black_box(text).to_owned();
        let known = |known: &'static str| Some(text(known)).filter(|known| !known.is_empty());
        Provenance {
            version: text(env!("CARGO_PKG_VERSION")),
            commit: known(env!("TPCC_BUILD_COMMIT")),
            dirty: text(env!("TPCC_BUILD_DIRTY")).parse().ok(),
            rustc: known(env!("TPCC_BUILD_RUSTC")),
            flags: text(env!("TPCC_BUILD_FLAGS")),
            profile: text(env!("TPCC_BUILD_PROFILE")),
            built_with: known(env!("TPCC_BUILD_WITH")),
            target: text(env!("TPCC_BUILD_TARGET")),
            command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        }
    }

    /// "0.1.0 (4f2a9c1), release, profile feedback".
    pub(crate) fn line(&self) -> String {
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
pub(crate) fn version() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| Provenance::here().line());
    &LINE
}

/// Every setting as resolved; null where it means nothing for the engine or the command.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Config {
    /// run, load, check, copy or verify.
    pub(crate) command: String,
    /// storage, floor or postgres.
    pub(crate) engine: String,
    /// Host, port and database; null but with the engine postgres, as the next three.
    pub(crate) server: Option<String>,
    /// As the server calls itself.
    pub(crate) server_version: Option<String>,
    /// Whose SQL it speaks: postgres, cockroach or yugabyte.
    pub(crate) sql_dialect: Option<String>,
    /// Connections at once.
    pub(crate) connections: Option<usize>,
    /// Directory of the database.
    pub(crate) data: Option<String>,
    /// Warehouses that take part.
    pub(crate) warehouses: Option<u32>,
    /// Warehouses loaded.
    pub(crate) warehouses_loaded: Option<u32>,
    /// Threads.
    pub(crate) workers: Option<usize>,
    /// Terminals in all.
    pub(crate) terminals: Option<u32>,
    /// Seconds measured, as asked.
    pub(crate) duration_s: Option<f64>,
    /// Seconds not counted.
    pub(crate) warmup_s: Option<f64>,
    /// Transactions measured, as asked.
    pub(crate) transactions: Option<u64>,
    /// Shares of the five transactions.
    pub(crate) mix: Option<String>,
    /// How soon a terminal asked again: none, as soon as it had its answer, or spec, after keying and thinking.
    pub(crate) pacing: Option<String>,
    /// sync or async.
    pub(crate) durability: Option<String>,
    /// Isolation level of all five transactions.
    pub(crate) isolation: Option<String>,
    /// Kind of page latch.
    pub(crate) latches: Option<String>,
    /// Reader words of hot latches, as asked for; null where the number of cores decides.
    pub(crate) latch_words: Option<usize>,
    /// What was divided among the workers: none, client, server or both; null with the scheduler itas, whose policy decides.
    pub(crate) partition: Option<String>,
    /// Whether each worker stayed on a core of its own.
    pub(crate) pin: Option<bool>,
    /// Which memory asked for large pages: on, off, try or code.
    pub(crate) large_pages: Option<String>,
    /// Whether groups of rows are announced.
    pub(crate) prefetch: Option<bool>,
    /// Whether the database is read into the pool before the run.
    pub(crate) preload: Option<bool>,
    /// Microseconds by which each read of pages was delayed, at least.
    pub(crate) read_delay_us: Option<u64>,
    /// MiB of the buffer pool.
    pub(crate) buffer_pool_mib: Option<u64>,
    /// Who drives the engine's services.
    pub(crate) background: Option<String>,
    /// MiB of log between checkpoints.
    pub(crate) checkpoint_mib: Option<u64>,
    /// Whether pages carry checksums.
    pub(crate) page_checksums: Option<bool>,
    /// Order of steps in a transaction.
    pub(crate) order: Option<String>,
    /// How transactions share a worker.
    pub(crate) scheduler: Option<String>,
    /// Transactions of a worker under way at once; null with the scheduler threads.
    pub(crate) team_size: Option<usize>,
    /// Which fiber is next: fair, tas, packed or itas; null but with the scheduler itas.
    pub(crate) policy: Option<String>,
    /// Time of a slice, in microseconds; null but with the scheduler itas.
    pub(crate) slice_us: Option<u64>,
    /// What a team does together: whole transactions or one statement at a time; null but with the scheduler
    /// steps, and where it switches nowhere.
    pub(crate) teams: Option<String>,
    /// In which order terminals' transactions are admitted: fifo, as they arrive, or batched, by kind.
    pub(crate) admission: Option<String>,
    /// Where a team switches: built-in, all, none or a file; null but with the scheduler steps.
    pub(crate) ctx_points: Option<String>,
    /// Whether loops of transactions ran ahead of them: on, off or auto.
    pub(crate) speculate: Option<String>,
    /// Threads of each worker that a loop ran on; null without speculation.
    pub(crate) epoch_workers: Option<usize>,
    /// What dates are made of: real or logical.
    pub(crate) clock: Option<String>,
    /// Whether counters of the processor and the system were read.
    pub(crate) counters: Option<bool>,
    /// Whether the consistency conditions are checked.
    pub(crate) check: Option<bool>,
    /// Seed of everything random.
    pub(crate) seed: Option<u64>,
    /// Seed of the load.
    pub(crate) load_seed: Option<u64>,
    /// C of the last names, of the load and of the run.
    pub(crate) c_load: Option<u32>,
}

/// Victims of one cause on one table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Aborts {
    /// deadlock, validation, timeout, serialization or connection.
    pub(crate) cause: String,
    /// Null where the engine does not know.
    pub(crate) table: Option<String>,
    /// How many.
    pub(crate) count: u64,
}

/// Figures of one kind of transaction. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Transaction {
    #[serde(flatten)]
    pub(crate) counters: KindCounters,
    /// From first begin to acknowledgement, as all without `response`.
    pub(crate) mean_us: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p90_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    pub(crate) max_us: Option<f64>,
    /// From when the terminal was ready to acknowledgement.
    pub(crate) response_p50_us: Option<f64>,
    pub(crate) response_p90_us: Option<f64>,
    pub(crate) response_p99_us: Option<f64>,
    pub(crate) curve: Curve,
}

/// Times by the share of transactions that were no slower. All lists have one length.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Curve {
    /// From 0 to 1; 1 is the slowest.
    pub(crate) share: Vec<f64>,
    /// From first begin to acknowledgement, in microseconds.
    pub(crate) service_us: Vec<Option<f64>>,
    /// From when the terminal was ready to acknowledgement, in microseconds.
    pub(crate) response_us: Vec<Option<f64>>,
}

/// What the generator drew, as fractions; null where nothing was drawn.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Generator {
    /// New-Orders with an unused item number.
    pub(crate) rollback: Option<f64>,
    /// Order lines supplied by another warehouse.
    pub(crate) remote_lines: Option<f64>,
    /// Payments of customers of another warehouse.
    pub(crate) remote_payments: Option<f64>,
    /// Payments and Order-Statuses by last name.
    pub(crate) by_name: Option<f64>,
    /// Lines of an order, mean.
    pub(crate) lines_per_order: Option<f64>,
    /// Whether all are within the specification's bands, or four deviations where fewer were drawn.
    pub(crate) as_specified: bool,
}

/// What happened in each whole second of the run. All lists have one length.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "Series"))]
pub(crate) struct ThroughputSeries {
    /// End of the second, since measuring began.
    pub(crate) t_s: Vec<f64>,
    /// Completed in it, per second.
    pub(crate) throughput_per_s: Vec<f64>,
    /// Within this 99 of 100 of its transactions were answered, from begin to acknowledgement, to an eighth; null if there
    /// were none.
    pub(crate) p99_us: Vec<Option<f64>>,
    /// Victims in it.
    pub(crate) aborted: Vec<u64>,
    /// Bytes appended to the log; null for an engine without one.
    pub(crate) log_bytes: Vec<Option<u64>>,
    /// Checkpoints that ended in it; null for an engine without a log.
    pub(crate) checkpoints: Vec<Option<u64>>,
    /// Pages read from disk; null for an engine without a pool.
    pub(crate) page_reads: Vec<Option<u64>>,
    /// Pages written to the data files; null for an engine without a pool.
    pub(crate) page_writes: Vec<Option<u64>>,
}

/// The log while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Log {
    #[serde(flatten)]
    pub(crate) counters: LogCounters,
    /// Bytes of log for each completed transaction, mean.
    pub(crate) bytes_per_transaction: Option<f64>,
    /// Whether it is written past the system's cache (`O_DIRECT`).
    pub(crate) direct: Option<bool>,
}

/// The buffer pool while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Pool {
    #[serde(flatten)]
    pub(crate) counters: PoolCounters,
    /// Hits over hits and reads; null without either.
    pub(crate) hit_rate: Option<f64>,
}

/// A rule of the checker.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Rule {
    /// Number of the condition, or name of the rule.
    pub(crate) id: String,
    /// What must hold.
    pub(crate) text: String,
    /// Whether it does.
    pub(crate) holds: bool,
    /// How often it does not.
    pub(crate) broken: u64,
    /// The first keys for which it does not.
    pub(crate) first: Vec<String>,
}

/// The check.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Check {
    /// Null when not checked.
    pub(crate) passed: Option<bool>,
    /// Of the twelve.
    pub(crate) conditions_held: Option<usize>,
    pub(crate) seconds: Option<f64>,
    /// Conditions first, then the rules of our own.
    pub(crate) rules: Vec<Rule>,
}

/// A page that breaks a rule of structure.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Finding {
    /// Name of the rule.
    pub(crate) rule: String,
    pub(crate) file: String,
    pub(crate) page: u32,
    /// How it is broken.
    pub(crate) what: String,
}

/// The structure check.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Structure {
    pub(crate) passed: bool,
    /// Pages in use.
    pub(crate) pages: u64,
    /// Of these, free ones.
    pub(crate) free_pages: u64,
    /// Rows of all tables, those of the engine's own included.
    pub(crate) rows: u64,
    /// Entries of secondary indexes.
    pub(crate) entries: u64,
    pub(crate) seconds: f64,
    pub(crate) findings: Vec<Finding>,
    /// Findings beyond those.
    pub(crate) more: u64,
}

/// Mean of a transaction.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct EventMean {
    /// In the program; null where it is not counted.
    pub(crate) user: Option<f64>,
    /// In the system, on behalf of the program; null where it is not counted.
    pub(crate) kernel: Option<f64>,
}

/// What the system counted of the workers' threads while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SoftwareEvents {
    /// perf_event_open, or getrusage and /proc where that is refused.
    pub(crate) source: String,
    /// Time on processors, in milliseconds.
    pub(crate) task_clock_ms: f64,
    pub(crate) page_faults: u64,
    pub(crate) context_switches: u64,
    /// Moves from one processor to another; null where the system does not say.
    pub(crate) migrations: Option<u64>,
}

/// What the processor and the system counted of the workers while measuring.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct EventCounters {
    /// By type, and all: cycles, instructions, l1i_misses, l1d_misses, llc_misses, dtlb_misses, itlb_misses, branch_misses,
    /// stalled_cycles_frontend, stalled_cycles_backend. Each null where it cannot be had: see `reasons`.
    #[serde(flatten)]
    pub(crate) transactions: BTreeMap<String, BTreeMap<String, Option<EventMean>>>,
    pub(crate) software: SoftwareEvents,
    /// Share of the time that a counter ran. Below 1 counters took turns (multiplexing), and figures are estimates.
    pub(crate) ran: BTreeMap<String, f64>,
    /// Why counters are not there, by name, and what to do where something can be done.
    pub(crate) reasons: BTreeMap<String, String>,
}

/// Memory of one purpose.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Region {
    /// Addresses reserved, in bytes.
    pub(crate) bytes: u64,
    /// Memory given, in pages of any size, in bytes.
    pub(crate) resident_bytes: u64,
    /// Memory given in large pages, in bytes, as the system says (AnonHugePages, FilePmdMapped and ShmemPmdMapped).
    pub(crate) given_bytes: u64,
}

/// Large pages of memory, at the end of the run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct LargePagesReport {
    /// on, off, try or code.
    pub(crate) asked: String,
    /// Memory of the whole process that lies in large pages, in bytes; null where the system does not say.
    pub(crate) given_bytes: Option<u64>,
    /// By region: frames, page_table and shortcuts of the pool, log_ring, lock_table, stacks (of fibers; left out without),
    /// code (left out unless asked for).
    pub(crate) regions: BTreeMap<String, Region>,
    /// Why the system gives none; null where it gives some, and where none were asked for.
    pub(crate) reason: Option<String>,
}

/// What the teams did in one operation (the paper's Table 4).
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TeamOperation {
    /// Its name: "fetch STOCK".
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) counters: OperationCounters,
    /// Members of a team on entry, mean.
    pub(crate) mean_in: Option<f64>,
    /// Members that ended it in their team, mean: the others were strays.
    pub(crate) mean_out: Option<f64>,
    /// Other teams that ran while a member waited for its own, mean.
    pub(crate) mean_launches_waited: Option<f64>,
}

/// What teams of transactions did while measuring, all workers together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Steps {
    /// Transactions of a worker under way at once.
    pub(crate) team_size: usize,
    #[serde(flatten)]
    pub(crate) counters: TeamCounters,
    /// Members of a team, mean.
    pub(crate) mean_team: Option<f64>,
    /// Transactions that could have run when a team was chosen, mean.
    pub(crate) mean_ready: Option<f64>,
    /// By operation.
    pub(crate) operations: Vec<TeamOperation>,
}

/// Whether a run ended early, and why: false if it ran to its end, true if a signal ended it (Ctrl-C), a text if something
/// failed. The figures are of the time until then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub(crate) enum Interrupted {
    /// Whether by the user.
    ByUser(bool),
    /// What failed.
    Failed(String),
}

/// What fibers of sibling groups, one for each warehouse, did on all workers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Siblings {
    /// Choices after which a fiber of the same warehouse ran.
    pub(crate) switches_within: u64,
    /// Choices after which a fiber of another warehouse ran.
    pub(crate) switches_between: u64,
    /// Choices of a fiber that had not the highest priority.
    pub(crate) preferred: u64,
    /// Choices of the policy that were overruled so that no fiber waits beyond the bound.
    pub(crate) overruled: u64,
    /// The longest wait of a fiber that could run, in microseconds.
    pub(crate) max_wait_us: f64,
    /// How long one waits at most, by proof, on the worker where that is longest, in microseconds.
    pub(crate) wait_bound_us: f64,
    /// The largest part of its bound that a wait reached on a worker.
    pub(crate) wait_to_bound: f64,
}

/// What `tpcc run --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc run --json"))]
pub(crate) struct Run {
    pub(crate) schema: String,
    /// What the figures are, and are not.
    pub(crate) notice: String,
    pub(crate) provenance: Provenance,
    pub(crate) machine: Machine,
    pub(crate) config: Config,
    pub(crate) interrupted: Interrupted,
    /// Seconds measured.
    pub(crate) measured_s: f64,
    /// Completed transactions, rolled-back ones included.
    pub(crate) throughput_per_s: Option<f64>,
    /// New-Orders a minute, rolled-back ones included.
    pub(crate) new_orders_per_min: Option<f64>,
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// Victims, all run again.
    pub(crate) aborted: u64,
    pub(crate) aborts: Vec<Aborts>,
    /// By type: new-order, payment, order-status, delivery, stock-level.
    pub(crate) transactions: BTreeMap<String, Transaction>,
    #[serde(flatten)]
    pub(crate) counters: WorkCounters,
    pub(crate) generator: Generator,
    pub(crate) series: ThroughputSeries,
    /// Null but with `--pacing spec`.
    pub(crate) pacing: Option<PacedRun>,
    /// Null but with the scheduler steps.
    pub(crate) steps: Option<Steps>,
    /// Null but with the scheduler itas.
    pub(crate) siblings: Option<Siblings>,
    /// Null without speculation.
    pub(crate) speculation: Option<SpeculationCounters>,
    pub(crate) log: Option<Log>,
    pub(crate) pool: Option<Pool>,
    /// Null but with superlatches (`--latches super`).
    pub(crate) latches: Option<LatchCounters>,
    /// Null without `--counters on`.
    #[serde(rename = "counters")]
    pub(crate) events: Option<EventCounters>,
    /// Null for the floor, and where the system does not say.
    pub(crate) large_pages: Option<LargePagesReport>,
    pub(crate) peak_rss_bytes: Option<u64>,
    pub(crate) check: Check,
    /// Rows of each table, as checked; null when not checked.
    pub(crate) rows: Option<BTreeMap<String, u64>>,
}

/// What `tpcc load --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc load --json"))]
pub(crate) struct Load {
    pub(crate) schema: String,
    pub(crate) notice: String,
    pub(crate) provenance: Provenance,
    pub(crate) machine: Machine,
    pub(crate) config: Config,
    pub(crate) interrupted: bool,
    /// Until everything was on disk.
    pub(crate) load_s: f64,
    /// The whole command, with what `--replace` deleted and, on a server, connecting.
    pub(crate) elapsed_s: f64,
    /// Rows of all tables.
    pub(crate) loaded_rows: u64,
    pub(crate) peak_rss_bytes: Option<u64>,
}

/// What `tpcc check --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc check --json"))]
pub(crate) struct Checked {
    pub(crate) schema: String,
    pub(crate) notice: String,
    pub(crate) provenance: Provenance,
    pub(crate) machine: Machine,
    pub(crate) config: Config,
    pub(crate) interrupted: bool,
    pub(crate) check: Check,
    /// Null without `--structure`. With findings the conditions are not checked.
    pub(crate) structure: Option<Structure>,
    /// Null without `--fingerprint`. A digest of all rows in hexadecimal: equal for databases that hold the same rows.
    /// With findings in the structure it is not made.
    pub(crate) fingerprint: Option<String>,
    pub(crate) rows: Option<BTreeMap<String, u64>>,
    pub(crate) peak_rss_bytes: Option<u64>,
}

/// What `tpcc copy --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc copy --json"))]
pub(crate) struct Copied {
    pub(crate) schema: String,
    pub(crate) notice: String,
    pub(crate) provenance: Provenance,
    pub(crate) machine: Machine,
    pub(crate) config: Config,
    /// Directory of the copy.
    pub(crate) to: String,
    /// From opening the database until all of the copy was on disk, seconds.
    pub(crate) copy_s: f64,
    /// Pages copied, of 8 KiB each.
    pub(crate) pages: u64,
    /// Bytes of log copied.
    pub(crate) log_bytes: u64,
    /// Position in the log up to which the copy has everything.
    pub(crate) end_lsn: u64,
    pub(crate) peak_rss_bytes: Option<u64>,
}

/// What `tpcc compact --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc compact --json"))]
pub(crate) struct Compacted {
    pub(crate) schema: String,
    pub(crate) notice: String,
    pub(crate) provenance: Provenance,
    pub(crate) machine: Machine,
    pub(crate) config: Config,
    /// From opening the database until it was closed, seconds.
    pub(crate) compact_s: f64,
    /// Bytes of the data file before.
    pub(crate) bytes_before: u64,
    /// Bytes of the data file after.
    pub(crate) bytes_after: u64,
    /// Pages that went to another place, of 8 KiB each.
    pub(crate) pages_moved: u64,
    pub(crate) peak_rss_bytes: Option<u64>,
}

/// What a file of acknowledgements says, against the database.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Acks {
    pub(crate) file: String,
    /// Runs they are of.
    pub(crate) runs: Vec<u32>,
    /// Acknowledged transactions that write; each was looked for.
    pub(crate) read_write: u64,
    /// Acknowledged transactions that only read.
    pub(crate) read_only: u64,
    /// Acknowledged orders that were rolled back.
    pub(crate) rolled_back: u64,
    /// Whether the last line had no end, and was passed over.
    pub(crate) torn: bool,
    /// How many of those looked for are not in the database.
    pub(crate) missing: u64,
    /// The first of them, and what the database has instead.
    pub(crate) first_missing: Vec<String>,
}

/// What `tpcc verify --json` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc verify --json"))]
pub(crate) struct Verified {
    pub(crate) schema: String,
    pub(crate) notice: String,
    pub(crate) provenance: Provenance,
    pub(crate) machine: Machine,
    pub(crate) config: Config,
    /// Whether everything acknowledged is there and every rule holds.
    pub(crate) passed: bool,
    pub(crate) acks: Acks,
    /// With findings the conditions are not checked.
    pub(crate) structure: Structure,
    pub(crate) check: Check,
    pub(crate) rows: Option<BTreeMap<String, u64>>,
    pub(crate) peak_rss_bytes: Option<u64>,
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

    /// The committed schemas say what is written. `UPDATE_SCHEMA=1 cargo test -p tpcc` rewrites them.
    #[test]
    fn the_schema_files_are_true() {
        let schemas = [
            ("run", schemars::schema_for!(Run)),
            ("load", schemars::schema_for!(Load)),
            ("check", schemars::schema_for!(Checked)),
            ("compact", schemars::schema_for!(Compacted)),
            ("copy", schemars::schema_for!(Copied)),
            ("verify", schemars::schema_for!(Verified)),
            ("index-fetch", schemars::schema_for!(crate::lab::index_fetch::Done)),
            ("tenants", schemars::schema_for!(crate::lab::tenants::TenantsReport)),
            ("latency", schemars::schema_for!(crate::lab::latency::LatencyReport)),
            ("reproduce", schemars::schema_for!(crate::lab::reproduce::Report)),
            ("compare", schemars::schema_for!(crate::lab::compare::ComparedRuns)),
            ("sweep", schemars::schema_for!(crate::lab::compare::sweep::Sweep)),
        ];
        for (name, mut schema) in schemas {
            schema.insert("$id".to_owned(), schema_of(name).into());
            let path = format!("{}/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
            let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            if std::env::var_os("UPDATE_SCHEMA").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == text, "{path} is not what the program writes; set UPDATE_SCHEMA=1 and test again");
        }
    }
}
