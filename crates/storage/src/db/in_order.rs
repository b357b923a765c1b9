//! Loops of a transaction that run on several threads, with the result of a loop on one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use speculate::{InPlaceError, InPlaceStore, TracedOp};

use super::database::Database;
use super::loop_measurement::operations_of;
use super::transaction::Transaction;
use crate::base::error::{StorageError, TxnError};
use crate::base::ids::{Lsn, SlotId};
use crate::base::sync::plain::{AtomicUsize, Ordering};
use crate::txn::family::FamilyHead;
use crate::txn::transaction::Txn;

/// Reason for which the loop of a transaction ends before its last item.
enum Failure<E> {
    Body(E),
    /// The transaction is a deadlock victim: it waited in this table.
    Victim(Arc<str>),
    /// The transaction can only be rolled back.
    Broken(TxnError),
}

/// A part of a transaction that runs epochs.
struct LoopMember<'db> {
    tx: Transaction<'db>,
    slot: SlotId,
    /// Position of the member's log chain at which its epoch began.
    mark: Lsn,
    /// True if the epoch has been rolled back since it began.
    was_rolled_back: bool,
}

/// The data of a loop, for the threads that run it.
struct Loop<'t, 'db, E> {
    db: &'db Database,
    head: FamilyHead,
    /// The transaction, which runs no statements meanwhile.
    txn: Mutex<&'t mut Txn<'db>>,
    /// Members without a thread.
    members: Mutex<Vec<Txn<'db>>>,
    /// Number of threads that roll an epoch back, or have panicked in a rollback.
    in_rollback: AtomicUsize,
    failure: std::marker::PhantomData<fn() -> E>,
}

impl<'db, E: Send> InPlaceStore for Loop<'_, 'db, E> {
    type Member = LoopMember<'db>;
    type Name = SlotId;
    type Error = Failure<E>;

    fn member(&self, thread: usize) -> Result<Option<LoopMember<'db>>, Failure<E>> {
        let engine = &*self.db.engine;
        let idle = {
            let mut members = self.members.lock();
            members.iter().position(|member| !member.is_spent()).map(|at| members.swap_remove(at))
        };
        let Some(mut txn) = idle.or_else(|| engine.begin_member(self.head)) else { return Ok(None) };
        txn.join(self.head, thread);
        let slot = txn.slot.peek().id;
        Ok(Some(LoopMember { tx: Transaction::new(self.db, txn), slot, mark: Lsn::ZERO, was_rolled_back: false }))
    }

    fn name(&self, member: &LoopMember<'db>) -> SlotId {
        member.slot
    }

    fn give_back(&self, member: LoopMember<'db>) {
        let mut txn = member.tx.into_txn();
        txn.end_epochs();
        self.members.lock().push(txn);
    }

    fn is_spent(&self, member: &LoopMember<'db>) -> bool {
        member.tx.txn.borrow().is_spent()
    }

    fn begin(&self, member: &mut LoopMember<'db>, order: u64) {
        member.tx.savepoints.numbers.clear();
        let txn = member.tx.txn.get_mut();
        member.mark = txn.savepoint();
        member.was_rolled_back = false;
        txn.escalate_settled(self.head.slot, &self.txn);
        txn.begin_epoch(order);
    }

    fn is_wounded(&self, slot: SlotId) -> bool {
        self.db.engine.locks.is_wounded(slot)
    }

    fn settle(&self, slot: SlotId) -> bool {
        self.db.engine.locks.settle(slot)
    }

    fn wake(&self, slot: SlotId) {
        self.db.engine.locks.grant_kin(slot);
    }

    fn interrupt(&self, slot: SlotId) {
        self.db.engine.locks.wound(slot);
    }

    fn roll_back(&self, member: &mut LoopMember<'db>) -> Result<(), Failure<E>> {
        member.tx.savepoints.numbers.clear();
        member.was_rolled_back = true;
        self.in_rollback.fetch_add(1, Ordering::Relaxed);
        let rolled_back = member.tx.txn.get_mut().roll_back_epoch(member.mark);
        self.in_rollback.fetch_sub(1, Ordering::Relaxed);
        rolled_back.map_err(|error| Failure::Broken(error.into()))
    }

    fn is_fatal(&self, error: &Failure<E>) -> bool {
        !matches!(error, Failure::Body(_))
    }

    fn operations(&self, member: &LoopMember<'db>, body_ns: u64) -> Vec<TracedOp> {
        operations_of(member.tx.txn.borrow().locks_of_epoch().into_iter(), body_ns)
    }
}

impl<'db> Transaction<'db> {
    /// Runs a loop of the transaction on several threads. The effects are those of
    ///
    /// ```text
    /// for item in items { then(body(self, &item)?) }
    /// ```
    ///
    /// `body` runs on any thread, for several items at the same time, with a transaction that stands for this one. It may run
    /// several times for an item, so it has no effects outside of the transaction; `then` gets each result once, in order.
    /// An iteration that has used a row which an earlier iteration needs is rolled back and runs again. An iteration waits
    /// for rows that an earlier one has written until all iterations up to that one have ended. So a loop gains if its
    /// iterations use different rows, and take several microseconds each. Rows that each iteration writes, for example a
    /// total, belong into `then`, or into the transaction after the loop.
    ///
    /// Statements of `body` have the isolation level `Serializable`. An error that a statement returns to `body` must be
    /// returned by `body`. A statement of an iteration that is rolled back fails with [`TxnError::Repeated`]. `body` cannot
    /// lock whole tables ([`TxnError::LockInLoop`]); the transaction can before the loop.
    ///
    /// The number of threads is [`Options::loop_threads`](crate::Options::loop_threads). A loop inside of `body` runs on one
    /// thread. A thread that other programs keep
    /// from running delays the loop by at most the iteration that it has begun. (Method: Colohan et al., *Incrementally
    /// Parallelizing Database Transactions with Thread-Level Speculation*, TOCS 2008, with the engine's locks.)
    ///
    /// ```
    /// # use storage::{Database, Options, Table, TxnError};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-in-order-{}", std::process::id()));
    /// const LINES: Table<u64, String> = Table::new("lines");
    /// const LENGTHS: Table<u64, u64> = Table::new("lengths");
    /// let db = Database::open(&directory, Options::new())?;
    /// let mut tx = db.begin()?;
    /// let mut total = 0;
    /// tx.in_order(
    ///     (0..100_u64).map(|n| (n, "x".repeat(n as usize))),
    ///     |tx, (number, text)| {
    ///         tx.insert(&LINES, number, text)?;
    ///         tx.insert(&LENGTHS, number, &(text.len() as u64))?;
    ///         Ok::<_, TxnError>(text.len())
    ///     },
    ///     |length| total += length,
    /// )?;
    /// tx.commit()?;
    /// assert_eq!(total, 4950);
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first error of `body` in the order of the loop. The iterations before it, and what its own iteration did before the
    /// error, are in effect. Errors after which the transaction can only be rolled back end the loop at once:
    /// [`TxnError::Deadlock`], and errors of an undo. [`TxnError::Storage`] if no transaction can be begun for the calling
    /// thread, or if a thread cannot be started.
    ///
    /// # Panics
    /// Panics with the first panic of `body` in the order of the loop, and with a panic of `items` or `then`.
    pub fn in_order<I, R, E>(
        &mut self,
        items: I,
        body: impl for<'m> Fn(&mut Transaction<'m>, &I::Item) -> Result<R, E> + Sync,
        then: impl FnMut(R) + Send,
    ) -> Result<(), E>
    where
        I: IntoIterator<IntoIter: Send, Item: Send>,
        R: Send,
        E: From<TxnError> + Send,
    {
        self.check_open()?;
        let db = self.db;
        if !db.loops.run_epochs() || self.txn.get_mut().is_in_loop() {
            let mut then = then;
            return items.into_iter().try_for_each(|item| {
                then(body(self, &item)?);
                Ok(())
            });
        }
        let mut threads = db.loops.borrow().map_err(refused_thread)?;
        let txn = self.txn.get_mut();
        let head = txn.found_family();
        let members = Mutex::new(txn.take_members());
        let in_rollback = AtomicUsize::new(0);
        let in_loop: Loop<'_, 'db, E> =
            Loop { db, head, txn: Mutex::new(txn), members, in_rollback, failure: std::marker::PhantomData };
        let run = || threads.run(&in_loop, items.into_iter(), |member, item| run_body(&body, member, item), then);
        let result = catch_unwind(AssertUnwindSafe(run));
        let txn = in_loop.txn.into_inner();
        txn.return_members(in_loop.members.into_inner());
        if in_loop.in_rollback.into_inner() != 0 {
            txn.give_up();
        }
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        db.loops.give_back(threads);
        match result {
            Ok(()) => Ok(()),
            Err(InPlaceError::Store(Failure::Body(error))) => Err(error),
            Err(InPlaceError::Store(Failure::Victim(table))) => {
                Ok(self.record_victim(Err(TxnError::Deadlock { table }))?)
            }
            Err(InPlaceError::Store(Failure::Broken(error))) => {
                self.txn.get_mut().give_up();
                Err(error.into())
            }
            Err(InPlaceError::NoMember) => Err(TxnError::from(db.engine.too_many()).into()),
        }
    }
}

/// Runs the body of an iteration.
fn run_body<'db, T, R, E>(
    body: &impl for<'m> Fn(&mut Transaction<'m>, &T) -> Result<R, E>,
    member: &mut LoopMember<'db>,
    item: &T,
) -> Result<R, Failure<E>> {
    let result = body(&mut member.tx, item);
    if let Some(table) = member.tx.victim() {
        return Err(Failure::Victim(table));
    }
    if member.tx.txn.get_mut().is_broken() {
        return Err(Failure::Broken(TxnError::Ended));
    }
    let db = member.tx.db;
    if !member.was_rolled_back && db.loops.measured.injects(|| member.tx.txn.get_mut().locks_of_epoch().len()) {
        db.engine.locks.wound(member.slot);
    }
    result.map_err(Failure::Body)
}

fn refused_thread(error: speculate::BuildError) -> TxnError {
    let source = match error {
        speculate::BuildError::Thread(source) => source,
        other => std::io::Error::other(other.to_string()),
    };
    TxnError::Storage(StorageError::LoopThread { source: Arc::new(source) })
}
