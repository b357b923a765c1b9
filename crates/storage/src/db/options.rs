//! Options for opening a database.

use std::fmt::{Debug, Formatter};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::config::{Background, Durability, FrameHomes, Isolation, LargePages, LatchKind};
use crate::base::error::OpenError;
use crate::base::hook::{Hook, ThreadHook};
use crate::base::ids::PAGE_SIZE;
use crate::db::bounds::within;
use crate::db::services::Services;
use crate::latch::{MOST_WORDS, PROMOTE_AT};
use crate::lock::NAME_BITS;
use crate::log::LogBounds;
use crate::recovery::progress::{OnRecovery, Recovery};
use crate::table::declared::MAX_INDEXES;

/// Settings of a database. Each method returns the changed settings.
///
/// ```
/// use storage::{Durability, Options};
/// # let directory = std::env::temp_dir().join(format!("lockstep-options-{}", std::process::id()));
/// let db = Options::new().buffer_pool(64 << 20).durability(Durability::Async).open(&directory)?;
/// # drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Options {
    pub(crate) pool_bytes: u64,
    pub(crate) durability: Durability,
    pub(crate) isolation: Isolation,
    pub(crate) latches: LatchKind,
    /// `None`: one for each core.
    pub(crate) latch_words: Option<usize>,
    pub(crate) promote_at: u16,
    pub(crate) large_pages: LargePages,
    pub(crate) frame_homes: FrameHomes,
    pub(crate) background: Background,
    pub(crate) services: Option<Services>,
    pub(crate) checkpoint_bytes: u64,
    /// `None`: derived from `checkpoint_bytes`.
    pub(crate) log_limit: Option<u64>,
    pub(crate) page_checksums: bool,
    pub(crate) transactions: usize,
    pub(crate) escalate_at: u32,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) lock_name_bits: u32,
    pub(crate) create: bool,
    pub(crate) reruns: u32,
    /// `None`: derived from the log's limit.
    pub(crate) segment_bytes: Option<u64>,
    pub(crate) ring_bytes: usize,
    pub(crate) reader_bytes: usize,
    pub(crate) lock_buckets: usize,
    /// Frames per shard of the pool: set by campaigns that need several shards in a small pool.
    pub(crate) shard_frames: Option<usize>,
    /// True if the sizes are checked against the bounds of this module; false after [`Options::sizes`].
    bounded: bool,
    pub(crate) hook: Arc<dyn Hook>,
    pub(crate) clock: Clock,
    pub(crate) database_id: Option<u64>,
    pub(crate) on_recovery: Option<OnRecovery>,
}

/// Smallest log buffer, in bytes. A record takes at most a quarter of the buffer. The largest record ends a bulk load:
/// it holds the roots of a table and of all its indexes, which must be installed atomically.
const LEAST_LOG_BUFFER: usize = 512 << 10;
const _: () = assert!(LEAST_LOG_BUFFER / 4 > (1 + MAX_INDEXES) * (PAGE_SIZE + 64) + 1024);

/// Largest log buffer, in bytes.
const MOST_LOG_BUFFER: usize = 1 << 30;
/// Range of log file sizes, in bytes.
const LOG_SEGMENT: RangeInclusive<u64> = 64 << 10..=1 << 30;
/// Range of the number of concurrent transactions.
const TRANSACTIONS: RangeInclusive<usize> = 1..=1000;
/// Range of the number of lock table buckets. With fewer buckets unrelated locks would share a latch too often; more
/// would not fit any processor cache.
const LOCK_BUCKETS: RangeInclusive<usize> = 1 << 8..=1 << 24;

/// Size of the largest data file, in bytes. A larger pool would have no use.
pub(super) const MOST_POOL_BYTES: u64 = (1 << 28) * PAGE_SIZE as u64;

/// Smallest buffer pool, in bytes.
pub const MIN_POOL_BYTES: u64 = 1 << 20;

/// Sizes for campaigns. Extreme sizes exercise rare cases: a segment that ends in the middle of redo, a record that
/// spans several reads of a log reader, locks that share a bucket.
#[cfg(feature = "testing")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Extremes {
    /// Size of one log file in bytes, at least 8 KiB. An existing database keeps its own size.
    pub segment_bytes: u64,
    /// Size of the log buffer in bytes. A record takes at most a quarter of it; the roots that a bulk load installs
    /// must fit, 8 KiB for the table and for each index.
    pub ring_bytes: usize,
    /// Bytes that a restart reads from a log file at once.
    pub reader_bytes: usize,
    /// Number of buckets of the record lock table.
    pub lock_buckets: usize,
    /// Frames per shard of the buffer pool, at least 16; 2,048 without this setting. A thread's home takes a quarter of
    /// this number at once under [`FrameHomes::PerThread`].
    pub shard_frames: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            pool_bytes: 256 << 20,
            durability: Durability::default(),
            isolation: Isolation::default(),
            latches: LatchKind::default(),
            latch_words: None,
            promote_at: PROMOTE_AT,
            large_pages: LargePages::default(),
            frame_homes: FrameHomes::default(),
            background: Background::default(),
            services: None,
            checkpoint_bytes: 2048 << 20,
            log_limit: None,
            page_checksums: true,
            transactions: 128,
            escalate_at: 5000,
            lock_timeout: None,
            lock_name_bits: NAME_BITS,
            create: true,
            reruns: 100,
            segment_bytes: None,
            ring_bytes: 8 << 20,
            reader_bytes: 512 << 10,
            lock_buckets: 1 << 15,
            shard_frames: None,
            bounded: true,
            hook: Arc::new(ThreadHook::default()),
            clock: Clock::machine(),
            database_id: None,
            on_recovery: None,
        }
    }
}

impl Options {
    /// Returns the defaults: a buffer pool of 256 MiB, `sync`, serializable, created if absent.
    pub fn new() -> Options {
        Options::default()
    }

    /// Size of the buffer pool in bytes; at least [`MIN_POOL_BYTES`]. The address space is reserved at once, the memory
    /// is allocated on first use. Sizes above 2 TiB, the largest data file, count as 2 TiB.
    pub fn buffer_pool(mut self, bytes: u64) -> Options {
        self.pool_bytes = bytes;
        self
    }

    /// Point at which commits are acknowledged.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Isolation of transactions that set no level of their own.
    pub fn isolation(mut self, isolation: Isolation) -> Options {
        self.isolation = isolation;
        self
    }

    /// Page latch kind.
    pub fn latches(mut self, latches: LatchKind) -> Options {
        self.latches = latches;
        self
    }

    /// Reader words of a promoted latch under [`LatchKind::Super`], 1 to 128 and at least one for each core that this
    /// process may run on, which is the default. Each word takes 64 bytes per promoted latch. If there are more threads
    /// than words, threads share words. All databases of a process share one table of words; the largest requested
    /// number applies to all.
    pub fn latch_words(mut self, words: usize) -> Options {
        self.latch_words = Some(words);
        self
    }

    /// Number of reads that promote a latch under [`LatchKind::Super`]: for tests that need many promotions.
    #[doc(hidden)]
    pub fn promote_at(mut self, reads: u16) -> Options {
        self.promote_at = reads.max(1);
        self
    }

    /// Large page setting for the memory that is in constant use; see [`LargePages`].
    /// [`Database::large_pages`](crate::Database::large_pages) returns the result.
    pub fn large_pages(mut self, asked: LargePages) -> Options {
        self.large_pages = asked;
        self
    }

    /// Placement of pages in the frames of the pool; see [`FrameHomes`].
    pub fn frame_homes(mut self, homes: FrameHomes) -> Options {
        self.frame_homes = homes;
        self
    }

    /// Driver of the background services.
    pub fn background(mut self, background: Background) -> Options {
        self.background = background;
        self
    }

    /// Runs the background work on the threads of `services`, which databases share, instead of threads of this
    /// database alone. Only valid with [`Background::Threads`].
    pub fn services(mut self, services: &Services) -> Options {
        self.services = Some(services.clone());
        self
    }

    /// Bytes of log written between two checkpoints, at least 64 KiB; 2 GiB by default. A restart reads about this
    /// much.
    ///
    /// The limit of the log files is four times this size, 64 MiB, or four files of [`Options::log_segment`] bytes,
    /// whichever is largest. If pages cannot be written fast enough for the limit, transactions are slowed. If an old
    /// transaction's first records keep the log from being truncated, [`Stats::log_holder`](crate::Stats::log_holder)
    /// names the transaction; if the limit is reached because of it, statements that write fail with
    /// [`StorageError::LogFull`](crate::StorageError::LogFull) until it has ended. One transaction may write about half
    /// of the limit.
    pub fn checkpoint_every(mut self, bytes: u64) -> Options {
        self.checkpoint_bytes = bytes.max(64 << 10);
        self
    }

    /// Maximum size of the log files in bytes: for tests, whose load is short.
    #[doc(hidden)]
    pub fn log_limit(mut self, bytes: u64) -> Options {
        self.log_limit = Some(bytes);
        self
    }

    /// Verifies pages when they are read (on by default). Turn this off for measurements only: damage then goes
    /// undetected.
    pub fn page_checksums(mut self, on: bool) -> Options {
        self.page_checksums = on;
        self
    }

    /// Maximum number of concurrent transactions, 1 to 1,000; 128 by default. Each takes about 5 KiB of memory, running
    /// or not.
    pub fn transactions(mut self, limit: usize) -> Options {
        self.transactions = limit;
        self
    }

    /// Number of record locks of one transaction in one table above which the table is locked instead (lock
    /// escalation).
    pub fn escalate_at(mut self, locks: u32) -> Options {
        self.escalate_at = locks.max(1);
        self
    }

    /// Maximum time that a statement waits for one lock before it fails with
    /// [`TxnError::LockTimeout`](crate::TxnError::LockTimeout); unlimited by default. Deadlocks are detected at once,
    /// independent of the limit. Waits for disks and for space are not limited.
    pub fn lock_timeout(mut self, limit: Duration) -> Options {
        self.lock_timeout = Some(limit);
        self
    }

    /// Number of bits of a key's hash that name its locks; all of them by default. For tests in which keys share lock
    /// names, which costs waits and nothing else.
    #[doc(hidden)]
    pub fn lock_name_bits(mut self, bits: u32) -> Options {
        self.lock_name_bits = bits.min(NAME_BITS);
        self
    }

    /// Creates the database if there is none (on by default); otherwise a missing database is [`OpenError::Missing`].
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Number of times that [`Database::transact`](crate::Database::transact) runs a deadlock victim again before it
    /// gives up.
    pub fn reruns(mut self, times: u32) -> Options {
        self.reruns = times;
        self
    }

    /// Size of one log file in bytes, 64 KiB to 1 GiB; by default 16 MiB, or less where the log's limit is below 256
    /// MiB (see [`Options::checkpoint_every`]). An existing database keeps its own size.
    ///
    /// The number of log files is at most a quarter of the process's limit of file descriptors (`ulimit -n`); each file
    /// takes up to two. With small files, checkpoints are therefore taken more often than every `checkpoint_every`
    /// bytes.
    pub fn log_segment(mut self, bytes: u64) -> Options {
        self.segment_bytes = Some(bytes);
        self
    }

    /// Size of the log buffer in bytes, 512 KiB to 1 GiB, rounded up to a power of two; 8 MiB by default. All of it is
    /// allocated at once.
    pub fn log_buffer(mut self, bytes: usize) -> Options {
        self.ring_bytes = bytes;
        self
    }

    /// Number of buckets of the record lock table, 256 to 16,777,216, rounded up to a power of two; 32,768 by default.
    /// Each bucket takes 8 bytes. Locks of one bucket form a list, so there should be more buckets than locks held at
    /// once. The number of locks is not limited.
    pub fn lock_table(mut self, buckets: usize) -> Options {
        self.lock_buckets = buckets;
        self
    }

    /// Sets sizes without checking their bounds, and sizes that programs do not need to choose.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn sizes(mut self, sizes: Extremes) -> Options {
        self.segment_bytes = Some(sizes.segment_bytes);
        self.ring_bytes = sizes.ring_bytes;
        self.reader_bytes = sizes.reader_bytes;
        self.lock_buckets = sizes.lock_buckets;
        self.shard_frames = Some(sizes.shard_frames.max(16));
        self.bounded = false;
        self
    }

    /// Scheduler that runs the storage engine: see [`Hook`].
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Options {
        self.hook = hook;
        self
    }

    /// Simulated clock in place of the machine's, in nanoseconds. Storing to `now_ns` sets the time; each begin of a
    /// transaction advances it by one. With this, [`Background::Stepped`] or [`Background::Inline`], a
    /// [`SimDisk`](crate::disk::SimDisk), a [`Options::database_id`] and a [`Options::hook`] that runs one worker at a
    /// time, the engine's behaviour depends only on the calls that it receives and their order.
    pub fn clock(mut self, now_ns: Arc<AtomicU64>) -> Options {
        self.clock = Clock::simulated(now_ns);
        self
    }

    /// Identifier written to the files of a new database, not zero; random by default. Set it if two runs must write
    /// the same bytes.
    pub fn database_id(mut self, id: u64) -> Options {
        self.database_id = Some(id.max(1));
        self
    }

    /// Callback that receives the progress of a restart, if one is necessary. A break cancels the open. Part of redo
    /// may be done by then; a later open repeats it without harm.
    pub fn on_recovery(mut self, hear: impl FnMut(&Recovery) -> ControlFlow<()> + Send + 'static) -> Options {
        self.on_recovery = Some(Box::new(hear));
        self
    }

    /// Maximum size of the log files in bytes.
    pub(super) fn log_limit_bytes(&self) -> u64 {
        self.log_limit.unwrap_or(LogBounds::limit(self.checkpoint_bytes))
    }

    /// Size of one log file: the chosen size, or a sixteenth of the log's limit.
    pub(super) fn log_file_bytes(&self) -> u64 {
        let usual = || (self.log_limit_bytes() / 16).next_power_of_two().clamp(4 << 20, 16 << 20);
        self.segment_bytes.unwrap_or_else(usual)
    }

    /// Checks that all sizes lie within their bounds.
    ///
    /// # Errors
    /// [`OpenError::Setting`] for the first size that is out of bounds.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        within("buffer_pool", self.pool_bytes, &(MIN_POOL_BYTES..=u64::MAX))?;
        if self.services.is_some() && self.background != Background::Threads {
            let what = format!("of no use with {:?}, under which the program does their work", self.background);
            return Err(OpenError::Setting { setting: "services", what });
        }
        within("transactions", self.transactions, &TRANSACTIONS)?;
        if self.latches == LatchKind::Super {
            words_suffice(self.latch_words, cores())?;
        }
        if !self.bounded {
            return Ok(());
        }
        if let Some(bytes) = self.segment_bytes {
            within("log_segment", bytes, &LOG_SEGMENT)?;
        }
        within("log_buffer", self.ring_bytes, &(LEAST_LOG_BUFFER..=MOST_LOG_BUFFER))?;
        within("lock_table", self.lock_buckets, &LOCK_BUCKETS)
    }
}

/// Number of cores that this process may run on.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Checks that superlatches have a reader word for each core.
fn words_suffice(words: Option<usize>, cores: usize) -> Result<(), OpenError> {
    let setting = "latch_words";
    if cores > MOST_WORDS {
        let what = format!(
            "superlatches have at most {MOST_WORDS} reader words, one for each core, and there are {cores} cores; run on \
             fewer cores (taskset), or choose latches 'optimistic' or 'plain'"
        );
        return Err(OpenError::Setting { setting, what });
    }
    let Some(words) = words else { return Ok(()) };
    if words < cores {
        let what = format!("{words}; each of the {cores} cores needs one: ask for {cores} to {MOST_WORDS}");
        return Err(OpenError::Setting { setting, what });
    }
    within(setting, words, &(1..=MOST_WORDS))
}

impl Debug for Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("pool_bytes", &self.pool_bytes)
            .field("durability", &self.durability)
            .field("isolation", &self.isolation)
            .field("latches", &self.latches)
            .field("background", &self.background)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superlatches_need_a_word_for_each_core() {
        let told = |words, cores| words_suffice(words, cores).map_err(|e| e.to_string());
        assert_eq!((told(None, 1), told(None, MOST_WORDS), told(Some(8), 8)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(told(Some(2), 4).unwrap_err(), "latch_words: 2; each of the 4 cores needs one: ask for 4 to 128");
        assert!(told(None, MOST_WORDS + 1).unwrap_err().contains("129 cores; run on fewer cores (taskset)"));
        assert_eq!(told(Some(129), 4).unwrap_err(), "latch_words: 129; at most 128 is possible");
    }
}
