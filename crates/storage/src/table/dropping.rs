//! Dropping and emptying tables: transactions of their own, which take the table's exclusive lock.
//!
//! One small transaction on the catalog *decides*: it writes a *mark*, a row that names the table's trees, and, for a
//! drop, deletes the table's own row. Then the pages are given back, page by page (`btree/clear.rs`), and at the end
//! the mark is deleted. A crash before the decision's commit record is in the log leaves the table as it was; after a
//! later crash, opening the database does the rest.
//!
//! A mark may also name trees of indexes alone: those that are being built, or were dropped (`table/altering.rs`).
//!
//! Numbers of tables and indexes that were dropped are not given away again while the database is open: transactions
//! that wait for the table's lock, handles and hints may still have them. The lock manager keeps the table's number as
//! *gone* and refuses locks on it.

use super::catalog::{Catalog, own_index};
use super::creation::Creator;
use super::entry::TableEntry;
use super::index::Index;
use super::mark::Fate;
use crate::base::config::Isolation;
use crate::base::error::{StorageError, TxnError};
use crate::btree::Tree;
use crate::lock::TableMode;
use crate::txn::engine::Engine;

impl Catalog {
    /// Drops a table, or removes all its rows; false if there is none.
    ///
    /// # Errors
    /// Those of waiting for the table's lock; nothing has happened then. No space for the decision: the same. A failure
    /// afterwards: see [`carry_out`].
    pub(super) fn end(&self, engine: &Engine, name: &str, fate: Fate) -> Result<bool, TxnError> {
        loop {
            let Some(entry) = self.entry(name) else { return Ok(false) };
            let mut owner = engine.begin(Isolation::Serializable, None)?;
            match owner.lock_number(&entry.index(name), TableMode::X) {
                Ok(()) => {}
                // Another transaction has dropped it meanwhile.
                Err(TxnError::Dropped { .. }) => continue,
                Err(error) => return Err(error),
            }
            match fate {
                Fate::Dropped => self.drop_locked(engine, name, &entry)?,
                Fate::Emptied => self.empty_locked(engine, &entry)?,
            }
            owner.commit()?;
            return Ok(true);
        }
    }

    fn drop_locked(&self, engine: &Engine, name: &str, entry: &TableEntry) -> Result<(), TxnError> {
        let _creator = Creator::wait(&self.creation, &*engine.hook);
        let mut decision = engine.begin_creating()?;
        decision.insert(&own_index(), &Fate::Dropped.mark(entry), &entry.encode())?;
        decision.delete(&own_index(), name.as_bytes())?;
        let decided = decision.commit()?;
        self.forget(name, entry);
        engine.locks.table_is_gone(entry.number);
        engine.make_durable(decided)?;
        carry_out(engine, entry, Fate::Dropped)
    }

    fn empty_locked(&self, engine: &Engine, entry: &TableEntry) -> Result<(), TxnError> {
        let _creator = Creator::wait(&self.creation, &*engine.hook);
        let mut decision = engine.begin_creating()?;
        decision.insert(&own_index(), &Fate::Emptied.mark(entry), &entry.encode())?;
        let decided = decision.commit()?;
        engine.make_durable(decided)?;
        carry_out(engine, entry, Fate::Emptied).inspect_err(|error| {
            if let TxnError::Storage(error) = error {
                // No transaction may see a half-empty table, and only restart can finish it.
                engine.poison.distrust(&error.as_cause(), engine.log.durable());
            }
        })
    }

    /// Gives back all pages but the roots of trees that have no rows but ghosts. The caller has locked their table
    /// exclusively, so no transaction needs the ghosts.
    ///
    /// # Errors
    /// No space: nothing has happened. A failure afterwards closes the instance, to readers too.
    pub(crate) fn remove_ghosts(&self, engine: &Engine, table: u32, trees: &[Tree]) -> Result<(), TxnError> {
        match TableEntry::of_bare_trees(table, trees) {
            Some(entry) => self.empty_locked(engine, &entry),
            None => Ok(()),
        }
    }

    /// Finishes the work that a crash has interrupted, at open.
    ///
    /// # Errors
    /// A page that cannot be read; no space.
    pub(super) fn finish(&self, engine: &Engine, marks: Vec<(Fate, TableEntry)>) -> Result<(), TxnError> {
        for (fate, entry) in marks {
            match carry_out(engine, &entry, fate) {
                // Giving back a dropped table's pages can wait for a disk with some space.
                Err(TxnError::Storage(StorageError::NoSpace { .. } | StorageError::LogFull { .. }))
                    if fate == Fate::Dropped =>
                {
                    self.retire(&entry);
                }
                done => done?,
            }
        }
        Ok(())
    }
}

/// Gives back the pages of a marked table, then deletes the mark. Can be restarted after any part of it.
pub(super) fn carry_out(engine: &Engine, entry: &TableEntry, fate: Fate) -> Result<(), TxnError> {
    let mut txn = engine.begin_creating()?;
    let state = txn.slot.state();
    let change = engine.structure_change(state.id);
    for tree in entry.trees() {
        tree.clear(change, &mut state.rec)?;
        if fate == Fate::Dropped {
            tree.give_root_back(change, &mut state.rec)?;
        }
    }
    txn.delete(&own_index(), &fate.mark(entry))?;
    let end = txn.commit()?;
    Ok(engine.make_durable(end)?)
}

impl TableEntry {
    /// The table's primary index, for locks.
    pub(super) fn index(&self, name: &str) -> Index {
        let (table, name) = (name.into(), name.into());
        Index { tree: self.primary, overflow: self.overflow, lock_table: self.number, table, name }
    }
}
