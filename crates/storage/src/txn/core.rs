//! The state that all transactions of a database share, and the steps of one: begin, commit, roll back.

use crate::base::sync::plain::{AtomicBool, Ordering};
use std::sync::Arc;

use super::active::{SlotGuard, Slots};
use super::undo::{Victim, roll_back};
use crate::base::clock::Clock;
use crate::base::config::{Durability, Isolation};
use crate::base::error::StorageError;
use crate::base::hook::Hook;
use crate::base::ids::{Age, Lsn, SlotId, TxnId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::poison::Poison;
use crate::btree::StructureChange;
use crate::btree::space::Kept;
use crate::buffer::BufferPool;
use crate::lock::LockTable;
use crate::log::{Log, RecordKind, Unlogged};

/// The engine below the tables.
#[derive(Debug)]
pub(crate) struct Core {
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

/// A running transaction, below the public [`Transaction`](crate::Transaction). Rolled back on drop unless ended.
#[derive(Debug)]
pub(crate) struct Txn<'db> {
    pub(crate) core: &'db Core,
    pub(crate) claim: SlotGuard<'db>,
    pub(crate) age: Age,
    pub(crate) isolation: Isolation,
    /// Whether statements on several rows look for all of them together.
    pub(crate) finds_together: bool,
    ended: bool,
    /// A statement failed half-way and could not be undone: the transaction can only be rolled back.
    broken: bool,
    kept: Kept,
}

impl Core {
    /// Begins a transaction.
    ///
    /// # Errors
    /// `TooManyTransactions` when every slot is taken; `Poisoned` when a panic or a failed rollback has left a
    /// half-made change in memory.
    #[inline]
    pub(crate) fn begin(&self, isolation: Isolation, age: Option<Age>) -> Result<Txn<'_>, StorageError> {
        self.poison.check_memory()?;
        let Some(claim) = self.slots.claim() else { return Err(self.too_many()) };
        Ok(self.begin_in(claim, isolation, age))
    }

    /// Begins the transaction that creates a table. One at a time: the second one gets an error.
    ///
    /// # Errors
    /// `TooManyTransactions`.
    pub(crate) fn begin_creating(&self) -> Result<Txn<'_>, StorageError> {
        let Some(claim) = self.slots.claim_last() else { return Err(self.too_many()) };
        Ok(self.begin_in(claim, Isolation::Serializable, None))
    }

    #[inline]
    fn begin_in<'db>(&'db self, mut claim: SlotGuard<'db>, isolation: Isolation, age: Option<Age>) -> Txn<'db> {
        let cx = claim.context();
        cx.sequence += 1;
        cx.last = Lsn::ZERO;
        cx.ghosts.clear();
        cx.along.clear();
        let age = age.unwrap_or_else(|| Age(self.clock.age()));
        cx.owner.begin(age.0);
        cx.owner.run_by(self.hook.task());
        Txn {
            core: self,
            claim,
            age,
            isolation,
            finds_together: true,
            ended: false,
            broken: false,
            kept: Kept::default(),
        }
    }

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

    #[cold]
    fn too_many(&self) -> StorageError {
        StorageError::TooManyTransactions { limit: self.slots.limit() }
    }

    /// The parts that a change of structure needs.
    #[inline]
    pub(crate) fn structure_change(&self, slot: SlotId) -> StructureChange<'_> {
        StructureChange { pool: &self.pool, log: &self.log, slot, for_undo: false }
    }
}

impl<'db> Txn<'db> {
    /// Makes the transaction visible to checkpoints if this is its first record, and begins a data record.
    #[inline]
    pub(crate) fn begin_record(&mut self, kind: RecordKind) {
        if self.claim.peek().last == Lsn::ZERO {
            let tail = self.core.log.tail();
            let cx = self.claim.context();
            cx.txn = TxnId::of_first_record(tail, cx.slot);
            let txn = cx.txn;
            self.claim.announce(txn, tail);
        }
        let cx = self.claim.context();
        cx.rec.begin(kind as u8, cx.txn, cx.last);
    }

    /// Appends the record begun, with a page latched whose LSN is `after`.
    ///
    /// # Errors
    /// See [`Unlogged`]: where room was missing the caller unlatches the page, makes room and begins again.
    #[inline]
    pub(crate) fn append(&mut self, after: Lsn) -> Result<Lsn, Unlogged> {
        let cx = self.claim.context();
        let lsn = self.core.log.append(cx.slot, &mut cx.rec, after)?;
        cx.last = lsn;
        self.claim.advance(lsn);
        Ok(lsn)
    }

    /// Keeps room for making one more row shorter. No latch may be held.
    ///
    /// # Errors
    /// No space.
    #[cold]
    pub(crate) fn keep_for_one_shorter(&mut self) -> Result<(), StorageError> {
        self.kept.keep(self.core.structure_change(self.claim.peek().slot))
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
        self.core.log.add_undo_bytes(self.claim.peek().slot, bytes);
    }

    /// A position in the transaction to return to: see [`Txn::rollback_to`].
    pub(crate) fn savepoint(&self) -> Lsn {
        self.claim.peek().last
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
        let cx = self.claim.context();
        let wrote = cx.last != Lsn::ZERO;
        let mut end = Lsn::ZERO;
        if wrote {
            self.core.poison.check()?;
            let (txn, last) = (cx.txn, cx.last);
            self.claim.ending(txn);
            let cx = self.claim.context();
            cx.rec.begin(RecordKind::Commit as u8, txn, last);
            let appended = self.core.log.append_reserved(cx.slot, &mut cx.rec, Lsn::ZERO);
            end = cx.rec.end();
            self.core.log.end_txn(cx.slot);
            // Also if the append failed: a checkpoint may be waiting for this.
            self.claim.ended();
            appended?;
        }
        if !wrote {
            self.core.poison.check_memory()?;
        }
        self.kept.release(&self.core.pool);
        self.claim.context().owner.release_all();
        self.ended = true;
        if !wrote {
            // It may have announced a record and then written none.
            self.claim.ended();
            // A commit that is not on disk yet may have written what it read.
            end = if is_mutant(Mutant::AckReadsAtOnce) { Lsn::ZERO } else { self.core.log.tail() };
        }
        Ok(end)
    }

    /// Undoes everything after the savepoint.
    ///
    /// # Errors
    /// When a page cannot be read, or the log takes no more. The transaction is then broken: it can only be rolled back
    /// as a whole, which goes on where this stopped.
    pub(crate) fn rollback_to(&mut self, savepoint: Lsn) -> Result<(), StorageError> {
        let core = self.core;
        if let Err(error) = core.poison.check_memory() {
            // Undo changes pages, and the pages in memory are no longer sound.
            self.broken = true;
            return Err(error);
        }
        let cx = self.claim.context();
        // Rows come back where scans have seen only ghosts.
        cx.ghosts.clear();
        let mut victim = Victim { txn: cx.txn, last: cx.last };
        let mut bytes = std::mem::take(&mut cx.before);
        let change = StructureChange { for_undo: true, ..core.structure_change(cx.slot) };
        let result = roll_back(change, &mut cx.rec, &mut bytes, &mut victim, savepoint);
        (cx.last, cx.before) = (victim.last, bytes);
        self.claim.advance(victim.last);
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
        let mut result = Ok(self.core.log.tail());
        if self.claim.peek().last == Lsn::ZERO {
            // It may have announced a record that the log had no room for.
            self.claim.ended();
        } else {
            if is_mutant(Mutant::ReleaseBeforeUndo) {
                self.claim.context().owner.release_all();
            }
            result = self.undo_all();
            if let Err(error) = &result {
                // Half a rollback remains in memory, and its locks are released: no transaction may read any more, not
                // even one that only reads. Restart finishes the rollback.
                self.core.poison.distrust(&error.as_cause(), self.core.log.durable());
            }
        }
        self.kept.release(&self.core.pool);
        self.claim.context().owner.release_all();
        result
    }

    fn undo_all(&mut self) -> Result<Lsn, StorageError> {
        if !is_mutant(Mutant::SkipUndo) {
            self.rollback_to(Lsn::ZERO)?;
        }
        let (txn, last) = (self.claim.peek().txn, self.claim.peek().last);
        self.claim.ending(txn);
        let cx = self.claim.context();
        cx.rec.begin(RecordKind::End as u8, txn, last);
        let appended = self.core.log.append_reserved(cx.slot, &mut cx.rec, Lsn::ZERO);
        let end = cx.rec.end();
        self.core.log.end_txn(cx.slot);
        self.claim.ended();
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
                let mut one = db.core.begin(Isolation::Serializable, None).unwrap();
                let mut other = db.core.begin(Isolation::Serializable, None).unwrap();
                for (txn, key) in [(&mut one, 2 * n), (&mut other, 2 * n + 1)] {
                    txn.insert(&info.primary, &(100 * life + key).to_be_bytes(), &[0; 8]).unwrap();
                    let number = txn.claim.peek().txn;
                    assert!(number.0 > 0 && numbers.insert(number), "{number:?} a second time, in life {life}");
                    // One transaction has one number.
                    txn.insert(&info.primary, &(1000 + 100 * life + key).to_be_bytes(), &[0; 8]).unwrap();
                    assert_eq!(txn.claim.peek().txn, number);
                }
                one.rollback().unwrap();
                other.commit().unwrap();
            }
            db.close().unwrap();
        }
    }
}
