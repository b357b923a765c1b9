//! The shared state of an owner: the object that the owner waits for, and the outcome of the wait.
//!
//! Sequence of a wait: under the latch (or the table's mutex), the owner links the request, records the object of the wait
//! and sets [`WaitOutcome::Waiting`]. Then it releases the latch, searches for deadlocks, and blocks until the outcome
//! changes. The thread that grants or withdraws the request does so under the same latch, so only one thread ends the wait.
//! That thread stores the outcome and wakes the token after it has released the latch ([`Wakes`]). Wakes may come late or
//! twice; only the outcome counts.

use std::collections::HashMap;
use std::time::Duration;

use super::membership::Membership;
use super::mode::TableMode;
use super::name::LockName;
use super::stats::OwnerCounters;
use super::sync::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering};
use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::ids::SlotId;
use crate::base::mutant::{Mutant, is_mutant};

/// State of a wait, or its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WaitOutcome {
    Waiting,
    Granted,
    /// The owner was chosen as the victim of a deadlock.
    Deadlock,
    /// The owner waits for another transaction of its own task, which the task would have to end first.
    OwnTask,
    /// The owner's epoch must be rolled back, because an earlier epoch of the same loop needs one of its locks.
    Wounded,
    /// The wait reached its time limit.
    TimedOut,
    /// The lock table was closed.
    Closed,
}

const WAIT_OUTCOMES: [WaitOutcome; 7] = [
    WaitOutcome::Waiting,
    WaitOutcome::Granted,
    WaitOutcome::Deadlock,
    WaitOutcome::OwnTask,
    WaitOutcome::Wounded,
    WaitOutcome::TimedOut,
    WaitOutcome::Closed,
];

/// Object that an owner waits for: a name or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    Nothing,
    Record(LockName),
    Table(u32),
}

const NOTHING: u32 = u32::MAX;
const RECORD: u32 = u32::MAX - 1;

/// Map from table numbers to data about tables whose numbers are not low.
pub(super) type SparseTableMap<T> = HashMap<u32, T, foldhash::fast::FixedState>;
/// Maximum capacity, in tables, that a sparse map keeps from one transaction to the next.
pub(super) const MAX_KEPT_CAPACITY: usize = 1024;

/// State of an owner that other owners read and, during a wait, change.
#[repr(align(128))]
pub(super) struct OwnerSlot {
    /// Word of the handshake for table locks. The owner changes it after writing its intentions and before reading `strong`.
    /// An owner that raised `strong` changes it before reading the intentions. One of the two changes comes first, and the
    /// thread that makes the second change sees the earlier writes of the other thread.
    pub(super) handshake: AtomicU32,
    /// True if an owner uses the slot.
    pub(super) attached: AtomicBool,
    /// The owner's modes in tables with low numbers, one [`TableMode`] for each table. Written by the owner while it runs,
    /// and by the thread that grants the owner a table lock while it waits. Absent until the slot is first used.
    modes: OnceLock<Arc<[AtomicU8]>>,
    /// The owner's modes in other tables, while it has such modes. Written by the same threads as `modes`.
    sparse: Mutex<SparseTableMap<TableMode>>,
    /// Age of the transaction: a larger value means that it began later.
    pub(super) age: AtomicU64,
    /// Task (thread or fiber) that runs the transaction, and that cannot do anything else while one of its transactions
    /// waits. 0 if the task is not known. Set at the begin of the transaction, so the value is correct while the transaction
    /// stays on this task.
    pub(super) task: AtomicU64,
    /// Kind of the object that the owner waits for: `NOTHING`, `RECORD` or a table's number. A value read here may be stale:
    /// the reader verifies it under the latch of the bucket or table that it names.
    waits_for: AtomicU32,
    waits_for_name: AtomicU64,
    outcome: AtomicU8,
    /// Place of the owner in the loop of a transaction.
    pub(super) membership: Membership,
    pub(super) token: WaitToken,
    pub(super) counters: OwnerCounters,
}

impl OwnerSlot {
    pub(super) fn new() -> OwnerSlot {
        OwnerSlot {
            handshake: AtomicU32::new(0),
            attached: AtomicBool::new(false),
            modes: OnceLock::new(),
            sparse: Mutex::new(SparseTableMap::default()),
            age: AtomicU64::new(0),
            task: AtomicU64::new(0),
            waits_for: AtomicU32::new(NOTHING),
            waits_for_name: AtomicU64::new(0),
            outcome: AtomicU8::new(WaitOutcome::Granted as u8),
            membership: Membership::default(),
            token: WaitToken::new(),
            counters: OwnerCounters::default(),
        }
    }

    /// Returns the modes in tables with numbers below `dense_tables`. Creates the array if it is absent.
    pub(super) fn modes(&self, dense_tables: usize) -> &Arc<[AtomicU8]> {
        self.modes.get_or_init(|| (0..dense_tables).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns the owner's mode in `table`.
    #[cold]
    #[inline(never)]
    pub(super) fn mode(&self, table: u32) -> TableMode {
        let Some(dense) = self.modes.get() else { return TableMode::None };
        match dense.get(table as usize) {
            Some(mode) => TableMode::from_byte(mode.load(Ordering::Acquire)),
            None => self.sparse.lock().get(&table).copied().unwrap_or(TableMode::None),
        }
    }

    /// Sets the owner's mode in `table`. Called by another owner while this owner waits for the table.
    #[cold]
    #[inline(never)]
    pub(super) fn set_mode(&self, table: u32, mode: TableMode) {
        match self.modes.get().and_then(|dense| dense.get(table as usize)) {
            Some(place) => place.store(mode as u8, Ordering::Relaxed),
            None if mode == TableMode::None => drop(self.sparse.lock().remove(&table)),
            None => drop(self.sparse.lock().insert(table, mode)),
        }
    }

    /// Removes all modes in tables whose numbers are not low.
    pub(super) fn release_sparse(&self) {
        let mut sparse = self.sparse.lock();
        if sparse.capacity() > MAX_KEPT_CAPACITY {
            *sparse = SparseTableMap::default();
        }
        sparse.clear();
    }

    /// Marks the owner as waiting. Sequentially consistent, as the mark of a wound: see `epochs`. Called under the latch or mutex of the object that the owner waits for.
    pub(super) fn start_wait(&self, what: WaitsFor) {
        self.outcome.store(WaitOutcome::Waiting as u8, Ordering::Relaxed);
        match what {
            WaitsFor::Nothing => self.waits_for.store(NOTHING, Ordering::SeqCst),
            WaitsFor::Record(name) => {
                self.waits_for_name.store(name.0, Ordering::Relaxed);
                self.waits_for.store(RECORD, Ordering::SeqCst);
            }
            WaitsFor::Table(table) => self.waits_for.store(table, Ordering::SeqCst),
        }
    }

    /// Marks the owner as no longer waiting.
    pub(super) fn end_wait(&self) {
        self.waits_for.store(NOTHING, Ordering::Relaxed);
    }

    /// Returns the object that the owner waits for. The value may be stale.
    pub(super) fn waits_for(&self) -> WaitsFor {
        match self.waits_for.load(Ordering::SeqCst) {
            NOTHING => WaitsFor::Nothing,
            RECORD => WaitsFor::Record(LockName(self.waits_for_name.load(Ordering::Relaxed))),
            table => WaitsFor::Table(table),
        }
    }

    /// Returns the state of the wait.
    pub(super) fn outcome(&self) -> WaitOutcome {
        WAIT_OUTCOMES[usize::from(self.outcome.load(Ordering::Acquire))]
    }

    /// Blocks until the wait is over, or until it has lasted for `limit` (at most twice `limit` if a late wake interferes).
    /// In the second case it returns [`WaitOutcome::Waiting`].
    pub(super) fn block(&self, hook: &dyn Hook, limit: Option<Duration>) -> WaitOutcome {
        loop {
            match (self.outcome(), limit) {
                (WaitOutcome::Waiting, None) => hook.block(&self.token, BlockReason::Lock),
                (WaitOutcome::Waiting, Some(limit)) => {
                    if !hook.block_for(&self.token, BlockReason::Lock, limit) {
                        return self.outcome();
                    }
                }
                (over, _) => return over,
            }
        }
    }
}

/// Waits that ended while a latch was held, with their outcomes. The owners are woken after the latch is released.
#[derive(Default)]
#[must_use]
pub(super) struct Wakes {
    over: Vec<(SlotId, WaitOutcome)>,
}

impl Wakes {
    pub(super) fn push(&mut self, owner: SlotId, outcome: WaitOutcome) {
        self.over.push((owner, outcome));
    }

    /// Wakes the owners in the order in which their waits ended. The caller holds no latch and no mutex.
    pub(super) fn deliver(self, slots: &[OwnerSlot], hook: &dyn Hook) {
        for (owner, outcome) in self.over {
            let slot = &slots[usize::from(owner.0)];
            slot.outcome.store(outcome as u8, Ordering::Release);
            if !is_mutant(Mutant::SkipWake) {
                hook.wake(&slot.token);
            }
        }
    }
}
