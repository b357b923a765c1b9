//! State of a worker's terminals: ready terminals, pending responses, and counts. Used by workers that run one transaction
//! at a time and by workers with teams.

use std::collections::VecDeque;

use super::ack::{Ack, Outbox, Sink};
use super::admission::{QUEUE_BYTES, Ready};
use super::measure::Stats;
use super::terminal::Terminal;
use super::{Board, Clock, Control, Phase, WorkerResult};
use crate::workload::abort::Abort;
use crate::workload::engine::{Session, Ticket};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::{Input, InputSpace};
use crate::workload::schema::keys::HistoryKey;
use crate::workload::txn::Verdict;

/// A response that is sent once its ticket is durable.
struct Pending {
    ticket: Ticket,
    terminal: u32,
    kind: Kind,
    verdict: Verdict,
    began_ns: u64,
}

/// A transaction of a terminal, ready to run.
pub struct Job {
    terminal: u32,
    /// Home warehouse of the terminal.
    pub warehouse: u32,
    began_ns: u64,
    pub input: Input,
    /// Number of the transaction, to be stored in the database; `None` if acknowledgements are disabled.
    pub number: Option<HistoryKey>,
}

/// Result of a job.
pub struct JobEnd {
    pub ticket: Ticket,
    pub verdict: Verdict,
    /// Number of districts without an order to deliver.
    pub skipped: usize,
}

/// Next action of a worker.
#[allow(clippy::large_enum_variant, reason = "nearly always a job, and a box would be an allocation each")]
pub enum Next {
    /// Run this job.
    Run(Job),
    /// Wait until this ticket is durable, then call [`WorkerTerminals::durable_to`]. No terminal is ready.
    Await(Ticket),
    /// Wait until a transaction in progress has ended: no terminal is ready, or a phase begins.
    Idle,
    /// The run is over.
    Done,
}

/// State of a worker's terminals; see the module's documentation.
pub struct WorkerTerminals<'a, R> {
    terminals: Vec<Terminal>,
    ready: R,
    /// Responses that are not sent yet, in ticket order.
    pending: VecDeque<Pending>,
    /// Number of jobs in progress.
    under_way: usize,
    /// Highest ticket known to be durable. Responses up to it may be sent.
    durable: Ticket,
    /// Last ticket for which a log flush was requested.
    requested: Ticket,
    stats: Stats,
    acks: Outbox<'a>,
    /// Number of transactions that may still start during the measurement; `None` without a limit.
    quota: Option<u64>,
    measuring_since: Option<u64>,
    /// Last reading of the run's clock, in nanoseconds.
    now: u64,
    world: &'a InputSpace,
    control: &'a Control,
    board: &'a Board,
    clock: Clock,
}

/// Returns the number of bytes of a terminal's entries in the queues of ready terminals and of responses. Excludes the
/// terminal itself.
pub(super) fn place_bytes() -> usize {
    size_of::<Pending>() + QUEUE_BYTES
}

impl<'a, R: Ready> WorkerTerminals<'a, R> {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        ready: R,
        terminals: Vec<Terminal>,
        acks: Option<&'a Sink>,
        quota: Option<u64>,
        world: &'a InputSpace,
        control: &'a Control,
        board: &'a Board,
        clock: Clock,
    ) -> Self {
        let n = terminals.len();
        let mut worker = WorkerTerminals {
            terminals,
            ready,
            pending: VecDeque::with_capacity(n),
            under_way: 0,
            durable: Ticket::default(),
            requested: Ticket::default(),
            stats: Stats::new(),
            acks: Outbox::new(acks),
            quota,
            measuring_since: None,
            now: clock.now_ns(),
            world,
            control,
            board,
            clock,
        };
        for (index, terminal) in worker.terminals.iter_mut().enumerate() {
            terminal.ready_since = worker.now;
            worker.ready.push(index as u32, terminal);
        }
        worker
    }

    /// Returns the next action. Sends the responses that have become durable.
    #[inline]
    pub fn next<S: Session>(&mut self, session: &mut S) -> Next {
        match self.control.phase() {
            Phase::Warmup => {}
            Phase::Measure if self.measuring_since.is_some() => {}
            Phase::Measure => {
                // Transactions that began in the warm-up end before the measurement and are not counted.
                if let Some(wait) = self.unanswered() {
                    return wait;
                }
                self.stats = Stats::new();
                self.now = self.clock.now_ns();
                self.terminals.iter_mut().for_each(|terminal| terminal.ready_since = self.now);
                self.measuring_since = Some(self.now);
            }
            Phase::Stop => return self.unanswered().unwrap_or(Next::Done),
        }
        if self.acks.failure().is_some() {
            return if self.under_way > 0 { Next::Idle } else { Next::Done };
        }
        if self.measuring_since.is_some() && self.quota == Some(0) {
            return self.unanswered().unwrap_or(Next::Done);
        }
        if !self.pending.is_empty() {
            self.durable = session.durable();
            self.answer();
        }
        let Some(index) = self.ready.pop() else {
            return match self.pending.front() {
                Some(first) => Next::Await(first.ticket),
                None if self.under_way > 0 => Next::Idle,
                None => Next::Done,
            };
        };
        if let (Some(_), Some(left)) = (self.measuring_since, &mut self.quota) {
            *left -= 1;
        }
        self.under_way += 1;
        // The clock is read once at each boundary: the end of a transaction is the start of the next. The generation of the
        // input therefore counts as part of the transaction.
        let began_ns = self.now;
        let input = self.terminals[index as usize].next(self.world, &self.clock, began_ns);
        let number = self.acks.is_wanted().then(|| self.terminals[index as usize].last());
        let warehouse = self.terminals[index as usize].warehouse();
        Next::Run(Job { terminal: index, warehouse, began_ns, input, number })
    }

    /// Returns the next action while started transactions have not received their responses. `None` if all responses are
    /// sent.
    fn unanswered(&self) -> Option<Next> {
        if self.under_way > 0 {
            return Some(Next::Idle);
        }
        self.pending.back().map(|last| Next::Await(last.ticket))
    }

    /// Records the result of a job. Sends the response now if the ticket is durable, otherwise once it is durable.
    #[inline]
    pub fn ended<S: Session>(&mut self, session: &mut S, job: &Job, end: &JobEnd) {
        self.under_way -= 1;
        self.ready.ended(&self.terminals[job.terminal as usize]);
        self.now = self.clock.now_ns();
        self.stats.ran(&job.input, end.verdict == Verdict::Rollback, end.skipped, self.now - job.began_ns);
        let ticket = end.ticket;
        if self.pending.is_empty() && ticket > self.durable {
            self.durable = session.durable();
        }
        let (terminal, kind, began_ns) = (job.terminal, job.input.kind(), job.began_ns);
        let pending = Pending { ticket, terminal, kind, verdict: end.verdict, began_ns };
        if self.pending.is_empty() && ticket <= self.durable {
            self.acknowledge(&pending);
            self.acks.flush();
        } else {
            // Transactions of a team may end in an order that differs from the order of their tickets.
            let at = self.pending.iter().rposition(|earlier| earlier.ticket <= ticket).map_or(0, |at| at + 1);
            self.pending.insert(at, pending);
            self.ask(session, ticket);
        }
    }

    /// Requests a log flush once at least half of the terminals wait for a flush. The other half keeps the worker busy
    /// meanwhile. A request per commit would cause as many flushes as the disk can perform, and flushes take CPU time from
    /// the cores of the workers.
    #[inline]
    fn ask<S: Session>(&mut self, session: &mut S, ticket: Ticket) {
        if self.requested <= self.durable && self.pending.len() >= self.ready.len() + self.under_way {
            self.requested = ticket;
            session.request(ticket);
        }
    }

    /// Sends the responses up to `ticket`, which has become durable.
    pub fn durable_to(&mut self, ticket: Ticket) {
        self.durable = self.durable.max(ticket);
        self.now = self.clock.now_ns();
        self.answer();
    }

    /// Sends the responses whose tickets are durable.
    fn answer(&mut self) {
        while self.pending.front().is_some_and(|first| first.ticket <= self.durable) {
            if let Some(pending) = self.pending.pop_front() {
                self.acknowledge(&pending);
            }
        }
        self.acks.flush();
    }

    #[inline]
    fn acknowledge(&mut self, pending: &Pending) {
        let terminal = &mut self.terminals[pending.terminal as usize];
        self.stats.acknowledged(pending.kind, self.now - pending.began_ns, self.now - terminal.ready_since);
        self.board.times.add(self.now - pending.began_ns);
        terminal.ready_since = self.now;
        self.acks.add(|| Ack::of(terminal.last(), pending.kind, pending.verdict));
        self.ready.push(pending.terminal, terminal);
        Board::add(&self.board.completed, 1);
    }

    /// Returns true if the measurement has begun.
    pub fn is_measuring(&self) -> bool {
        self.measuring_since.is_some()
    }

    /// Returns the number of transactions completed during the measurement.
    pub fn completed(&self) -> u64 {
        self.stats.completed()
    }

    /// Counts an aborted attempt. The transaction is retried.
    pub fn aborted(&mut self, abort: Abort) {
        self.stats.aborted(abort);
        Board::add(&self.board.aborted, 1);
    }

    /// Stops the run for all workers after a job has failed permanently.
    pub fn failed(&mut self) {
        self.under_way -= 1;
        self.control.set(Phase::Stop);
    }

    /// Returns the counts of the measurement, with an error if acknowledgements could not be written. Such an error stops
    /// the run for all workers.
    pub fn close(mut self) -> WorkerResult {
        let failure = self.acks.failure().map(|error| {
            self.control.set(Phase::Stop);
            format!("stdout: acknowledgements cannot be written: {error}")
        });
        match self.measuring_since {
            Some(from) => {
                for pending in &self.pending {
                    self.stats.unanswered(pending.kind, pending.verdict == Verdict::Rollback);
                }
                self.stats.measured(from, self.now);
            }
            // The run stopped in the warm-up, which is not counted.
            None => self.stats = Stats::new(),
        }
        WorkerResult { stats: self.stats, teams: None, counted: None, stacks: None, failure }
    }
}
