//! Settings: the values that a user chooses among, and what a command is to do once every default is filled in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

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
            /// As typed and as printed.
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
    /// Which engine.
    EngineKind {
        /// storage engine of this workspace
        Storage = "storage",
        /// ordered maps in memory without any service, the yardstick
        Floor = "floor",
        /// server that speaks PostgreSQL's protocol
        Postgres = "postgres",
    }
    /// When a commit is answered.
    Durability {
        /// answer once the commit is on disk
        Sync = "sync",
        /// answer at once; a crash may lose the last commits
        Async = "async",
    }
    /// What a transaction may see of others.
    Isolation {
        /// as if one ran after the other
        Serializable = "serializable",
        /// rows read stay, new ones may appear
        RepeatableRead = "repeatable-read",
        /// only committed rows are seen
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
    /// Which memory lies in large pages.
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
    /// What of the load and of the engine is divided among the workers.
    Partition {
        /// no division
        None = "none",
        /// warehouses: all terminals of one are of one worker
        Client = "client",
        /// frames of the buffer pool
        Server = "server",
        /// warehouses and frames
        Both = "both",
    }
    /// Who drives the engine's services.
    Background {
        /// threads of the engine's own
        Threads = "threads",
        /// the workers
        Inline = "inline",
    }
    /// What the transactions of a history do.
    Form {
        /// appends to lists and reads of lists
        ListAppend = "list-append",
        /// writes, deletes and reads of row versions
        Register = "register",
    }
    /// Who runs transactions.
    Scheduler {
        /// thread of the worker, one transaction after the other
        Threads = "threads",
        /// team of fibers, in step
        Steps = "steps",
        /// fibers of sibling groups, one group for each home warehouse
        Itas = "itas",
    }
    /// In which order terminals' transactions are admitted.
    Admission {
        /// order of arrival
        Fifo = "fifo",
        /// cards dealt ahead, so that transactions of a kind come together
        Batched = "batched",
    }
    /// Whether loops of transactions run ahead of them, on several threads.
    Speculate {
        /// loops always run ahead
        On = "on",
        /// loops never run ahead
        Off = "off",
        /// loops run ahead if a governor that measures both finds it quicker
        Auto = "auto",
    }
    /// What dates are made of.
    ClockKind {
        /// time of day
        Real = "real",
        /// numbers of transactions
        Logical = "logical",
    }
    /// How soon a terminal asks again.
    Pacing {
        /// next request at once after the answer
        None = "none",
        /// next request after the keying and think times of the specification
        Spec = "spec",
    }
    /// What a team of fibers does together.
    TeamsOf {
        /// whole transactions of a kind
        Transaction = "transaction",
        /// one statement at a time
        Operation = "operation",
    }
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

impl Partition {
    /// Whether a terminal's warehouse is one worker's.
    pub fn of_clients(self) -> bool {
        matches!(self, Partition::Client | Partition::Both)
    }

    /// Whether workers have frames of their own.
    pub fn of_the_server(self) -> bool {
        matches!(self, Partition::Server | Partition::Both)
    }
}

impl Admission {
    /// What is not asked for: batches where teams run whole transactions or statements together.
    pub fn usual(team_size: usize, teams_of: Option<TeamsOf>) -> Admission {
        if team_size > 1 && teams_of.is_some() { Admission::Batched } else { Admission::Fifo }
    }
}

/// How the storage engine is opened.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory of the database.
    pub data: PathBuf,
    /// Threads that will have a session.
    pub workers: usize,
    /// MiB of the buffer pool.
    pub buffer_pool_mib: u64,
    /// When a commit is answered.
    pub durability: Durability,
    /// Isolation of all five transactions.
    pub isolation: Isolation,
    /// Kind of page latch.
    pub latches: Latches,
    /// Reader words of a superlatch; none: one for each core.
    pub latch_words: Option<usize>,
    /// Whether [`super::ops::Ops::prefetch`] does something.
    pub prefetch: bool,
    /// Whether to read the database into the pool before the warm-up.
    pub preload: bool,
    /// Which memory lies in large pages.
    pub large_pages: LargePages,
    /// Whether each thread gives pages frames of its own home.
    pub own_frames: bool,
    /// Who drives the engine's services.
    pub background: Background,
    /// MiB of log between checkpoints.
    pub checkpoint_mib: u64,
    /// Whether pages carry checksums.
    pub page_checksums: bool,
    /// Microseconds by which each read of pages is delayed.
    pub read_delay_us: u64,
    /// Transactions of a worker that may be under way at once.
    pub team_size: usize,
}

/// How transactions share a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// One after the other.
    Threads,
    /// As a team of fibers.
    Steps {
        /// Transactions of a worker under way at once.
        team_size: usize,
        /// What a team does together.
        teams_of: TeamsOf,
        /// Where they switch.
        points: CtxPoints,
    },
    /// As fibers of sibling groups.
    Itas {
        /// Transactions of a worker under way at once.
        fibers: usize,
        /// Which fiber is next.
        policy: SiblingPolicy,
        /// Microseconds of a slice.
        slice_us: u64,
    },
}

/// Which fiber of a worker is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum SiblingPolicy {
    /// smallest vruntime next
    Fair,
    /// siblings one after the other on each worker
    Tas,
    /// as tas, with all siblings on one worker
    Packed,
    /// siblings on all workers at the same time
    Itas,
}

impl SiblingPolicy {
    /// As typed and as printed.
    pub fn name(self) -> &'static str {
        self.mode().name()
    }

    /// The scheduler's.
    pub fn mode(self) -> itas::auto::Mode {
        match self {
            SiblingPolicy::Fair => itas::auto::Mode::Fair,
            SiblingPolicy::Tas => itas::auto::Mode::Tas,
            SiblingPolicy::Packed => itas::auto::Mode::Packed,
            SiblingPolicy::Itas => itas::auto::Mode::Itas,
        }
    }
}

/// At which points a team switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CtxPoints {
    /// Those that proved best.
    BuiltIn,
    /// Every one.
    All,
    /// None: transactions of a team run one after the other, each to its end.
    None,
    /// As a file says.
    File(PathBuf),
}

impl Scheduling {
    /// Transactions of a worker that may be under way at once.
    pub fn team_size(&self) -> usize {
        match self {
            Scheduling::Threads => 1,
            Scheduling::Steps { team_size, .. } => *team_size,
            Scheduling::Itas { fibers, .. } => *fibers,
        }
    }

    /// As typed and as printed.
    pub fn name(&self) -> &'static str {
        match self {
            Scheduling::Threads => Scheduler::Threads.name(),
            Scheduling::Steps { .. } => Scheduler::Steps.name(),
            Scheduling::Itas { .. } => Scheduler::Itas.name(),
        }
    }

    /// What a team does together; none for threads, and where nothing is switched.
    pub fn teams_of(&self) -> Option<TeamsOf> {
        match self {
            Scheduling::Threads | Scheduling::Itas { .. } | Scheduling::Steps { points: CtxPoints::None, .. } => None,
            Scheduling::Steps { teams_of, .. } => Some(*teams_of),
        }
    }

    /// Which fiber is next; none but with sibling groups.
    pub fn policy(&self) -> Option<SiblingPolicy> {
        if let Scheduling::Itas { policy, .. } = self { Some(*policy) } else { None }
    }

    /// Microseconds of a slice; none but with sibling groups.
    pub fn slice_us(&self) -> Option<u64> {
        if let Scheduling::Itas { slice_us, .. } = self { Some(*slice_us) } else { None }
    }

    /// As typed and as printed; none for threads.
    pub fn points(&self) -> Option<String> {
        match self {
            Scheduling::Threads | Scheduling::Itas { .. } => None,
            Scheduling::Steps { points, .. } => Some(points.name()),
        }
    }
}

impl CtxPoints {
    /// As typed and as printed.
    pub fn name(&self) -> String {
        match self {
            CtxPoints::BuiltIn => "built-in".to_owned(),
            CtxPoints::All => "all".to_owned(),
            CtxPoints::None => "none".to_owned(),
            CtxPoints::File(path) => path.display().to_string(),
        }
    }
}

impl StoreConfig {
    /// MiB of the buffer pool where no flag says.
    pub const USUAL_POOL_MIB: u64 = 1_024;

    /// Every default, for the database in `data` and so many threads.
    pub fn usual(data: &Path, workers: usize) -> StoreConfig {
        StoreConfig {
            data: data.to_owned(),
            workers,
            buffer_pool_mib: StoreConfig::USUAL_POOL_MIB,
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
        }
    }

    /// The directory as the user named it.
    pub fn shown(&self) -> String {
        self.data.display().to_string()
    }
}

/// `tpcc run`, but for what depends on the database ([`Self::warehouses`], [`Self::terminals`]).
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Which engine.
    pub engine: EngineKind,
    /// How it is opened.
    pub store: StoreConfig,
    /// How transactions share a worker.
    pub scheduling: Scheduling,
    /// What is divided among the workers.
    pub partition: Partition,
    /// Whether each worker stays on a core of its own.
    pub pin: bool,
    /// As asked: what is loaded, when none.
    pub warehouses: Option<u32>,
    /// As asked: ten a warehouse, when none.
    pub terminals: Option<u32>,
    /// Threads were asked for, not taken from the machine.
    pub workers_asked: bool,
    /// How soon terminals ask again.
    pub pacing: Pacing,
    /// Where the results of deferred Deliveries go; none without pacing.
    pub delivery_results: Option<PathBuf>,
    /// When it ends.
    pub length: Length,
    /// Shares.
    pub mix: Mix,
    /// Order of steps.
    pub steps: StepOrder,
    /// In which order terminals' transactions are admitted.
    pub admission: Admission,
    /// Whether loops of transactions run ahead of them.
    pub speculate: Speculate,
    /// Threads that a loop runs on.
    pub epoch_workers: usize,
    /// What dates are made of.
    pub clock: ClockKind,
    /// Everything random follows from it.
    pub seed: u64,
    /// Whether workers read counters of the processor and the system.
    pub counters: bool,
    /// Whether to check afterwards.
    pub check: bool,
    /// Whether to print acknowledgements, and to write them in the database.
    pub acks: bool,
    /// Where to write everything.
    pub json: Option<PathBuf>,
    /// Where its page goes.
    pub report: Option<PathBuf>,
    /// Where its seconds go.
    pub csv: Option<PathBuf>,
    /// Where its times go.
    pub hdr: Option<PathBuf>,
}

/// What `run` settles once it has seen the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Warehouses that take part.
    pub warehouses: u32,
    /// Terminals in all.
    pub terminals: u32,
    /// Threads.
    pub workers: usize,
}

impl RunConfig {
    /// Terminals of a warehouse unless their number is asked for (4.2.2).
    pub const TERMINALS_OF_A_WAREHOUSE: u32 = 10;

    /// Where the terminals of a warehouse are served: as the policy of sibling groups wants it, else as partitioned.
    pub fn placement(&self) -> itas::Placement {
        match self.scheduling.policy() {
            Some(policy) => policy.mode().placement(),
            None if self.partition.of_clients() => itas::Placement::Packed,
            None => itas::Placement::Spread,
        }
    }

    /// Warehouses to load when there is no database.
    pub fn warehouses_to_load(&self) -> u32 {
        self.warehouses.unwrap_or(1)
    }

    /// Settles what depends on how many warehouses there are.
    pub fn shape(&self, loaded: u32) -> Result<Shape, Error> {
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
            if self.workers_asked {
                let served_by = if self.engine == EngineKind::Postgres { "connections" } else { "workers" };
                return Err(Error::usage(format!("--terminals {terminals}: fewer than the {workers} {served_by}"))
                    .help(format!("pass --{served_by} {terminals}, or --terminals {workers}")));
            }
            workers = terminals as usize;
        }
        Ok(Shape { warehouses, terminals, workers })
    }
}

/// How long a run lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Time before measuring starts.
    pub warmup: Duration,
    /// Time measured; without limit when none.
    pub duration: Option<Duration>,
    /// Exactly this many transactions are measured; without limit when none.
    pub transactions: Option<u64>,
}
