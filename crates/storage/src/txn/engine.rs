//! Parts of the engine below the tables that all transactions of a database share.

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

/// The shared state of a database's engine, below the tables.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Number of the open database, unique in this process.
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
    /// True if service threads drive the log and the cleaner. If false, a transaction that waits for them drives them
    /// itself.
    pub(crate) driven: Arc<AtomicBool>,
}

impl Engine {
    /// Waits until the log before `end` is durable.
    ///
    /// # Errors
    /// Fails if the instance is closed to commits.
    pub(crate) fn make_durable(&self, end: Lsn) -> Result<(), StorageError> {
        self.log.make_durable(end, self.driven.load(Ordering::Acquire), &*self.hook)
    }

    /// Waits until the result of a transaction may be reported: until the log before `end` is durable.
    ///
    /// # Errors
    /// `Poisoned` if the log before `end` can never become durable.
    pub(crate) fn wait_to_answer(&self, end: Lsn) -> Result<(), StorageError> {
        if is_mutant(Mutant::AckBeforeFlush) {
            return Ok(());
        }
        self.make_durable(end)
    }

    /// Waits until the creation, alteration or removal of a table may be reported: with `Durability::Sync`, until the log
    /// before `end` is durable.
    ///
    /// # Errors
    /// Fails if the instance is closed to commits.
    pub(crate) fn answer(&self, end: Lsn) -> Result<(), StorageError> {
        if self.durability == Durability::Sync { self.wait_to_answer(end) } else { self.poison.check() }
    }

    /// Returns the error for a transaction that finds every slot taken.
    #[cold]
    pub(crate) fn too_many(&self) -> StorageError {
        StorageError::TooManyTransactions { limit: self.slots.limit() }
    }

    /// Returns the context of a structure modification in the pool and the log of this database.
    #[inline]
    pub(crate) fn structure_change(&self, slot: SlotId) -> StructureChange<'_> {
        StructureChange { pool: &self.pool, log: &self.log, slot, for_undo: false }
    }
}
