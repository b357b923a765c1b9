//! The command line: each flag once, with the type, range and default of its value. [`super::resolve`] decides the settings
//! that depend on several flags or on the machine.

#[cfg(feature = "lab")]
pub(crate) mod compare;
mod given;
#[cfg(feature = "lab")]
pub(crate) mod lab;
mod pacing;
#[cfg(feature = "postgres")]
pub(crate) mod remote;
pub(crate) mod report;
#[cfg(feature = "lab")]
pub(crate) mod shell;
#[cfg(feature = "lab")]
mod traced;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use storage::MAX_LOOP_THREADS;

pub(crate) use self::given::GivenFlags;
#[cfg(feature = "lab")]
pub(crate) use self::lab::LabCommand;
#[cfg(feature = "postgres")]
use self::remote::RemoteFlags;
use self::report::RunFileFlags;
use super::values::{EngineChoice, MAX_MIB, ctx_points, engine, number, seconds, seed};
use tpcc_core::report::model::version;
use tpcc_core::workload::generate::deck::Mix;
use tpcc_core::workload::generate::fresh_seed;
use tpcc_core::workload::settings::{
    Admission, Background, ClockKind, Durability, Isolation, LargePages, Latches, Partition, Scheduler, SiblingPolicy,
    Speculate, Switch, SwitchPoints, TeamUnit,
};
use tpcc_core::workload::txn::StepOrder;

/// A workload derived from TPC-C, on a storage engine of its own.
///
/// Not a TPC-C result: DEVIATIONS.md says where and why it differs.
#[derive(Parser, Debug)]
#[command(name = "tpcc", version = version(), disable_help_subcommand = true, max_term_width = 110)]
pub(crate) struct Cli {
    /// Command to carry out.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Command {
    /// Load if needed, run the mix, check, and print the measurements
    Run(RunFlags),
    /// Load warehouses into a directory or a server
    Load(LoadFlags),
    /// Check the twelve consistency conditions
    Check(CheckFlags),
    /// Copy a database into another directory
    Copy(CopyFlags),
    /// Compact the data file and return free space to the file system
    Compact(CompactFlags),
    /// Prove that every acknowledged transaction is present after a crash
    Verify(VerifyFlags),
    /// Commands of the laboratory.
    #[cfg(feature = "lab")]
    #[command(flatten)]
    InLab(LabCommand),
}

impl Command {
    /// Returns true if the command handles signals while it works. The first signal kills any other command.
    pub(crate) fn handles_signals(&self) -> bool {
        match self {
            Command::Compact(_) => false,
            #[cfg(feature = "lab")]
            Command::InLab(LabCommand::Report(_) | LabCommand::IndexFetch(_)) => false,
            _ => true,
        }
    }
}

/// `tpcc run`.
#[derive(Args, Debug)]
#[command(
    after_help = "All flags: tpcc run --help. Derived from TPC-C; not a TPC-C result (deviations: DEVIATIONS.md)."
)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) given: GivenFlags,
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    #[command(flatten)]
    pub(crate) loaded: WarehousesFlag,
    #[command(flatten)]
    pub(crate) work: WorkFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[cfg(feature = "postgres")]
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) transactions: TransactionFlags,
    #[command(flatten)]
    pub(crate) access: AccessFlags,
    #[command(flatten)]
    pub(crate) scheduling: SchedulingFlags,
    #[command(flatten)]
    pub(crate) speculation: SpeculationFlags,
    /// Admission order of terminal transactions: fifo, by arrival; batched, grouped by kind
    /// [default: fifo with threads, batched with steps]
    ///
    /// A batch has the size of a team, or 16 with threads. With 8 warehouses or more per worker, the concurrent transactions of a
    /// batch belong to different warehouses. Use the same order when you compare schedulers.
    #[arg(long, value_name = "fifo|batched", hide_possible_values = true, help_heading = "Scheduling")]
    #[arg(hide_short_help = true)]
    pub(crate) admission: Option<Admission>,
    #[command(flatten)]
    pub(crate) partition: PartitionFlags,
    #[command(flatten)]
    pub(crate) machine: WorkersFlag,
    /// Pin each worker to a core of its own, in the order of the cores; cores of one memory node are adjacent
    #[arg(long, help_heading = "Machine")]
    #[arg(hide_short_help = true)]
    pub(crate) pin: bool,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
    #[command(flatten)]
    pub(crate) files: RunFileFlags,
    /// Read hardware and system counters while measuring: cycles, misses, faults, by transaction type
    ///
    /// Counters that the machine does not offer or allow are null in --json, with the reason. Reading takes microseconds between
    /// two transactions. With --scheduler steps and itas, which interleave transactions on a worker, there are only totals.
    #[arg(long, value_name = "on|off", default_value = "off", hide_possible_values = true, help_heading = "Output")]
    #[arg(hide_short_help = true)]
    pub(crate) counters: Switch,
    /// Check the consistency conditions after the run
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = "Output")]
    pub(crate) check: Switch,
    /// Print a line for each acknowledged transaction: ack RUN TERMINAL SEQUENCE KIND
    ///
    /// Stdout then has these lines only; the summary goes to stderr. Each transaction that writes also stores its terminal's
    /// last sequence number in the database: 'tpcc verify --acks' compares both. Includes the warm-up.
    #[arg(long, help_heading = "Output")]
    #[arg(hide_short_help = true)]
    pub(crate) ack_stdout: bool,
    // Last, because help headings appear in the order of their first flags, and one of these flags is under "Output".
    #[command(flatten)]
    pub(crate) pacing: pacing::PacingFlags,
}

/// `tpcc load`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct LoadFlags {
    #[command(flatten)]
    pub(crate) given: GivenFlags,
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    #[command(flatten)]
    pub(crate) loaded: WarehousesFlag,
    /// Delete the database that the directory or the server's schema tpcc holds, then load
    ///
    /// Asks for confirmation first, unless the database is an incomplete load. Never deletes other files or tables.
    #[arg(long)]
    pub(crate) replace: bool,
    /// With --replace: skip the confirmation
    #[arg(long, requires = "replace")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[cfg(feature = "postgres")]
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) machine: WorkersFlag,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
    #[command(flatten)]
    pub(crate) random: SeedFlag,
}

/// `tpcc check`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct CheckFlags {
    #[command(flatten)]
    pub(crate) given: GivenFlags,
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    /// Also prove the structure of trees, indexes and free pages
    #[arg(long)]
    pub(crate) structure: bool,
    /// Also print one digest of all rows, to compare databases
    ///
    /// SHA-256 over all tables by name, each in key order. It does not depend on the layout of pages or on deleted rows.
    #[arg(long)]
    pub(crate) fingerprint: bool,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[cfg(feature = "postgres")]
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,
    #[command(flatten)]
    pub(crate) machine: WorkersFlag,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc copy`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
#[command(
    after_help = "The copy is a complete database: 'tpcc check --data DIR' and 'tpcc run --data DIR' work on it."
)]
pub(crate) struct CopyFlags {
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    /// Directory of the copy; it must not exist, or be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc compact`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
#[command(after_help = "Free pages are reused without this command. It may be interrupted and repeated at any time.")]
pub(crate) struct CompactFlags {
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// `tpcc verify`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
#[command(
    after_help = "Exit status 0: all acknowledged transactions are present and the database is consistent. 1: it is not, or FILE has no acknowledgements, which proves nothing."
)]
pub(crate) struct VerifyFlags {
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    /// Output of 'tpcc run --ack-stdout'; an incomplete last line is ignored
    #[arg(long, value_name = "FILE")]
    pub(crate) acks: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) machine: WorkersFlag,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// Location of the data.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct DirectoryFlag {
    /// Directory of the database [default: tpcc-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// Amount of data.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct WarehousesFlag {
    /// Number of warehouses [default: as loaded, or 1]
    ///
    /// One warehouse takes about 100 MB. A run may use fewer warehouses than are loaded.
    #[arg(long, value_name = "N", value_parser = number::<u32, 1, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) warehouses: Option<u32>,
}

/// Seed of the random number generator.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct SeedFlag {
    /// Seed of the random number generator [default: random, printed]
    #[arg(long, value_name = "N", default_value_t = fresh_seed(), hide_default_value = true, value_parser = seed)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

/// Load on the engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct WorkFlags {
    /// Total number of terminals [default: 10 per warehouse]
    ///
    /// A terminal submits its next transaction as soon as it has the answer to the last, unless --pacing is given. Each has a
    /// home warehouse, which worker (warehouse mod workers) serves. A number that does not fit into memory is refused.
    #[arg(long, value_name = "N", value_parser = number::<u32, 1, 10_000_000>, allow_negative_numbers = true)]
    pub(crate) terminals: Option<u32>,
    /// Duration of the measurement, in seconds [default: 10, or no limit with --transactions]
    #[arg(long, value_name = "S", value_parser = seconds::<1>, allow_negative_numbers = true)]
    pub(crate) duration: Option<Duration>,
    /// Duration of the warm-up, in seconds [default: 2, or 0 with --transactions]
    #[arg(long, value_name = "S", value_parser = seconds::<0>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) warmup: Option<Duration>,
    /// Stop the measurement after exactly N completed transactions
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, { i64::MAX }>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) transactions: Option<u64>,
    /// Transaction mix
    ///
    /// Each terminal draws from a deck of 200 cards, so that the shares are exact.
    #[arg(long, default_value = "standard", value_name = "MIX")]
    pub(crate) mix: Mix,
    /// Order of steps in a transaction: hot-last, contended rows last; spec, as specified
    #[arg(long, default_value = "hot-last", value_name = "hot-last|spec", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) order: StepOrder,
    /// Source of dates: real, the time of day; logical, transaction numbers, so that runs with one seed leave the same rows
    #[arg(long, value_name = "real|logical", default_value = "real", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) clock: ClockKind,
    #[command(flatten)]
    pub(crate) random: SeedFlag,
}

/// Engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineFlags {
    /// Engine: storage, floor, or postgres://USER@HOST:PORT/DATABASE
    ///
    /// floor: ordered maps in memory without locks, log or recovery, as a baseline. postgres: a server that speaks PostgreSQL's
    /// protocol, for run, load and check; the password comes from PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass);
    /// connections are not encrypted.
    #[arg(long, default_value = "storage", value_name = "ENGINE", value_parser = engine)]
    pub(crate) engine: EngineChoice,
    #[command(flatten)]
    pub(crate) resources: ResourceFlags,
}

/// Resources of the storage engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct ResourceFlags {
    /// Size of the buffer pool, in MiB, at least 16 [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = number::<i64, { i64::MIN }, MAX_MIB>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) buffer_pool: Option<i64>,
    /// Threads of flushing, cleaning and checkpoints: their own (threads) or the workers (inline) [default: threads]
    ///
    /// inline makes a run under Valgrind deterministic.
    #[arg(long, value_name = "threads|inline", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) background: Option<Background>,
    /// Log volume between checkpoints, in MiB [default: 2048]
    #[arg(long, value_name = "MIB", value_parser = number::<u64, 1, MAX_MIB>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) checkpoint_mib: Option<u64>,
    /// Page checksums; off for measurement only [default: on]
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) page_checksums: Option<Switch>,
}

/// Durability and isolation of transactions.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct TransactionFlags {
    /// Durability of a commit: sync, acknowledged when it is on disk; async, acknowledged at once [default: sync]
    ///
    /// With async a crash may lose the last commits, but not consistency.
    #[arg(long, value_name = "sync|async", hide_possible_values = true)]
    pub(crate) durability: Option<Durability>,
    /// Isolation level of all five transactions [default: serializable]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<Isolation>,
}

/// Access to pages: latches, memory and prefetching. Only engines with pages have these flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct AccessFlags {
    #[command(flatten)]
    pub(crate) latches: LatchFlags,
    /// Use of 2 MiB memory pages: off; try, where available; on, required; code, try and the program's code [default: try]
    ///
    /// For the frames, page table and shortcuts of the pool, the ring of the log, the lock table and the stacks of fibers, each
    /// of which then takes 2 MiB. Code is copied into anonymous memory at its addresses; an error if that gets no large page.
    #[arg(long, value_name = "on|off|try|code", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) large_pages: Option<LargePages>,
    /// Prefetch groups of rows, so that their cache misses overlap [default: on]
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) prefetch: Option<Switch>,
    /// Preload the buffer pool before the warm-up if the database fits [default: on]
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) preload: Option<Switch>,
    /// Minimum delay of each page read, in microseconds; for measurement only [default: 0]
    ///
    /// The reading thread sleeps, which models the latency of a device on a machine that reads from memory.
    #[arg(long, value_name = "US", value_parser = number::<u64, 0, 10_000_000>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) read_delay_us: Option<u64>,
}

/// Kind of page latch.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct LatchFlags {
    /// Page latch kind [default: optimistic]
    ///
    /// optimistic: readers validate a version. plain: readers hold a shared latch. super: hot pages have one reader word per core.
    #[arg(long, value_name = "optimistic|plain|super", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) latches: Option<Latches>,
    /// Reader words of a promoted latch, at least one for each core, with --latches super [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 128>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) latch_words: Option<u64>,
}

/// Scheduler of transactions.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct SchedulingFlags {
    /// Scheduler of a worker's transactions: threads, steps (teams of fibers) or itas (sibling groups of fibers)
    ///
    /// threads: one transaction after the other. steps: the fibers of a team execute the same code together and switch at fixed
    /// points, so that they share instruction cache misses and overlap data misses (STEPS, VLDB 2004). itas: the fibers of a
    /// group run back to back, and on several workers at the same time, so that they share cached data (ITAS, AJIT 2009); a
    /// group is a warehouse.
    #[arg(long, default_value = "threads", value_name = "SCHEDULER", hide_possible_values = true)]
    pub(crate) scheduler: Scheduler,
    /// Concurrent transactions of a worker, with --scheduler steps or itas [default: 16]
    ///
    /// 1 means no switches. Limited by the terminals of the worker and, with 8 warehouses or more per worker, by its warehouses:
    /// then the transactions of a team belong to different warehouses.
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 256>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) team_size: Option<usize>,
    /// Unit of work of a team, with --scheduler steps: transaction, or operation (single statements) [default: transaction]
    ///
    /// Not with --ctx-points none.
    #[arg(long, value_name = "transaction|operation", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) teams: Option<TeamUnit>,
    /// Switch points of a team, with --scheduler steps: a file of 'tpcc footprint --place', all, or none
    /// [default: built-in placement]
    #[arg(long, value_name = "FILE|all|none", value_parser = ctx_points)]
    #[arg(hide_short_help = true)]
    pub(crate) ctx_points: Option<SwitchPoints>,
    /// Scheduling policy, with --scheduler itas: fair, tas or itas [default: itas]
    ///
    /// fair: the transaction that has run least is next. tas: each worker runs the transactions of a warehouse one after the
    /// other. itas: as tas, and workers that have transactions of the same warehouse run them at the same time.
    #[arg(long, value_name = "fair|tas|itas", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) policy: Option<SiblingPolicy>,
    /// Time slice, in microseconds, with --scheduler itas; it ends with the transaction that exceeds it [default: 50]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 1_000_000>, allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) slice_us: Option<u64>,
}

/// Speculative execution of one transaction on several cores.
#[derive(Args, Debug)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationFlags {
    /// Run the loop of a transaction on several threads: on, off, or auto (if measured to be faster)
    ///
    /// The resulting rows are the same. Meant for short response times on cores that would be idle (TLS, TOCS 2008); with as
    /// many workers as cores it can only lose, which auto detects.
    #[arg(long, value_name = "on|off|auto", default_value = "off", hide_possible_values = true)]
    pub(crate) speculate: Speculate,
    /// Threads of a loop, for each worker, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<usize, 1, { MAX_LOOP_THREADS as i64 }>)]
    #[arg(allow_negative_numbers = true)]
    #[arg(hide_short_help = true)]
    pub(crate) epoch_workers: usize,
}

/// Partitioning among the workers.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct PartitionFlags {
    /// Partitioning among the workers: none; client (warehouses); server (frames of the pool); both [default: client]
    ///
    /// client: one worker serves all terminals of a warehouse, or several if there are more workers than warehouses; without it
    /// they are distributed over all workers, and the rows travel between cores. server: pages that a worker reads or creates
    /// take frames of its own, in chunks of 2 MiB, on its memory node (NUMA). More than eight threads share parts. Preloaded
    /// pages lie anywhere. The log and the lock table are shared in either case.
    #[arg(long, value_name = "none|client|server|both", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) partition: Option<Partition>,
}

/// Resources of the machine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct WorkersFlag {
    /// Worker threads [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 1_024>, allow_negative_numbers = true)]
    pub(crate) workers: Option<usize>,
}

/// Machine-readable output.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct JsonFlag {
    /// Write all results to FILE as one JSON object; - for stdout
    ///
    /// With - the summary goes to stderr. The schemas are in crates/tpcc/schema; the object's `schema` is its schema's `$id`.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
