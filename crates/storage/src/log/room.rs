//! Room: which appends fit the ready segments, and segments made because a caller needs one now.
//!
//! Appends are made with pages latched, and making a segment writes and syncs. So an append that finds no room in the
//! segments that are ready places nothing and is refused ([`Unlogged::NoRoom`]). Its caller releases all latches, has
//! the segment made ([`Unlogged::make_room`]) and begins its change again. That is rare: a service makes segments ahead
//! of need. A full disk is met there too, when nothing is latched and nothing has been changed, and so is the limit of the
//! log (`pace`).
//!
//! Between the check and the reservation other threads may append, so the tail may pass the ready segments by as many
//! records as threads append at once. Those records wait in the ring until a caller without latches, usually the
//! flusher, has made their segment. The ring has to hold them: `Log::wait_for_room` says what happens if it does not.

use super::Log;
use crate::base::error::StorageError;
use crate::base::ids::SlotId;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::atomic::Ordering;

/// Why a caller that may hold latches got no record into the log.
#[derive(Debug)]
#[must_use]
pub(crate) enum Unlogged {
    /// The ready segments have no room for a record of so many bytes. Nothing was appended. Release all latches, call
    /// [`Unlogged::make_room`], begin again.
    NoRoom {
        /// The transaction's slot.
        slot: SlotId,
        /// Length of the record.
        bytes: u64,
        /// It may use what is kept for undo.
        for_undo: bool,
    },
    /// The log takes no record of this kind, or none at all.
    Failed(StorageError),
}

impl From<StorageError> for Unlogged {
    fn from(error: StorageError) -> Unlogged {
        Unlogged::Failed(error)
    }
}

impl Unlogged {
    /// Makes the segment that was missing, if that was the reason. No latch may be held.
    ///
    /// # Errors
    /// The reason, if it was another; `NoSpace` or `TooManyFiles` if no segment can be made now; `Poisoned`.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(self, log: &Log) -> Result<(), StorageError> {
        match self {
            Unlogged::NoRoom { slot, bytes, for_undo: false } => log.make_room(slot, bytes),
            Unlogged::NoRoom { bytes, for_undo: true, .. } => log.make_room_for_undo(bytes),
            Unlogged::Failed(error) => Err(error),
        }
    }
}

impl Log {
    /// Whether a user's record fits below the limit, as far as that is known.
    #[inline]
    pub(super) fn admits(&self, bytes: u64) -> bool {
        self.reserve.tail() + bytes <= self.user_limit.load(Ordering::Relaxed)
    }

    /// The limit for user records is reached: moves it, if the ready segments allow that.
    #[cold]
    pub(super) fn admit(&self, slot: SlotId, bytes: u64) -> Result<(), Unlogged> {
        self.poison.check()?;
        self.refresh_limit();
        if self.admits(bytes) {
            return Ok(());
        }
        if is_mutant(Mutant::MakeSegmentLatched) {
            return Ok(self.make_room(slot, bytes)?);
        }
        Err(Unlogged::NoRoom { slot, bytes, for_undo: false })
    }

    /// Whether a record that undoes something, or a part of it, lies in a segment that is not ready.
    #[inline]
    pub(super) fn admits_undo(&self, bytes: u64) -> bool {
        self.reserve.tail() + bytes <= self.segments.end()
    }

    fn make_room(&self, slot: SlotId, bytes: u64) -> Result<(), StorageError> {
        let mut waited = 0;
        loop {
            self.poison.check()?;
            self.refresh_limit();
            if self.admits(bytes) {
                return Ok(());
            }
            if self.is_gated(bytes) {
                self.pass_gate(slot, bytes, &mut waited)?;
                continue;
            }
            if !self.segments.may_grow() {
                self.wait_for_cut(&mut waited)?;
                continue;
            }
            self.make_segment(|| {
                self.refresh_limit();
                !self.admits(bytes) && self.segments.may_grow()
            })?;
        }
    }

    fn make_room_for_undo(&self, bytes: u64) -> Result<(), StorageError> {
        while !self.admits_undo(bytes) {
            self.poison.check()?;
            self.make_segment(|| !self.admits_undo(bytes))?;
        }
        Ok(())
    }

    /// Makes the segments of the records before `at`: records that do not check the limit have used up the room kept
    /// for them. No latch may be held.
    pub(super) fn make_through(&self, at: u64) -> Result<(), StorageError> {
        while self.segments.end() < at {
            self.segments.make_if(|| self.segments.end() < at).inspect_err(|e| self.close(e))?;
        }
        Ok(())
    }

    /// Makes the next segment if `wanted` still says so once no other thread is making one. A lack of space is the
    /// caller's error; any other closes the instance.
    pub(super) fn make_segment(&self, wanted: impl FnOnce() -> bool) -> Result<(), StorageError> {
        match self.segments.make_if(wanted) {
            Err(e) if !e.is_want_of_room() => {
                self.close(&e);
                self.poison.check()
            }
            made => made,
        }
    }
}
