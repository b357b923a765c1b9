//! The table of active transactions. A transaction claims one slot for its lifetime.
//!
//! | field | written by | read by |
//! | --- | --- | --- |
//! | `claims` | the thread that claims or releases the slot | all |
//! | `private` | the claimer only | the claimer only |
//! | `state`, `first`, `last` | the claimer | the checkpointer |
//! | `hits` | the claimer | threads that read the counters |
//!
//! `state` is the transaction's number, shifted left by one. The lowest bit is set while its last record (commit or end) is
//! being appended. The checkpointer waits until this bit is clear. Otherwise it could list a transaction as unfinished
//! although its end precedes the checkpoint.
//!
//! After the slots for transactions of users come the slots for the engine's own transactions: creating, dropping,
//! truncating and changing tables, bulk loads, and background work. These slots are created at their first use. So no
//! transaction of the engine is refused because users have reached their maximum number of transactions.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::sync::{Arc, OnceLock};
use std::thread::LocalKey;

use super::slot_state::SlotState;
use crate::base::ids::{Age, Lsn, SlotId, TxnId};
use crate::base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::base::sync::yield_now;
use crate::lock::LockTable;

/// A slot of the table of active transactions.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// Number of claims and releases: odd while the slot is claimed.
    claims: AtomicU32,
    state: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    /// Number of pages that transactions of this slot found in the pool. Only the claimer writes it.
    hits: AtomicU64,
    private: UnsafeCell<SlotState>,
}

// SAFETY: `private` is accessed only through a `SlotGuard`, and at most one exists per slot (`claims`).
unsafe impl Sync for Slot {}

/// Number of slots for the engine's own transactions.
pub(crate) const SYSTEM_SLOTS: usize = 4 + 2 * MAINTENANCE;
/// Maximum number of concurrent calls of users that change whole tables.
const MAINTENANCE: usize = 64;

/// Purpose of one of the engine's own transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemPurpose {
    /// A short transaction on the catalog. Its caller has the turn of `table/creation.rs`, so there is one such transaction
    /// at a time.
    Catalog,
    /// The transaction that opens the database.
    Open,
    /// A transaction of the purge service, which runs one at a time.
    Purge,
    /// A transaction that compacts the file, one at a time.
    Compact,
    /// Maintenance requested by a user: dropping, truncating or changing a table, or a bulk load.
    Maintenance,
    /// A second transaction of the call that runs a [`SystemPurpose::Maintenance`] transaction. A slot for it is always
    /// available.
    Companion,
}

impl SystemPurpose {
    /// Returns the indexes of the slots for transactions of this purpose, among the slots for the engine's own transactions.
    fn places(self) -> std::ops::Range<usize> {
        match self {
            SystemPurpose::Catalog => 0..1,
            SystemPurpose::Open => 1..2,
            SystemPurpose::Purge => 2..3,
            SystemPurpose::Compact => 3..4,
            SystemPurpose::Maintenance => 4..4 + MAINTENANCE,
            SystemPurpose::Companion => 4 + MAINTENANCE..SYSTEM_SLOTS,
        }
    }

    /// Returns the maximum number of concurrent transactions of this purpose.
    pub(crate) fn limit(self) -> usize {
        self.places().len()
    }
}

/// All slots: first the slots for transactions of users, then the slots for the engine's own transactions.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    system: Box<[OnceLock<Box<Slot>>]>,
    /// Number that each claim of a slot in `system` and [`Slots::running`] access by a read-modify-write. So `running`
    /// either precedes the creation of a slot, or sees the slot.
    made: AtomicU32,
    locks: Arc<LockTable>,
    /// True if a thread prefers the slot that it claimed last. If false, the first free slot is claimed, so that a
    /// simulation is repeatable regardless of the threads that run it.
    remembers: bool,
}

/// An active transaction as a checkpoint records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveTransaction {
    pub(crate) txn: TxnId,
    /// LSN of the transaction's first record. The log must be kept from here.
    pub(crate) first: Lsn,
    /// LSN of the transaction's last record so far. Zero if the transaction has announced itself but appended no record.
    pub(crate) last: Lsn,
}

/// The transactions that ran at some moment: for each of them the index of its slot, and the slot's `claims` at that moment.
#[derive(Debug)]
pub(crate) struct RunningSet(Vec<(usize, u32)>);

/// Maximum number of passes over all slots before a thread reports that all slots are taken. Slots may become free behind
/// the search, and other threads may take slots ahead of the search.
const PASSES: usize = 64;

thread_local! {
    /// Index of the slot that this thread claimed last.
    static HINT: Cell<usize> = Cell::new(hint_for_new_thread());
    /// Index of the first slot that this thread tries for a member.
    static MEMBER_HINT: Cell<usize> = const { Cell::new(0) };
}

/// Number of slots from [`MEMBER_HINT`] on that a thread tries for its members before it searches all: it has at most as many.
const MEMBER_SLOTS: usize = speculate::DEPTH;

fn hint_for_new_thread() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Slot {
    fn new(i: usize, locks: &Arc<LockTable>) -> Slot {
        Slot {
            claims: AtomicU32::new(0),
            state: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            private: UnsafeCell::new(SlotState::new(locks.attach(SlotId(i as u16)))),
        }
    }
}

impl Slots {
    /// Returns the address range of the slots, and the distance between two slots in bytes.
    #[cfg(feature = "measure")]
    pub(crate) fn lines(&self) -> (std::ops::Range<usize>, usize) {
        let slots = self.slots.as_ptr_range();
        (slots.start.addr()..slots.end.addr(), size_of::<Slot>())
    }

    /// Creates `n` slots for users and [`SYSTEM_SLOTS`] slots for the engine's own transactions. See [`Slots::remembers`].
    pub(crate) fn new(n: usize, locks: &Arc<LockTable>, remembers: bool) -> Slots {
        Slots {
            slots: (0..n).map(|i| Slot::new(i, locks)).collect(),
            system: (0..SYSTEM_SLOTS).map(|_| OnceLock::new()).collect(),
            made: AtomicU32::new(0),
            locks: Arc::clone(locks),
            remembers,
        }
    }

    /// Returns the maximum number of user transactions.
    pub(crate) fn limit(&self) -> usize {
        self.slots.len()
    }

    /// Claims a slot for one of the engine's own transactions. Returns `None` if all slots for this purpose are taken.
    #[cold]
    pub(crate) fn claim_system(&self, purpose: SystemPurpose) -> Option<SlotGuard<'_>> {
        purpose.places().find_map(|i| {
            let slot = self.system[i].get_or_init(|| Box::new(Slot::new(self.slots.len() + i, &self.locks)));
            self.made.fetch_add(1, Ordering::AcqRel);
            Self::try_claim(slot).then(|| SlotGuard { slot })
        })
    }

    /// Iterates over all existing slots.
    fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().chain(self.system.iter().filter_map(|slot| slot.get().map(|slot| &**slot)))
    }

    /// Claims a free slot, preferably the slot that this thread claimed last. Returns `None` if all slots are taken.
    #[inline]
    pub(crate) fn claim(&self) -> Option<SlotGuard<'_>> {
        let hint = if self.remembers { HINT.get() } else { 0 };
        let slots = &self.slots;
        if let Some(slot) = slots.get(hint)
            && Self::try_claim(slot)
        {
            return Some(SlotGuard { slot });
        }
        // Transactions of one thread's team begin one after the other.
        if self.remembers
            && let Some(slot) = slots.get(hint + 1)
            && Self::try_claim(slot)
        {
            HINT.set(hint + 1);
            return Some(SlotGuard { slot });
        }
        self.claim_slow(hint + 1, &HINT)
    }

    /// Claims a free slot for a member of a transaction, preferably one of those that this thread has claimed for members
    /// before: their buffers are in its caches. Otherwise the first free slot, because searches for the members of a family look at
    /// all slots up to the last one that was ever used. Returns `None` if all slots are taken.
    pub(crate) fn claim_member(&self) -> Option<SlotGuard<'_>> {
        let hint = if self.remembers { MEMBER_HINT.get() } else { 0 };
        if let Some(slot) = self.slots.iter().skip(hint).take(MEMBER_SLOTS).find(|slot| Self::try_claim(slot)) {
            return Some(SlotGuard { slot });
        }
        self.claim_slow(0, &MEMBER_HINT)
    }

    /// Claims a free slot, the first one from `next` on and then from the begin. Notes it in `hint`.
    #[cold]
    fn claim_slow(&self, next: usize, hint: &'static LocalKey<Cell<usize>>) -> Option<SlotGuard<'_>> {
        let slots = &self.slots;
        let next = if next <= slots.len() { next } else { 0 };
        let (before, behind) = slots.split_at(next);
        for pass in 0..PASSES {
            if pass > 0 {
                yield_now();
            }
            for (i, slot) in (next..).zip(behind).chain((0..).zip(before)) {
                if Self::try_claim(slot) {
                    if self.remembers {
                        hint.set(i);
                    }
                    return Some(SlotGuard { slot });
                }
            }
        }
        None
    }

    #[inline]
    fn try_claim(slot: &Slot) -> bool {
        let claims = slot.claims.load(Ordering::Relaxed);
        claims & 1 == 0
            && slot
                .claims
                .compare_exchange(claims, claims.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Returns the first record of the slot's transaction and its members, or `Lsn::ZERO` if it has none.
    pub(crate) fn first_record(&self, slot: SlotId) -> Lsn {
        let first = |slot: SlotId| {
            let place = self.place(usize::from(slot.0));
            place.map(|slot| Lsn(slot.first.load(Ordering::Acquire))).filter(|first| *first != Lsn::ZERO)
        };
        self.locks.kin_of(slot).chain([slot]).filter_map(first).min().unwrap_or(Lsn::ZERO)
    }

    /// Returns the transactions that have appended records but not their last record. Transactions that begin during the
    /// call may be missing: all their records follow the log's tail at the time of the call.
    pub(crate) fn active(&self) -> Vec<ActiveTransaction> {
        let mut all = Vec::new();
        for slot in self.all() {
            let state = loop {
                let state = slot.state.load(Ordering::SeqCst);
                if state & 1 == 0 {
                    break state;
                }
                yield_now();
            };
            let (first, last) = (slot.first.load(Ordering::Acquire), slot.last.load(Ordering::Acquire));
            if state != 0 && first != 0 && slot.state.load(Ordering::SeqCst) == state {
                all.push(ActiveTransaction { txn: TxnId(state >> 1), first: Lsn(first), last: Lsn(last) });
            }
        }
        all
    }

    /// Returns the transactions that run now. Every transaction that begins after the call sees the stores that this thread
    /// made before the call.
    pub(crate) fn running(&self) -> RunningSet {
        self.made.fetch_add(0, Ordering::AcqRel);
        // Each access is a read-modify-write. A claim either precedes the access and is seen, or follows the access and
        // acquires the stores that the access releases.
        let places = (0..self.slots.len() + self.system.len()).filter_map(|at| Some((at, self.place(at)?)));
        let claims = places.map(|(at, slot)| (at, slot.claims.fetch_add(0, Ordering::AcqRel)));
        RunningSet(claims.filter(|(_, claims)| claims & 1 == 1).collect())
    }

    /// Returns true if all transactions in `running` have ended. Removes the transactions that have ended.
    pub(crate) fn have_ended(&self, running: &mut RunningSet) -> bool {
        running.0.retain(|(at, claims)| self.place(*at).is_some_and(|s| s.claims.load(Ordering::Acquire) == *claims));
        running.0.is_empty()
    }

    fn place(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at).or_else(|| self.system.get(at - self.slots.len())?.get().map(|slot| &**slot))
    }

    /// Returns true if the transaction with this age has begun to write and has not ended. Unlike [`Slots::active`], this
    /// function does not wait.
    pub(crate) fn is_writing(&self, age: Age) -> bool {
        let places =
            (0..self.slots.len() + self.system.len()).filter_map(|at| Some((SlotId(at as u16), self.place(at)?)));
        let mut writing = places.filter(|(_, slot)| slot.first.load(Ordering::Acquire) != 0);
        writing.any(|(at, _)| self.locks.age_in(at) == age)
    }

    /// Returns the number of pages that transactions have found in the pool.
    pub(crate) fn hits(&self) -> u64 {
        self.all().map(|slot| slot.hits.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of claimed slots.
    #[cfg(test)]
    pub(crate) fn claimed(&self) -> usize {
        self.all().filter(|s| s.claims.load(Ordering::Relaxed) & 1 == 1).count()
    }
}

/// A claimed slot. Dropping it releases the slot.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    slot: &'a Slot,
}

impl SlotGuard<'_> {
    /// Returns the transaction's private state for changes.
    #[inline]
    pub(crate) fn state(&mut self) -> &mut SlotState {
        // SAFETY: only `self` has claimed the slot, and `&mut self` makes this borrow the only one.
        unsafe { &mut *self.slot.private.get() }
    }

    /// Returns the transaction's private state for reads.
    #[inline]
    pub(crate) fn peek(&self) -> &SlotState {
        // SAFETY: only `self` has claimed the slot, and `&self` allows only shared borrows during this one.
        unsafe { &*self.slot.private.get() }
    }

    /// Makes the transaction visible to checkpoints. Called before its first record is appended.
    #[inline]
    pub(crate) fn announce(&self, txn: TxnId, not_before: Lsn) {
        // `not_before` is not the LSN of a record of the transaction, so undo cannot begin there.
        self.slot.last.store(0, Ordering::Relaxed);
        self.slot.first.store(not_before.0, Ordering::Release);
        self.slot.state.store(txn.0 << 1, Ordering::SeqCst);
    }

    /// Sets the LSN of the transaction's newest record.
    #[inline]
    pub(crate) fn advance(&self, last: Lsn) {
        self.slot.last.store(last.0, Ordering::Release);
    }

    /// Records that the transaction's last record is about to be appended. [`SlotGuard::ended`] must follow soon.
    #[inline]
    pub(crate) fn ending(&self, txn: TxnId) {
        self.slot.state.store(txn.0 << 1 | 1, Ordering::SeqCst);
    }

    /// Records the end of the transaction.
    #[inline]
    pub(crate) fn ended(&self) {
        self.slot.first.store(0, Ordering::Relaxed);
        self.slot.state.store(0, Ordering::Release);
    }
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let hits = &self.slot.hits;
        hits.store(hits.load(Ordering::Relaxed) + crate::buffer::take_hits(), Ordering::Relaxed);
        let claims = self.slot.claims.load(Ordering::Relaxed);
        self.slot.claims.store(claims.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_claimer_and_shows_what_it_announces() {
        let hook = Arc::new(crate::base::hook::ThreadHook::default());
        let slots = Slots::new(2, &LockTable::new(crate::lock::LockOptions::default(), hook).unwrap(), true);
        let a = slots.claim().unwrap();
        let b = slots.claim().unwrap();
        assert!(slots.claim().is_none());
        let creating = slots.claim_system(SystemPurpose::Catalog).unwrap();
        let service = slots.claim_system(SystemPurpose::Purge).unwrap();
        assert!(
            slots.claim_system(SystemPurpose::Catalog).is_none() && slots.claim_system(SystemPurpose::Purge).is_none()
        );
        let called: Vec<_> = std::iter::from_fn(|| slots.claim_system(SystemPurpose::Maintenance)).collect();
        assert_eq!(called.len(), MAINTENANCE);
        let beside: Vec<_> = std::iter::from_fn(|| slots.claim_system(SystemPurpose::Companion)).collect();
        assert_eq!(beside.len(), MAINTENANCE);
        assert!(slots.claim().is_none());
        called[7].announce(TxnId(9), Lsn(50));
        assert_eq!(slots.active(), [ActiveTransaction { txn: TxnId(9), first: Lsn(50), last: Lsn::ZERO }]);
        called[7].ended();
        drop((creating, service, called, beside));
        assert!(slots.active().is_empty());
        a.announce(TxnId(7), Lsn(100));
        assert_eq!(slots.active(), [ActiveTransaction { txn: TxnId(7), first: Lsn(100), last: Lsn::ZERO }]);
        a.advance(Lsn(160));
        assert_eq!(slots.active(), [ActiveTransaction { txn: TxnId(7), first: Lsn(100), last: Lsn(160) }]);
        a.ending(TxnId(7));
        a.ended();
        assert!(slots.active().is_empty());
        // A transaction of the set has ended once its slot was released, even if another transaction has claimed the slot
        // since.
        let mut running = slots.running();
        assert_eq!(running.0.len(), 2);
        drop(a);
        assert!(!slots.have_ended(&mut running));
        let a = slots.claim().unwrap();
        drop(b);
        assert!(slots.have_ended(&mut running));
        drop(a);
        assert_eq!(slots.claimed(), 0);
    }

    /// Checks that a slot is found while one is free, if the fibers of a thread claim other slots than they released.
    #[test]
    fn there_is_a_place_as_long_as_not_all_are_taken() {
        let hook = Arc::new(crate::base::hook::ThreadHook::default());
        let slots = Slots::new(8, &LockTable::new(crate::lock::LockOptions::default(), hook).unwrap(), true);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let mut first = slots.claim().unwrap();
                    for _ in 0..20_000 {
                        let second = slots.claim().unwrap();
                        drop(std::mem::replace(&mut first, second));
                    }
                });
            }
        });
        assert_eq!(slots.claimed(), 0);
    }
}
