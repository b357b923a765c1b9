//! Families: a transaction and the members that run epochs of its loops on several threads. Each member has a slot, locks and
//! a chain of log records of its own. `lock::family` has the order of the epochs' locks.
//!
//! The commit record of the transaction names the slots of its members, so a restart takes the changes of all or of none.
//! Conflicting writes of a family have LSNs in the order of the loop: a later epoch gets the lock only when the earlier one is
//! settled. So a rollback undoes the records of all chains in descending order of LSN, and so does a restart.

use parking_lot::Mutex;

use super::engine::Engine;
use super::transaction::Txn;
use crate::base::config::Isolation;
use crate::base::error::StorageError;
use crate::base::ids::{Age, Lsn, SlotId};
use crate::base::mutant::{Mutant, is_mutant};
use crate::lock::EpochLock;
use crate::log::RecordKind;

/// Number of record locks from which on a thread of a loop is asked to release them. For fewer the request costs more.
const MANY_LOCKS: u32 = 32;

/// The transaction of a family, as its members need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FamilyHead {
    pub(crate) slot: SlotId,
    age: Age,
    /// Task that runs the transaction.
    task: u64,
    finds_together: bool,
}

impl Engine {
    /// Begins a member of a family. Returns `None` if no slot is free.
    pub(crate) fn begin_member(&self, head: FamilyHead) -> Option<Txn<'_>> {
        let mut member = Txn::begin(self, self.slots.claim_member()?, Isolation::Serializable, Some(head.age));
        member.finds_together = head.finds_together;
        member.slot.state().owner.run_by(head.task);
        Some(member)
    }
}

impl<'db> Txn<'db> {
    /// Begins a loop of the transaction: makes it the head of a family.
    pub(crate) fn found_family(&mut self) -> FamilyHead {
        // Members may insert rows where only deleted ones were.
        self.slot.state().ghosts.clear();
        let state = self.slot.peek();
        self.engine.locks.found_family(state.id);
        let (age, finds_together) = (self.age, self.finds_together);
        FamilyHead { slot: state.id, age, task: state.owner.task(), finds_together }
    }

    /// Makes the transaction a member of a family, for epochs on thread number `thread` of its loop.
    pub(crate) fn join(&mut self, head: FamilyHead, thread: usize) {
        let state = self.slot.state();
        // A savepoint of an earlier loop is one of another transaction.
        state.sequence += 1;
        state.owner.join(head.slot, thread as u32);
    }

    /// Returns true if the transaction is a member of a family.
    pub(crate) fn is_in_loop(&self) -> bool {
        self.slot.peek().owner.is_in_epoch()
    }

    /// Returns true if the member can run no more epochs.
    pub(crate) fn is_spent(&self) -> bool {
        self.slot.peek().owner.is_spent()
    }

    /// Replaces locks of the member's settled epochs by table locks of its transaction `head`, as an escalation.
    pub(crate) fn escalate_settled(&mut self, slot: SlotId, head: &Mutex<&mut Txn<'_>>) {
        self.slot.state().owner.escalate_settled(slot, |table, mode| {
            head.lock().slot.state().owner.try_escalate_to(table, mode);
        });
    }

    /// Begins the epoch of a member that has place `order` in the loop.
    pub(crate) fn begin_epoch(&mut self, order: u64) {
        let state = self.slot.state();
        // Other members may insert rows where only deleted ones were.
        state.ghosts.clear();
        state.owner.begin_epoch(order);
    }

    /// Ends the member's epochs in a loop.
    pub(crate) fn end_epochs(&mut self) {
        self.slot.state().owner.end_epochs();
    }

    /// Returns the record locks that the member's epoch has taken.
    pub(crate) fn locks_of_epoch(&self) -> Vec<EpochLock> {
        self.slot.peek().owner.locks_of_epoch()
    }

    /// Undoes the member's epoch, which began at `mark`, and releases its locks. The epoch can run again.
    ///
    /// # Errors
    /// As [`Txn::rollback_to`].
    pub(crate) fn roll_back_epoch(&mut self, mark: Lsn) -> Result<(), StorageError> {
        if self.savepoint() > mark && !is_mutant(Mutant::SkipEpochUndo) {
            self.rollback_to(mark)?;
        }
        let state = self.slot.state();
        // The locks under which scans have found them are released.
        state.ghosts.clear();
        state.owner.roll_back_epoch();
        Ok(())
    }

    /// Returns the members of the transaction, for its next loop.
    pub(crate) fn take_members(&mut self) -> Vec<Txn<'db>> {
        std::mem::take(&mut self.members)
    }

    /// Returns the members to the transaction at the end of a loop.
    pub(crate) fn return_members(&mut self, members: Vec<Txn<'db>>) {
        if members.iter().any(Txn::is_broken) {
            self.give_up();
        }
        self.members.extend(members);
    }

    /// Returns true if the transaction has members, so that [`Txn::commit_family`] has to end it.
    #[inline]
    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns true if a thread besides the one with number 0 has many locks to release when the transaction ends.
    pub(crate) fn has_locks_elsewhere(&self) -> bool {
        let elsewhere = self.members.iter().filter(|member| member.thread() != 0);
        elsewhere.map(|member| member.slot.peek().owner.records()).sum::<u32>() >= MANY_LOCKS
    }

    /// Returns the thread of the loop that has run the member's epochs.
    fn thread(&self) -> u32 {
        self.slot.peek().owner.thread()
    }

    /// Commits the transaction with its members, as [`Txn::commit`]. `on_threads` gets a function that releases the locks of the
    /// members, and calls it with 0, and optionally with the numbers of other threads of the loop, each on that thread. A thread
    /// has the locks of its own epochs in its caches.
    #[cold]
    pub(crate) fn commit_family(
        mut self,
        on_threads: impl FnOnce(&(dyn Fn(usize) + Sync)),
    ) -> Result<Lsn, StorageError> {
        debug_assert!(!self.is_broken(), "half a statement would be committed");
        let engine = self.engine;
        let is_writer = |txn: &Txn<'_>| txn.slot.peek().last != Lsn::ZERO;
        let wrote = is_writer(&self) || self.members.iter().any(is_writer);
        if !wrote {
            engine.poison.check_memory()?;
            self.end_members(true, on_threads);
            return self.commit();
        }
        engine.poison.check()?;
        self.begin_record(RecordKind::Commit);
        let writers = || self.members.iter().filter(|member| is_writer(member));
        self.slot.ending(self.slot.peek().txn);
        writers().for_each(|member| member.slot.ending(member.slot.peek().txn));
        let named: Vec<SlotId> = writers().map(|member| member.slot.peek().id).collect();
        let named = if is_mutant(Mutant::ForgetMember) { &named[..named.len().saturating_sub(1)] } else { &named[..] };
        let state = self.slot.state();
        named.iter().for_each(|slot| state.rec.put_u16(slot.0));
        let appended = engine.log.append_reserved(state.id, &mut state.rec, Lsn::ZERO);
        let end = state.rec.end();
        for txn in self.members.iter().chain([&self]) {
            engine.log.end_txn(txn.slot.peek().id);
            txn.slot.ended();
        }
        appended?;
        self.end_members(true, on_threads);
        self.reserved.release(&engine.pool);
        self.slot.state().owner.release_all();
        self.ended = true;
        if self.slot.peek().handled_large {
            self.free_chains(true);
        }
        Ok(end)
    }

    /// Releases the locks and the slots of all members, whose changes have been committed or undone. `on_threads` as for
    /// [`Txn::commit_family`].
    pub(super) fn end_members(&mut self, committed: bool, on_threads: impl FnOnce(&(dyn Fn(usize) + Sync))) {
        let mut members = std::mem::take(&mut self.members);
        // Whatever happens below, no member is rolled back when it is dropped.
        members.iter_mut().for_each(|member| member.ended = true);
        let members = Mutex::new(members);
        on_threads(&|thread| {
            loop {
                let next = {
                    let mut members = members.lock();
                    let own = members.iter().position(|member| member.thread() as usize == thread);
                    // The caller's thread also takes what no other thread has taken.
                    let at = own.or_else(|| (thread == 0 && !members.is_empty()).then_some(0));
                    at.map(|at| members.swap_remove(at))
                };
                let Some(member) = next else { return };
                member.end_member(committed);
            }
        });
    }

    /// Releases the locks and the slot of a member.
    fn end_member(mut self, committed: bool) {
        self.reserved.release(&self.engine.pool);
        if self.slot.peek().last == Lsn::ZERO {
            // The member may have announced a record and then written none.
            self.slot.ended();
        }
        self.slot.state().owner.release_all();
        if self.slot.peek().handled_large {
            self.free_chains(committed);
        }
    }

    /// Returns the current position in the transaction and its members, for [`Txn::rollback_family_to`].
    pub(crate) fn savepoint_of_family(&self) -> Lsn {
        // All records of the members so far are before the log's tail, and all later ones are not.
        if self.members.is_empty() { self.savepoint() } else { Lsn(self.engine.log.tail().0 - 1) }
    }

    /// As [`Txn::rollback_to`], for the transaction and its members: undoes all records after the position `savepoint`, the
    /// latest first.
    ///
    /// # Errors
    /// As [`Txn::rollback_to`].
    pub(crate) fn rollback_family_to(&mut self, savepoint: Lsn) -> Result<(), StorageError> {
        self.slot.state().ghosts.clear();
        let mut members = self.take_members();
        let result = undo_latest_first(self, &mut members, savepoint);
        self.members = members;
        if result.is_err() {
            self.give_up();
        }
        result
    }
}

fn undo_latest_first<'db>(head: &mut Txn<'db>, members: &mut [Txn<'db>], savepoint: Lsn) -> Result<(), StorageError> {
    loop {
        let mut chains: Vec<&mut Txn<'db>> =
            std::iter::once(&mut *head).chain(members.iter_mut()).filter(|txn| txn.savepoint() > savepoint).collect();
        chains.sort_by_key(|txn| std::cmp::Reverse(txn.savepoint()));
        let next = chains.get(1).filter(|_| !is_mutant(Mutant::UndoChainByChain));
        let floor = next.map_or(savepoint, |txn| txn.savepoint());
        let Some(latest) = chains.first_mut() else { return Ok(()) };
        latest.rollback_to(floor)?;
    }
}
