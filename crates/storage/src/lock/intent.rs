//! Table locks, including intention locks, which are granted without a queue.
//!
//! Every transaction takes IS or IX on every table that it touches, and these modes never exclude each other. So an
//! intention lock is only a byte in the owner's own array of modes ([`OwnerSlot::modes`]), and it is granted as long as the
//! table's `strong` word is 0. An owner that requests S, SIX or X takes the table's mutex, raises `strong`, and then reads
//! the arrays of all owners (the sweep).
//!
//! **Handshake.** The owner that requests an intention writes its byte, changes its slot's `handshake`, and reads `strong`.
//! The owner that requests the whole table raises `strong`, changes every slot's `handshake`, and reads the bytes. The two
//! changes of one slot's `handshake` are ordered, and the later change acquires the writes that the earlier change released.
//! So either the first owner sees `strong` raised and clears its byte again, or the sweep sees the byte. The same order
//! makes a release safe: either the sweep sees that the byte is cleared, or the releasing owner sees `strong` and then
//! grants requests from the queue.
//!
//! While `strong` is not 0, all requests and releases for the table go through its queue, in order of arrival.
//!
//! **Tables with low numbers, and other tables.** Most databases have few tables with low numbers: their modes and words are
//! in arrays of fixed length. For a table with another number, an owner stores data only while a transaction uses the table:
//! the owner's mode is in a map of its slot. Only a sweep ever waits for the mutex of this map, and the mutex also orders
//! the two sides of the handshake. So memory does not grow with the number of tables times the number of owners.

use std::ops::ControlFlow;

use super::family::are_kin;
use super::mode::{KeyMode, TableMode};
use super::owner::{Acquired, Attempt, IfBlocked, LockOwner, Pending, TableUse};
use super::stats::TableCounters;
use super::sync::{Arc, AtomicU32, Mutex, MutexGuard, Ordering};
use super::wait::{MAX_KEPT_CAPACITY, OwnerSlot, SparseTableMap, WaitOutcome, WaitsFor, Wakes};
use super::{LockRefusal, LockTable};
use crate::base::ids::SlotId;
use crate::base::segmented_array::SegmentedArray;

/// Data about tables that all owners share.
pub(super) struct Tables {
    /// `strong` words of the tables with low numbers. A word is not 0 while an owner holds the table in S, SIX or X, or a
    /// request for the table waits. The words form one array, because a transaction reads one word for each table that it
    /// touches, and these words are then in one or two cache lines.
    pub(super) strong: Arc<[AtomicU32]>,
    /// Data about each table that all owners share, indexed by table number.
    all: SegmentedArray<SharedTable>,
}

/// Data about one table that all owners share.
#[derive(Default)]
pub(super) struct SharedTable {
    /// Word with the same meaning as [`Tables::strong`], for a table whose number is not low.
    strong: AtomicU32,
    pub(super) queue: Mutex<TableQueue>,
    pub(super) counters: TableCounters,
}

impl Tables {
    pub(super) fn new(dense_tables: usize) -> Tables {
        Tables { strong: (0..dense_tables).map(|_| AtomicU32::new(0)).collect(), all: SegmentedArray::default() }
    }

    pub(super) fn of(&self, table: u32) -> &SharedTable {
        self.all.at(table as usize)
    }

    pub(super) fn queue(&self, table: u32) -> MutexGuard<'_, TableQueue> {
        self.of(table).queue.lock()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn strong(&self, table: u32) -> &AtomicU32 {
        match self.strong.get(table as usize) {
            Some(strong) => strong,
            None => &self.of(table).strong,
        }
    }

    /// Marks a table as dropped. The caller holds the table in X.
    pub(super) fn mark_dropped(&self, table: u32) {
        self.queue(table).is_dropped = true;
    }

    /// Makes the number of a dropped table available for another table. All owners that used the dropped table have ended
    /// their transactions.
    pub(super) fn reuse_number(&self, table: u32) {
        let shared = self.of(table);
        let mut queue = shared.queue.lock();
        debug_assert!(queue.granted.is_empty() && queue.waiters.is_empty(), "locks on the number of a dropped table");
        queue.is_dropped = false;
        shared.counters.reset();
        self.strong(table).store((queue.granted.len() + queue.waiters.len()) as u32, Ordering::Release);
    }
}

/// Queue of one table: the owners that hold it in S, SIX or X, and the requests that wait for it in any mode (conversions
/// first, then in order of arrival).
#[derive(Default)]
pub(super) struct TableQueue {
    /// True if the table was dropped. Its `strong` word then stays above 0, so every request for the table goes through the
    /// queue and gets the error.
    is_dropped: bool,
    granted: Vec<(SlotId, TableMode)>,
    waiters: Vec<TableWaiter>,
}

#[derive(Clone, Copy)]
struct TableWaiter {
    owner: SlotId,
    held: TableMode,
    want: TableMode,
}

impl TableWaiter {
    fn converts(&self) -> bool {
        self.held != TableMode::None
    }
}

impl TableQueue {
    /// Calls `found` with every owner that the request `ask` must wait for. `ahead` waiting requests precede `ask`. The
    /// rules are the same as in [`super::queue::LockRequestView::blockers`].
    fn blockers(
        &self,
        locks: &LockTable,
        table: u32,
        ask: TableWaiter,
        ahead: usize,
        mut found: impl FnMut(SlotId) -> ControlFlow<()>,
    ) {
        if ask.want.is_strong() {
            for (owner, slot) in locks.swept_slots() {
                if owner != ask.owner
                    && !slot.mode(table).compatible(ask.want)
                    && !are_kin(&locks.slots, owner, ask.owner)
                    && found(owner).is_break()
                {
                    return;
                }
            }
        } else {
            for &(owner, mode) in &self.granted {
                if owner != ask.owner
                    && !mode.compatible(ask.want)
                    && !are_kin(&locks.slots, owner, ask.owner)
                    && found(owner).is_break()
                {
                    return;
                }
            }
        }
        for other in &self.waiters[..ahead] {
            let excluded = !other.want.compatible(ask.want)
                && (other.converts() || !ask.converts())
                && ask.held.compatible(other.want)
                && !are_kin(&locks.slots, other.owner, ask.owner)
                && !locks.kin_exclude(table, ask.owner, other.want);
            if excluded && found(other.owner).is_break() {
                return;
            }
        }
    }

    fn is_blocked(&self, locks: &LockTable, table: u32, ask: TableWaiter, ahead: usize) -> bool {
        let mut blocked = false;
        self.blockers(locks, table, ask, ahead, |_| {
            blocked = true;
            ControlFlow::Break(())
        });
        blocked
    }

    fn give(&mut self, slot: &OwnerSlot, table: u32, ask: TableWaiter) {
        slot.set_mode(table, ask.want);
        if ask.want.is_strong() {
            self.granted.retain(|&(owner, _)| owner != ask.owner);
            self.granted.push((ask.owner, ask.want));
        }
    }

    fn grant(&mut self, locks: &LockTable, table: u32, wakes: &mut Wakes) {
        let mut at = 0;
        while let Some(&ask) = self.waiters.get(at) {
            if self.is_blocked(locks, table, ask, at) {
                at += 1;
            } else {
                self.waiters.remove(at);
                self.give(locks.slot(ask.owner), table, ask);
                wakes.push(ask.owner, WaitOutcome::Granted);
            }
        }
    }

    fn enqueue(&mut self, ask: TableWaiter) {
        let at = if ask.converts() { self.waiters.iter().position(|w| !w.converts()) } else { None };
        self.waiters.insert(at.unwrap_or(self.waiters.len()), ask);
    }

    fn waiter(&self, owner: SlotId) -> Option<usize> {
        self.waiters.iter().position(|w| w.owner == owner)
    }

    /// Calls `found` with each owner that `owner` waits for in this queue. Does not call `found` if `owner` does not wait in
    /// this queue.
    pub(super) fn blockers_of(
        &self,
        locks: &LockTable,
        table: u32,
        owner: SlotId,
        found: impl FnMut(SlotId) -> ControlFlow<()>,
    ) {
        if let Some(at) = self.waiter(owner) {
            self.blockers(locks, table, self.waiters[at], at, found);
        }
    }

    /// Ends the wait of `owner` without a grant, if it waits in this queue.
    pub(super) fn withdraw(
        &mut self,
        locks: &LockTable,
        table: u32,
        owner: SlotId,
        outcome: WaitOutcome,
        wakes: &mut Wakes,
    ) {
        if let Some(at) = self.waiter(owner) {
            self.waiters.remove(at);
            wakes.push(owner, outcome);
            self.grant_and_update_strong(locks, table, wakes);
        }
    }

    /// Grants all requests that can be granted, and updates `strong`. Called at the end of every section under the mutex.
    fn grant_and_update_strong(&mut self, locks: &LockTable, table: u32, wakes: &mut Wakes) {
        self.grant(locks, table, wakes);
        let strong = self.granted.len() + self.waiters.len() + usize::from(self.is_dropped);
        locks.tables.strong(table).store(strong as u32, Ordering::Release);
    }
}

impl LockTable {
    /// Iterates over the slots that may have a mode in some table. Performs the sweep's half of the handshake for each slot.
    fn swept_slots(&self) -> impl Iterator<Item = (SlotId, &OwnerSlot)> {
        // The read-modify-write also orders a concurrent `attach`: either the new owner sees `strong`, or the sweep sees the
        // owner.
        let used = self.used.fetch_max(0, Ordering::AcqRel);
        self.slots[..used].iter().enumerate().map(|(i, slot)| {
            slot.handshake.fetch_add(1, Ordering::AcqRel);
            (SlotId(i as u16), slot)
        })
    }
}

impl LockOwner {
    /// Takes an intention lock on `table`, for reads (`IS`) or writes (`IX`) of its records. Waits while other owners have
    /// locked the whole table, so the caller holds no latch.
    #[inline]
    pub(crate) fn intent(&mut self, table: u32, mode: TableMode) -> Result<(), LockRefusal> {
        debug_assert!(!mode.is_strong());
        if self.mode(table).covers(mode) { Ok(()) } else { self.intent_first(table, mode) }
    }

    #[inline(never)]
    fn intent_first(&mut self, table: u32, mode: TableMode) -> Result<(), LockRefusal> {
        let held = self.mode(table);
        let want = held.union(mode);
        if want.is_strong() {
            return self.lock_slowly(table, mode);
        }
        self.set_mode(table, want);
        self.shared().handshake.fetch_add(1, Ordering::AcqRel);
        if self.is_weak(table) {
            if held == TableMode::None {
                self.touched.push(table);
                self.usage(table);
            }
            return Ok(());
        }
        // Another owner may wait because of the mode that this attempt held briefly. `lock_slowly` serves the queue before
        // it waits.
        self.set_mode(table, held);
        self.lock_slowly(table, mode)
    }

    /// Takes an intention lock on `table`, for reads (`IS`) or writes (`IX`) of its records. Returns false if another owner
    /// has locked the whole table or waits to lock it. Never waits.
    ///
    /// # Errors
    /// Fails with [`LockRefusal::Dropped`] if the table was dropped.
    pub(crate) fn try_intent(&mut self, table: u32, mode: TableMode) -> Result<bool, LockRefusal> {
        debug_assert!(!mode.is_strong());
        let granted = self.mode(table).covers(mode)
            || matches!(self.attempt_table(table, mode, IfBlocked::GiveUp), Attempt::Done(_));
        if self.locks.tables.queue(table).is_dropped {
            return Err(LockRefusal::Dropped);
        }
        Ok(granted)
    }

    /// Locks the whole `table` in `mode`. Waits while other owners hold or have requested excluding modes. The caller holds
    /// no latch. See [`LockOwner::covers`] for the record locks that the table lock makes unnecessary.
    pub(crate) fn lock_table(&mut self, table: u32, mode: TableMode) -> Result<(), LockRefusal> {
        if self.mode(table).covers(mode) {
            return Ok(());
        }
        if self.is_in_epoch() {
            return Err(LockRefusal::InLoop);
        }
        self.lock_slowly(table, mode)
    }

    fn lock_slowly(&mut self, table: u32, mode: TableMode) -> Result<(), LockRefusal> {
        match self.attempt_table(table, mode, IfBlocked::Queue) {
            Attempt::Done(_) | Attempt::Blocked => {}
            Attempt::Queued => drop(self.finish_wait()?),
        }
        // A lock request that waited while the table was dropped also fails here.
        if self.locks.tables.queue(table).is_dropped {
            return Err(LockRefusal::Dropped);
        }
        Ok(())
    }

    /// Locks `table` through its queue if possible. If other owners block the request, queues it or gives up, as `blocked`
    /// says.
    #[cold]
    pub(super) fn attempt_table(&mut self, table: u32, mode: TableMode, blocked: IfBlocked) -> Attempt<Acquired> {
        let held = self.mode(table);
        let ask = TableWaiter { owner: self.slot, held, want: held.union(mode) };
        let locks = self.locks.clone();
        let mut wakes = Wakes::default();
        let attempt = {
            let mut queue = locks.tables.queue(table);
            if ask.want.is_strong() {
                locks.tables.strong(table).store(1, Ordering::Relaxed);
            }
            let ahead =
                if ask.converts() { queue.waiters.partition_point(TableWaiter::converts) } else { queue.waiters.len() };
            let attempt = if ask.want == held {
                Attempt::Done(Acquired::Already)
            } else if !queue.is_blocked(&locks, table, ask, ahead) {
                queue.give(self.shared(), table, ask);
                Attempt::Done(Acquired::Converted)
            } else if blocked == IfBlocked::Queue {
                queue.enqueue(ask);
                self.pending = Some(Pending::Table(table));
                self.shared().start_wait(WaitsFor::Table(table));
                Attempt::Queued
            } else {
                Attempt::Blocked
            };
            queue.grant_and_update_strong(&locks, table, &mut wakes);
            attempt
        };
        locks.deliver(wakes);
        if matches!(attempt, Attempt::Done(_)) {
            self.note_table(table);
        }
        attempt
    }

    /// Updates the owner's own data about a table after the owner's mode in the table may have changed.
    pub(super) fn note_table(&mut self, table: u32) {
        if self.mode(table) != TableMode::None && !self.touched.contains(&table) {
            self.touched.push(table);
        }
        self.refresh_limit(table);
    }

    /// Returns true if no owner holds or has requested a lock on the whole table.
    #[inline]
    fn is_weak(&self, table: u32) -> bool {
        let strong = match self.strong.get(table as usize) {
            Some(strong) => strong,
            None => self.locks.tables.strong(table),
        };
        strong.load(Ordering::Acquire) == 0
    }

    /// Returns the owner's own data about `table`.
    #[inline]
    pub(super) fn usage(&mut self, table: u32) -> &mut TableUse {
        if self.tables.len() <= table as usize {
            return self.usage_slow(table);
        }
        &mut self.tables[table as usize]
    }

    #[cold]
    fn usage_slow(&mut self, table: u32) -> &mut TableUse {
        let unused =
            TableUse { records: 0, limit: self.locks.options.escalate_at, escalate_at: self.locks.options.escalate_at };
        if table as usize >= self.modes.len() {
            return self.sparse.entry(table).or_insert(unused);
        }
        self.tables.resize(table as usize + 1, unused);
        &mut self.tables[table as usize]
    }

    pub(super) fn refresh_limit(&mut self, table: u32) {
        let covered = self.covers(table, KeyMode::S, true);
        let usage = self.usage(table);
        usage.limit = if covered { 0 } else { usage.escalate_at };
    }

    #[inline]
    fn set_mode(&self, table: u32, mode: TableMode) {
        match self.modes.get(table as usize) {
            Some(place) => place.store(mode as u8, Ordering::Release),
            None => self.shared().set_mode(table, mode),
        }
    }

    /// Releases all table locks, and resets the owner's counts of record locks.
    #[inline]
    pub(super) fn release_tables(&mut self) {
        let escalate_at = self.locks.options.escalate_at;
        let mut has_sparse = false;
        for &table in &self.touched {
            match self.modes.get(table as usize) {
                Some(mode) => mode.store(TableMode::None as u8, Ordering::Release),
                None => has_sparse = true,
            }
            if let Some(usage) = self.tables.get_mut(table as usize) {
                *usage = TableUse { records: 0, limit: escalate_at, escalate_at };
            }
        }
        if has_sparse {
            self.release_sparse();
        }
        self.shared().handshake.fetch_add(1, Ordering::AcqRel);
        for &table in &self.touched {
            if !self.is_weak(table) {
                self.locks.leave(self.slot, table);
            }
        }
        self.touched.clear();
    }

    #[cold]
    fn release_sparse(&mut self) {
        self.shared().release_sparse();
        // A large capacity, which one transaction on many tables needed, is not kept.
        if self.sparse.capacity() > MAX_KEPT_CAPACITY {
            self.sparse = SparseTableMap::default();
            self.touched.shrink_to(MAX_KEPT_CAPACITY);
        }
        self.sparse.clear();
    }
}

impl LockTable {
    /// Grants requests from the queue of `table` after `owner` has released its lock.
    #[cold]
    fn leave(&self, owner: SlotId, table: u32) {
        let mut wakes = Wakes::default();
        {
            let mut queue = self.tables.queue(table);
            queue.granted.retain(|&(holder, _)| holder != owner);
            queue.grant_and_update_strong(self, table, &mut wakes);
        }
        self.deliver(wakes);
    }
}
