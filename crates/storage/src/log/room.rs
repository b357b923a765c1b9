//! Space in the log: the check that an append fits the ready segments, and segments made on demand.
//!
//! Appends are made while pages are latched, and making a segment writes and syncs. So an append that finds no space in
//! the ready segments reserves nothing and is refused ([`AppendError::NoRoom`]). Its caller releases all latches, has
//! the segment made ([`AppendError::make_room`]) and starts its change again. That is rare: a service makes segments
//! ahead of need. A full disk is also detected there, when nothing is latched and nothing has been changed, and so is
//! the limit of the log (`throttle`).
//!
//! Between the check and the reservation other threads may append, so the tail may exceed the ready segments by one record
//! per appending thread. Those records wait in the ring until a caller without latches, usually the flusher, has made their
//! segment. The ring has to hold them; `Log::wait_for_room` describes the case that it does not.

use super::Log;
use crate::base::error::StorageError;
use crate::base::ids::SlotId;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::atomic::Ordering;

/// Reason why a caller that may hold latches could not append a record.
#[derive(Debug)]
#[must_use]
pub(crate) enum AppendError {
    /// The ready segments have no space for a record of `bytes` bytes. Nothing was appended. The caller must release all
    /// latches, call [`AppendError::make_room`], and start again.
    NoRoom {
        /// Slot of the transaction.
        slot: SlotId,
        /// Length of the record in bytes.
        bytes: u64,
        /// True if the record may use the space reserved for undo.
        for_undo: bool,
    },
    /// The log refuses records of this kind, or all records.
    Failed(StorageError),
}

impl From<StorageError> for AppendError {
    fn from(error: StorageError) -> AppendError {
        AppendError::Failed(error)
    }
}

impl AppendError {
    /// Makes the missing segment, if a missing segment was the reason. No latch may be held.
    ///
    /// # Errors
    /// The reason, if it was not a missing segment; `NoSpace` or `TooManyFiles` if no segment can be made now; `Poisoned`.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(self, log: &Log) -> Result<(), StorageError> {
        match self {
            AppendError::NoRoom { slot, bytes, for_undo } => {
                log.waits.room.during(&log.options.clock, || match for_undo {
                    false => log.make_room(slot, bytes),
                    true => log.make_room_for_undo(bytes),
                })
            }
            AppendError::Failed(error) => Err(error),
        }
    }
}

impl Log {
    /// Returns true if a user's record of `bytes` bytes ends before the limit, as it was last computed.
    #[inline]
    pub(super) fn admits(&self, bytes: u64) -> bool {
        self.reserve.tail() + bytes <= self.user_limit.load(Ordering::Relaxed)
    }

    /// Recomputes the limit for user records, which the append has reached. Fails if the record still ends after the limit.
    #[cold]
    pub(super) fn admit(&self, slot: SlotId, bytes: u64) -> Result<(), AppendError> {
        self.poison.check()?;
        self.refresh_limit();
        if self.admits(bytes) {
            return Ok(());
        }
        if is_mutant(Mutant::MakeSegmentLatched) {
            return Ok(self.make_room(slot, bytes)?);
        }
        Err(AppendError::NoRoom { slot, bytes, for_undo: false })
    }

    /// Returns true if a record of `bytes` bytes that undoes a change fits the ready segments.
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

    /// Makes the segments for the records before `at`. Segments are missing if records that do not check the limit have used
    /// up the space reserved for them. No latch may be held.
    pub(super) fn make_through(&self, at: u64) -> Result<(), StorageError> {
        while self.segments.end() < at {
            self.segments.make_if(|| self.segments.end() < at).inspect_err(|e| self.close(e))?;
        }
        Ok(())
    }

    /// Makes the next segment. Waits until no other thread is making a segment, and does nothing if `wanted` then returns
    /// false. Returns a lack of space to the caller; any other error also closes the instance.
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
