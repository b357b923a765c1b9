//! Loops whose epochs run *in place*: directly on a store that can undo, with the store's own locks between them.
//!
//! [`Speculator`](crate::Speculator) keeps the reads and writes of an epoch in buffers and does them once more in order. That
//! suits a store that cannot undo. A store that can ([`InPlaceStore`]) runs an epoch once, through its ordinary operations,
//! and tells the loop which epochs have to be rolled back: those that have used what an earlier epoch needs later. Nothing is
//! done twice, and in order is only the passing of a counter.
//!
//! An epoch is *settled* when it and all earlier epochs have ended. A thread may run the next epoch before its last one is
//! settled, up to [`DEPTH`] epochs. Each of them has a *member* of its own: a part of the store that can be rolled back alone.
//! A member runs its next epoch when its last one is settled.

mod lane;
mod order;

use std::panic::resume_unwind;

use self::lane::Lane;
use self::order::{LoopEnding, LoopOrder};
use crate::error::BuildError;
use crate::pool::Pool;
use crate::trace::{LoopTrace, TracedOp};

/// Maximum number of epochs of a thread that are not settled.
pub const DEPTH: usize = 3;

/// Data on which several epochs of a loop run at the same time, and which keeps them in order with its own locks.
///
/// # Requirements
/// - An epoch reads nothing that an epoch has written which is not settled, except its own writes. It waits instead.
/// - If an earlier epoch needs a row that a later epoch has used, the store marks the later epoch as wounded, with the later
///   epochs of the same thread, ends their waits, and lets the earlier epoch wait until they are rolled back.
/// - An epoch never waits for a later one for any other reason.
pub trait InPlaceStore: Sync {
    /// Part of the store that runs one epoch after the other and can be rolled back to the begin of the last one.
    type Member: Send;
    /// Name of a member.
    type Name: Copy + Send;
    /// Error of the store or of a body.
    type Error: Send;

    /// Returns a new member for epochs of thread number `thread`. `None` if there are no more.
    ///
    /// # Errors
    /// Errors of the store. They end the loop.
    fn member(&self, thread: usize) -> Result<Option<Self::Member>, Self::Error>;

    /// Returns the name of a member.
    fn name(&self, member: &Self::Member) -> Self::Name;

    /// Takes back a member that runs no more epochs. Its last epoch is settled or rolled back.
    fn give_back(&self, member: Self::Member);

    /// Returns true if the member can run no more epochs.
    fn is_spent(&self, member: &Self::Member) -> bool;

    /// Begins the epoch with place `order` in the loop. Places begin at 1.
    fn begin(&self, member: &mut Self::Member, order: u64);

    /// Returns true if the member's epoch must be rolled back.
    fn is_wounded(&self, name: Self::Name) -> bool;

    /// Settles the member's epoch, which has ended as all earlier ones have. Returns true if [`InPlaceStore::wake`] has to
    /// follow. Called in order, by one thread at a time.
    fn settle(&self, name: Self::Name) -> bool;

    /// Lets the epochs go on that wait for the member's epoch, which is settled.
    fn wake(&self, name: Self::Name);

    /// Ends the wait of the member's epoch, which will be rolled back because the loop ends.
    fn interrupt(&self, name: Self::Name);

    /// Undoes the member's epoch. It can run again.
    ///
    /// # Errors
    /// Errors of the store. They end the loop.
    fn roll_back(&self, member: &mut Self::Member) -> Result<(), Self::Error>;

    /// Returns true if the error of a body ends the loop at once, whatever the earlier epochs do: the store itself has to be
    /// rolled back.
    fn is_fatal(&self, error: &Self::Error) -> bool;

    /// Returns the operations of the member's epoch, whose body has ended and has taken `body_ns` nanoseconds. Called in traced
    /// loops only.
    fn operations(&self, member: &Self::Member, body_ns: u64) -> Vec<TracedOp> {
        let _ = (member, body_ns);
        Vec::new()
    }
}

/// Error of a loop.
#[derive(Debug)]
pub enum InPlaceError<E> {
    /// Error of the store, or the error that a sequential run of the loop would return. The epochs before it, and what its own
    /// epoch did before the error, are in effect.
    Store(E),
    /// The store has no member for the caller's thread.
    NoMember,
}

/// Counters of loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InPlaceStats {
    /// Number of epochs that were settled.
    pub epochs: u64,
    /// Number of epochs that were rolled back to run again.
    pub repeats: u64,
}

/// Threads that run loops in place, with the thread that calls them.
pub struct InPlaceThreads {
    pool: Pool,
    threads: usize,
    stats: InPlaceStats,
    /// Traces of the loops since the last call of [`InPlaceThreads::take_traces`]; `None` if loops are not traced.
    traces: Option<Vec<LoopTrace>>,
}

impl std::fmt::Debug for InPlaceThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InPlaceThreads").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl InPlaceThreads {
    /// Starts the threads. `threads` includes the calling thread.
    ///
    /// # Errors
    /// [`BuildError::Thread`] if the operating system refuses a thread.
    pub fn new(threads: usize) -> Result<InPlaceThreads, BuildError> {
        let pool = Pool::new(threads.max(1) - 1).map_err(BuildError::Thread)?;
        Ok(InPlaceThreads { pool, threads: threads.max(1), stats: InPlaceStats::default(), traces: None })
    }

    /// Returns the number of threads, with the calling thread.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Selects whether the epochs of loops are traced, for [`simulate`](crate::simulate). Off by default.
    pub fn trace(&mut self, on: bool) {
        self.traces = on.then(Vec::new);
    }

    /// Returns the traces of the loops since the last call.
    pub fn take_traces(&mut self) -> Vec<LoopTrace> {
        self.traces.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the counters of the loops since the last call.
    pub fn take_stats(&mut self) -> InPlaceStats {
        std::mem::take(&mut self.stats)
    }

    /// Runs `work` with number 0 on the calling thread, and with the numbers of the other threads on those of them that are awake
    /// and come before the calling thread has finished. Returns when all that have begun have finished.
    ///
    /// # Panics
    /// Panics with a panic of `work`.
    pub fn run_together(&mut self, work: &(dyn Fn(usize) + Sync)) {
        self.pool.invite_awake(work);
    }

    /// Runs a loop: `body` for each item, on any thread and perhaps more than once; then `then` with each result, in order.
    /// The effects on the store are those of a sequential run. The call waits for no thread that has not begun an epoch.
    ///
    /// # Errors
    /// See [`InPlaceError`].
    ///
    /// # Panics
    /// Panics with the panic that a sequential run would have, and with a panic of `items` or `then`.
    pub fn run<S: InPlaceStore, I, R>(
        &mut self,
        store: &S,
        items: I,
        body: impl Fn(&mut S::Member, &I::Item) -> Result<R, S::Error> + Sync,
        then: impl FnMut(R) + Send,
    ) -> Result<(), InPlaceError<S::Error>>
    where
        I: Iterator<Item: Send> + Send,
        R: Send,
    {
        let order = LoopOrder::new(store, items, then, self.traces.is_some());
        self.pool.invite(&|thread| Lane::new(&order, thread).run(&body));
        let InPlaceStats { epochs, repeats } = order.stats();
        self.stats.epochs += epochs;
        self.stats.repeats += repeats;
        let (ending, trace) = order.into_ending();
        if let Some(traces) = &mut self.traces {
            traces.extend(trace);
        }
        match ending {
            None => Ok(()),
            Some(LoopEnding::Error(error)) => Err(InPlaceError::Store(error)),
            Some(LoopEnding::NoMember) => Err(InPlaceError::NoMember),
            Some(LoopEnding::Panic(panic)) => resume_unwind(panic),
        }
    }
}
