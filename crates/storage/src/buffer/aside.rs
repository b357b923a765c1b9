//! The ring of slots in which pages lie a second time while a crash may tear them in place.
//!
//! A batch takes as many slots as its pages need, puts copies there, makes them durable, and only then writes the pages
//! in place. Its slots are used again once a sync of the data file that began after those writes has ended: until then
//! the disk may hold half a page, and the copy is what a restart repairs it from (InnoDB's doublewrite buffer).
//!
//! Slots are taken in turn. Several batches are under way at once and end in any order, so a sync frees the slots up to
//! the oldest batch that has not ended when it begins.

use std::time::Duration;

use super::BufferPool;
use super::file::SLOT_PAGES;
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::Mutex;

/// Which slots are in use. Positions count on for ever; a slot is a position modulo the number of slots.
#[derive(Debug)]
pub(super) struct AsideRing {
    slots: u64,
    state: Mutex<RingState>,
}

#[derive(Debug, Default)]
struct RingState {
    /// The next position to be taken.
    next: u64,
    /// All positions below are free.
    freed: u64,
    /// First positions of the batches that have not ended.
    under_way: Vec<u64>,
}

impl RingState {
    /// The pages of all positions below have been written in place and entered among the unsynced ones.
    fn ended(&self) -> u64 {
        self.under_way.iter().copied().min().unwrap_or(self.next)
    }
}

/// Slots of one batch, until its pages have been written and entered among the unsynced ones.
#[derive(Debug)]
#[must_use]
pub(super) struct TakenSlots<'r> {
    ring: &'r AsideRing,
    first: u64,
}

impl TakenSlots<'_> {
    /// The slot of the batch's pages from `part * SLOT_PAGES` on.
    pub(super) fn slot(&self, part: usize) -> u64 {
        (self.first + part as u64) % self.ring.slots
    }
}

impl Drop for TakenSlots<'_> {
    fn drop(&mut self) {
        self.ring.state.lock().under_way.retain(|first| *first != self.first);
    }
}

impl AsideRing {
    pub(super) fn new(slots: u64) -> AsideRing {
        AsideRing { slots, state: Mutex::default() }
    }

    /// Takes slots for a batch, if so many are free.
    fn take(&self, wanted: u64) -> Option<TakenSlots<'_>> {
        let mut state = self.state.lock();
        if is_mutant(Mutant::ReuseSlotsEarly) {
            state.freed = state.ended();
        }
        if state.next + wanted > state.freed + self.slots {
            return None;
        }
        let first = state.next;
        state.next += wanted;
        state.under_way.push(first);
        Some(TakenSlots { ring: self, first })
    }

    /// What a sync that begins now will free.
    pub(super) fn ended(&self) -> u64 {
        self.state.lock().ended()
    }

    /// A sync has ended that began when `ended` was this.
    pub(super) fn free_before(&self, ended: u64) {
        let mut state = self.state.lock();
        state.freed = state.freed.max(ended);
    }

    /// Whether a sync now would free some slots.
    fn waits_for_sync(&self) -> bool {
        let state = self.state.lock();
        state.ended() > state.freed
    }

    /// Whether half of the slots are in use, so that a sync now keeps batches from waiting for one.
    pub(super) fn wants_sync(&self) -> bool {
        let state = self.state.lock();
        (state.next - state.freed) * 2 >= self.slots && state.ended() > state.freed
    }
}

impl BufferPool {
    /// Takes slots for a batch of so many pages, with a sync if all are in use. The caller holds no latch.
    ///
    /// # Errors
    /// A failed sync; the instance is closed.
    pub(super) fn take_slots(&self, pages: usize) -> Result<TakenSlots<'_>, StorageError> {
        let token = WaitToken::new();
        loop {
            if let Some(taken) = self.aside.take(pages.div_ceil(SLOT_PAGES) as u64) {
                return Ok(taken);
            }
            self.poison.check()?;
            if self.aside.waits_for_sync() {
                self.sync()?;
            } else {
                // Other threads are in the middle of their batches, which end without this one's help.
                self.hook.block_for(&token, BlockReason::Room, Duration::from_millis(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_free_again_after_a_sync_that_began_when_all_before_had_ended() {
        let ring = AsideRing::new(8);
        let first = ring.take(4).unwrap();
        let second = ring.take(3).unwrap();
        assert_eq!((first.slot(3), second.slot(0), second.slot(2)), (3, 4, 6));
        assert!(ring.take(2).is_none() && !ring.waits_for_sync());
        drop(second);
        // The first batch is older and has not ended.
        assert_eq!(ring.ended(), 0);
        let ended = ring.ended();
        drop(first);
        ring.free_before(ended);
        assert!(ring.take(2).is_none() && ring.waits_for_sync() && ring.wants_sync());
        ring.free_before(ring.ended());
        let third = ring.take(8).unwrap();
        assert_eq!((third.slot(0), third.slot(1), third.slot(7)), (7, 0, 6));
        assert!(ring.take(1).is_none());
    }
}
