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
use crate::buffer::contention::CONTENDED_AT;
use crate::db::bounds::within;
use crate::db::loop_measurement::LoopMeasurement;
use crate::db::services::Services;
use crate::latch::{MOST_WORDS, PROMOTE_AT};
use crate::lock::NAME_BITS;
use crate::log::LogBounds;
use crate::recovery::progress::{OnRecovery, Recovery};
use crate::table::declared::MAX_INDEXES;

/// Settings of a database. Each method changes one setting and returns the settings.
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
    /// Number of reader words of a promoted latch; `None`: one word for each core.
    pub(crate) latch_words: Option<usize>,
    pub(crate) promote_at: u16,
    pub(crate) large_pages: LargePages,
    pub(crate) frame_homes: FrameHomes,
    pub(crate) background: Background,
    pub(crate) services: Option<Services>,
    pub(crate) checkpoint_bytes: u64,
    /// Maximum size of the log files in bytes; `None`: derived from `checkpoint_bytes`.
    pub(crate) log_limit: Option<u64>,
    pub(crate) page_checksums: bool,
    pub(crate) transactions: usize,
    pub(crate) escalate_at: u32,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) lock_name_bits: u32,
    pub(crate) create: bool,
    pub(crate) reruns: u32,
    pub(crate) loop_threads: Option<usize>,
    pub(crate) loop_measurement: LoopMeasurement,
    /// Size of one log file in bytes; `None`: derived from the maximum size of the log files.
    pub(crate) segment_bytes: Option<u64>,
    pub(crate) ring_bytes: usize,
    pub(crate) reader_bytes: usize,
    pub(crate) lock_buckets: usize,
    /// Number of frames per shard of the buffer pool. Set by test campaigns that need several shards in a small pool.
    pub(crate) shard_frames: Option<usize>,
    /// Number of failed latches that make a leaf contended. See `buffer/contention.rs`.
    pub(crate) contended_at: u32,
    /// True if sizes are checked against the bounds in this module; false after a call of [`Options::sizes`].
    bounded: bool,
    pub(crate) hook: Arc<dyn Hook>,
    pub(crate) clock: Clock,
    pub(crate) database_id: Option<u64>,
    pub(crate) on_recovery: Option<OnRecovery>,
}

/// Smallest log buffer, in bytes. A record takes at most a quarter of the buffer. The largest record is written at the
/// end of a bulk load: it contains the root pages of a table and of all its indexes, which must be installed
/// atomically.
const LEAST_LOG_BUFFER: usize = 512 << 10;
const _: () = assert!(LEAST_LOG_BUFFER / 4 > (1 + MAX_INDEXES) * (PAGE_SIZE + 64) + 1024);

/// Largest log buffer, in bytes.
const MOST_LOG_BUFFER: usize = 1 << 30;
/// Range of log file sizes, in bytes.
const LOG_SEGMENT: RangeInclusive<u64> = 64 << 10..=1 << 30;
/// Range of the number of concurrent transactions.
const TRANSACTIONS: RangeInclusive<usize> = 1..=1000;
/// Range of the number of lock table buckets. With fewer buckets, unrelated locks would share a latch too often. More
/// buckets would not fit any processor cache.
const LOCK_BUCKETS: RangeInclusive<usize> = 1 << 8..=1 << 24;

/// Maximum size of a data file, in bytes. Larger sizes of the buffer pool are reduced to this size.
pub(super) const MOST_POOL_BYTES: u64 = (1 << 28) * PAGE_SIZE as u64;

/// Smallest buffer pool, in bytes.
pub const MIN_POOL_BYTES: u64 = 1 << 20;

/// Largest number of threads of a loop.
pub const MAX_LOOP_THREADS: usize = 64;

/// Sizes for test campaigns. Extreme sizes exercise rare cases: a log segment that ends during redo, a record that
/// spans several reads of a log reader, locks that share a bucket.
#[cfg(feature = "testing")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Extremes {
    /// Size of one log file in bytes, at least 8 KiB. An existing database keeps its own size.
    pub segment_bytes: u64,
    /// Size of the log buffer in bytes. A record takes at most a quarter of the buffer. The record of a bulk load must
    /// fit: 8 KiB for the root page of the table and 8 KiB for each index.
    pub ring_bytes: usize,
    /// Number of bytes that a restart reads from a log file by one call.
    pub reader_bytes: usize,
    /// Number of buckets of the record lock table.
    pub lock_buckets: usize,
    /// Number of frames per shard of the buffer pool, at least 16; 2,048 by default. Under [`FrameHomes::PerThread`]
    /// the home of a thread takes a quarter of this number of frames at a time.
    pub shard_frames: usize,
    /// Number of failed latches that make a leaf contended, at least 2; 32 by default.
    pub contended_at: u32,
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
            loop_threads: None,
            loop_measurement: LoopMeasurement::default(),
            segment_bytes: None,
            ring_bytes: 8 << 20,
            reader_bytes: 512 << 10,
            lock_buckets: 1 << 17,
            shard_frames: None,
            contended_at: CONTENDED_AT,
            bounded: true,
            hook: Arc::new(ThreadHook::default()),
            clock: Clock::machine(),
            database_id: None,
            on_recovery: None,
        }
    }
}

impl Options {
    /// Returns the default settings: a buffer pool of 256 MiB, synchronous commits, serializable isolation, creation of
    /// a missing database.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the size of the buffer pool in bytes, at least [`MIN_POOL_BYTES`]. The address space is reserved when the
    /// database is opened; the memory is allocated on first use. Sizes above 2 TiB, the maximum size of a data file,
    /// count as 2 TiB.
    pub fn buffer_pool(mut self, bytes: u64) -> Options {
        self.pool_bytes = bytes;
        self
    }

    /// Sets the point at which commits are acknowledged.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Sets the isolation level of transactions that are begun without a level.
    pub fn isolation(mut self, isolation: Isolation) -> Options {
        self.isolation = isolation;
        self
    }

    /// Sets the page latch kind.
    pub fn latches(mut self, latches: LatchKind) -> Options {
        self.latches = latches;
        self
    }

    /// Sets the number of reader words of a promoted latch under [`LatchKind::Super`]: 1 to 128, and at least one word
    /// for each core that this process may run on. By default there is one word for each of these cores. Each word
    /// takes 64 bytes per promoted latch. If there are more threads than words, threads share words. All databases of a
    /// process share one table of words; the largest number that a database requests applies to all.
    pub fn latch_words(mut self, words: usize) -> Options {
        self.latch_words = Some(words);
        self
    }

    /// Sets the number of reads after which a latch is promoted under [`LatchKind::Super`], for tests that need many
    /// promotions.
    #[doc(hidden)]
    pub fn promote_at(mut self, reads: u16) -> Options {
        self.promote_at = reads.max(1);
        self
    }

    /// Sets the use of large pages for the memory that is in constant use; see [`LargePages`].
    /// [`Database::large_pages`](crate::Database::large_pages) returns the result.
    pub fn large_pages(mut self, asked: LargePages) -> Options {
        self.large_pages = asked;
        self
    }

    /// Sets the placement of pages in the frames of the buffer pool; see [`FrameHomes`].
    pub fn frame_homes(mut self, homes: FrameHomes) -> Options {
        self.frame_homes = homes;
        self
    }

    /// Sets the threads that run the background services.
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

    /// Sets the number of bytes of log that are written between two checkpoints: at least 64 KiB; 2 GiB by default. A
    /// restart reads about this amount of log.
    ///
    /// The limit of the log files is four times this size, 64 MiB, or four files of [`Options::log_segment`] bytes,
    /// whichever is largest. If pages cannot be written fast enough for the limit, transactions are slowed. If an old
    /// transaction's first records keep the log from being truncated, [`Stats::log_holder`](crate::Stats::log_holder)
    /// names the transaction; if the log reaches its limit because of this transaction, statements that write fail with
    /// [`StorageError::LogFull`](crate::StorageError::LogFull) until the transaction has ended. One transaction may
    /// write about half of the limit.
    pub fn checkpoint_every(mut self, bytes: u64) -> Options {
        self.checkpoint_bytes = bytes.max(64 << 10);
        self
    }

    /// Sets the maximum size of the log files in bytes, for tests with a short load.
    #[doc(hidden)]
    pub fn log_limit(mut self, bytes: u64) -> Options {
        self.log_limit = Some(bytes);
        self
    }

    /// Sets the verification of page checksums when pages are read (on by default). Turn it off for measurements only:
    /// without it damage is not detected.
    pub fn page_checksums(mut self, on: bool) -> Options {
        self.page_checksums = on;
        self
    }

    /// Sets the maximum number of concurrent transactions: 1 to 1,000; 128 by default. Each possible transaction takes
    /// about 5 KiB of memory, also while it is not running.
    pub fn transactions(mut self, limit: usize) -> Options {
        self.transactions = limit;
        self
    }

    /// Sets the maximum number of record locks of one transaction in one table. Above this number the transaction tries
    /// to lock the table instead (lock escalation).
    pub fn escalate_at(mut self, locks: u32) -> Options {
        self.escalate_at = locks.max(1);
        self
    }

    /// Sets the maximum time that a statement waits for one lock before it fails with
    /// [`TxnError::LockTimeout`](crate::TxnError::LockTimeout); unlimited by default. Deadlocks are detected at once,
    /// independent of the limit. Waits for disks and for space are not limited.
    pub fn lock_timeout(mut self, limit: Duration) -> Options {
        self.lock_timeout = Some(limit);
        self
    }

    /// Sets the number of bits of a key's hash that form its lock name; all bits by default. For tests in which keys
    /// share lock names. Shared lock names cause additional waits, but no other effects.
    #[doc(hidden)]
    pub fn lock_name_bits(mut self, bits: u32) -> Options {
        self.lock_name_bits = bits.min(NAME_BITS);
        self
    }

    /// Sets the creation of a missing database (on by default). If off, opening a missing database fails with
    /// [`OpenError::Missing`].
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Sets the number of threads of a loop ([`Transaction::in_order`](crate::Transaction::in_order)), with the thread that
    /// calls it. The others are started at the first loop. Default: the number of cores. Other numbers than 1 to
    /// [`MAX_LOOP_THREADS`] become the nearest of these.
    #[must_use]
    pub fn loop_threads(mut self, threads: usize) -> Options {
        self.loop_threads = Some(threads.clamp(1, MAX_LOOP_THREADS));
        self
    }

    /// Measures or disturbs the loops of the database. For experiments.
    #[cfg(feature = "measure")]
    #[must_use]
    pub fn measure_loops(mut self, measurement: LoopMeasurement) -> Options {
        self.loop_measurement = measurement;
        self
    }

    /// Sets the maximum number of times that [`Database::transact`](crate::Database::transact) runs a deadlock victim
    /// again.
    pub fn reruns(mut self, times: u32) -> Options {
        self.reruns = times;
        self
    }

    /// Sets the size of one log file in bytes: 64 KiB to 1 GiB. The default is 16 MiB, or less if the log's limit is
    /// below 256 MiB (see [`Options::checkpoint_every`]). An existing database keeps its own size.
    ///
    /// The number of log files is at most a quarter of the process's limit of file descriptors (`ulimit -n`); each file
    /// takes up to two descriptors. With small files, checkpoints may therefore be taken more often than every
    /// `checkpoint_every` bytes.
    pub fn log_segment(mut self, bytes: u64) -> Options {
        self.segment_bytes = Some(bytes);
        self
    }

    /// Sets the size of the log buffer in bytes: 512 KiB to 1 GiB, rounded up to a power of two; 8 MiB by default. The
    /// whole buffer is allocated when the database is opened.
    pub fn log_buffer(mut self, bytes: usize) -> Options {
        self.ring_bytes = bytes;
        self
    }

    /// Sets the number of buckets of the record lock table: 256 to 16,777,216, rounded up to a power of two; 131,072 by
    /// default. Each bucket takes 8 bytes. Locks of one bucket form a list, so there should be more buckets than
    /// concurrently held locks. The number of locks is not limited.
    pub fn lock_table(mut self, buckets: usize) -> Options {
        self.lock_buckets = buckets;
        self
    }

    /// Sets sizes for test campaigns, among them sizes that have no other method. Their bounds are not checked.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn sizes(mut self, sizes: Extremes) -> Options {
        self.segment_bytes = Some(sizes.segment_bytes);
        self.ring_bytes = sizes.ring_bytes;
        self.reader_bytes = sizes.reader_bytes;
        self.lock_buckets = sizes.lock_buckets;
        self.shard_frames = Some(sizes.shard_frames.max(16));
        self.contended_at = sizes.contended_at.max(2);
        self.bounded = false;
        self
    }

    /// Sets the hook through which the engine waits under the program's scheduler: see [`Hook`].
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Options {
        self.hook = hook;
        self
    }

    /// Sets a simulated clock, in nanoseconds, instead of the machine's clock. Storing to `now_ns` sets the time; each
    /// begin of a transaction advances the time by one nanosecond. With a simulated clock, [`Background::Stepped`] or
    /// [`Background::Inline`], a [`SimDisk`](crate::disk::SimDisk), a [`Options::database_id`] and a [`Options::hook`]
    /// that runs one worker at a time, the engine's behaviour depends only on the calls that it receives and their
    /// order.
    pub fn clock(mut self, now_ns: Arc<AtomicU64>) -> Options {
        self.clock = Clock::simulated(now_ns);
        self
    }

    /// Sets the identifier that is written to the files of a new database. It must not be zero; by default it is
    /// random. Set it if two runs must write the same bytes.
    pub fn database_id(mut self, id: u64) -> Options {
        self.database_id = Some(id.max(1));
        self
    }

    /// Sets the callback that receives the progress of a restart, if a restart is necessary. If the callback breaks,
    /// the open is cancelled. A later open repeats the restart, including redo that was already done.
    pub fn on_recovery(mut self, hear: impl FnMut(&Recovery) -> ControlFlow<()> + Send + 'static) -> Options {
        self.on_recovery = Some(Box::new(hear));
        self
    }

    /// Returns the maximum size of the log files in bytes.
    pub(super) fn log_limit_bytes(&self) -> u64 {
        self.log_limit.unwrap_or(LogBounds::limit(self.checkpoint_bytes))
    }

    /// Returns the size of one log file in bytes: the chosen size, or a sixteenth of the maximum size of the log files.
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

/// Returns the number of cores that this process may run on.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Checks that promoted latches have at least one reader word for each core.
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
