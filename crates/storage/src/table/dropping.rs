//! Dropping and truncation of tables, in separate transactions that take the table's exclusive lock.
//!
//! One small transaction on the catalog *decides*: it writes a *mark*, a row that names the table's trees, and, for a
//! drop, deletes the table's own row. Then the pages are freed one by one (`btree/clear.rs`), and finally the mark is
//! deleted. A crash before the decision's commit record is in the log leaves the table unchanged; after a later crash,
//! opening the database completes the work.
//!
//! A mark may also name only trees of indexes: indexes that are being built, or dropped indexes (`table/altering.rs`).
//!
//! The table's number is reused after all transactions that may have found this table have ended: see
//! `table/numbers.rs`. Until then the lock manager marks the number as *gone* and refuses locks on it. Index numbers
//! are never reused.
//!
//! A call waits for the disk only at its end: log records that depend on a decision follow it in the log.

use super::catalog::{Catalog, own_index};
use super::creation::CreationGuard;
use super::entry::TableEntry;
use super::index::Index;
use super::mark::PendingOperation;
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::Lsn;
use crate::btree::Tree;
use crate::lock::TableMode;
use crate::txn::active::SystemPurpose;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

impl Catalog {
    /// Drops a table, or removes all its rows; returns false if the table does not exist.
    ///
    /// # Errors
    /// An error of the wait for the table's lock, or no space for the decision: in both cases the table is unchanged.
    /// For later failures see [`carry_out`].
    pub(super) fn end(&self, engine: &Engine, name: &str, operation: PendingOperation) -> Result<bool, TxnError> {
        loop {
            let mut owner = engine.begin_system(SystemPurpose::Maintenance)?;
            let Some((entry, number)) = self.entry(engine, name)? else { return Ok(false) };
            match owner.lock_number(&entry.index(name, number), TableMode::X) {
                Ok(()) => {}
                // Another transaction has dropped the table.
                Err(TxnError::Dropped { .. }) => continue,
                Err(error) => return Err(error),
            }
            let end = match operation {
                PendingOperation::Dropped => self.drop_locked(&mut owner, name, &entry, number)?,
                PendingOperation::Emptied => self.empty_locked(&mut owner, &entry)?,
            };
            owner.commit()?;
            engine.answer(end)?;
            return Ok(true);
        }
    }

    /// Drops a table that `owner` has locked exclusively. Returns the log position that must be durable before the drop
    /// is reported.
    fn drop_locked(&self, owner: &mut Txn<'_>, name: &str, entry: &TableEntry, number: u32) -> Result<Lsn, TxnError> {
        let engine = owner.engine;
        {
            let _guard = CreationGuard::acquire(&self.creation, &*engine.hook);
            let mut decision = engine.begin_creating()?;
            decision.insert(&own_index(), &PendingOperation::Dropped.mark(entry), &entry.encode())?;
            decision.delete(&own_index(), name.as_bytes())?;
            decision.commit()?;
            self.forget(engine, name, number);
        }
        carry_out(self, owner, entry, PendingOperation::Dropped)
    }

    /// Removes all rows from the trees of an exclusively locked table. Returns the log position that must be durable
    /// before the truncation is reported.
    fn empty_locked(&self, txn: &mut Txn<'_>, entry: &TableEntry) -> Result<Lsn, TxnError> {
        let engine = txn.engine;
        {
            let _guard = CreationGuard::acquire(&self.creation, &*engine.hook);
            let mut decision = engine.begin_creating()?;
            decision.insert(&own_index(), &PendingOperation::Emptied.mark(entry), &entry.encode())?;
            decision.commit()?;
        }
        carry_out(self, txn, entry, PendingOperation::Emptied).inspect_err(|error| {
            if let TxnError::Storage(error) = error {
                // No transaction may read a partially emptied table, and only a restart can complete the truncation.
                engine.poison.mark_inconsistent(&error.as_cause(), engine.log.durable());
            }
        })
    }

    /// Frees all pages except the roots of trees that have only ghosts. The caller has locked their table exclusively
    /// in a maintenance transaction, so no transaction needs the ghosts.
    ///
    /// # Errors
    /// No space: nothing is changed. A later failure closes the database instance, also to readers.
    pub(crate) fn remove_ghosts(&self, engine: &Engine, trees: &[Tree]) -> Result<(), TxnError> {
        let Some(entry) = TableEntry::of_bare_trees(trees) else { return Ok(()) };
        let mut txn = engine.begin_system(SystemPurpose::Companion)?;
        let end = self.empty_locked(&mut txn, &entry)?;
        txn.commit()?;
        Ok(engine.make_durable(end)?)
    }

    /// Completes interrupted drops and truncations when the database is opened.
    ///
    /// # Errors
    /// An error if a page cannot be read, or if there is no space to complete a truncation.
    pub(super) fn finish(&self, engine: &Engine, marks: Vec<(PendingOperation, TableEntry)>) -> Result<(), TxnError> {
        for (operation, entry) in marks {
            let mut txn = engine.begin_system(SystemPurpose::Open)?;
            match carry_out(self, &mut txn, &entry, operation) {
                // The pages of a dropped table can be freed later, when the disk has space.
                Err(TxnError::Storage(StorageError::NoSpace { .. } | StorageError::LogFull { .. }))
                    if operation == PendingOperation::Dropped => {}
                done => drop(done?),
            }
            txn.commit()?;
        }
        Ok(())
    }
}

/// Frees the pages of a marked table, then deletes the mark. Uses the slot of a transaction that has written nothing.
/// Returns the log position that must be durable before the operation is reported. The call can be repeated after a
/// failure at any point.
pub(super) fn carry_out(
    catalog: &Catalog,
    txn: &mut Txn<'_>,
    entry: &TableEntry,
    operation: PendingOperation,
) -> Result<Lsn, TxnError> {
    let engine = txn.engine;
    let state = txn.slot.state();
    let change = engine.structure_change(state.id);
    for tree in entry.trees() {
        tree.clear(change, &mut state.rec)?;
        if operation == PendingOperation::Dropped {
            tree.give_root_back(change, &mut state.rec)?;
        }
    }
    let _guard = CreationGuard::acquire(&catalog.creation, &*engine.hook);
    let mut last = engine.begin_creating()?;
    last.delete(&own_index(), &operation.mark(entry))?;
    Ok(last.commit()?)
}

impl TableEntry {
    /// Returns the table's primary index, for lock requests.
    pub(super) fn index(&self, name: &str, number: u32) -> Index {
        Index::new((self.primary, self.overflow), number, name, None)
    }
}
