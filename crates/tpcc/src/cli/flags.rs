//! The command line: each flag once, with the type, the range and the default of its value. What depends on several flags
//! or on the machine is for [`super::resolve`].

#[cfg(feature = "lab")]
pub(crate) mod compare;
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
use speculate::MOST_WORKERS;

#[cfg(feature = "lab")]
pub(crate) use self::lab::LabCommand;
#[cfg(feature = "postgres")]
use self::remote::RemoteFlags;
use self::report::RunFileFlags;
use super::values::{EngineChoice, MOST_MIB, ctx_points, engine, number, seconds, seed};
use tpcc_core::report::model::version;
use tpcc_core::workload::generate::deck::Mix;
use tpcc_core::workload::generate::fresh_seed;
use tpcc_core::workload::settings::{
    Admission, Background, ClockKind, CtxPoints, Durability, Isolation, LargePages, Latches, Partition, Scheduler,
    SiblingPolicy, Speculate, Switch, TeamsOf,
};
use tpcc_core::workload::txn::StepOrder;

/// A workload derived from TPC-C, on a storage engine of its own.
///
/// Not a TPC-C result: DEVIATIONS.md says where and why it differs.
#[derive(Parser, Debug)]
#[command(name = "tpcc", version = version(), disable_help_subcommand = true, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Command {
    /// Load if needed, run the mix, check, and print what was measured
    Run(RunFlags),
    /// Fill a directory with warehouses
    Load(LoadFlags),
    /// Check the twelve consistency conditions
    Check(CheckFlags),
    /// Copy a database into another directory
    Copy(CopyFlags),
    /// Move pages together and give the rest of the data file back to the system
    Compact(CompactFlags),
    /// Recover if needed, then prove that every acknowledged transaction is there
    Verify(VerifyFlags),
    /// Those of the laboratory.
    #[cfg(feature = "lab")]
    #[command(flatten)]
    InLab(LabCommand),
}

impl Command {
    /// Whether it looks for signals while it works. Any other is ended by the first, as if the power went.
    pub(crate) fn hears_signals(&self) -> bool {
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
#[command(after_help = "Derived from TPC-C; not a TPC-C result (deviations: DEVIATIONS.md).")]
pub(crate) struct RunFlags {
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
    pub(crate) scheduling: SchedulingFlags,
    #[command(flatten)]
    pub(crate) speculation: SpeculationFlags,
    /// In which order a worker admits its terminals' transactions: fifo, as they arrive; batched, cards dealt ahead, so
    /// that those of a kind come together [default: fifo with threads, batched with steps]
    ///
    /// A batch is as large as a team, or 16 with threads. From 8 warehouses a worker on, those of a batch that are under
    /// way together are of different ones. To compare schedulers like for like, give both the same.
    #[arg(long, value_name = "fifo|batched", hide_possible_values = true, help_heading = "Scheduling")]
    pub(crate) admission: Option<Admission>,
    #[command(flatten)]
    pub(crate) partition: PartitionFlags,
    #[command(flatten)]
    pub(crate) machine: WorkersFlag,
    /// Keep each worker on a core of its own, in the order of the cores; those of a memory node come side by side
    #[arg(long, help_heading = "Machine")]
    pub(crate) pin: bool,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
    #[command(flatten)]
    pub(crate) files: RunFileFlags,
    /// Read counters of the processor and the system while measuring: cycles, misses, faults, by kind of transaction
    ///
    /// What the machine does not offer or not allow is null in --json, with the reason. Reading takes microseconds between two
    /// transactions. With --scheduler steps and itas, whose transactions share a worker in turns, kinds are not told apart.
    #[arg(long, value_name = "on|off", default_value = "off", hide_possible_values = true, help_heading = "Output")]
    pub(crate) counters: Switch,
    /// Check the consistency conditions after the run
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true, help_heading = "Output")]
    pub(crate) check: Switch,
    /// Print a line for each transaction whose answer may leave: ack RUN TERMINAL SEQUENCE KIND
    ///
    /// Nothing else goes to stdout then; the summary goes to stderr. Each transaction that writes also writes its terminal's
    /// last sequence in the database: 'tpcc verify --acks' compares. Warm-up included.
    #[arg(long, help_heading = "Output")]
    pub(crate) ack_stdout: bool,
    // Last: headings stand in the order in which flags first have them, and one of these is of the output.
    #[command(flatten)]
    pub(crate) pacing: pacing::PacingFlags,
}

/// `tpcc load`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct LoadFlags {
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    #[command(flatten)]
    pub(crate) loaded: WarehousesFlag,
    /// Delete the database that the directory or the server's schema tpcc holds, then load
    ///
    /// Says what goes and asks first, unless that is only an incomplete load. Beside files or tables that are not the
    /// database's it deletes nothing.
    #[arg(long)]
    pub(crate) replace: bool,
    /// With --replace: do not ask
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
    pub(crate) directory: DirectoryFlag,
    /// Also prove the structure of trees, indexes and free pages
    #[arg(long)]
    pub(crate) structure: bool,
    /// Also print one digest of all rows, by which databases can be compared
    ///
    /// SHA-256 over all tables by name, each in key order. Where rows lie and what was deleted makes no difference.
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
    after_help = "The copy is a database of its own: 'tpcc check --data DIR' and 'tpcc run --data DIR' work on it."
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
#[command(after_help = "Free pages are used again without this. It may be interrupted at any time and begun again.")]
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
    after_help = "Exit status 0: everything acknowledged is there, and the database is whole. 1: not so, or FILE has no acknowledgement, which proves nothing."
)]
pub(crate) struct VerifyFlags {
    #[command(flatten)]
    pub(crate) directory: DirectoryFlag,
    /// What 'tpcc run --ack-stdout' printed; a last line without its end is passed over
    #[arg(long, value_name = "FILE")]
    pub(crate) acks: PathBuf,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) machine: WorkersFlag,
    #[command(flatten)]
    pub(crate) output: JsonFlag,
}

/// Where the data is.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct DirectoryFlag {
    /// Directory of the database [default: tpcc-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// How much data there is.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
pub(crate) struct WarehousesFlag {
    /// Warehouses [default: what is loaded, or 1]
    ///
    /// One warehouse is about 100 MB. A run may use fewer than are loaded.
    #[arg(long, value_name = "N", value_parser = number::<u32, 1, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) warehouses: Option<u32>,
}

/// What random numbers begin with.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct SeedFlag {
    /// Seed of everything random [default: a new one, printed]
    #[arg(long, value_name = "N", default_value_t = fresh_seed(), hide_default_value = true, value_parser = seed)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

/// What is asked of the engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct WorkFlags {
    /// Terminals in all [default: 10 per warehouse]
    ///
    /// A terminal asks again as soon as it has its answer, unless --pacing says otherwise. Each has a home warehouse, served by
    /// worker (warehouse mod workers). What the memory does not hold is refused, as with --warehouses and --buffer-pool.
    #[arg(long, value_name = "N", value_parser = number::<u32, 1, 10_000_000>, allow_negative_numbers = true)]
    pub(crate) terminals: Option<u32>,
    /// Seconds measured [default: 10, or no limit with --transactions]
    #[arg(long, value_name = "S", value_parser = seconds::<1>, allow_negative_numbers = true)]
    pub(crate) duration: Option<Duration>,
    /// Seconds before that are not counted [default: 2, or 0 with --transactions]
    #[arg(long, value_name = "S", value_parser = seconds::<0>, allow_negative_numbers = true)]
    pub(crate) warmup: Option<Duration>,
    /// Measure exactly N completed transactions of all terminals together
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, { i64::MAX }>, allow_negative_numbers = true)]
    pub(crate) transactions: Option<u64>,
    /// Shares of the five transactions
    ///
    /// Dealt from a deck of 200 cards per terminal, so that the shares are exact.
    #[arg(long, default_value = "standard", value_name = "MIX")]
    pub(crate) mix: Mix,
    /// What dates are made of: real, the time of day; logical, numbers of transactions, so that runs of one seed leave the
    /// same rows
    #[arg(long, value_name = "real|logical", default_value = "real", hide_possible_values = true)]
    pub(crate) clock: ClockKind,
    #[command(flatten)]
    pub(crate) random: SeedFlag,
}

/// The engine and what it promises.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineFlags {
    /// storage; floor: ordered maps without any service, the yardstick; or postgres://USER@HOST:PORT/DATABASE: a server that
    /// speaks PostgreSQL's protocol, for run, load and check
    ///
    /// A password comes from PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass). Connections are not encrypted.
    #[arg(long, default_value = "storage", value_name = "ENGINE", value_parser = engine)]
    pub(crate) engine: EngineChoice,
    /// MiB of the buffer pool, at least 16 [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = number::<i64, { i64::MIN }, MOST_MIB>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) buffer_pool: Option<i64>,
    /// Who flushes, cleans and checkpoints: threads of their own, or the workers (inline) [default: threads]
    ///
    /// `inline` makes a run under Valgrind deterministic.
    #[arg(long, value_name = "threads|inline", hide_possible_values = true)]
    pub(crate) background: Option<Background>,
    /// MiB of log between checkpoints [default: 2048]
    #[arg(long, value_name = "MIB", value_parser = number::<u64, 1, MOST_MIB>, allow_negative_numbers = true)]
    pub(crate) checkpoint_mib: Option<u64>,
    /// Checksums of pages; off for measurement only [default: on]
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    pub(crate) page_checksums: Option<Switch>,
}

/// How transactions are run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct TransactionFlags {
    /// When an answer leaves: sync, when it is on disk; async, at once [default: sync]
    ///
    /// With async a crash may lose the last commits, never consistency.
    #[arg(long, value_name = "sync|async", hide_possible_values = true)]
    pub(crate) durability: Option<Durability>,
    /// Isolation of all five transactions [default: serializable]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) isolation: Option<Isolation>,
    /// How readers of a page keep writers away [default: optimistic]
    #[arg(long, value_name = "optimistic|plain|super", hide_possible_values = true)]
    pub(crate) latches: Option<Latches>,
    /// Reader words of a promoted latch, at least one for each core, with --latches super [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 128>, allow_negative_numbers = true)]
    pub(crate) latch_words: Option<u64>,
    /// Which memory lies in large pages, of 2 MiB: try, what the system gives; on, the same, and an error where it gives
    /// none; off; code, try and the program's code, too [default: try]
    ///
    /// The pool's frames, page table and shortcuts, the log's ring, the table of locks and the stacks of fibers. A stack then
    /// takes 2 MiB. Code is copied to memory of no file, at the addresses that it had; an error where that gets no large page.
    #[arg(long, value_name = "on|off|try|code", hide_possible_values = true)]
    pub(crate) large_pages: Option<LargePages>,
    /// Announce groups of rows, so that their cache misses overlap [default: on]
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    pub(crate) prefetch: Option<Switch>,
    /// Read the database into the pool before the warm-up, if it fits [default: on]
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    pub(crate) preload: Option<Switch>,
    /// Delay each read of pages by so many microseconds, at least; for measurement only [default: 0]
    ///
    /// The thread that reads sleeps: what a device with latency would cost, on a machine that reads from memory.
    #[arg(long, value_name = "US", value_parser = number::<u64, 0, 10_000_000>, allow_negative_numbers = true)]
    pub(crate) read_delay_us: Option<u64>,
    /// Order of steps in a transaction: hot-last, contended rows late; spec, as written
    #[arg(long, default_value = "hot-last", value_name = "hot-last|spec", hide_possible_values = true)]
    pub(crate) order: StepOrder,
}

/// Who runs next.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct SchedulingFlags {
    /// How transactions share a worker: threads, one after the other; steps, as a team of fibers; itas, as fibers of sibling
    /// groups, one group for each home warehouse
    ///
    /// A team goes through the same code together: at points each member lets the next one run, so that one pays for
    /// fetching instructions, and data arrives while others work (STEPS, VLDB 2004). Siblings run one after the other, and on
    /// all workers at the same time, so that what one loads into the caches is used by many (ITAS, AJIT 2009).
    #[arg(long, default_value = "threads", value_name = "SCHEDULER", hide_possible_values = true)]
    pub(crate) scheduler: Scheduler,
    /// Transactions of a worker under way at once, with --scheduler steps or itas [default: 16]
    ///
    /// With 1 nothing is ever switched. At most as many as the worker has terminals, and from 8 warehouses a worker on at
    /// most as many as it has warehouses: then those of a team are of different ones.
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 256>, allow_negative_numbers = true)]
    pub(crate) team_size: Option<usize>,
    /// What a team does together, with --scheduler steps: transaction, whole ones of a kind, in step; operation, a
    /// statement at a time, with a team for each [default: transaction]
    ///
    /// Means nothing with --ctx-points none.
    #[arg(long, value_name = "transaction|operation", hide_possible_values = true)]
    pub(crate) teams: Option<TeamsOf>,
    /// Points where a team switches, with --scheduler steps: a file that 'tpcc footprint --place' wrote, all, or none
    /// [default: built-in placement]
    #[arg(long, value_name = "FILE|all|none", value_parser = ctx_points)]
    pub(crate) ctx_points: Option<CtxPoints>,
    /// Which fiber is next, with --scheduler itas: fair, tas, packed or itas [default: itas]
    ///
    /// packed is tas with each warehouse on one worker, as the other schedulers have them; the others spread its terminals
    /// over all workers.
    #[arg(long, value_name = "fair|tas|packed|itas", hide_possible_values = true)]
    pub(crate) policy: Option<SiblingPolicy>,
    /// Time of a slice, in microseconds, with --scheduler itas: it ends with the transaction that exceeds it [default: 50]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) slice_us: Option<u64>,
}

/// Whether one transaction uses several cores.
#[derive(Args, Debug)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationFlags {
    /// Run the loop of a transaction ahead of it, on several threads: on, always; auto, where a governor that measures both
    /// finds it quicker
    ///
    /// The rows are the same as without. For a transaction that has to be over soon, on cores that would idle (TLS, TOCS
    /// 2008); with as many workers as cores it can only lose, and auto sees that.
    #[arg(long, value_name = "on|off|auto", default_value = "off", hide_possible_values = true)]
    pub(crate) speculate: Speculate,
    /// Threads of each worker that a loop runs on where it runs ahead, 1 to 256
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<usize, 1, { MOST_WORKERS as i64 }>)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) epoch_workers: usize,
}

/// What is divided among the workers.
#[derive(Args, Debug)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct PartitionFlags {
    /// What is divided among the workers: none; client, the warehouses, so that a terminal's is one worker's; server, the
    /// frames of the pool; both [default: client]
    ///
    /// Without client the terminals of a warehouse are dealt to all workers, so that its rows and pages travel between cores.
    /// With server a worker gives the pages that it reads and creates frames of its own, in chunks of 2 MiB; where there are
    /// several memory nodes (NUMA), from the part of the pool that belongs to its node, and it touches them first. Threads
    /// share a part when they are more than eight. Pages that are preloaded lie anywhere. The log is one for all in either
    /// case, and so is the table of locks, of which each warehouse has an eighth.
    #[arg(long, value_name = "none|client|server|both", hide_possible_values = true)]
    pub(crate) partition: Option<Partition>,
}

/// What of the machine is used.
#[derive(Args, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct WorkersFlag {
    /// Threads [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<usize, 1, 1_024>, allow_negative_numbers = true)]
    pub(crate) workers: Option<usize>,
}

/// Where figures go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct JsonFlag {
    /// Write everything to FILE as one JSON object; - for stdout, where nothing else goes then
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
