//! A worker's terminals: which are ready, which wait for an answer, and what is counted. The same whether transactions run one
//! after the other or as a team.

use std::collections::VecDeque;

use super::ack::{Ack, Outbox, Sink};
use super::admission::{QUEUE_BYTES, Ready};
use super::measure::Stats;
use super::terminal::Terminal;
use super::{Board, Clock, Control, Phase, Share};
use crate::workload::abort::Abort;
use crate::workload::engine::{Session, Ticket};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::{Input, InputSpace};
use crate::workload::schema::keys::HistoryKey;
use crate::workload::txn::Verdict;

/// An answer that waits for its ticket.
struct Pending {
    ticket: Ticket,
    terminal: u32,
    kind: Kind,
    verdict: Verdict,
    began_ns: u64,
}

/// A terminal's transaction, to be run.
pub struct Job {
    terminal: u32,
    /// The terminal's home.
    pub warehouse: u32,
    began_ns: u64,
    pub input: Input,
    /// Where acknowledgements are wanted, the number that this one gets.
    pub number: Option<HistoryKey>,
}

/// How a job ended.
pub struct JobEnd {
    pub ticket: Ticket,
    pub verdict: Verdict,
    /// Districts that had nothing to deliver.
    pub skipped: usize,
}

/// What a worker may do next.
#[allow(clippy::large_enum_variant, reason = "nearly always a job, and a box would be an allocation each")]
pub enum Next {
    /// Run this.
    Run(Job),
    /// Wait until this ticket is durable, then [`Desk::durable_to`]: no terminal is ready.
    Await(Ticket),
    /// Wait until those under way have ended: no terminal is ready, or a phase begins.
    Idle,
    /// The run is over.
    Done,
}

/// See the module's documentation.
pub struct Desk<'a, R> {
    terminals: Vec<Terminal>,
    ready: R,
    /// Answers not given yet, in the order of their tickets.
    pending: VecDeque<Pending>,
    /// Jobs given out and not ended.
    under_way: usize,
    /// Everything up to here may be answered, as last heard.
    durable: Ticket,
    /// The last ticket that was asked for.
    requested: Ticket,
    stats: Stats,
    acks: Outbox<'a>,
    /// Transactions that may still be started while measuring.
    quota: Option<u64>,
    measuring_since: Option<u64>,
    /// The clock, as last read.
    now: u64,
    world: &'a InputSpace,
    control: &'a Control,
    board: &'a Board,
    clock: Clock,
}

/// Bytes that a desk takes for each terminal, beside the terminal: its places among those that are ready and among the answers.
pub(super) fn place_bytes() -> usize {
    size_of::<Pending>() + QUEUE_BYTES
}

impl<'a, R: Ready> Desk<'a, R> {
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
        let mut desk = Desk {
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
        for (index, terminal) in desk.terminals.iter_mut().enumerate() {
            terminal.ready_since = desk.now;
            desk.ready.push(index as u32, terminal);
        }
        desk
    }

    /// What to do now. Answers that may be given are given on the way.
    #[inline]
    pub fn next<S: Session>(&mut self, session: &mut S) -> Next {
        match self.control.phase() {
            Phase::Warmup => {}
            Phase::Measure if self.measuring_since.is_some() => {}
            Phase::Measure => {
                // What was begun before is answered before, and not counted.
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
        // One reading of the clock at each boundary: the end of a transaction is the begin of the next. So making the
        // input counts as part of it.
        let began_ns = self.now;
        let input = self.terminals[index as usize].next(self.world, &self.clock, began_ns);
        let number = self.acks.is_wanted().then(|| self.terminals[index as usize].last());
        let warehouse = self.terminals[index as usize].warehouse();
        Next::Run(Job { terminal: index, warehouse, began_ns, input, number })
    }

    /// What to wait for until all that was begun is answered; none if it is.
    fn unanswered(&self) -> Option<Next> {
        if self.under_way > 0 {
            return Some(Next::Idle);
        }
        self.pending.back().map(|last| Next::Await(last.ticket))
    }

    /// A job has run to its end: its answer leaves, now or when it is durable.
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
            // Transactions of a team may end in another order than they got their tickets.
            let at = self.pending.iter().rposition(|earlier| earlier.ticket <= ticket).map_or(0, |at| at + 1);
            self.pending.insert(at, pending);
            self.ask(session, ticket);
        }
    }

    /// Asks for a flush when half the terminals wait for one: the other half keeps the worker busy meanwhile. Asked for
    /// at each commit, flushes would be as many as the disk can do, and their work is taken from the workers' cores.
    #[inline]
    fn ask<S: Session>(&mut self, session: &mut S, ticket: Ticket) {
        if self.requested <= self.durable && self.pending.len() >= self.ready.len() + self.under_way {
            self.requested = ticket;
            session.request(ticket);
        }
    }

    /// A wait has ended: answers up to this ticket may be given.
    pub fn durable_to(&mut self, ticket: Ticket) {
        self.durable = self.durable.max(ticket);
        self.now = self.clock.now_ns();
        self.answer();
    }

    /// Gives the answers that may be given.
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

    /// Whether what happens now counts.
    pub fn is_measuring(&self) -> bool {
        self.measuring_since.is_some()
    }

    /// Transactions completed while measuring.
    pub fn completed(&self) -> u64 {
        self.stats.completed()
    }

    /// A transaction was a victim and will be run again.
    pub fn aborted(&mut self, abort: Abort) {
        self.stats.aborted(abort);
        Board::add(&self.board.aborted, 1);
    }

    /// A job failed for good: the run is over for all.
    pub fn failed(&mut self) {
        self.under_way -= 1;
        self.control.set(Phase::Stop);
    }

    /// Everything counted while measuring, and whether acknowledgements could not be written; the run is then over for
    /// all.
    pub fn close(mut self) -> Share {
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
            // Stopped during the warm-up: nothing of it counts.
            None => self.stats = Stats::new(),
        }
        Share { stats: self.stats, teams: None, counted: None, stacks: None, failure }
    }
}
