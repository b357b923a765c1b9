//! A running transaction: begin, records, commit, rollback.

use super::active::{SlotGuard, SystemPurpose};
use super::engine::Engine;
use super::undo::{UNDO_PER_SECTION, Victim, roll_back};
use crate::base::config::Isolation;
use crate::base::error::StorageError;
use crate::base::ids::{Age, Lsn, TxnId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::btree::space::ReservedSpace;
use crate::btree::{StructureChange, Tree};
use crate::log::{AppendError, RecordKind};

/// A running transaction, below the public [`Transaction`](crate::Transaction). Dropping it rolls back unless it has ended.
#[derive(Debug)]
pub(crate) struct Txn<'db> {
    pub(crate) engine: &'db Engine,
    pub(crate) slot: SlotGuard<'db>,
    pub(crate) age: Age,
    pub(crate) isolation: Isolation,
    /// True if a statement on several rows searches for all rows in one group lookup.
    pub(crate) finds_together: bool,
    pub(super) ended: bool,
    /// True if a statement failed and could not be undone completely. The transaction can then only be rolled back.
    broken: bool,
    pub(super) reserved: ReservedSpace,
    /// Members that have run epochs of the transaction's loops. See `family`.
    pub(super) members: Vec<Txn<'db>>,
}

impl Engine {
    /// Begins a transaction.
    ///
    /// # Errors
    /// `TooManyTransactions` if every slot is taken. `Poisoned` if a panic or a failed rollback has left an incomplete
    /// change in memory.
    #[inline]
    pub(crate) fn begin(&self, isolation: Isolation, age: Option<Age>) -> Result<Txn<'_>, StorageError> {
        self.poison.check_memory()?;
        let Some(slot) = self.slots.claim() else { return Err(self.too_many()) };
        Ok(Txn::begin(self, slot, isolation, age))
    }

    /// Begins one of the engine's own transactions, which takes no slot for users.
    ///
    /// # Errors
    /// `TooMuchMaintenance` if all slots for such transactions are taken. `Poisoned` as for [`Engine::begin`].
    pub(crate) fn begin_system(&self, purpose: SystemPurpose) -> Result<Txn<'_>, StorageError> {
        self.poison.check_memory()?;
        let Some(slot) = self.slots.claim_system(purpose) else {
            return Err(StorageError::TooMuchMaintenance { limit: purpose.limit() });
        };
        Ok(Txn::begin(self, slot, Isolation::Serializable, None))
    }

    /// Begins a short transaction on the catalog. The caller has the turn for it (`table/creation.rs`).
    ///
    /// # Errors
    /// As [`Engine::begin_system`].
    pub(crate) fn begin_creating(&self) -> Result<Txn<'_>, StorageError> {
        self.begin_system(SystemPurpose::Catalog)
    }

    /// Begins one of the engine's own transactions that takes shared table locks and writes no rows. Returns `None` while
    /// another transaction of this purpose runs.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub(crate) fn begin_alone(&self, purpose: SystemPurpose) -> Result<Option<Txn<'_>>, StorageError> {
        self.poison.check_memory()?;
        let slot = self.slots.claim_system(purpose);
        Ok(slot.map(|slot| Txn::begin(self, slot, Isolation::ReadCommitted, None)))
    }
}

impl<'db> Txn<'db> {
    /// Begins a transaction in a claimed slot. If `age` is `None`, assigns a new age.
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
        state.extra_rows.clear();
        let age = age.unwrap_or_else(|| Age(engine.clock.age()));
        state.owner.begin(age.0);
        state.owner.run_by(engine.hook.task());
        Txn {
            engine,
            slot,
            age,
            isolation,
            finds_together: true,
            ended: false,
            broken: false,
            reserved: ReservedSpace::default(),
            members: Vec::new(),
        }
    }

    /// Begins a record. If it is the transaction's first record, assigns a transaction number and makes the transaction
    /// visible to checkpoints.
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
        state.rec.begin(kind, state.id, state.last);
    }

    /// Appends the current record. The caller has latched the changed page, whose current LSN is `after`.
    ///
    /// # Errors
    /// See [`AppendError`]. If log space was missing, the caller unlatches the page, obtains space and begins the record
    /// again.
    #[inline]
    pub(crate) fn append(&mut self, after: Lsn) -> Result<Lsn, AppendError> {
        let state = self.slot.state();
        let lsn = self.engine.log.append(state.id, &mut state.rec, after)?;
        state.last = lsn;
        self.slot.advance(lsn);
        Ok(lsn)
    }

    /// Like [`Txn::append`], for a record with `sections` sections. Each section is undone with a compensation record of its
    /// own.
    #[inline]
    pub(crate) fn append_several(&mut self, after: Lsn, sections: usize) -> Result<Lsn, AppendError> {
        let lsn = self.append(after)?;
        self.engine.log.add_undo_bytes(self.slot.peek().id, (sections.max(1) - 1) as u64 * UNDO_PER_SECTION);
        Ok(lsn)
    }

    /// Reserves the space that undo needs if one more row of the tree shrinks. The caller holds no latch.
    ///
    /// # Errors
    /// No space on the device.
    #[cold]
    pub(crate) fn reserve_for_shrink(&mut self, tree: Tree) -> Result<(), StorageError> {
        let change = self.engine.structure_change(self.slot.peek().id);
        // The level is a hint, because the root may leave the pool and return.
        let levels = u64::from(change.pool.get_or_load(tree.root)?.bytes().level()) + 1;
        self.reserved.reserve(change, levels)
    }

    /// Returns true if space is reserved for the undo of one more row that shrinks.
    #[inline]
    pub(crate) fn may_shorten(&self) -> bool {
        self.reserved.covers_one()
    }

    /// Records that a row shrank.
    #[cold]
    pub(crate) fn has_shortened(&mut self) {
        let bytes = self.reserved.use_one();
        self.engine.log.add_undo_bytes(self.slot.peek().id, bytes);
    }

    /// Returns the current position in the transaction, to which [`Txn::rollback_to`] can return.
    pub(crate) fn savepoint(&self) -> Lsn {
        self.slot.peek().last
    }

    /// Marks the transaction as broken: from now on it can only be rolled back.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
    }

    /// Returns true if part of a failed statement is still in effect, so that the transaction must not commit.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Commits the transaction: appends the commit record and releases all locks at once (early lock release). The data that
    /// the transaction has read or written is durable when the log is flushed up to the returned position.
    ///
    /// # Errors
    /// Fails if the instance is closed to commits. The transaction is then rolled back in memory as far as possible.
    #[inline]
    pub(crate) fn commit(mut self) -> Result<Lsn, StorageError> {
        debug_assert!(!self.broken, "half a statement would be committed");
        if self.has_members() {
            return self.commit_family(|release| release(0));
        }
        let state = self.slot.state();
        let wrote = state.last != Lsn::ZERO;
        let mut end = Lsn::ZERO;
        if wrote {
            self.engine.poison.check()?;
            let (txn, last) = (state.txn, state.last);
            self.slot.ending(txn);
            let state = self.slot.state();
            state.rec.begin(RecordKind::Commit, state.id, last);
            let appended = self.engine.log.append_reserved(state.id, &mut state.rec, Lsn::ZERO);
            end = state.rec.end();
            self.engine.log.end_txn(state.id);
            // This also runs if the append failed, because a checkpoint may be waiting for the end of the transaction.
            self.slot.ended();
            appended?;
        }
        if !wrote {
            self.engine.poison.check_memory()?;
        }
        self.reserved.release(&self.engine.pool);
        self.slot.state().owner.release_all();
        self.ended = true;
        if !wrote {
            // The transaction may have announced a record and then written none.
            self.slot.ended();
            // The transaction may have read data of a commit that is not durable yet.
            end = if is_mutant(Mutant::AckReadsAtOnce) { Lsn::ZERO } else { self.engine.log.tail() };
        }
        if self.slot.peek().handled_large {
            self.free_chains(true);
        }
        Ok(end)
    }

    /// Undoes everything after the savepoint. Releases the space that was reserved for this undo, so a transaction may
    /// return to the same savepoint any number of times.
    ///
    /// If no record is in effect after the undo, the transaction has ended for the log and for checkpoints. Later records
    /// get a transaction number of their own.
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if the log accepts no more records. The transaction is then broken: it can only be
    /// rolled back as a whole, which continues where this undo stopped.
    pub(crate) fn rollback_to(&mut self, savepoint: Lsn) -> Result<(), StorageError> {
        let engine = self.engine;
        if let Err(error) = engine.poison.check_memory() {
            // Undo would change pages, and the pages in memory are no longer sound.
            self.broken = true;
            return Err(error);
        }
        let state = self.slot.state();
        // The undo restores rows in ranges where scans have found only ghosts.
        state.ghosts.clear();
        let mut victim = Victim { slot: state.id, last: state.last };
        let mut bytes = std::mem::take(&mut state.before);
        let change = StructureChange { for_undo: true, ..engine.structure_change(state.id) };
        let owed = engine.log.undo_bytes_of(state.id);
        let result = roll_back(change, &mut state.rec, &mut bytes, &mut victim, savepoint);
        state.before = bytes;
        let undone = match result {
            Ok(undone) => undone,
            Err(error) => {
                // A later rollback continues where this one stopped.
                state.last = victim.last;
                self.slot.advance(victim.last);
                self.broken = true;
                return Err(error);
            }
        };
        let shorter = self.reserved.give_back(&engine.pool, undone.shortened);
        engine.log.set_undo_bytes(state.id, owed.saturating_sub(undone.owed + shorter));
        state.last = undone.last_in_effect;
        if state.handled_large {
            // Not the savepoint, which may be a position of another member's record.
            state.chains.undone(undone.last_in_effect);
        }
        self.slot.advance(undone.last_in_effect);
        if undone.last_in_effect == Lsn::ZERO && victim.last != Lsn::ZERO {
            self.end_rollback(&victim)?;
        }
        Ok(())
    }

    /// Reports to the log and to checkpoints that no record of the transaction is in effect any more.
    fn end_rollback(&mut self, victim: &Victim) -> Result<(), StorageError> {
        self.slot.ending(self.slot.peek().txn);
        let state = self.slot.state();
        state.rec.begin(RecordKind::End, victim.slot, victim.last);
        let appended = self.engine.log.append_reserved(state.id, &mut state.rec, Lsn::ZERO);
        self.engine.log.end_txn(state.id);
        self.slot.ended();
        appended.map(drop)
    }

    /// Undoes everything and releases all locks. Returns the log position that must be durable before the result may be
    /// reported.
    ///
    /// # Errors
    /// As for [`Txn::rollback_to`]. The instance is then closed, to readers too, and the next open performs the rollback.
    pub(crate) fn rollback(mut self) -> Result<Lsn, StorageError> {
        self.roll_back_all()
    }

    fn roll_back_all(&mut self) -> Result<Lsn, StorageError> {
        self.ended = true;
        let mut result = Ok(self.engine.log.tail());
        if self.slot.peek().last != Lsn::ZERO || !self.members.is_empty() {
            if is_mutant(Mutant::ReleaseBeforeUndo) {
                self.slot.state().owner.release_all();
            }
            result = self.undo_all();
            if let Err(error) = &result {
                // An incomplete rollback remains in memory, and the transaction's locks are released. So no transaction may
                // read any more, not even a read-only transaction. Restart completes the rollback.
                self.engine.poison.mark_inconsistent(&error.as_cause(), self.engine.log.durable());
            }
        }
        if self.slot.peek().last == Lsn::ZERO {
            // The transaction may have announced a record for which the log had no space.
            self.slot.ended();
        }
        self.end_members(false, |release| release(0));
        self.reserved.release(&self.engine.pool);
        self.slot.state().owner.release_all();
        if self.slot.peek().handled_large {
            self.free_chains(false);
        }
        result
    }

    fn undo_all(&mut self) -> Result<Lsn, StorageError> {
        if is_mutant(Mutant::SkipUndo) {
            let state = self.slot.peek();
            self.end_rollback(&Victim { slot: state.id, last: state.last })?;
        } else {
            self.rollback_family_to(Lsn::ZERO)?;
        }
        Ok(if self.members.is_empty() { self.slot.peek().rec.end() } else { self.engine.log.tail() })
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A failure has closed the instance, and the next call returns the error.
            let _ = self.roll_back_all();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use crate::base::config::Isolation;
    use crate::base::ids::Lsn;
    use crate::db::options::Options;
    use crate::db::table::Table;
    use crate::io::MemDisk;
    use crate::log::{RECORD_HEADER, RecordKind};
    use crate::table::scan::ScanEnd;

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
                // Read-only transactions get no transaction number.
                db.transact(|tx| tx.get(&NUMBERS, &n)).unwrap();
                let mut one = db.engine.begin(Isolation::Serializable, None).unwrap();
                let mut other = db.engine.begin(Isolation::Serializable, None).unwrap();
                for (txn, key) in [(&mut one, 2 * n), (&mut other, 2 * n + 1)] {
                    txn.insert(&info.primary, &(100 * life + key).to_be_bytes(), &[0; 8]).unwrap();
                    let number = txn.slot.peek().txn;
                    assert!(number.0 > 0 && numbers.insert(number), "{number:?} a second time, in life {life}");
                    // All records of one transaction have the same transaction number.
                    txn.insert(&info.primary, &(1000 + 100 * life + key).to_be_bytes(), &[0; 8]).unwrap();
                    assert_eq!(txn.slot.peek().txn, number);
                }
                one.rollback().unwrap();
                other.commit().unwrap();
            }
            db.close().unwrap();
        }
    }

    /// Checks that a rollback to a savepoint restores the amount of work to undo, and the space reserved for it.
    #[test]
    fn going_back_again_and_again_costs_what_is_undone() {
        const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
        let db = Options::new().buffer_pool(1 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
        db.transact(|tx| (0..100).try_for_each(|key| tx.put(&ROWS, &key, &vec![1; 100]))).unwrap();
        let info = db.catalog.table(2).unwrap();
        let key = |key: u64| key.to_be_bytes();
        for from_begin in [false, true] {
            let mut txn = db.engine.begin(Isolation::Serializable, None).unwrap();
            if !from_begin {
                txn.insert(&info.primary, &key(1_000), &[0; 8]).unwrap();
            }
            let slot = txn.slot.peek().id;
            let owed = |txn: &super::Txn<'_>| if from_begin { 0 } else { txn.engine.log.undo_bytes_of(slot) };
            let savepoint = txn.savepoint();
            let (owed_before, kept_before) = (owed(&txn), db.engine.pool.reserve_pages(0));
            for turn in 0..50 {
                txn.put_row(info, &key(2_000 + turn % 7), &[2; 300]).unwrap();
                txn.put_row(info, &key(turn), &[3; 100]).unwrap();
                txn.put_row(info, &key(turn), &[4; 20]).unwrap();
                txn.put_row(info, &key(turn), &vec![4; 20 + turn as usize]).unwrap();
                txn.delete_row(info, &key(50 + turn)).unwrap();
                let runs: Vec<_> = (0..9).map(|i| key(3_000 + 9 * turn + i)).collect();
                let rows: Vec<(&[u8], &[u8])> = runs.iter().map(|key| (&key[..], &[5; 50][..])).collect();
                txn.insert_rows(info, &rows).unwrap();
                txn.update_rows(info, &key(3_000), ScanEnd::Never, |_, row| row.fill(turn as u8)).unwrap();
                assert!(turn > 0 || txn.engine.log.undo_bytes_of(slot) > owed_before + 1000);
                txn.rollback_to(savepoint).unwrap();
                assert_eq!((txn.savepoint(), owed(&txn)), (savepoint, owed_before), "turn {turn}");
            }
            // Pages for splits above the leaves are reserved once for all rows.
            assert!(db.engine.pool.reserve_pages(0) <= kept_before + 8);
            // Follows the records from the newest record on, like restart.
            txn.insert(&info.primary, &key(9_000), &[0; 8]).unwrap();
            let (mut at, mut steps) = (txn.savepoint(), 0);
            while at > Lsn::ZERO {
                let mut bytes = Vec::new();
                let record = db.engine.log.read_at(at, &mut bytes).unwrap();
                assert_eq!(record.kind, RecordKind::Data as u8);
                (at, steps) = (record.prev, steps + 1);
            }
            assert_eq!(steps, if from_begin { 1 } else { 2 });
            txn.rollback().unwrap();
            assert_eq!(db.engine.pool.reserve_pages(0), kept_before);
        }
        let rows = db.begin().unwrap().range(&ROWS, ..).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        assert!(rows.len() == 100 && rows.iter().all(|(_, row)| *row == [1; 100]));
    }

    /// Checks that the space reserved for undo is sufficient for every kind of change: the compensation records are not
    /// longer in total.
    #[test]
    fn undo_takes_no_more_log_than_was_kept() {
        const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
        let db = Options::new().buffer_pool(1 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
        db.transact(|tx| (0..200).try_for_each(|key| tx.put(&ROWS, &key, &vec![1; 30]))).unwrap();
        let info = db.catalog.table(2).unwrap();
        let key = |key: u64| key.to_be_bytes();
        let statements: [&dyn Fn(&mut super::Txn<'_>); 6] = [
            &|txn| (0..50).for_each(|n| txn.put_row(info, &key(n), &[1; 29].map(|b| b + n as u8)).unwrap()),
            &|txn| {
                (0..50).for_each(|n| {
                    let _ = txn.update_row(info, &key(n), |row| row[3] ^= 1).unwrap();
                });
            },
            &|txn| (0..50).for_each(|n| assert!(txn.delete_row(info, &key(n)).unwrap())),
            &|txn| {
                let keys: Vec<_> = (1_000..1_060).map(key).collect();
                let rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &[][..])).collect();
                txn.insert_rows(info, &rows).unwrap();
            },
            &|txn| assert_eq!(txn.update_rows(info, &[], ScanEnd::Never, |_, row| row[0] ^= 1).unwrap(), 200),
            &|txn| {
                let keys: Vec<_> = (0..16).map(|n| key(12 * n)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                let changed = txn.update_columns_of(info, &keys, &[7..8, 0..7], |_, column, _| column[0] ^= 1).unwrap();
                assert_eq!(changed, 16);
            },
        ];
        for (number, statement) in statements.iter().enumerate() {
            let mut txn = db.engine.begin(Isolation::Serializable, None).unwrap();
            statement(&mut txn);
            let (kept, before) = (txn.engine.log.undo_bytes_of(txn.slot.peek().id), txn.engine.log.tail().0);
            let end = txn.rollback().unwrap();
            // The end record is not part of the reservation, nor is a commit record.
            assert!(end.0 - before <= kept + RECORD_HEADER as u64, "statement {number}: {} of {kept}", end.0 - before);
        }
    }
}
