//! Dropping and emptying tables: transactions of their own, which take the table's exclusive lock.
//!
//! One small transaction on the catalog *decides*: it writes a *mark*, a row that names the table's trees, and, for a
//! drop, deletes the table's own row. Then the pages are given back, page by page (`btree/clear.rs`), and at the end
//! the mark is deleted. A crash before the decision's commit record is in the log leaves the table as it was; after a
//! later crash, opening the database does the rest.
//!
//! A mark may also name trees of indexes alone: those that are being built, or were dropped (`table/altering.rs`).
//!
//! The table's number is given to another table once no transaction is left that may have found this one: see
//! `table/numbers.rs`. Until then the lock manager keeps it as *gone* and refuses locks on it. Numbers of indexes are
//! never given again.
//!
//! Nothing here waits for the disk before the end: what follows a decision follows it in the log, too.

use super::catalog::{Catalog, own_index};
use super::creation::Creator;
use super::entry::TableEntry;
use super::index::Index;
use super::mark::Fate;
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::Lsn;
use crate::btree::Tree;
use crate::lock::TableMode;
use crate::txn::active::Own;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

impl Catalog {
    /// Drops a table, or removes all its rows; false if there is none.
    ///
    /// # Errors
    /// Those of waiting for the table's lock; nothing has happened then. No space for the decision: the same. A failure
    /// afterwards: see [`carry_out`].
    pub(super) fn end(&self, engine: &Engine, name: &str, fate: Fate) -> Result<bool, TxnError> {
        loop {
            let mut owner = engine.begin_own(Own::Maintenance)?;
            let Some((entry, number)) = self.entry(engine, name)? else { return Ok(false) };
            match owner.lock_number(&entry.index(name, number), TableMode::X) {
                Ok(()) => {}
                // Another transaction has dropped it meanwhile.
                Err(TxnError::Dropped { .. }) => continue,
                Err(error) => return Err(error),
            }
            let end = match fate {
                Fate::Dropped => self.drop_locked(&mut owner, name, &entry, number)?,
                Fate::Emptied => self.empty_locked(&mut owner, &entry)?,
            };
            owner.commit()?;
            engine.answer(end)?;
            return Ok(true);
        }
    }

    /// Drops a table that `owner` has locked exclusively; returns the position up to which the log has to be durable.
    fn drop_locked(&self, owner: &mut Txn<'_>, name: &str, entry: &TableEntry, number: u32) -> Result<Lsn, TxnError> {
        let engine = owner.engine;
        {
            let _creator = Creator::wait(&self.creation, &*engine.hook);
            let mut decision = engine.begin_creating()?;
            decision.insert(&own_index(), &Fate::Dropped.mark(entry), &entry.encode())?;
            decision.delete(&own_index(), name.as_bytes())?;
            decision.commit()?;
            self.forget(engine, name, number);
        }
        carry_out(self, owner, entry, Fate::Dropped)
    }

    /// Empties trees of a table that is locked exclusively; returns as [`Catalog::drop_locked`].
    fn empty_locked(&self, txn: &mut Txn<'_>, entry: &TableEntry) -> Result<Lsn, TxnError> {
        let engine = txn.engine;
        {
            let _creator = Creator::wait(&self.creation, &*engine.hook);
            let mut decision = engine.begin_creating()?;
            decision.insert(&own_index(), &Fate::Emptied.mark(entry), &entry.encode())?;
            decision.commit()?;
        }
        carry_out(self, txn, entry, Fate::Emptied).inspect_err(|error| {
            if let TxnError::Storage(error) = error {
                // No transaction may see a half-empty table, and only restart can finish it.
                engine.poison.distrust(&error.as_cause(), engine.log.durable());
            }
        })
    }

    /// Gives back all pages but the roots of trees that have no rows but ghosts. The caller has locked their table
    /// exclusively, in a call of maintenance, so no transaction needs the ghosts.
    ///
    /// # Errors
    /// No space: nothing has happened. A failure afterwards closes the instance, to readers too.
    pub(crate) fn remove_ghosts(&self, engine: &Engine, trees: &[Tree]) -> Result<(), TxnError> {
        let Some(entry) = TableEntry::of_bare_trees(trees) else { return Ok(()) };
        let mut txn = engine.begin_own(Own::Beside)?;
        let end = self.empty_locked(&mut txn, &entry)?;
        txn.commit()?;
        Ok(engine.make_durable(end)?)
    }

    /// Finishes the work that a crash has interrupted, at open.
    ///
    /// # Errors
    /// A page that cannot be read; no space.
    pub(super) fn finish(&self, engine: &Engine, marks: Vec<(Fate, TableEntry)>) -> Result<(), TxnError> {
        for (fate, entry) in marks {
            let mut txn = engine.begin_own(Own::Open)?;
            match carry_out(self, &mut txn, &entry, fate) {
                // Giving back a dropped table's pages can wait for a disk with some space.
                Err(TxnError::Storage(StorageError::NoSpace { .. } | StorageError::LogFull { .. }))
                    if fate == Fate::Dropped => {}
                done => drop(done?),
            }
            txn.commit()?;
        }
        Ok(())
    }
}

/// Gives back the pages of a marked table, in the place of a transaction that has written nothing, then deletes the mark;
/// returns the position up to which the log has to be durable. Can be restarted after any part of it.
pub(super) fn carry_out(catalog: &Catalog, txn: &mut Txn<'_>, entry: &TableEntry, fate: Fate) -> Result<Lsn, TxnError> {
    let engine = txn.engine;
    let state = txn.slot.state();
    let change = engine.structure_change(state.id);
    for tree in entry.trees() {
        tree.clear(change, &mut state.rec)?;
        if fate == Fate::Dropped {
            tree.give_root_back(change, &mut state.rec)?;
        }
    }
    let _creator = Creator::wait(&catalog.creation, &*engine.hook);
    let mut last = engine.begin_creating()?;
    last.delete(&own_index(), &fate.mark(entry))?;
    Ok(last.commit()?)
}

impl TableEntry {
    /// The table's primary index, for locks.
    pub(super) fn index(&self, name: &str, number: u32) -> Index {
        Index::new((self.primary, self.overflow), number, name, None)
    }
}
