//! The lock owner, which acquires, waits for, and releases the record locks of one transaction after the other.

use super::family::{are_kin, note_awaited};
use super::membership::FormerLock;
use super::mode::{GapMode, KeyMode, RecordMode, TableMode};
use super::name::{LockName, Prefix};
use super::queue::{self, LockRequestView};
use super::request::{Request, RequestArena};
#[cfg(test)]
use super::stats::LockStats;
use super::sync::{Arc, AtomicU8, AtomicU32, Ordering};
use super::table::LatchedBucket;
use super::wait::{OwnerSlot, SparseTableMap, WaitOutcome, WaitsFor, Wakes};
use super::{LockRefusal, LockTable};
use crate::base::error::LockHolder;
use crate::base::ids::SlotId;
use crate::base::mutant::{Mutant, is_mutant};

/// Result of a lock request that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The owner had no lock on the name before this request. [`LockOwner::release_one`] may release the new lock.
    New,
    /// The owner's existing lock is sufficient. Nothing has changed.
    Already,
    /// The owner's existing lock was made stronger.
    Converted,
    /// The owner's lock on the table is sufficient. There is no record lock.
    Covered,
}

/// Reason for which a lock was not granted without a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// Other owners block the request, or escalation is due. The caller releases all latches, calls the waiting variant, and
    /// reads the data again.
    WouldBlock,
    /// The owner has the maximum number of record locks.
    TooManyLocks,
}

/// Result of an attempt to acquire a lock.
#[must_use]
pub(super) enum Attempt<T> {
    Done(T),
    /// Other owners block the request. Nothing was changed.
    Blocked,
    /// Other owners block the request. It is queued, and [`LockOwner::finish_wait`] must follow.
    Queued,
}

/// Action to take if other owners block a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfBlocked {
    GiveUp,
    Queue,
}

/// Object of an owner's pending wait.
#[derive(Clone, Copy)]
pub(super) enum Pending {
    /// Wait for the new request at this position of the arena.
    New(u32),
    /// Wait for a conversion of the request at this position of the arena.
    Conversion(u32),
    /// Wait for the lock on the table with this number.
    Table(u32),
}

/// Relation of a claim on a record to the owner's lock on the record's table.
pub(super) enum TableCoverage {
    /// The table lock makes a record lock unnecessary.
    Covered,
    /// The claim needs a record lock.
    Needed,
    /// Escalation is due, but the caller may hold latches.
    Due,
}

/// Data of an owner about one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableUse {
    /// Number of record locks held in the table.
    pub(super) records: u32,
    /// Number of record locks from which on a record lock needs further checks. It equals `escalate_at`, or is 0 while a
    /// table lock covers record locks.
    pub(super) limit: u32,
    /// Number of record locks at which the next attempt to escalate is due.
    pub(super) escalate_at: u32,
}

/// Prefetch distance of a release, in requests: the bucket of a later request is prefetched.
const RELEASE_AHEAD: usize = 4;

/// Access of one slot to the lock table, with all locks of its transaction. Used by one thread or fiber at a time.
///
/// Dropping it releases all locks.
pub(crate) struct LockOwner {
    pub(super) arena: RequestArena,
    pub(super) locks: Arc<LockTable>,
    pub(super) slot: SlotId,
    /// The slot's modes of tables with low numbers.
    pub(super) modes: Arc<[AtomicU8]>,
    /// See [`super::intent::Tables`].
    pub(super) strong: Arc<[AtomicU32]>,
    /// Data about tables with low numbers, up to the highest number used.
    pub(super) tables: Vec<TableUse>,
    /// Data about other tables, while the transaction uses them.
    pub(super) sparse: SparseTableMap<TableUse>,
    /// Tables in which the owner has a mode.
    pub(super) touched: Vec<u32>,
    pub(super) pending: Option<Pending>,
    /// Number of the owner's epoch in loops of its transaction; 0 outside of loops. See [`super::family`].
    pub(super) epoch: u16,
    /// Locks that the owner held before its epoch used them.
    pub(super) former: Vec<FormerLock>,
}

impl LockOwner {
    pub(super) fn new(locks: Arc<LockTable>, slot: SlotId) -> LockOwner {
        LockOwner {
            arena: RequestArena::new(slot, locks.options.records_per_owner),
            modes: locks.slot(slot).modes(locks.options.dense_tables).clone(),
            strong: locks.tables.strong.clone(),
            tables: Vec::new(),
            sparse: SparseTableMap::default(),
            touched: Vec::new(),
            pending: None,
            epoch: 0,
            former: Vec::new(),
            slot,
            locks,
        }
    }

    /// Returns the slot to which the owner belongs.
    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    /// Starts a transaction of this age. The victim of a deadlock is the transaction with the largest `age`. A transaction
    /// that is retried after a deadlock keeps its age, so that it is not the victim repeatedly.
    #[inline]
    pub(crate) fn begin(&mut self, age: u64) {
        debug_assert!(self.touched.is_empty() && self.arena.iter().next().is_none(), "the last transaction's locks");
        self.shared().age.store(age, Ordering::Relaxed);
    }

    /// Sets the task that runs the transaction; 0 if the task may change. See [`OwnerSlot::task`].
    #[inline]
    pub(crate) fn run_by(&mut self, task: u64) {
        self.shared().task.store(task, Ordering::Relaxed);
    }

    /// Returns the task that runs the transaction.
    pub(crate) fn task(&self) -> u64 {
        self.shared().task.load(Ordering::Relaxed)
    }

    /// Locks the record `name` of table `table` in `mode` if no other owner blocks the request. Never waits, so it may be
    /// called under page latches. `low` is the low bound of the gap part of `mode`; it is ignored if there is no gap part.
    ///
    /// The owner must hold an intention on the table ([`LockOwner::intent`]).
    #[inline(always)]
    pub(crate) fn try_acquire(
        &mut self,
        table: u32,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<Acquired, NotGranted> {
        let claim = GapMode { mode, low };
        let usage = match self.tables.get_mut(table as usize) {
            Some(usage) => Some(usage),
            None => self.sparse.get_mut(&table),
        };
        if let Some(usage) = usage
            && usage.records < usage.limit
        {
            let bucket = self.locks.buckets.of(name);
            if bucket.looks_used() {
                if let Some(head) = bucket.own_head(&self.arena)
                    && head.is_for(table, name)
                    && head.holds().covers(claim)
                    && head.epoch.get() == self.epoch
                {
                    return Ok(Acquired::Already);
                }
            } else if let Some(request) = self.arena.peek_next() {
                fill(request, table, name, claim, self.epoch);
                if bucket.install(request) {
                    self.arena.take_next();
                    usage.records += 1;
                    return Ok(Acquired::New);
                }
            }
        }
        self.try_acquire_slow(table, name, claim)
    }

    #[inline(never)]
    fn try_acquire_slow(&mut self, table: u32, name: LockName, claim: GapMode) -> Result<Acquired, NotGranted> {
        match self.attempt(table, name, claim, IfBlocked::GiveUp) {
            Ok(Attempt::Done(acquired)) => Ok(acquired),
            Ok(Attempt::Blocked | Attempt::Queued) => Err(NotGranted::WouldBlock),
            Err(_) => Err(NotGranted::TooManyLocks),
        }
    }

    /// Like [`LockOwner::try_acquire`], but waits while other owners block the request. The caller holds no latch.
    pub(crate) fn acquire_wait(
        &mut self,
        table: u32,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<Acquired, LockRefusal> {
        match self.attempt(table, name, GapMode { mode, low }, IfBlocked::Queue)? {
            Attempt::Done(acquired) => Ok(acquired),
            Attempt::Blocked | Attempt::Queued => self.finish_wait(),
        }
    }

    /// Returns true if the owner could lock `name` in mode S now. Leaves no request behind. A record that is read between
    /// two such checks, or validated after one such check, was committed.
    #[inline]
    pub(crate) fn try_instant_s(&self, table: u32, name: LockName) -> bool {
        let bucket = self.locks.buckets.of(name);
        bucket.is_empty_now() || self.instant_s_slow(table, name)
    }

    #[inline(never)]
    fn instant_s_slow(&self, table: u32, name: LockName) -> bool {
        if self.covers(table, KeyMode::S, false) {
            return true;
        }
        let wish = GapMode { mode: RecordMode::S, low: Prefix::MIN };
        let list = self.locks.buckets.of(name).latch();
        let free = list.iter().filter(|r| r.is_for(table, name) && !r.held.get().is_none()).all(|r| {
            r.owner == self.slot || are_kin(&self.locks.slots, self.slot, r.owner) || !r.holds().excludes(wish)
        });
        // Another owner's U may have been granted beside this owner's S. The U blocks only new readers.
        free || queue::all_held(&list, self.slot, table, name).any(|mine| mine.holds().covers(wish))
    }

    /// Waits, in order of arrival, until [`LockOwner::try_instant_s`] would succeed, and leaves no request behind. After the
    /// wait another owner may lock the record first. A reader that must not starve takes S with [`LockOwner::acquire_wait`],
    /// reads, and releases S with [`LockOwner::release_one`] if the result was [`Acquired::New`].
    pub(crate) fn wait_instant_s(&mut self, table: u32, name: LockName) -> Result<(), LockRefusal> {
        if self.acquire_wait(table, name, RecordMode::S, Prefix::MIN)? == Acquired::New {
            self.release_one(table, name);
        }
        Ok(())
    }

    /// Returns the mode that the owner holds on `name` by record locks.
    #[inline]
    #[cfg(test)]
    pub(crate) fn held(&self, name: LockName) -> RecordMode {
        let bucket = self.locks.buckets.of(name);
        if !bucket.looks_used() {
            return RecordMode::NONE;
        }
        match bucket.own_head(&self.arena) {
            Some(head) if head.name.get() == name && !head.held.get().is_insert() => head.held.get(),
            _ => bucket
                .latch()
                .iter()
                .filter(|r| r.owner == self.slot && r.name.get() == name && !r.held.get().is_insert())
                .fold(RecordMode::NONE, |held, request| held.union(request.held.get())),
        }
    }

    /// Releases the owner's lock on `name` in `table` before the transaction ends, if the lock is no longer needed: for a
    /// read at read-committed, or for a key that does not match the query. Returns false if there is no such lock.
    #[inline]
    pub(crate) fn release_one(&mut self, table: u32, name: LockName) -> bool {
        let bucket = self.locks.buckets.of(name);
        if let Some(request) = bucket.own_head(&self.arena)
            && request.is_for(table, name)
            && !request.held.get().is_insert()
            && bucket.remove_only(request)
        {
            let position = request.position;
            self.forget(position);
            return true;
        }
        self.release_one_slow(table, name)
    }

    #[inline(never)]
    fn release_one_slow(&mut self, table: u32, name: LockName) -> bool {
        let held = queue::find_held(&self.locks.buckets.of(name).latch(), self.slot, table, name, self.epoch)
            .map(|r| r.position);
        if let Some(position) = held {
            self.release_at(position);
        }
        held.is_some()
    }

    /// Releases the lock that the request at `position` holds.
    pub(super) fn release_at(&mut self, position: u32) {
        let request = self.arena.at(position);
        if !self.locks.buckets.of(request.name.get()).remove_only(request) {
            self.locks.release_shared(request, |list, wakes| queue::release(&self.locks.slots, list, request, wakes));
        }
        self.forget(position);
    }

    /// Updates the owner's own data after the request at `position` has been released.
    fn forget(&mut self, position: u32) {
        let table = self.arena.at(position).table.get();
        self.usage(table).records -= 1;
        self.arena.give_back(position);
    }

    /// Releases all locks at the end of the transaction.
    #[inline]
    pub(crate) fn release_all(&mut self) {
        if self.pending.is_some() {
            self.abandon_wait();
        }
        for requests in self.arena.chunks() {
            for (i, request) in requests.iter().enumerate() {
                // The locks are spread over the lock table, and other data has displaced their buckets from the L1 and L2
                // caches in the meantime.
                if let Some(later) = requests.get(i + RELEASE_AHEAD) {
                    self.locks.buckets.prefetch(later.name.get());
                }
                if !request.is_free() && !self.locks.buckets.of(request.name.get()).remove_only(request) {
                    self.locks.release_shared(request, |list, wakes| {
                        queue::release_at_end(&self.locks.slots, list, request, wakes)
                    });
                }
            }
        }
        self.arena.reset();
        if !self.touched.is_empty() {
            self.release_tables();
        }
        self.leave_family();
    }

    /// Returns the values of this owner's counters since it was attached.
    #[cfg(test)]
    pub(crate) fn stats(&self) -> LockStats {
        self.shared().counters.read()
    }

    pub(super) fn shared(&self) -> &OwnerSlot {
        self.locks.slot(self.slot)
    }

    /// Returns the owner's mode in `table`.
    #[inline]
    pub(super) fn mode(&self, table: u32) -> TableMode {
        match self.modes.get(table as usize) {
            Some(mode) => TableMode::from_byte(mode.load(Ordering::Relaxed)),
            None => self.shared().mode(table),
        }
    }

    /// Locks `name` if possible. If other owners block the request, queues it or gives up, as `blocked` says.
    pub(super) fn attempt(
        &mut self,
        table: u32,
        name: LockName,
        claim: GapMode,
        blocked: IfBlocked,
    ) -> Result<Attempt<Acquired>, LockRefusal> {
        match self.table_coverage(table, claim, blocked) {
            TableCoverage::Covered => return Ok(Attempt::Done(Acquired::Covered)),
            TableCoverage::Due => return Ok(Attempt::Blocked),
            TableCoverage::Needed => {}
        }
        self.arena.reserve();
        let list = self.locks.buckets.of(name).latch();
        if list.iter().all(|other| !other.is_for(table, name)) {
            // No owner holds this name or waits for it. At most another name shares the bucket by chance.
            let Some(request) = self.arena.take() else {
                return Err(LockRefusal::TooManyLocks { limit: self.locks.options.records_per_owner });
            };
            fill(request, table, name, claim, self.epoch);
            list.push_held(request);
            drop(list);
            self.usage(table).records += 1;
            return Ok(Attempt::Done(Acquired::New));
        }
        let held = queue::find_held(&list, self.slot, table, name, self.epoch);
        let (target, beyond) = match held {
            Some(held) if held.holds().covers(claim) => return Ok(Attempt::Done(Acquired::Already)),
            Some(held) => (held.holds().union(claim), claim.beyond(held.holds())),
            None => (claim, claim),
        };
        let slots = &self.locks.slots;
        let (owner, converting) = (self.slot, held.is_some());
        let view = LockRequestView { slots, owner, table, name, claim: beyond, converting, queued: None };
        let is_blocked = view.is_blocked(&list);
        if is_blocked && blocked == IfBlocked::GiveUp {
            return Ok(Attempt::Blocked);
        }
        let (request, acquired) = match held {
            Some(request) => (request, Acquired::Converted),
            None if !is_blocked && self.epoch != 0 && queue::take_over(&mut self.former, self.epoch, &list, &view) => {
                return Ok(Attempt::Done(Acquired::Already));
            }
            None => {
                let Some(request) = self.arena.take() else {
                    return Err(LockRefusal::TooManyLocks { limit: self.locks.options.records_per_owner });
                };
                fill(request, table, name, GapMode { mode: RecordMode::NONE, low: claim.low }, self.epoch);
                if is_blocked {
                    list.push_waiter(request)
                } else {
                    list.push_held(request)
                }
                (request, Acquired::New)
            }
        };
        if is_blocked {
            request.set_wanted(target);
            if held.is_some() {
                list.move_converting(request);
            }
            let position = request.position;
            self.pending = Some(if held.is_some() { Pending::Conversion(position) } else { Pending::New(position) });
            self.locks.slot(self.slot).start_wait(WaitsFor::Record(name));
            return Ok(Attempt::Queued);
        }
        request.set_held(target);
        note_awaited(&self.locks.slots, &list, request);
        if acquired == Acquired::New {
            drop(list);
            self.usage(table).records += 1;
        }
        Ok(Attempt::Done(acquired))
    }

    /// Waits for the pending request. Returns the result of the wait.
    #[cold]
    pub(super) fn finish_wait(&mut self) -> Result<Acquired, LockRefusal> {
        let (counters, of_table) = (&self.shared().counters, &self.locks.tables.of(self.pending_table()).counters);
        counters.waits.increment();
        of_table.waits.begin();
        let ((outcome, holder), ns) = self.locks.options.clock.timed(|| self.wait_for_outcome());
        counters.wait_ns.add(ns);
        of_table.waits.end(ns);
        self.note_outcome(outcome).map_err(|error| match error {
            LockRefusal::TimedOut { .. } => LockRefusal::TimedOut { holder },
            other => other,
        })
    }

    /// Blocks until the wait is over. Returns its outcome, and a holder of the lock if the wait reached its time limit.
    fn wait_for_outcome(&self) -> (WaitOutcome, Option<LockHolder>) {
        if self.is_in_epoch() {
            self.await_family();
        }
        if !is_mutant(Mutant::SkipDeadlockSearch) {
            self.locks.resolve_deadlocks(self.slot);
        }
        let mut outcome = self.shared().block(&*self.locks.hook, self.locks.options.timeout);
        // The time that earlier epochs of the same loop take is no reason for an error.
        while outcome == WaitOutcome::Waiting && self.is_in_epoch() && !self.locks.waits_for_stranger(self.slot) {
            outcome = self.shared().block(&*self.locks.hook, self.locks.options.timeout);
        }
        if outcome != WaitOutcome::Waiting {
            return (outcome, None);
        }
        let holder = self.locks.withdraw_late(self.slot);
        // The wait has ended: this thread has ended it, or an earlier grant has, whose wake has not arrived yet.
        (self.shared().block(&*self.locks.hook, None), holder)
    }

    /// Updates the owner's own data after a wait with this outcome. Returns the result of the request.
    pub(super) fn note_outcome(&mut self, outcome: WaitOutcome) -> Result<Acquired, LockRefusal> {
        self.shared().end_wait();
        let table = self.pending_table();
        let acquired = match self.pending.take() {
            Some(Pending::New(position)) => {
                self.note_new(position, outcome);
                Acquired::New
            }
            // If the conversion failed, the owner still holds its former mode.
            Some(Pending::Conversion(_)) => Acquired::Converted,
            Some(Pending::Table(table)) => {
                self.note_table(table);
                Acquired::Converted
            }
            None => Acquired::Already,
        };
        match outcome {
            WaitOutcome::Waiting | WaitOutcome::Granted => Ok(acquired),
            WaitOutcome::Closed => Err(LockRefusal::Closed),
            WaitOutcome::OwnTask => Err(LockRefusal::OwnTask),
            WaitOutcome::Wounded => {
                self.confirm_wound();
                Err(LockRefusal::Wounded)
            }
            WaitOutcome::TimedOut => Err(LockRefusal::TimedOut { holder: None }),
            WaitOutcome::Deadlock => {
                self.shared().counters.deadlocks.increment();
                self.locks.tables.of(table).counters.deadlocks.fetch_add(1, Ordering::Relaxed);
                Err(LockRefusal::Deadlock { table })
            }
        }
    }

    fn note_new(&mut self, position: u32, outcome: WaitOutcome) {
        if outcome == WaitOutcome::Granted {
            let table = self.arena.at(position).table.get();
            self.usage(table).records += 1;
        } else {
            self.arena.give_back(position);
        }
    }

    fn pending_table(&self) -> u32 {
        match self.pending {
            Some(Pending::New(position) | Pending::Conversion(position)) => self.arena.at(position).table.get(),
            Some(Pending::Table(table)) => table,
            None => 0,
        }
    }

    /// Withdraws a request whose thread or fiber was unwound, so that no thread waits for it any more.
    #[cold]
    pub(super) fn abandon_wait(&mut self) {
        self.locks.withdraw_one(self.slot);
        let mut backoff = super::sync::Backoff::default();
        while self.shared().outcome() == WaitOutcome::Waiting {
            backoff.pause();
        }
        let outcome = self.shared().outcome();
        let _ = self.note_outcome(outcome);
    }
}

/// Sets the fields of a request that is about to be linked into a bucket.
#[inline]
fn fill(request: &Request, table: u32, name: LockName, claim: GapMode, epoch: u16) {
    request.name.set(name);
    request.table.set(table);
    request.epoch.set(epoch);
    request.set_held(claim);
}

impl LockTable {
    /// Releases a request that is not the only request of its bucket.
    #[cold]
    pub(super) fn release_shared(&self, request: &Request, release: impl FnOnce(&LatchedBucket<'_>, &mut Wakes)) {
        let mut wakes = Wakes::default();
        release(&self.buckets.of(request.name.get()).latch(), &mut wakes);
        self.deliver(wakes);
    }

    #[inline]
    pub(super) fn deliver(&self, wakes: Wakes) {
        wakes.deliver(&self.slots, &*self.hook);
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        self.release_all();
        self.shared().attached.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for LockOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockOwner").field("slot", &self.slot).field("touched", &self.touched).finish_non_exhaustive()
    }
}
