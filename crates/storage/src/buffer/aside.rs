//! The ring of doublewrite slots. A slot holds copies of pages while a crash may tear these pages in place.
//!
//! A batch takes as many slots as its pages need, writes copies to them, makes the copies durable, and only then writes the
//! pages in place. A slot may be reused after a sync of the data file that began after those writes had ended. Until then a
//! page on disk may be torn, and a restart repairs it from the copy (compare InnoDB's doublewrite buffer).
//!
//! Slots are taken in circular order. Several batches may be in progress at once and may end in any order, so a sync frees
//! only the slots before the oldest batch that is still in progress when the sync begins.

use std::time::Duration;

use super::BufferPool;
use super::file::SLOT_PAGES;
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::Mutex;

/// Allocation state of the doublewrite slots. Positions increase without limit. The slot of a position is the position
/// modulo the number of slots.
#[derive(Debug)]
pub(super) struct AsideRing {
    slots: u64,
    state: Mutex<RingState>,
}

#[derive(Debug, Default)]
struct RingState {
    /// Next position to allocate. Slots are allocated in circular order.
    next: u64,
    /// All slots at positions below this one are free.
    freed: u64,
    /// First positions of the batches in progress.
    under_way: Vec<u64>,
}

impl RingState {
    /// Returns a position below which all batches have ended: the pages of these batches are written in place and recorded
    /// as unsynced.
    fn ended(&self) -> u64 {
        self.under_way.iter().copied().min().unwrap_or(self.next)
    }
}

/// Doublewrite slots allocated to a batch. They are released when the pages of the batch are written and recorded as
/// unsynced.
#[derive(Debug)]
#[must_use]
pub(super) struct AllocatedSlots<'r> {
    ring: &'r AsideRing,
    first: u64,
}

impl AllocatedSlots<'_> {
    /// Returns the doublewrite slot for the pages of the batch from index `part * SLOT_PAGES` on.
    pub(super) fn slot(&self, part: usize) -> u64 {
        (self.first + part as u64) % self.ring.slots
    }
}

impl Drop for AllocatedSlots<'_> {
    fn drop(&mut self) {
        self.ring.state.lock().under_way.retain(|first| *first != self.first);
    }
}

impl AsideRing {
    pub(super) fn new(slots: u64) -> AsideRing {
        AsideRing { slots, state: Mutex::default() }
    }

    /// Takes `wanted` doublewrite slots for a batch. Returns `None` if fewer slots are free.
    fn take(&self, wanted: u64) -> Option<AllocatedSlots<'_>> {
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
        Some(AllocatedSlots { ring: self, first })
    }

    /// Returns the position up to which a sync that begins now will free slots. Pass it to [`AsideRing::free_before`] after
    /// the sync.
    pub(super) fn ended(&self) -> u64 {
        self.state.lock().ended()
    }

    /// Frees the slots before position `ended`, which the caller obtained before it began a sync that has now completed.
    pub(super) fn free_before(&self, ended: u64) {
        let mut state = self.state.lock();
        state.freed = state.freed.max(ended);
    }

    /// Returns true if a sync that begins now would free slots.
    fn waits_for_sync(&self) -> bool {
        let state = self.state.lock();
        state.ended() > state.freed
    }

    /// Returns true if at least half of the slots are in use and a sync would free some of them: an early sync saves later
    /// batches a wait.
    pub(super) fn wants_sync(&self) -> bool {
        let state = self.state.lock();
        (state.next - state.freed) * 2 >= self.slots && state.ended() > state.freed
    }
}

impl BufferPool {
    /// Takes doublewrite slots for a batch of `pages` pages. Syncs the data file first if too few slots are free. The caller
    /// holds no latch.
    ///
    /// # Errors
    /// Fails if a sync fails; the instance is then closed.
    pub(super) fn take_slots(&self, pages: usize) -> Result<AllocatedSlots<'_>, StorageError> {
        let token = WaitToken::new();
        loop {
            if let Some(taken) = self.aside.take(pages.div_ceil(SLOT_PAGES) as u64) {
                return Ok(taken);
            }
            self.poison.check()?;
            if self.aside.waits_for_sync() {
                self.sync()?;
            } else {
                // The occupied slots belong to batches of other threads, which finish without help from this thread.
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
        // The first batch is older and still in progress.
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
