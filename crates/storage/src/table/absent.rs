//! Tables that do not exist yet. To a transaction such a table is an empty one, and no read makes one of it.
//!
//! That it is not there is something a transaction can rely on, like a gap between keys: it locks the table's *absence*,
//! a lock name that stands for no key. Who creates the table locks its absence exclusively first, so it waits for
//! transactions that have found it empty; afterwards the table's own locks do the rest. Two transactions that read first
//! and create afterwards wait for each other, like any two who read a row and write it.

use std::sync::Arc;

use super::catalog::{CATALOG, CATALOG_NUMBER};
use super::index::{Got, Index, Want};
use crate::base::config::Isolation;
use crate::base::error::TxnError;
use crate::base::ids::IndexId;
use crate::lock::{LockName, Prefix};
use crate::txn::core::Txn;

/// An index that no tree has: names of tables are locked in it.
const ABSENCE: IndexId = IndexId(0);

fn lock_name(table: &str) -> LockName {
    LockName::new(ABSENCE, table.as_bytes())
}

/// For the lock manager and for errors, which tell the table's name.
fn index(table: &str) -> Index {
    let table: Arc<str> = table.into();
    Index { tree: CATALOG, lock_table: CATALOG_NUMBER, table: Arc::clone(&table), name: table }
}

impl Txn<'_> {
    /// Locks the absence of a table, until the transaction ends or [`Txn::release_absence`]. It may have gone by then.
    ///
    /// # Errors
    /// Those of waiting for a lock.
    #[cold]
    pub(crate) fn lock_absence(&mut self, table: &str, want: Want) -> Result<(), TxnError> {
        if want == Want::Read && self.isolation == Isolation::ReadCommitted {
            return Ok(());
        }
        let index = index(table);
        self.intend(&index, want)?;
        self.wait_for(&index, lock_name(table), self.key_mode(want), Prefix::MIN)
    }

    /// Locks the absence of a table for creating it; false if others rely on it.
    ///
    /// # Errors
    /// Too many locks.
    pub(crate) fn try_lock_absence(&mut self, table: &str) -> Result<bool, TxnError> {
        let index = index(table);
        self.intend(&index, Want::Write)?;
        let got = self.try_lock(&index, lock_name(table), self.key_mode(Want::Write), Prefix::MIN)?;
        Ok(got == Got::Lock)
    }

    /// Gives up the lock on the absence of a table that is there now.
    pub(crate) fn release_absence(&mut self, table: &str) {
        self.claim.context().owner.release_one(lock_name(table));
    }
}
