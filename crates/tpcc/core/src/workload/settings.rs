//! Settings: the values that a user can select, and the configuration of a command, in which defaults replace missing
//! values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use storage::measure::LoopMeasurement;

use super::error::{Error, command};
use super::generate::deck::Mix;
use super::txn::StepOrder;

macro_rules! choice {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
        pub enum $name {
            $($(#[$vdoc])* #[value(name = $text)] $variant),*
        }

        impl $name {
            /// Returns the name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text),*
                }
            }
        }
    )*};
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// enabled
    On,
    /// disabled
    Off,
}

choice! {
    /// Database engine.
    EngineKind {
        /// storage engine of this workspace
        Storage = "storage",
        /// ordered maps in memory without any service, a baseline
        Floor = "floor",
        /// server that speaks PostgreSQL's protocol
        Postgres = "postgres",
    }
    /// Durability of a commit at the time of its response.
    Durability {
        /// answer once the commit is on disk
        Sync = "sync",
        /// answer at once; a crash may lose the last commits
        Async = "async",
    }
    /// Isolation level of transactions.
    Isolation {
        /// as if transactions ran one after the other
        Serializable = "serializable",
        /// rows that were read do not change; new rows may appear
        RepeatableRead = "repeatable-read",
        /// reads return only committed rows
        ReadCommitted = "read-committed",
    }
    /// Kind of page latch.
    Latches {
        /// readers take no latch and validate a version
        Optimistic = "optimistic",
        /// readers share a reader/writer latch
        Plain = "plain",
        /// as plain, with reader words for each core in hot latches that are mostly read
        Super = "super",
    }
    /// Memory that is placed in large pages.
    LargePages {
        /// large pages as with try, and an error where the system gives none
        On = "on",
        /// no large pages
        Off = "off",
        /// large pages for the engine's memory and the stacks of fibers, as far as the system gives them
        Try = "try",
        /// large pages as with try, and for the program's code; an error where that gets none
        Code = "code",
    }
    /// Division of the warehouses and of the engine's buffer frames among the workers.
    Partition {
        /// no division
        None = "none",
        /// warehouses: one worker serves all terminals of a warehouse
        Client = "client",
        /// frames of the buffer pool
        Server = "server",
        /// warehouses and frames
        Both = "both",
    }
    /// Threads that run the engine's background services.
    Background {
        /// threads of the engine's own
        Threads = "threads",
        /// the workers
        Inline = "inline",
    }
    /// Form of a history: the operations of its transactions.
    HistoryForm {
        /// appends to lists and reads of lists
        ListAppend = "list-append",
        /// writes, deletes and reads of row versions
        Register = "register",
    }
    /// Scheduler of transactions.
    Scheduler {
        /// thread of the worker, one transaction after the other
        Threads = "threads",
        /// team of fibers, in step
        Steps = "steps",
        /// fibers of sibling groups, one group for each home warehouse
        Itas = "itas",
    }
    /// Admission order of terminal transactions.
    Admission {
        /// order of arrival
        Fifo = "fifo",
        /// groups of transactions of one kind, drawn ahead
        Batched = "batched",
    }
    /// Number of threads on which the loops of transactions run.
    Speculate {
        /// loops always run on several threads
        On = "on",
        /// loops run on one thread
        Off = "off",
        /// loops run on several threads if a governor measures that this is faster
        Auto = "auto",
    }
    /// Source of the dates that transactions store.
    ClockKind {
        /// time of day
        Real = "real",
        /// transaction numbers
        Logical = "logical",
    }
    /// Delay between a response and the terminal's next request.
    Pacing {
        /// next request at once after the answer
        None = "none",
        /// next request after the keying and think times of the specification
        Spec = "spec",
    }
    /// Unit of work that a team of fibers executes together.
    TeamUnit {
        /// whole transactions of a kind
        Transaction = "transaction",
        /// one statement at a time
        Operation = "operation",
    }
}

impl Switch {
    /// Returns true if the switch is [`Switch::On`].
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

impl Partition {
    /// Returns true if one worker serves all terminals of a warehouse.
    pub fn divides_clients(self) -> bool {
        matches!(self, Partition::Client | Partition::Both)
    }

    /// Returns true if workers have buffer frames of their own.
    pub fn divides_server(self) -> bool {
        matches!(self, Partition::Server | Partition::Both)
    }
}

impl Admission {
    /// Returns the default admission order: batches of transactions of one kind if workers have teams that execute
    /// transactions or statements together.
    pub fn default_for(team_size: usize, teams_of: Option<TeamUnit>) -> Admission {
        if team_size > 1 && teams_of.is_some() { Admission::Batched } else { Admission::Fifo }
    }
}

/// Configuration of the storage engine.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory of the database.
    pub data: PathBuf,
    /// Number of threads that will have a session of the engine.
    pub workers: usize,
    /// Size of the buffer pool in MiB.
    pub buffer_pool_mib: u64,
    /// Durability of a commit at the time of its response.
    pub durability: Durability,
    /// Isolation of all five transactions.
    pub isolation: Isolation,
    /// Kind of page latch.
    pub latches: Latches,
    /// Number of reader words of a superlatch; `None` for one word per core.
    pub latch_words: Option<usize>,
    /// True if [`super::ops::Ops::prefetch`] is enabled.
    pub prefetch: bool,
    /// True if the database is read into the buffer pool before the warm-up.
    pub preload: bool,
    /// Memory that is placed in large pages.
    pub large_pages: LargePages,
    /// True if each worker thread places pages in its own partition of the buffer frames.
    pub own_frames: bool,
    /// Threads that run the engine's background services.
    pub background: Background,
    /// Size of the log between two checkpoints, in MiB.
    pub checkpoint_mib: u64,
    /// True if pages have checksums.
    pub page_checksums: bool,
    /// Simulated delay of each read of pages, in microseconds.
    pub read_delay_us: u64,
    /// Maximum number of concurrent transactions of a worker.
    pub team_size: usize,
    /// Number of threads of a transaction's loop that runs in place, with the thread of the transaction.
    pub loop_threads: usize,
    /// What an experiment changes about the loops of transactions.
    pub loops: LoopMeasurement,
}

/// Scheduling of the transactions of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// One transaction after the other.
    Threads,
    /// A team of fibers.
    Steps {
        /// Number of concurrent transactions of a worker.
        team_size: usize,
        /// Unit of work that a team executes together.
        teams_of: TeamUnit,
        /// Points at which the fibers switch.
        points: SwitchPoints,
    },
    /// Fibers of sibling groups.
    Itas {
        /// Number of concurrent transactions of a worker.
        fibers: usize,
        /// Policy that selects the next fiber.
        policy: SiblingPolicy,
        /// Length of a time slice in microseconds.
        slice_us: u64,
    },
}

/// Policy that selects the next fiber of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum SiblingPolicy {
    /// smallest vruntime next
    Fair,
    /// siblings one after the other on each worker
    Tas,
    /// as tas; workers of a warehouse run its group at the same time
    Itas,
}

impl SiblingPolicy {
    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.mode().name()
    }

    /// Returns the mode of the scheduler.
    pub fn mode(self) -> itas::auto::Mode {
        match self {
            SiblingPolicy::Fair => itas::auto::Mode::Fair,
            SiblingPolicy::Tas => itas::auto::Mode::Tas,
            SiblingPolicy::Itas => itas::auto::Mode::Itas,
        }
    }
}

/// Points at which a team switches fibers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchPoints {
    /// Points of the built-in selection, which was found to be best.
    BuiltIn,
    /// All points.
    All,
    /// No points: transactions of a team run one after the other, each to its end.
    None,
    /// Points that are listed in a file.
    File(PathBuf),
}

impl Scheduling {
    /// Returns the maximum number of concurrent transactions of a worker.
    pub fn team_size(&self) -> usize {
        match self {
            Scheduling::Threads => 1,
            Scheduling::Steps { team_size, .. } => *team_size,
            Scheduling::Itas { fibers, .. } => *fibers,
        }
    }

    /// Returns the name on the command line and in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Scheduling::Threads => Scheduler::Threads.name(),
            Scheduling::Steps { .. } => Scheduler::Steps.name(),
            Scheduling::Itas { .. } => Scheduler::Itas.name(),
        }
    }

    /// Returns the unit of work that a team executes together. `None` without teams or without switch points.
    pub fn teams_of(&self) -> Option<TeamUnit> {
        match self {
            Scheduling::Threads | Scheduling::Itas { .. } | Scheduling::Steps { points: SwitchPoints::None, .. } => {
                None
            }
            Scheduling::Steps { teams_of, .. } => Some(*teams_of),
        }
    }

    /// Returns the policy that selects the next fiber. `None` without sibling groups.
    pub fn policy(&self) -> Option<SiblingPolicy> {
        if let Scheduling::Itas { policy, .. } = self { Some(*policy) } else { None }
    }

    /// Returns the length of a time slice in microseconds. `None` without sibling groups.
    pub fn slice_us(&self) -> Option<u64> {
        if let Scheduling::Itas { slice_us, .. } = self { Some(*slice_us) } else { None }
    }

    /// Returns the name of the switch points on the command line and in reports. `None` without teams.
    pub fn points(&self) -> Option<String> {
        match self {
            Scheduling::Threads | Scheduling::Itas { .. } => None,
            Scheduling::Steps { points, .. } => Some(points.name()),
        }
    }
}

impl SwitchPoints {
    /// Returns the name on the command line and in reports.
    pub fn name(&self) -> String {
        match self {
            SwitchPoints::BuiltIn => "built-in".to_owned(),
            SwitchPoints::All => "all".to_owned(),
            SwitchPoints::None => "none".to_owned(),
            SwitchPoints::File(path) => path.display().to_string(),
        }
    }
}

impl StoreConfig {
    /// Default size of the buffer pool in MiB.
    pub const DEFAULT_POOL_MIB: u64 = 1_024;

    /// Returns the default configuration for the database in `data` and `workers` threads.
    pub fn defaults(data: &Path, workers: usize) -> StoreConfig {
        StoreConfig {
            data: data.to_owned(),
            workers,
            buffer_pool_mib: StoreConfig::DEFAULT_POOL_MIB,
            durability: Durability::Sync,
            isolation: Isolation::Serializable,
            latches: Latches::Optimistic,
            latch_words: None,
            prefetch: true,
            preload: false,
            large_pages: LargePages::Try,
            own_frames: false,
            background: Background::Threads,
            checkpoint_mib: 2_048,
            page_checksums: true,
            read_delay_us: 0,
            team_size: 1,
            loop_threads: 1,
            loops: LoopMeasurement::default(),
        }
    }

    /// Returns the path of the database directory, as given by the user.
    pub fn shown(&self) -> String {
        self.data.display().to_string()
    }
}

/// Configuration of `tpcc run`. [`Self::resolve_counts`] resolves the values that depend on the database.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Database engine.
    pub engine: EngineKind,
    /// Configuration of the engine.
    pub store: StoreConfig,
    /// Scheduling of the transactions of a worker.
    pub scheduling: Scheduling,
    /// Division of the warehouses and of the engine's buffer frames among the workers.
    pub partition: Partition,
    /// True if each worker is pinned to a core of its own.
    pub pin: bool,
    /// Requested number of warehouses in use; `None` for all loaded warehouses.
    pub warehouses: Option<u32>,
    /// Requested number of terminals; `None` for ten terminals per warehouse.
    pub terminals: Option<u32>,
    /// True if the user requested a number of workers; false if the number is derived from the machine.
    pub workers_requested: bool,
    /// Delay between a response and the terminal's next request.
    pub pacing: Pacing,
    /// File for the results of deferred Deliveries; `None` without pacing.
    pub delivery_results: Option<PathBuf>,
    /// Length of the warm-up and of the measurement.
    pub length: Length,
    /// Transaction mix: shares of the kinds of transactions.
    pub mix: Mix,
    /// Order of the steps of a transaction.
    pub steps: StepOrder,
    /// Admission order of terminal transactions.
    pub admission: Admission,
    /// Condition for loops on several threads.
    pub speculate: Speculate,
    /// Source of the dates that transactions store.
    pub clock: ClockKind,
    /// Seed of the random number generator.
    pub seed: u64,
    /// True if workers read hardware and operating system counters.
    pub counters: bool,
    /// True if the database is checked after the run.
    pub check: bool,
    /// True if acknowledgements are printed, and written to the database.
    pub acks: bool,
    /// File for the complete result in JSON.
    pub json: Option<PathBuf>,
    /// File for the HTML page.
    pub report: Option<PathBuf>,
    /// File for the time series with one line per second (CSV).
    pub csv: Option<PathBuf>,
    /// File for the latencies (HdrHistogram log).
    pub hdr: Option<PathBuf>,
}

/// Values of `run` that depend on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedCounts {
    /// Number of warehouses in use.
    pub warehouses: u32,
    /// Total number of terminals.
    pub terminals: u32,
    /// Number of worker threads.
    pub workers: usize,
}

impl RunConfig {
    /// Default number of terminals per warehouse (4.2.2).
    pub const TERMINALS_OF_A_WAREHOUSE: u32 = 10;

    /// Returns the placement of the terminals of a warehouse.
    pub fn placement(&self) -> itas::Placement {
        if self.partition.divides_clients() { itas::Placement::Packed } else { itas::Placement::Spread }
    }

    /// Returns the number of warehouses to load if there is no database.
    pub fn warehouses_to_load(&self) -> u32 {
        self.warehouses.unwrap_or(1)
    }

    /// Resolves the values that depend on the number of loaded warehouses.
    pub fn resolve_counts(&self, loaded: u32) -> Result<ResolvedCounts, Error> {
        let warehouses = self.warehouses.unwrap_or(loaded);
        if warehouses > loaded {
            let data = self.store.shown();
            let fewer = command("run", &data, &format!("--warehouses {loaded}"));
            return Err(Error::usage(format!("--warehouses {warehouses}: {data} holds {loaded}")).help(format!(
                "{fewer}, or load {warehouses} into another directory: 'tpcc load --data OTHER --warehouses {warehouses}'"
            )));
        }
        let terminals = self.terminals.unwrap_or(warehouses.saturating_mul(RunConfig::TERMINALS_OF_A_WAREHOUSE));
        let mut workers = self.store.workers;
        if (terminals as usize) < workers {
            if self.workers_requested {
                let served_by = if self.engine == EngineKind::Postgres { "connections" } else { "workers" };
                return Err(Error::usage(format!("--terminals {terminals}: fewer than the {workers} {served_by}"))
                    .help(format!("pass --{served_by} {terminals}, or --terminals {workers}")));
            }
            workers = terminals as usize;
        }
        Ok(ResolvedCounts { warehouses, terminals, workers })
    }
}

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Duration of the warm-up before the measurement.
    pub warmup: Duration,
    /// Duration of the measurement; `None` without a time limit.
    pub duration: Option<Duration>,
    /// Exact number of measured transactions; `None` without a limit of their number.
    pub transactions: Option<u64>,
}
