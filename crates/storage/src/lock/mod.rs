#![doc = include_str!("README.md")]

mod deadlock;
mod escalate;
mod insert;
mod intent;
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
use crate::base::error::LockHolder;
use crate::base::hook::Hook;
use crate::base::ids::{IndexId, SlotId};

pub(crate) use insert::InsertCheck;
#[cfg(test)]
pub(crate) use mode::KeyMode;
pub(crate) use mode::{RecordMode, TableMode};
pub(crate) use name::{LockName, NAME_BITS, Names, Prefix};
pub(crate) use owner::{Acquired, LockOwner, Refused};
pub(crate) use stats::LockStats;

use deadlock::Detector;
use intent::Tables;
use sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering};
use table::Buckets;
use wait::OwnerSlot;

/// Tables with numbers below this are found in arrays: a byte for each owner that is in use, and up to twelve more.
/// Debug builds have few, so that their tests meet others.
pub(crate) const NEAR: usize = if cfg!(debug_assertions) { 16 } else { 1024 };

/// Sizes of a lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockOptions {
    /// Buckets of the hash table of record locks, 8 bytes each; rounded up to a power of two.
    pub(crate) buckets: usize,
    /// Pages of memory that the buckets lie in.
    pub(crate) memory: PageSize,
    /// Owners (running transactions) there may be at once.
    pub(crate) slots: usize,
    /// Tables whose numbers lie below this are found in arrays, others in maps.
    pub(crate) near: usize,
    /// Record locks that one owner may have at once, rounded up to whole chunks of 64.
    pub(crate) records_per_owner: usize,
    /// Record locks of one owner in one table at which it tries to lock the table instead.
    pub(crate) escalate_at: u32,
    /// How long a wait may last.
    pub(crate) timeout: Option<Duration>,
    /// Seed of the names of locks.
    pub(crate) seed: u64,
    /// Hashed bits of a name.
    pub(crate) name_bits: u32,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions {
            buckets: 1 << 15,
            memory: PageSize::Usual,
            slots: 1024,
            near: NEAR,
            records_per_owner: 1 << 20,
            escalate_at: 5000,
            timeout: None,
            seed: 1,
            name_bits: NAME_BITS,
        }
    }
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LockRefusal {
    /// The transaction was chosen to break a deadlock. It must roll back, and may then be run again.
    #[error("deadlock: rolled back so that others can go on; run the transaction again")]
    Deadlock {
        /// The table in which it waited.
        table: u32,
    },
    /// The lock is held by another transaction that the waiting task has begun and would have to end first.
    #[error("another transaction of this thread or fiber is in the way; end that first")]
    OwnTask,
    /// The wait has lasted as long as it may.
    #[error("waited too long")]
    TimedOut {
        /// One of the transactions in the way.
        holder: Option<LockHolder>,
    },
    /// The transaction has as many record locks as one may have.
    #[error("more than {limit} record locks in one transaction; lock the table, or commit more often")]
    TooManyLocks {
        /// The limit, of [`LockOptions::records_per_owner`].
        limit: usize,
    },
    /// The lock table was closed while the transaction waited.
    #[error("the database is closing")]
    Closed,
    /// The table was dropped. The lock is held, and protects nothing.
    #[error("the table was dropped")]
    Gone,
}

/// All locks of a database.
pub(crate) struct LockTable {
    /// How its users name locks.
    pub(crate) names: Names,
    buckets: Buckets,
    slots: Box<[OwnerSlot]>,
    /// Slots below this have been attached at some time.
    used: AtomicUsize,
    tables: Tables,
    detector: Mutex<Detector>,
    closed: AtomicBool,
    hook: Arc<dyn Hook>,
    options: LockOptions,
}

impl LockTable {
    /// An empty lock table whose waits go through `hook`.
    ///
    /// # Errors
    /// When the system refuses the address space.
    ///
    /// # Panics
    /// If `options` asks for more than 65,000 slots.
    pub(crate) fn new(options: LockOptions, hook: Arc<dyn Hook>) -> io::Result<Arc<LockTable>> {
        assert!(options.slots <= 65_000, "{} lock owners; slots are numbered in 16 bits", options.slots);
        Ok(Arc::new(LockTable {
            names: Names::new(options.seed, options.name_bits),
            buckets: Buckets::new(options.buckets, options.memory)?,
            slots: (0..options.slots).map(|_| OwnerSlot::new()).collect(),
            used: AtomicUsize::new(0),
            tables: Tables::new(options.near),
            detector: Mutex::new(Detector::default()),
            closed: AtomicBool::new(false),
            hook,
            options,
        }))
    }

    /// Addresses of the table of record locks.
    pub(crate) fn range(&self) -> Range<usize> {
        self.buckets.range()
    }

    /// The owner that belongs to `slot`, for as many transactions, one after the other, as are run there.
    ///
    /// # Panics
    /// If `slot` is out of range or has an owner already.
    pub(crate) fn attach(self: &Arc<Self>, slot: SlotId) -> LockOwner {
        let shared = &self.slots[usize::from(slot.0)];
        assert!(!shared.attached.swap(true, Ordering::AcqRel), "slot {slot} has an owner already");
        self.used.fetch_max(usize::from(slot.0) + 1, Ordering::AcqRel);
        LockOwner::new(self.clone(), slot)
    }

    /// The name of a key's lock, which will be taken soon: its bucket is brought into this core's cache.
    #[inline]
    pub(crate) fn name_ahead(&self, index: IndexId, key: &[u8]) -> LockName {
        let name = self.names.of(index, key);
        self.prefetch(name);
        name
    }

    /// Brings the bucket of `name` into this core's cache, for a lock that will be taken soon.
    #[inline]
    pub(crate) fn prefetch(&self, name: LockName) {
        self.buckets.prefetch(name);
    }

    /// Whether any owner holds or waits for `name`, for whichever of the keys that share it. The caller has the page
    /// latched on which the key lies, so that no owner can make a new reference from what the page holds.
    pub(crate) fn is_referenced(&self, name: LockName) -> bool {
        self.is_referenced_by(name, |_| true)
    }

    /// As [`LockTable::is_referenced`], by an owner other than `owner`.
    #[cfg(test)]
    pub(crate) fn is_referenced_by_others(&self, owner: &LockOwner, name: LockName) -> bool {
        self.is_referenced_by(name, |other| other != owner.slot())
    }

    #[inline]
    fn is_referenced_by(&self, name: LockName, counts: impl Fn(SlotId) -> bool) -> bool {
        let bucket = self.buckets.of(name);
        !bucket.is_empty_now() && bucket.latch().iter().any(|r| r.name.get() == name && counts(r.owner))
    }

    /// Refuses all locks on a table from now on with [`LockRefusal::Gone`], also to those that wait. The caller has it in
    /// X.
    pub(crate) fn table_is_gone(&self, table: u32) {
        self.tables.gone(table);
    }

    /// Gives the number of a table that is gone to another one. Every transaction that began before it was gone has
    /// ended.
    pub(crate) fn table_is_back(&self, table: u32) {
        self.tables.back(table);
    }

    /// Ends all waits, now and from now on, with [`LockRefusal::Closed`]. Locks that are held stay so.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.withdraw_all();
    }

    /// What happened so far, over all owners.
    pub(crate) fn stats(&self) -> LockStats {
        let mut sum = LockStats::default();
        for slot in &self.slots[..self.used.load(Ordering::Acquire)] {
            sum += slot.counters.read();
        }
        sum
    }

    /// What happened so far in one table.
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
