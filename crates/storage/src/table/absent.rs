//! Tables that do not exist yet. A transaction treats such a table as an empty one, and no read creates it.
//!
//! A transaction can rely on a table's absence, as on a gap between keys: it locks the *absence*, a lock name that
//! belongs to no key. A transaction that creates the table first locks its absence exclusively, so it waits for
//! transactions that found no table; afterwards the table's own locks protect it. Two transactions that both read first
//! and then create the table deadlock, like any two that read a row and then write it.

use super::catalog::CATALOG;
use super::index::{AccessMode, Index, LockAttempt, lock_error};
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::ids::IndexId;
use crate::lock::{Acquired, LockName, Prefix};
use crate::txn::transaction::Txn;

/// Table number that no table has; it is used for locks on the absence of tables. Creating a table locks rows of the
/// catalog in a separate transaction of the engine. Those locks must never conflict with the locks of the transaction
/// for which the table is created.
const ABSENT_TABLES: u32 = 0;
/// Index number that no tree has. The lock names of missing tables belong to this index.
const ABSENCE: IndexId = IndexId(0);

/// Returns a pseudo-index for locks on the absence of `table`. Lock errors take the table's name from this index.
fn index(table: &str) -> Index {
    Index::new((CATALOG, None), ABSENT_TABLES, table, None)
}

impl Txn<'_> {
    fn absence_name(&self, table: &str) -> LockName {
        self.engine.locks.names.of(ABSENCE, table.as_bytes())
    }

    /// Locks the absence of a table until the transaction ends or [`Txn::release_absence`] is called. The release has an
    /// effect only if the returned value says that the lock is new. Another transaction may have created the table
    /// before the lock was granted.
    ///
    /// # Errors
    /// An error of the wait for the lock (deadlock, timeout).
    #[cold]
    pub(crate) fn lock_absence(&mut self, table: &str, access: AccessMode) -> Result<Acquired, TxnError> {
        if access == AccessMode::Read && self.isolation == Isolation::ReadCommitted {
            return Ok(Acquired::Covered);
        }
        let index = index(table);
        self.intend(&index, access)?;
        let (name, mode) = (self.absence_name(table), self.key_mode(access));
        let owner = &mut self.slot.state().owner;
        owner.acquire_wait(index.lock_table, name, mode, Prefix::MIN).map_err(|e| lock_error(e, &index))
    }

    /// Locks the absence of a table in order to create it; returns false if other transactions rely on the absence.
    ///
    /// # Errors
    /// An error if the transaction holds too many locks.
    pub(crate) fn try_lock_absence(&mut self, table: &str) -> Result<bool, TxnError> {
        let index = index(table);
        self.intend(&index, AccessMode::Write)?;
        self.slot.state().owner.escalate_if_due(index.lock_table);
        let got = self.try_lock(&index, self.absence_name(table), self.key_mode(AccessMode::Write), Prefix::MIN)?;
        Ok(got == LockAttempt::Lock)
    }

    /// Releases the lock on the absence of a table that now exists, unless the transaction already held a lock of this
    /// name.
    pub(crate) fn release_absence(&mut self, table: &str, acquired: Acquired) {
        if acquired == Acquired::New {
            let name = self.absence_name(table);
            self.slot.state().owner.release_one(ABSENT_TABLES, name);
        }
    }
}
