//! The record locks of one transaction after another: acquire, wait, release.

use super::mode::{GapMode, KeyMode, RecordMode, TableMode};
use super::name::{LockName, Prefix};
use super::queue::{self, Ask};
use super::request::{Request, RequestArena};
#[cfg(test)]
use super::stats::LockStats;
use super::sync::{Arc, AtomicU8, AtomicU32, Ordering};
use super::table::Latched;
use super::wait::{FarMap, Outcome, OwnerSlot, WaitsFor, Wakes};
use super::{LockRefusal, LockTable};
use crate::base::ids::SlotId;
use crate::base::mutant::{Mutant, is_mutant};

/// How a lock came to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The owner had no lock on the name. [`LockOwner::release_one`] may take it back.
    New,
    /// What the owner had is enough; nothing has changed.
    Already,
    /// What the owner had was made stronger.
    Converted,
    /// The owner's lock on the table is enough; there is no record lock.
    Covered,
}

/// Why a lock was not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Other owners are in the way, or escalation is due. Release all latches, call the waiting variant, then look at
    /// the data again.
    WouldBlock,
    /// The owner has as many record locks as it may have.
    TooManyLocks,
}

/// The result of an attempt.
#[must_use]
pub(super) enum Attempt<T> {
    Done(T),
    /// Other owners are in the way; nothing was changed.
    Blocked,
    /// Other owners are in the way; the request is queued, and [`LockOwner::finish_wait`] must follow.
    Queued,
}

/// What to do when other owners are in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfBlocked {
    GiveUp,
    Queue,
}

/// The wait that an owner is in.
#[derive(Clone, Copy)]
pub(super) enum Pending {
    /// For the new request at this position of the arena.
    New(u32),
    /// For the request at this position of the arena to become stronger.
    Conversion(u32),
    /// For this table.
    Table(u32),
}

/// What the owner's table lock means for a claim on a record.
pub(super) enum Standing {
    /// The table lock makes it unnecessary.
    Covered,
    /// It needs a lock of its own.
    Needed,
    /// Escalation comes first, and latches may be held.
    Due,
}

/// The owner's own record of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableUse {
    /// Record locks held there.
    pub(super) records: u32,
    /// Below this count a record lock needs no further check: `escalate_at`, or 0 while a table lock covers record
    /// locks.
    pub(super) limit: u32,
    /// Record locks at which the next attempt to escalate is due.
    pub(super) escalate_at: u32,
}

/// While locks are released, the bucket of the request this many places further is fetched.
const RELEASE_AHEAD: usize = 4;

/// One slot's access to the lock table, with all locks of its transaction. Used by one thread or fiber at a time.
///
/// Dropping it releases everything.
pub(crate) struct LockOwner {
    pub(super) arena: RequestArena,
    pub(super) locks: Arc<LockTable>,
    pub(super) slot: SlotId,
    /// The slot's modes of tables with low numbers.
    pub(super) modes: Arc<[AtomicU8]>,
    /// See [`super::intent::Tables`].
    pub(super) strong: Arc<[AtomicU32]>,
    /// Of tables with low numbers, as far as they were used.
    pub(super) tables: Vec<TableUse>,
    /// Of other tables, while the transaction uses them.
    pub(super) far: FarMap<TableUse>,
    /// Tables with a mode.
    pub(super) touched: Vec<u32>,
    pub(super) pending: Option<Pending>,
}

impl LockOwner {
    pub(super) fn new(locks: Arc<LockTable>, slot: SlotId) -> LockOwner {
        LockOwner {
            arena: RequestArena::new(slot, locks.options.records_per_owner),
            modes: locks.slot(slot).modes(locks.options.near).clone(),
            strong: locks.tables.strong.clone(),
            tables: Vec::new(),
            far: FarMap::default(),
            touched: Vec::new(),
            pending: None,
            slot,
            locks,
        }
    }

    /// The slot it belongs to.
    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    /// Starts a transaction. The member of a deadlock with the largest `age` is the victim; a transaction that is run
    /// again after a deadlock keeps its age, so that it does not become the victim again and again.
    #[inline]
    pub(crate) fn begin(&mut self, age: u64) {
        debug_assert!(self.touched.is_empty() && self.arena.iter().next().is_none(), "the last transaction's locks");
        self.shared().age.store(age, Ordering::Relaxed);
    }

    /// Says which task runs the transaction; 0 if that may change. See [`OwnerSlot::task`].
    #[inline]
    pub(crate) fn run_by(&mut self, task: u64) {
        self.shared().task.store(task, Ordering::Relaxed);
    }

    /// Locks the record `name` of table `table` in `mode` if no other owner is in the way. Never waits, so it may be
    /// called under page latches. `low` says how far down the gap part of `mode` reaches; without a gap part it means
    /// nothing.
    ///
    /// The owner must hold an intention on the table ([`LockOwner::intent`]).
    #[inline(always)]
    pub(crate) fn try_acquire(
        &mut self,
        table: u32,
        name: LockName,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<Acquired, Refused> {
        let claim = GapMode { mode, low };
        let usage = match self.tables.get_mut(table as usize) {
            Some(usage) => Some(usage),
            None => self.far.get_mut(&table),
        };
        if let Some(usage) = usage
            && usage.records < usage.limit
        {
            let bucket = self.locks.buckets.of(name);
            if bucket.looks_used() {
                if let Some(head) = bucket.own_head(&self.arena)
                    && head.is_for(table, name)
                    && head.holds().covers(claim)
                {
                    return Ok(Acquired::Already);
                }
            } else if let Some(request) = self.arena.peek_next() {
                fill(request, table, name, claim);
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
    fn try_acquire_slow(&mut self, table: u32, name: LockName, claim: GapMode) -> Result<Acquired, Refused> {
        match self.attempt(table, name, claim, IfBlocked::GiveUp) {
            Ok(Attempt::Done(acquired)) => Ok(acquired),
            Ok(Attempt::Blocked | Attempt::Queued) => Err(Refused::WouldBlock),
            Err(_) => Err(Refused::TooManyLocks),
        }
    }

    /// As [`LockOwner::try_acquire`], but waits while other owners are in the way. The caller holds no latch.
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

    /// Whether the owner could lock `name` in mode S now. Leaves nothing behind: a record that is read between two
    /// such answers, or validated after one, was committed.
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
        let free = list
            .iter()
            .filter(|r| r.is_for(table, name) && !r.held.get().is_none())
            .all(|r| r.owner == self.slot || !r.holds().excludes(wish));
        // Another owner's U may have been granted beside this owner's S; it keeps only new readers waiting.
        free || queue::find_held(&list, self.slot, table, name).is_some_and(|mine| mine.holds().covers(wish))
    }

    /// Waits, in the order of arrival, until [`LockOwner::try_instant_s`] holds; leaves nothing behind. Afterwards
    /// another owner may take the record first again: a reader that must not starve takes S with
    /// [`LockOwner::acquire_wait`], reads, and releases it with [`LockOwner::release_one`] if it was [`Acquired::New`].
    pub(crate) fn wait_instant_s(&mut self, table: u32, name: LockName) -> Result<(), LockRefusal> {
        if self.acquire_wait(table, name, RecordMode::S, Prefix::MIN)? == Acquired::New {
            self.release_one(table, name);
        }
        Ok(())
    }

    /// What the owner holds on `name` by record locks.
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

    /// Releases the owner's lock on `name` in `table` before the transaction ends, if it is no longer needed: a read at
    /// read-committed, or a key that turned out not to match. False if there is none.
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
        let held = queue::find_held(&self.locks.buckets.of(name).latch(), self.slot, table, name).map(|r| r.position);
        if let Some(position) = held {
            self.release_at(position);
        }
        held.is_some()
    }

    /// Releases the held request at `position`.
    pub(super) fn release_at(&mut self, position: u32) {
        let request = self.arena.at(position);
        if !self.locks.buckets.of(request.name.get()).remove_only(request) {
            self.locks.release_shared(request, |list, wakes| queue::release(list, request, wakes));
        }
        self.forget(position);
    }

    /// Updates the owner's records after the request at `position` has been released.
    fn forget(&mut self, position: u32) {
        let table = self.arena.at(position).table.get();
        self.usage(table).records -= 1;
        self.arena.give_back(position);
    }

    /// Releases everything: the end of the transaction.
    #[inline]
    pub(crate) fn release_all(&mut self) {
        if self.pending.is_some() {
            self.abandon_wait();
        }
        for requests in self.arena.chunks() {
            for (i, request) in requests.iter().enumerate() {
                // The locks are spread over the table, and by now other data has displaced their buckets from the L1
                // and L2 caches.
                if let Some(later) = requests.get(i + RELEASE_AHEAD) {
                    self.locks.buckets.prefetch(later.name.get());
                }
                if !request.is_free() && !self.locks.buckets.of(request.name.get()).remove_only(request) {
                    self.locks.release_shared(request, |list, wakes| queue::release_at_end(list, request, wakes));
                }
            }
        }
        self.arena.reset();
        if !self.touched.is_empty() {
            self.release_tables();
        }
    }

    /// What happened to this owner since it was attached.
    #[cfg(test)]
    pub(crate) fn stats(&self) -> LockStats {
        self.shared().counters.read()
    }

    pub(super) fn shared(&self) -> &OwnerSlot {
        self.locks.slot(self.slot)
    }

    /// The owner's mode in `table`.
    #[inline]
    pub(super) fn mode(&self, table: u32) -> TableMode {
        match self.modes.get(table as usize) {
            Some(mode) => TableMode::from_byte(mode.load(Ordering::Relaxed)),
            None => self.shared().mode(table),
        }
    }

    /// Locks `name`, or finds out that it cannot.
    pub(super) fn attempt(
        &mut self,
        table: u32,
        name: LockName,
        claim: GapMode,
        blocked: IfBlocked,
    ) -> Result<Attempt<Acquired>, LockRefusal> {
        match self.standing(table, claim, blocked) {
            Standing::Covered => return Ok(Attempt::Done(Acquired::Covered)),
            Standing::Due => return Ok(Attempt::Blocked),
            Standing::Needed => {}
        }
        self.arena.reserve();
        let list = self.locks.buckets.of(name).latch();
        if list.iter().all(|other| !other.is_for(table, name)) {
            // No owner has it or waits for it: at most the bucket is shared, by chance.
            let Some(request) = self.arena.take() else {
                return Err(LockRefusal::TooManyLocks { limit: self.locks.options.records_per_owner });
            };
            fill(request, table, name, claim);
            list.push_held(request);
            drop(list);
            self.usage(table).records += 1;
            return Ok(Attempt::Done(Acquired::New));
        }
        let held = queue::find_held(&list, self.slot, table, name);
        let (target, beyond) = match held.map(Request::holds) {
            Some(holds) if holds.covers(claim) => return Ok(Attempt::Done(Acquired::Already)),
            Some(holds) => (holds.union(claim), claim.beyond(holds)),
            None => (claim, claim),
        };
        let ask = Ask { owner: self.slot, table, name, claim: beyond, converting: held.is_some(), queued: None };
        let is_blocked = ask.is_blocked(&list);
        if is_blocked && blocked == IfBlocked::GiveUp {
            return Ok(Attempt::Blocked);
        }
        let (request, acquired) = match held {
            Some(request) => (request, Acquired::Converted),
            None => {
                let Some(request) = self.arena.take() else {
                    return Err(LockRefusal::TooManyLocks { limit: self.locks.options.records_per_owner });
                };
                fill(request, table, name, GapMode { mode: RecordMode::NONE, low: claim.low });
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
        if acquired == Acquired::New {
            drop(list);
            self.usage(table).records += 1;
        }
        Ok(Attempt::Done(acquired))
    }

    /// Waits for the pending request; returns how it ended.
    #[cold]
    pub(super) fn finish_wait(&mut self) -> Result<Acquired, LockRefusal> {
        self.count_wait();
        if !is_mutant(Mutant::SkipDeadlockSearch) {
            self.locks.resolve_deadlocks(self.slot);
        }
        let mut outcome = self.shared().block(&*self.locks.hook, self.locks.options.timeout);
        let mut holder = None;
        if outcome == Outcome::Waiting {
            holder = self.locks.withdraw_late(self.slot);
            // The wait has ended: here, or by a grant that came first and whose wake is on its way.
            outcome = self.shared().block(&*self.locks.hook, None);
        }
        self.note_outcome(outcome).map_err(|error| match error {
            LockRefusal::TimedOut { .. } => LockRefusal::TimedOut { holder },
            other => other,
        })
    }

    fn count_wait(&self) {
        self.shared().counters.waits.increment();
        self.locks.tables.of(self.pending_table()).counters.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Updates the owner's own records after a wait.
    pub(super) fn note_outcome(&mut self, outcome: Outcome) -> Result<Acquired, LockRefusal> {
        self.shared().end_wait();
        let table = self.pending_table();
        let acquired = match self.pending.take() {
            Some(Pending::New(position)) => {
                self.note_new(position, outcome);
                Acquired::New
            }
            // If it failed, what was held before still is.
            Some(Pending::Conversion(_)) => Acquired::Converted,
            Some(Pending::Table(table)) => {
                self.note_table(table);
                Acquired::Converted
            }
            None => Acquired::Already,
        };
        match outcome {
            Outcome::Waiting | Outcome::Granted => Ok(acquired),
            Outcome::Closed => Err(LockRefusal::Closed),
            Outcome::OwnTask => Err(LockRefusal::OwnTask),
            Outcome::TimedOut => Err(LockRefusal::TimedOut { holder: None }),
            Outcome::Deadlock => {
                self.shared().counters.deadlocks.increment();
                self.locks.tables.of(table).counters.deadlocks.fetch_add(1, Ordering::Relaxed);
                Err(LockRefusal::Deadlock { table })
            }
        }
    }

    fn note_new(&mut self, position: u32, outcome: Outcome) {
        if outcome == Outcome::Granted {
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

    /// Withdraws a request that no thread waits for any more: its fiber or thread was unwound.
    #[cold]
    fn abandon_wait(&mut self) {
        self.locks.withdraw_one(self.slot);
        let mut backoff = super::sync::Backoff::default();
        while self.shared().outcome() == Outcome::Waiting {
            backoff.pause();
        }
        let outcome = self.shared().outcome();
        let _ = self.note_outcome(outcome);
    }
}

/// Sets the fields of a request when it is linked.
#[inline]
fn fill(request: &Request, table: u32, name: LockName, claim: GapMode) {
    request.name.set(name);
    request.table.set(table);
    request.set_held(claim);
}

impl LockTable {
    /// Releases a request that is not alone in its bucket.
    #[cold]
    fn release_shared(&self, request: &Request, release: impl FnOnce(&Latched<'_>, &mut Wakes)) {
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
