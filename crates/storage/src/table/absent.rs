//! Tables that do not exist yet. To a transaction such a table is an empty one, and no read creates it.
//!
//! A transaction can rely on a table's absence, as on a gap between keys: it locks the *absence*, a lock name that
//! stands for no key. A transaction that creates the table locks its absence exclusively first, so it waits for
//! transactions that have found it empty; afterwards the table's own locks do the rest. Two transactions that read
//! first and create afterwards wait for each other, like any two that read a row and write it.

use super::catalog::CATALOG;
use super::index::{Index, LockAttempt, Want, lock_error};
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::ids::IndexId;
use crate::lock::{Acquired, LockName, Prefix};
use crate::txn::transaction::Txn;

/// A number that no table has. Creating a table locks rows of the catalog, in a transaction of the engine's own; those
/// locks must not conflict with the locks of the transaction that it is created for, whatever their names.
const ABSENT_TABLES: u32 = 0;
/// An index that no tree has: names of tables are locked in it.
const ABSENCE: IndexId = IndexId(0);

/// The absence as an index, for the lock manager and for errors, which contain the table's name.
fn index(table: &str) -> Index {
    Index::new((CATALOG, None), ABSENT_TABLES, table, None)
}

impl Txn<'_> {
    fn absence_name(&self, table: &str) -> LockName {
        self.engine.locks.names.of(ABSENCE, table.as_bytes())
    }

    /// Locks the absence of a table, until the transaction ends or [`Txn::release_absence`], which releases only locks
    /// that were not held before: the result says which. The absence may have ended by then.
    ///
    /// # Errors
    /// Those of waiting for a lock.
    #[cold]
    pub(crate) fn lock_absence(&mut self, table: &str, want: Want) -> Result<Acquired, TxnError> {
        if want == Want::Read && self.isolation == Isolation::ReadCommitted {
            return Ok(Acquired::Covered);
        }
        let index = index(table);
        self.intend(&index, want)?;
        let (name, mode) = (self.absence_name(table), self.key_mode(want));
        let owner = &mut self.slot.state().owner;
        owner.acquire_wait(index.lock_table, name, mode, Prefix::MIN).map_err(|e| lock_error(e, &index))
    }

    /// Locks the absence of a table for creating it; false if other transactions rely on it.
    ///
    /// # Errors
    /// Too many locks.
    pub(crate) fn try_lock_absence(&mut self, table: &str) -> Result<bool, TxnError> {
        let index = index(table);
        self.intend(&index, Want::Write)?;
        self.slot.state().owner.escalate_if_due(index.lock_table);
        let got = self.try_lock(&index, self.absence_name(table), self.key_mode(Want::Write), Prefix::MIN)?;
        Ok(got == LockAttempt::Lock)
    }

    /// Releases the lock on the absence of a table that exists now, unless another lock under its name was held before
    /// it.
    pub(crate) fn release_absence(&mut self, table: &str, acquired: Acquired) {
        if acquired == Acquired::New {
            let name = self.absence_name(table);
            self.slot.state().owner.release_one(ABSENT_TABLES, name);
        }
    }
}
