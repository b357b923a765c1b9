//! What the driver needs of an engine: a session for each worker, transactions that end in a ticket, and tickets that
//! become durable.

use crate::workload::abort::EngineError;
use crate::workload::counters::{Counters, LatchCounters, LogCounters, PoolCounters, SpeculationCounters};
use crate::workload::generate::input::Input;
use crate::workload::ops::{Ops, Read};
use crate::workload::txn::{self, Scratch, StepOrder, TxnResult};

/// Position in the log at which an answer may leave the engine. 0 is always durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(pub u64);

impl Ticket {
    /// After every ticket: what [`Session::durable`] says when answers need not wait.
    pub const ALL: Ticket = Ticket(u64::MAX);
}

/// A database that is open, loaded, and shared by the workers.
pub trait Engine: Sync {
    /// What can go wrong.
    type Error: EngineError;
    /// A worker's own part; made in the worker's thread and used only there.
    type Session<'a>: Session<Error = Self::Error>
    where
        Self: 'a;
    /// Reads everything, while no transaction runs, for the checker; several at once.
    type Reader<'a>: Read<Error = Self::Error>
    where
        Self: 'a;

    /// Makes the session of worker number `worker`.
    fn session(&self, worker: usize) -> Result<Self::Session<'_>, Self::Error>;

    /// Makes a reader.
    fn reader(&self) -> Result<Self::Reader<'_>, Self::Error>;

    /// Counters since the engine was opened. Called once a second and at both ends of the measured time.
    fn figures(&self) -> EngineFigures;
}

/// A worker's connection to the engine.
pub trait Session {
    /// What can go wrong.
    type Error: EngineError;
    /// A transaction; dropped without an end it is rolled back.
    type Transaction<'t>: OpenTransaction<Error = Self::Error>
    where
        Self: 't;

    /// Starts a transaction.
    fn begin(&mut self) -> Result<Self::Transaction<'_>, Self::Error>;

    /// Starts the session's last transaction, a victim, again. It counts as begun when it first was: so the oldest of all
    /// gets through, and every victim sooner or later.
    fn begin_again(&mut self) -> Result<Self::Transaction<'_>, Self::Error>;

    /// Everything at or below this ticket may be acknowledged. Cheap: called after each transaction.
    fn durable(&mut self) -> Ticket;

    /// Asks that `ticket` become durable soon, and does not wait.
    fn request(&mut self, ticket: Ticket);

    /// Waits until `ticket` may be acknowledged; returns what [`Self::durable`] would.
    fn wait_for(&mut self, ticket: Ticket) -> Result<Ticket, Self::Error>;
}

/// The ends of a transaction. Both give the ticket at which the answer may leave: a rolled-back order's answer, too, says
/// something about what others committed.
pub trait OpenTransaction: Ops {
    /// Runs the transaction that `input` asks for up to its end. An engine may run its loops ahead of it.
    #[inline]
    fn run(&mut self, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<Self>
    where
        Self: Sized,
    {
        txn::run(self, steps, input, scratch)
    }

    /// Commits. Does not wait for the disk.
    fn commit(self) -> Result<Ticket, Self::Error>;

    /// Undoes everything.
    fn rollback(self) -> Result<Ticket, Self::Error>;
}

/// What an engine counted since it was opened; none where it has no such part.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineFigures {
    /// Counters of the log.
    pub log: Option<LogCounters>,
    /// Whether the log is written past the system's cache.
    pub log_direct: Option<bool>,
    /// Counters of the buffer pool.
    pub pool: Option<PoolCounters>,
    /// Since the engine was opened; none but with superlatches.
    pub latches: Option<LatchCounters>,
    /// Counters of speculation; none where no loop runs ahead of its transaction.
    pub speculation: Option<SpeculationCounters>,
}

impl EngineFigures {
    /// What was counted since these were `before`.
    pub fn since(&self, before: &EngineFigures) -> EngineFigures {
        EngineFigures {
            log: self.log.zip(before.log).map(|(now, before)| now.since(&before)),
            log_direct: self.log_direct,
            pool: self.pool.zip(before.pool).map(|(now, before)| now.since(&before)),
            latches: self.latches,
            speculation: self.speculation.zip(before.speculation).map(|(now, before)| now.since(&before)),
        }
    }
}
