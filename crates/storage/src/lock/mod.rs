#![doc = include_str!("README.md")]

mod deadlock;
mod epochs;
mod escalate;
mod family;
#[cfg(feature = "measure")]
mod held;
mod insert;
mod intent;
mod membership;
mod mode;
mod name;
mod owner;
mod queue;
mod request;
mod stats;
mod sync;
mod table;
mod wait;

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::base::arena::PageSize;
use crate::base::clock::Clock;
use crate::base::error::LockHolder;
use crate::base::hook::Hook;
use crate::base::ids::{IndexId, SlotId};
use crate::base::waits::Wait;

pub(crate) use epochs::EpochLock;
pub(crate) use insert::InsertCheck;
#[cfg(test)]
pub(crate) use mode::KeyMode;
pub(crate) use mode::{RecordMode, TableMode};
pub(crate) use name::{LockName, NAME_BITS, Names, Prefix};
pub(crate) use owner::{Acquired, LockOwner, NotGranted};
pub(crate) use stats::LockStats;

use deadlock::Detector;
use intent::Tables;
use sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering};
use table::Buckets;
use wait::OwnerSlot;

/// Tables with numbers below this use arrays: for each table one byte for each owner in use, and up to twelve bytes more.
/// Debug builds have a low limit, so that their tests use both representations.
pub(crate) const DENSE_TABLES: usize = if cfg!(debug_assertions) { 16 } else { 1024 };

/// Sizes and limits of a lock table.
#[derive(Clone, Debug)]
pub(crate) struct LockOptions {
    /// Number of buckets of the hash table of record locks, rounded up to a power of two. Each bucket takes 8 bytes.
    pub(crate) buckets: usize,
    /// Page size of the memory that holds the buckets.
    pub(crate) memory: PageSize,
    /// Maximum number of owners (running transactions).
    pub(crate) slots: usize,
    /// Number of tables whose modes are in arrays: tables with numbers below this use arrays, other tables use maps.
    pub(crate) dense_tables: usize,
    /// Maximum number of record locks of one owner, rounded up to whole chunks of 64.
    pub(crate) records_per_owner: usize,
    /// Number of record locks of one owner in one table at which the owner attempts to lock the table instead.
    pub(crate) escalate_at: u32,
    /// Maximum duration of a wait. `None` for no limit.
    pub(crate) timeout: Option<Duration>,
    /// Seed of the hash function of lock names.
    pub(crate) seed: u64,
    /// Number of hashed bits of a lock name.
    pub(crate) name_bits: u32,
    /// Clock of the waits.
    pub(crate) clock: Clock,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions {
            buckets: 1 << 17,
            memory: PageSize::Usual,
            slots: 1024,
            dense_tables: DENSE_TABLES,
            records_per_owner: 1 << 20,
            escalate_at: 5000,
            timeout: None,
            seed: 1,
            name_bits: NAME_BITS,
            clock: Clock::machine(),
        }
    }
}

/// Reason for which a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LockRefusal {
    /// The transaction was chosen as the victim of a deadlock. It must roll back, and may then be retried.
    #[error("deadlock: rolled back so that others can go on; run the transaction again")]
    Deadlock {
        /// Table in which the transaction waited.
        table: u32,
    },
    /// The lock is held by another transaction of the waiting task. The task would have to end the other transaction first.
    #[error("another transaction of this thread or fiber is in the way; end that first")]
    OwnTask,
    /// An earlier epoch of the same loop needs a lock of the waiting epoch, which must be rolled back.
    #[error("an earlier iteration of the loop needs a row of this one, which is run again")]
    Wounded,
    /// The whole table cannot be locked inside of a loop.
    #[error("a whole table cannot be locked inside of a loop; lock it before")]
    InLoop,
    /// The wait reached its time limit.
    #[error("waited too long")]
    TimedOut {
        /// One of the transactions that blocked the request. `None` if it is not known.
        holder: Option<LockHolder>,
    },
    /// The transaction has the maximum number of record locks.
    #[error("more than {limit} record locks in one transaction; lock the table, or commit more often")]
    TooManyLocks {
        /// Maximum number of record locks, from [`LockOptions::records_per_owner`].
        limit: usize,
    },
    /// The lock table was closed while the transaction waited.
    #[error("the database is closing")]
    Closed,
    /// The table was dropped. The lock is held, but has no effect.
    #[error("the table was dropped")]
    Dropped,
}

/// All locks of a database, with the owners that hold them.
pub(crate) struct LockTable {
    /// Hash function of lock names.
    pub(crate) names: Names,
    buckets: Buckets,
    slots: Box<[OwnerSlot]>,
    /// Number of the first slot that no owner was ever attached to.
    used: AtomicUsize,
    tables: Tables,
    detector: Mutex<Detector>,
    closed: AtomicBool,
    hook: Arc<dyn Hook>,
    options: LockOptions,
}

impl LockTable {
    /// Creates an empty lock table whose waits go through `hook`.
    ///
    /// # Errors
    /// Fails if the operating system refuses the address space.
    ///
    /// # Panics
    /// Panics if `options` requests more than 65,000 slots.
    pub(crate) fn new(options: LockOptions, hook: Arc<dyn Hook>) -> io::Result<Arc<LockTable>> {
        assert!(options.slots <= 65_000, "{} lock owners; slots are numbered in 16 bits", options.slots);
        Ok(Arc::new(LockTable {
            names: Names::new(options.seed, options.name_bits),
            buckets: Buckets::new(options.buckets, options.memory)?,
            slots: (0..options.slots).map(|_| OwnerSlot::new()).collect(),
            used: AtomicUsize::new(0),
            tables: Tables::new(options.dense_tables),
            detector: Mutex::new(Detector::default()),
            closed: AtomicBool::new(false),
            hook,
            options,
        }))
    }

    /// Returns the address range of the hash table of record locks.
    pub(crate) fn range(&self) -> Range<usize> {
        self.buckets.range()
    }

    /// Creates the owner of `slot`. The owner serves all transactions that run in this slot, one after the other.
    ///
    /// # Panics
    /// Panics if `slot` is out of range or already has an owner.
    pub(crate) fn attach(self: &Arc<Self>, slot: SlotId) -> LockOwner {
        let shared = &self.slots[usize::from(slot.0)];
        assert!(!shared.attached.swap(true, Ordering::AcqRel), "slot {slot} has an owner already");
        self.used.fetch_max(usize::from(slot.0) + 1, Ordering::AcqRel);
        LockOwner::new(self.clone(), slot)
    }

    /// Returns the lock name of a key that will be locked soon, and prefetches its bucket.
    #[inline]
    pub(crate) fn name_ahead(&self, index: IndexId, key: &[u8]) -> LockName {
        let name = self.names.of(index, key);
        self.prefetch(name);
        name
    }

    /// Prefetches the bucket of `name`, for a lock that will be taken soon.
    #[inline]
    pub(crate) fn prefetch(&self, name: LockName) {
        self.buckets.prefetch(name);
    }

    /// Returns true if any owner holds or waits for `name`, for any of the keys that share the name. The caller has latched
    /// the page that contains the key, so that no owner can create a new reference from the content of the page.
    pub(crate) fn is_referenced(&self, name: LockName) -> bool {
        self.is_referenced_by(name, |_| true)
    }

    /// Like [`LockTable::is_referenced`], but ignores the requests of `owner`.
    #[cfg(test)]
    pub(crate) fn is_referenced_by_others(&self, owner: &LockOwner, name: LockName) -> bool {
        self.is_referenced_by(name, |other| other != owner.slot())
    }

    #[inline]
    fn is_referenced_by(&self, name: LockName, counts: impl Fn(SlotId) -> bool) -> bool {
        let bucket = self.buckets.of(name);
        !bucket.is_empty_now() && bucket.latch().iter().any(|r| r.name.get() == name && counts(r.owner))
    }

    /// Marks a table as dropped: all later and all waiting requests for the table fail with [`LockRefusal::Dropped`]. The
    /// caller holds the table in X.
    pub(crate) fn mark_table_dropped(&self, table: u32) {
        self.tables.mark_dropped(table);
    }

    /// Makes the number of a dropped table available for another table. Every transaction that began before the drop has
    /// ended.
    pub(crate) fn reuse_table_number(&self, table: u32) {
        self.tables.reuse_number(table);
    }

    /// Ends all present and future waits with [`LockRefusal::Closed`]. Held locks stay held.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.withdraw_all();
    }

    /// Returns the values of the counters since the lock table was created, summed over all owners.
    pub(crate) fn stats(&self) -> LockStats {
        let mut sum = LockStats::default();
        for slot in &self.slots[..self.used.load(Ordering::Acquire)] {
            sum += slot.counters.read();
        }
        sum
    }

    /// Returns the waits for locks in one table.
    pub(crate) fn waits_of(&self, table: u32) -> Wait {
        self.tables.of(table).counters.waits.read()
    }

    /// Returns the values of the counters of one table.
    #[cfg(test)]
    pub(crate) fn table_stats(&self, table: u32) -> LockStats {
        self.tables.of(table).counters.read()
    }

    fn slot(&self, owner: SlotId) -> &OwnerSlot {
        &self.slots[usize::from(owner.0)]
    }
}

impl std::fmt::Debug for LockTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockTable")
            .field("options", &self.options)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
