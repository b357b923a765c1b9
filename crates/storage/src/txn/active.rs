//! The table of active transactions: one slot each, claimed for the length of a transaction.
//!
//! | field | written by | read by |
//! | --- | --- | --- |
//! | `claimed` | the thread that claims or gives back the slot | all |
//! | `own` | the claimer alone | the claimer alone |
//! | `state`, `first`, `last` | the claimer | the checkpointer |
//! | `hits` | the claimer | threads that read the counters |
//!
//! `state` is the transaction's number, shifted left, with the lowest bit set while its last record
//! (commit or end) is being appended. The checkpointer waits out that bit: otherwise it could list a
//! transaction as unfinished whose end lies before the checkpoint.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;

use super::slot_state::SlotState;
use crate::base::ids::{Lsn, SlotId, TxnId};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::yield_now;
use crate::lock::LockTable;

/// One place in the table.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    claimed: AtomicBool,
    state: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    /// Pages that transactions of this slot found in the pool. Written by the claimer alone.
    hits: AtomicU64,
    own: UnsafeCell<SlotState>,
}

// SAFETY: `own` is touched only through a `SlotGuard`, of which there is at most one per slot (`claimed`).
unsafe impl Sync for Slot {}

/// The engine's own places, behind those of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnPlace {
    /// For creating a table.
    Creating,
    /// For the purge service.
    Purging,
    /// For moving pages together.
    Compacting,
}

/// How many [`OwnPlace`]s there are.
pub(crate) const OWN_PLACES: usize = 3;

/// All places: those for transactions of users, and behind them the engine's own, so that a table may be created, and
/// ghosts be removed, when all places of users are taken.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    /// Whether threads prefer the place they had before. If not, the first free place is taken, so that a simulation
    /// repeats itself whatever threads it runs on.
    remembers: bool,
}

/// An active transaction as a checkpoint records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    pub(crate) txn: TxnId,
    /// Its first record: the log must be kept from here.
    pub(crate) first: Lsn,
    /// Its last record so far; zero if it has announced itself and appended none.
    pub(crate) last: Lsn,
}

/// How often a thread searches all places before it reports them taken: places become free behind the search, and other
/// threads take places ahead of it.
const PASSES: usize = 64;

thread_local! {
    /// Where this thread found a free slot last time.
    static HINT: Cell<usize> = Cell::new(hint_for_new_thread());
}

fn hint_for_new_thread() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Slots {
    /// Addresses of the places, and how far apart two are.
    #[cfg(feature = "measure")]
    pub(crate) fn lines(&self) -> (std::ops::Range<usize>, usize) {
        let slots = self.slots.as_ptr_range();
        (slots.start.addr()..slots.end.addr(), size_of::<Slot>())
    }

    /// `n` places for users, and the engine's own. See [`Slots::remembers`].
    pub(crate) fn new(n: usize, locks: &Arc<LockTable>, remembers: bool) -> Slots {
        let slot = |i: usize| Slot {
            claimed: AtomicBool::new(false),
            state: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            own: UnsafeCell::new(SlotState::new(locks.attach(SlotId(i as u16)))),
        };
        Slots { slots: (0..n + OWN_PLACES).map(slot).collect(), remembers }
    }

    /// Greatest number of user transactions.
    pub(crate) fn limit(&self) -> usize {
        self.slots.len() - OWN_PLACES
    }

    /// Takes a place of the engine's own; `None` if it is taken, so only one transaction of the kind runs at a time.
    pub(crate) fn claim_own(&self, place: OwnPlace) -> Option<SlotGuard<'_>> {
        let slot = self.slots.get(self.limit() + place as usize)?;
        Self::try_claim(slot).then_some(SlotGuard { slot })
    }

    /// Takes a free place, preferably the one this thread had before; `None` when all are taken.
    #[inline]
    pub(crate) fn claim(&self) -> Option<SlotGuard<'_>> {
        let hint = if self.remembers { HINT.get() } else { 0 };
        let slots = &self.slots[..self.limit()];
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
        self.claim_slow(hint)
    }

    /// Takes a free place behind the hint, which has just been found taken.
    #[cold]
    fn claim_slow(&self, hint: usize) -> Option<SlotGuard<'_>> {
        let slots = &self.slots[..self.limit()];
        let next = if hint < slots.len() { hint + 1 } else { 0 };
        let (before, behind) = slots.split_at(next);
        for pass in 0..PASSES {
            if pass > 0 {
                yield_now();
            }
            for (i, slot) in (next..).zip(behind).chain((0..).zip(before)) {
                if Self::try_claim(slot) {
                    if self.remembers {
                        HINT.set(i);
                    }
                    return Some(SlotGuard { slot });
                }
            }
        }
        None
    }

    #[inline]
    fn try_claim(slot: &Slot) -> bool {
        !slot.claimed.load(Ordering::Relaxed)
            && slot.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The transactions that have written records and not yet their last. Those that begin meanwhile may be missing:
    /// all their records come after the log's tail at the call.
    pub(crate) fn active(&self) -> Vec<Active> {
        let mut all = Vec::new();
        for slot in &self.slots {
            let state = loop {
                let state = slot.state.load(Ordering::SeqCst);
                if state & 1 == 0 {
                    break state;
                }
                yield_now();
            };
            let (first, last) = (slot.first.load(Ordering::Acquire), slot.last.load(Ordering::Acquire));
            if state != 0 && first != 0 && slot.state.load(Ordering::SeqCst) == state {
                all.push(Active { txn: TxnId(state >> 1), first: Lsn(first), last: Lsn(last) });
            }
        }
        all
    }

    /// Pages that transactions have found in the pool.
    pub(crate) fn hits(&self) -> u64 {
        self.slots.iter().map(|slot| slot.hits.load(Ordering::Relaxed)).sum()
    }

    /// How many places are taken.
    #[cfg(test)]
    pub(crate) fn claimed(&self) -> usize {
        self.slots.iter().filter(|s| s.claimed.load(Ordering::Relaxed)).count()
    }
}

/// A claimed place; given back on drop.
#[derive(Debug)]
pub(crate) struct SlotGuard<'a> {
    slot: &'a Slot,
}

impl SlotGuard<'_> {
    /// The transaction's private state.
    #[inline]
    pub(crate) fn state(&mut self) -> &mut SlotState {
        // SAFETY: the slot is claimed by `self` alone, and `&mut self` makes the borrow the only one.
        unsafe { &mut *self.slot.own.get() }
    }

    /// The transaction's private state, to read.
    #[inline]
    pub(crate) fn peek(&self) -> &SlotState {
        // SAFETY: as above; `&self` allows only shared borrows meanwhile.
        unsafe { &*self.slot.own.get() }
    }

    /// Makes the transaction visible to checkpoints, before its first record.
    #[inline]
    pub(crate) fn announce(&self, txn: TxnId, not_before: Lsn) {
        // This is no record of the transaction, so undo cannot begin with it.
        self.slot.last.store(0, Ordering::Relaxed);
        self.slot.first.store(not_before.0, Ordering::Release);
        self.slot.state.store(txn.0 << 1, Ordering::SeqCst);
    }

    /// Notes the transaction's newest record.
    #[inline]
    pub(crate) fn advance(&self, last: Lsn) {
        self.slot.last.store(last.0, Ordering::Release);
    }

    /// Marks that the last record is about to be appended; [`SlotGuard::ended`] must follow soon.
    #[inline]
    pub(crate) fn ending(&self, txn: TxnId) {
        self.slot.state.store(txn.0 << 1 | 1, Ordering::SeqCst);
    }

    /// Marks the end of the transaction.
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
        self.slot.claimed.store(false, Ordering::Release);
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
        let creating = slots.claim_own(OwnPlace::Creating).unwrap();
        assert!(slots.claim_own(OwnPlace::Creating).is_none() && slots.claim().is_none());
        let purging = slots.claim_own(OwnPlace::Purging).unwrap();
        assert_ne!(creating.peek().id, purging.peek().id);
        drop((creating, purging));
        assert!(slots.active().is_empty());
        a.announce(TxnId(7), Lsn(100));
        assert_eq!(slots.active(), [Active { txn: TxnId(7), first: Lsn(100), last: Lsn::ZERO }]);
        a.advance(Lsn(160));
        assert_eq!(slots.active(), [Active { txn: TxnId(7), first: Lsn(100), last: Lsn(160) }]);
        a.ending(TxnId(7));
        a.ended();
        assert!(slots.active().is_empty());
        drop((a, b));
        assert_eq!(slots.claimed(), 0);
    }

    /// Fibers of a thread have several places, and take others than they gave back.
    #[test]
    fn there_is_a_place_as_long_as_not_all_are_taken() {
        let hook = Arc::new(crate::base::hook::ThreadHook::default());
        let slots = Slots::new(8, &LockTable::new(crate::lock::LockOptions::default(), hook).unwrap(), true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
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
