//! Interface of an engine to the driver: a session for each worker, transactions that end with a ticket, and tickets that
//! become durable.

use std::collections::BTreeMap;

use crate::workload::abort::EngineError;
use crate::workload::counters::{
    Counters, LatchCounters, LeafCounters, LogCounters, PoolCounters, SpeculationCounters,
};
use crate::workload::generate::input::Input;
use crate::workload::ops::{Ops, Read};
use crate::workload::txn::{self, Scratch, StepOrder, TxnResult};
use crate::workload::waits::Waits;

/// Log position that must be durable before the response to a terminal may be sent. Position 0 is always durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Ticket that is not less than any other. [`Session::durable`] returns it if responses need not wait.
    pub const ALL: Ticket = Ticket(u64::MAX);
}

/// An open, loaded database that the workers share.
pub trait Engine: Sync {
    /// Error of the engine.
    type Error: EngineError;
    /// Session of a worker, created and used only in the worker's thread.
    type Session<'a>: Session<Error = Self::Error>
    where
        Self: 'a;
    /// Reader for the checker. Several readers may exist at the same time, while no transaction runs.
    type Reader<'a>: Read<Error = Self::Error>
    where
        Self: 'a;

    /// Creates the session of the worker with the number `worker`.
    fn session(&self, worker: usize) -> Result<Self::Session<'_>, Self::Error>;

    /// Creates a reader for the checker.
    fn reader(&self) -> Result<Self::Reader<'_>, Self::Error>;

    /// Returns the counters since the engine was opened. Called once a second and at both ends of the measured time.
    fn figures(&self) -> EngineFigures;

    /// Returns the counters of contended leaves by table, since the engine was opened. Empty for an engine without leaves.
    fn leaves(&self) -> BTreeMap<String, LeafCounters> {
        BTreeMap::new()
    }
}

/// A worker's connection to the engine.
pub trait Session {
    /// Error of the engine.
    type Error: EngineError;
    /// A transaction. It is rolled back if it is dropped without a commit or rollback.
    type Transaction<'t>: OpenTransaction<Error = Self::Error>
    where
        Self: 't;

    /// Begins a transaction.
    fn begin(&mut self) -> Result<Self::Transaction<'_>, Self::Error>;

    /// Begins the next attempt of the session's last transaction after an abort. The transaction keeps the age of its first
    /// attempt. Because the oldest transaction always succeeds, every transaction succeeds eventually.
    fn begin_again(&mut self) -> Result<Self::Transaction<'_>, Self::Error>;

    /// Returns the ticket up to which all responses may be sent. Must be cheap, because it is called after each transaction.
    fn durable(&mut self) -> Ticket;

    /// Requests that `ticket` become durable soon; does not wait.
    fn request(&mut self, ticket: Ticket);

    /// Waits until `ticket` is durable. Returns the result of [`Self::durable`].
    fn wait_for(&mut self, ticket: Ticket) -> Result<Ticket, Self::Error>;
}

/// An open transaction. Commit and rollback return the ticket that must be durable before the response is sent. A
/// rolled-back order needs a ticket, too, because its response depends on data that other transactions have committed.
pub trait OpenTransaction: Ops {
    /// Runs the transaction of `input` except for its final commit or rollback. An engine may run its loop on several
    /// threads.
    #[inline]
    fn run(&mut self, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<Self>
    where
        Self: Sized,
    {
        txn::run(self, steps, input, scratch)
    }

    /// Commits the transaction. Does not wait for the disk.
    fn commit(self) -> Result<Ticket, Self::Error>;

    /// Rolls the transaction back.
    fn rollback(self) -> Result<Ticket, Self::Error>;
}

/// Counters of an engine since it was opened; `None` for a component that the engine does not have.
#[derive(Clone, Debug, Default)]
pub struct EngineFigures {
    /// Counters of the log; `None` without a log.
    pub log: Option<LogCounters>,
    /// True if the log is written with direct I/O, past the system's cache.
    pub log_direct: Option<bool>,
    /// Counters of the buffer pool; `None` without a buffer pool.
    pub pool: Option<PoolCounters>,
    /// Counters of superlatches since the engine was opened; `None` for other latches.
    pub latches: Option<LatchCounters>,
    /// Counters of loops on several threads; `None` if loops run on one thread only.
    pub speculation: Option<SpeculationCounters>,
    /// Waits; `None` for an engine that does not count them.
    pub waits: Option<Waits>,
}

impl EngineFigures {
    /// Returns the difference from the earlier counters `before`. The counters of superlatches are not subtracted.
    pub fn since(&self, before: &EngineFigures) -> EngineFigures {
        EngineFigures {
            log: self.log.zip(before.log).map(|(now, before)| now.since(&before)),
            log_direct: self.log_direct,
            pool: self.pool.zip(before.pool).map(|(now, before)| now.since(&before)),
            latches: self.latches,
            speculation: self.speculation.zip(before.speculation).map(|(now, before)| now.since(&before)),
            waits: self.waits.as_ref().zip(before.waits.as_ref()).map(|(now, before)| now.since(before)),
        }
    }
}
