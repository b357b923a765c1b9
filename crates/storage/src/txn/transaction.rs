//! A running transaction: begin, records, commit, roll back.

use super::active::{OwnPlace, SlotGuard};
use super::engine::Engine;
use super::undo::{Victim, roll_back};
use crate::base::config::Isolation;
use crate::base::error::StorageError;
use crate::base::ids::{Age, Lsn, TxnId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::StructureChange;
use crate::btree::space::Kept;
use crate::log::{RecordKind, Unlogged};

/// A running transaction, below the public [`Transaction`](crate::Transaction). Rolled back on drop unless ended.
#[derive(Debug)]
pub(crate) struct Txn<'db> {
    pub(crate) engine: &'db Engine,
    pub(crate) slot: SlotGuard<'db>,
    pub(crate) age: Age,
    pub(crate) isolation: Isolation,
    /// Whether statements on several rows look for all of them together.
    pub(crate) finds_together: bool,
    ended: bool,
    /// A statement failed half-way and could not be undone: the transaction can only be rolled back.
    broken: bool,
    kept: Kept,
}

impl Engine {
    /// Begins a transaction.
    ///
    /// # Errors
    /// `TooManyTransactions` when every slot is taken; `Poisoned` when a panic or a failed rollback has left a
    /// half-made change in memory.
    #[inline]
    pub(crate) fn begin(&self, isolation: Isolation, age: Option<Age>) -> Result<Txn<'_>, StorageError> {
        self.poison.check_memory()?;
        let Some(slot) = self.slots.claim() else { return Err(self.too_many()) };
        Ok(Txn::begin(self, slot, isolation, age))
    }

    /// Begins the transaction that creates a table. One at a time: the second one gets an error.
    ///
    /// # Errors
    /// `TooManyTransactions`.
    pub(crate) fn begin_creating(&self) -> Result<Txn<'_>, StorageError> {
        let Some(slot) = self.slots.claim_own(OwnPlace::Creating) else { return Err(self.too_many()) };
        Ok(Txn::begin(self, slot, Isolation::Serializable, None))
    }

    /// Begins the transaction in which the purge service locks tables; it writes no rows. `None` while one runs.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub(crate) fn begin_purging(&self) -> Result<Option<Txn<'_>>, StorageError> {
        self.poison.check_memory()?;
        let slot = self.slots.claim_own(OwnPlace::Purging);
        Ok(slot.map(|slot| Txn::begin(self, slot, Isolation::ReadCommitted, None)))
    }
}

impl<'db> Txn<'db> {
    /// Begins a transaction in a claimed slot. Without an age it draws one.
    #[inline]
    pub(super) fn begin(
        engine: &'db Engine,
        mut slot: SlotGuard<'db>,
        isolation: Isolation,
        age: Option<Age>,
    ) -> Txn<'db> {
        let state = slot.state();
        state.sequence += 1;
        state.last = Lsn::ZERO;
        state.ghosts.clear();
        state.along.clear();
        let age = age.unwrap_or_else(|| Age(engine.clock.age()));
        state.owner.begin(age.0);
        state.owner.run_by(engine.hook.task());
        Txn { engine, slot, age, isolation, finds_together: true, ended: false, broken: false, kept: Kept::default() }
    }

    /// Makes the transaction visible to checkpoints if this is its first record, and begins a data record.
    #[inline]
    pub(crate) fn begin_record(&mut self, kind: RecordKind) {
        if self.slot.peek().last == Lsn::ZERO {
            let tail = self.engine.log.tail();
            let state = self.slot.state();
            state.txn = TxnId::of_first_record(tail, state.id);
            let txn = state.txn;
            self.slot.announce(txn, tail);
        }
        let state = self.slot.state();
        state.rec.begin(kind as u8, state.txn, state.last);
    }

    /// Appends the record begun, with a page latched whose LSN is `after`.
    ///
    /// # Errors
    /// See [`Unlogged`]: where room was missing the caller unlatches the page, makes room and begins again.
    #[inline]
    pub(crate) fn append(&mut self, after: Lsn) -> Result<Lsn, Unlogged> {
        let state = self.slot.state();
        let lsn = self.engine.log.append(state.id, &mut state.rec, after)?;
        state.last = lsn;
        self.slot.advance(lsn);
        Ok(lsn)
    }

    /// Keeps room for making one more row shorter. No latch may be held.
    ///
    /// # Errors
    /// No space.
    #[cold]
    pub(crate) fn keep_for_one_shorter(&mut self) -> Result<(), StorageError> {
        self.kept.keep(self.engine.structure_change(self.slot.peek().id))
    }

    /// Whether a row may be made shorter.
    #[inline]
    pub(crate) fn may_shorten(&self) -> bool {
        self.kept.covers_one()
    }

    /// Notes that a row has been made shorter.
    #[cold]
    pub(crate) fn has_shortened(&mut self) {
        let bytes = self.kept.use_one();
        self.engine.log.add_undo_bytes(self.slot.peek().id, bytes);
    }

    /// A position in the transaction to return to: see [`Txn::rollback_to`].
    pub(crate) fn savepoint(&self) -> Lsn {
        self.slot.peek().last
    }

    /// From now on the transaction can only be rolled back.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
    }

    /// Whether half a statement remains, so that the transaction must not commit.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Commits: appends the commit record and releases all locks at once (early lock release). What it has read or
    /// written is durable when the log is flushed up to the returned position.
    ///
    /// # Errors
    /// When the instance is closed to commits; the transaction is then rolled back as far as memory goes.
    #[inline]
    pub(crate) fn commit(mut self) -> Result<Lsn, StorageError> {
        debug_assert!(!self.broken, "half a statement would be committed");
        let state = self.slot.state();
        let wrote = state.last != Lsn::ZERO;
        let mut end = Lsn::ZERO;
        if wrote {
            self.engine.poison.check()?;
            let (txn, last) = (state.txn, state.last);
            self.slot.ending(txn);
            let state = self.slot.state();
            state.rec.begin(RecordKind::Commit as u8, txn, last);
            let appended = self.engine.log.append_reserved(state.id, &mut state.rec, Lsn::ZERO);
            end = state.rec.end();
            self.engine.log.end_txn(state.id);
            // Also if the append failed: a checkpoint may be waiting for this.
            self.slot.ended();
            appended?;
        }
        if !wrote {
            self.engine.poison.check_memory()?;
        }
        self.kept.release(&self.engine.pool);
        self.slot.state().owner.release_all();
        self.ended = true;
        if !wrote {
            // It may have announced a record and then written none.
            self.slot.ended();
            // A commit that is not on disk yet may have written what it read.
            end = if is_mutant(Mutant::AckReadsAtOnce) { Lsn::ZERO } else { self.engine.log.tail() };
        }
        Ok(end)
    }

    /// Undoes everything after the savepoint.
    ///
    /// # Errors
    /// When a page cannot be read, or the log takes no more. The transaction is then broken: it can only be rolled back
    /// as a whole, which goes on where this stopped.
    pub(crate) fn rollback_to(&mut self, savepoint: Lsn) -> Result<(), StorageError> {
        let engine = self.engine;
        if let Err(error) = engine.poison.check_memory() {
            // Undo changes pages, and the pages in memory are no longer sound.
            self.broken = true;
            return Err(error);
        }
        let state = self.slot.state();
        // Rows come back where scans have seen only ghosts.
        state.ghosts.clear();
        let mut victim = Victim { txn: state.txn, last: state.last };
        let mut bytes = std::mem::take(&mut state.before);
        let change = StructureChange { for_undo: true, ..engine.structure_change(state.id) };
        let result = roll_back(change, &mut state.rec, &mut bytes, &mut victim, savepoint);
        (state.last, state.before) = (victim.last, bytes);
        self.slot.advance(victim.last);
        self.broken |= result.is_err();
        result
    }

    /// Undoes everything and releases all locks. Returns the position that must be durable before the answer may leave.
    ///
    /// # Errors
    /// As [`Txn::rollback_to`]. The instance is then closed, to readers too: the next open rolls back.
    pub(crate) fn rollback(mut self) -> Result<Lsn, StorageError> {
        self.roll_back_all()
    }

    fn roll_back_all(&mut self) -> Result<Lsn, StorageError> {
        self.ended = true;
        let mut result = Ok(self.engine.log.tail());
        if self.slot.peek().last == Lsn::ZERO {
            // It may have announced a record that the log had no room for.
            self.slot.ended();
        } else {
            if is_mutant(Mutant::ReleaseBeforeUndo) {
                self.slot.state().owner.release_all();
            }
            result = self.undo_all();
            if let Err(error) = &result {
                // Half a rollback remains in memory, and its locks are released: no transaction may read any more, not
                // even one that only reads. Restart finishes the rollback.
                self.engine.poison.distrust(&error.as_cause(), self.engine.log.durable());
            }
        }
        self.kept.release(&self.engine.pool);
        self.slot.state().owner.release_all();
        result
    }

    fn undo_all(&mut self) -> Result<Lsn, StorageError> {
        if !is_mutant(Mutant::SkipUndo) {
            self.rollback_to(Lsn::ZERO)?;
        }
        let (txn, last) = (self.slot.peek().txn, self.slot.peek().last);
        self.slot.ending(txn);
        let state = self.slot.state();
        state.rec.begin(RecordKind::End as u8, txn, last);
        let appended = self.engine.log.append_reserved(state.id, &mut state.rec, Lsn::ZERO);
        let end = state.rec.end();
        self.engine.log.end_txn(state.id);
        self.slot.ended();
        appended.map(|_| end)
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A failure has closed the instance, and the next call returns it.
            let _ = self.roll_back_all();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use crate::base::config::Isolation;
    use crate::db::options::Options;
    use crate::db::table::Table;
    use crate::io::MemDisk;

    #[test]
    fn no_two_transactions_that_write_have_one_number() {
        const NUMBERS: Table<u64, u64> = Table::new("numbers");
        let disk = Arc::new(MemDisk::new());
        let mut numbers = BTreeSet::new();
        for life in 0..3u64 {
            let db = Options::new().buffer_pool(1 << 20).open_on(disk.clone()).unwrap();
            db.table(&NUMBERS).unwrap();
            let info = db.catalog.table(2).unwrap();
            for n in 0..20u64 {
                // Transactions that only read take no number.
                db.transact(|tx| tx.get(&NUMBERS, &n)).unwrap();
                let mut one = db.engine.begin(Isolation::Serializable, None).unwrap();
                let mut other = db.engine.begin(Isolation::Serializable, None).unwrap();
                for (txn, key) in [(&mut one, 2 * n), (&mut other, 2 * n + 1)] {
                    txn.insert(&info.primary, &(100 * life + key).to_be_bytes(), &[0; 8]).unwrap();
                    let number = txn.slot.peek().txn;
                    assert!(number.0 > 0 && numbers.insert(number), "{number:?} a second time, in life {life}");
                    // One transaction has one number.
                    txn.insert(&info.primary, &(1000 + 100 * life + key).to_be_bytes(), &[0; 8]).unwrap();
                    assert_eq!(txn.slot.peek().txn, number);
                }
                one.rollback().unwrap();
                other.commit().unwrap();
            }
            db.close().unwrap();
        }
    }
}
