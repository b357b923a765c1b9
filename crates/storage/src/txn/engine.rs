//! The parts below the tables that all transactions of a database share.

use std::sync::Arc;

use super::active::Slots;
use crate::base::clock::Clock;
use crate::base::config::{Durability, Isolation};
use crate::base::error::StorageError;
use crate::base::hook::Hook;
use crate::base::ids::{Lsn, SlotId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::poison::Poison;
use crate::base::sync::plain::{AtomicBool, Ordering};
use crate::btree::StructureChange;
use crate::buffer::BufferPool;
use crate::lock::LockTable;
use crate::log::Log;

/// The engine below the tables.
#[derive(Debug)]
pub(crate) struct Engine {
    /// No other database of this process has the same number.
    pub(crate) instance: u64,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) log: Arc<Log>,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) slots: Slots,
    pub(crate) poison: Arc<Poison>,
    pub(crate) hook: Arc<dyn Hook>,
    pub(crate) clock: Clock,
    pub(crate) durability: Durability,
    pub(crate) isolation: Isolation,
    /// Whether threads drive the log and the cleaner; if not, the waiting transaction does.
    pub(crate) driven: Arc<AtomicBool>,
}

impl Engine {
    /// Returns when everything before `end` is on disk.
    ///
    /// # Errors
    /// When the instance is closed to commits.
    pub(crate) fn make_durable(&self, end: Lsn) -> Result<(), StorageError> {
        self.log.make_durable(end, self.driven.load(Ordering::Acquire), &*self.hook)
    }

    /// Returns when the transaction's result may be reported: everything before its end is on disk.
    ///
    /// # Errors
    /// `Poisoned` if that will never happen.
    pub(crate) fn wait_to_answer(&self, end: Lsn) -> Result<(), StorageError> {
        if is_mutant(Mutant::AckBeforeFlush) {
            return Ok(());
        }
        self.make_durable(end)
    }

    /// Returns when a change of a whole table may be reported: everything before its end is on disk, if commits wait for
    /// that.
    ///
    /// # Errors
    /// When the instance is closed to commits.
    pub(crate) fn answer(&self, end: Lsn) -> Result<(), StorageError> {
        if self.durability == Durability::Sync { self.wait_to_answer(end) } else { self.poison.check() }
    }

    /// Every slot is taken.
    #[cold]
    pub(super) fn too_many(&self) -> StorageError {
        StorageError::TooManyTransactions { limit: self.slots.limit() }
    }

    /// The parts that a change of structure needs.
    #[inline]
    pub(crate) fn structure_change(&self, slot: SlotId) -> StructureChange<'_> {
        StructureChange { pool: &self.pool, log: &self.log, slot, for_undo: false }
    }
}
