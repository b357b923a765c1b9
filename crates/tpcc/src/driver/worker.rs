//! A worker: serves its terminals one after the other and hands out answers as their tickets become durable.

use std::collections::VecDeque;

use super::measure::Stats;
use super::terminal::Terminal;
use super::{Board, Clock, Control, Phase};
use crate::ack::{self, Ack, Outbox, Sink};
use crate::engine::{Session, Ticket, Transaction};
use crate::generate::deck::Kind;
use crate::generate::input::{Input, World};
use crate::schema::keys::HistoryKey;
use crate::txn::{self, Failure, Scratch, Steps, Verdict};

/// An answer that waits for its ticket.
struct Pending {
    ticket: Ticket,
    terminal: u32,
    kind: Kind,
    verdict: Verdict,
    began_ns: u64,
}

/// One thread's share of a run. Nothing in its loop allocates, and nothing is written that another worker writes.
pub(super) struct Worker<'a, S> {
    session: S,
    terminals: Vec<Terminal>,
    /// Terminals that wait for this worker, by index, longest first.
    ready: VecDeque<u32>,
    /// Answers not given yet, in the order of their tickets.
    pending: VecDeque<Pending>,
    /// Everything up to here may be answered, as last heard.
    durable: Ticket,
    /// The last ticket that was asked for.
    requested: Ticket,
    scratch: Scratch,
    stats: Stats,
    acks: Outbox<'a>,
    /// Transactions that may still be started while measuring.
    quota: Option<u64>,
    steps: Steps,
    world: &'a World,
    control: &'a Control,
    board: &'a Board,
    clock: Clock,
}

/// After this many victims in a row a transaction lets others go first.
const PATIENCE: u32 = 3;

impl<'a, S: Session> Worker<'a, S> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        session: S,
        terminals: Vec<Terminal>,
        acks: Option<&'a Sink>,
        quota: Option<u64>,
        steps: Steps,
        world: &'a World,
        control: &'a Control,
        board: &'a Board,
        clock: Clock,
    ) -> Self {
        let n = terminals.len();
        Worker {
            session,
            terminals,
            ready: (0..n as u32).collect(),
            pending: VecDeque::with_capacity(n),
            durable: Ticket::default(),
            requested: Ticket::default(),
            scratch: Scratch::default(),
            stats: Stats::new(),
            acks: Outbox::new(acks),
            quota,
            steps,
            world,
            control,
            board,
            clock,
        }
    }

    /// Serves until the run stops. A failure stops the run for all.
    pub(super) fn run(mut self) -> Result<Stats, String> {
        let failure = match (self.serve(), self.acks.failure()) {
            (Ok(()), None) => return Ok(self.stats),
            (Ok(()), Some(error)) => format!("stdout: acknowledgements cannot be written: {error}"),
            (Err(failure), _) => failure.to_string(),
        };
        self.control.set(Phase::Stop);
        Err(failure)
    }

    fn serve(&mut self) -> Result<(), Failure<S::Error>> {
        if self.terminals.is_empty() {
            return Ok(());
        }
        // One reading of the clock at each boundary: the end of a transaction is the begin of the next. So making the
        // input counts as part of it.
        let mut now = self.clock.now_ns();
        self.terminals.iter_mut().for_each(|terminal| terminal.ready_since = now);
        let mut measuring_since = None;
        loop {
            match self.control.phase() {
                Phase::Warmup => {}
                Phase::Measure if measuring_since.is_some() => {}
                Phase::Measure => {
                    // What was begun before is answered before, and not counted.
                    now = self.answer_all(now)?;
                    self.stats = Stats::new();
                    self.terminals.iter_mut().for_each(|terminal| terminal.ready_since = now);
                    measuring_since = Some(now);
                }
                Phase::Stop => break,
            }
            if let (Some(_), Some(left)) = (measuring_since, &mut self.quota) {
                match left.checked_sub(1) {
                    Some(less) => *left = less,
                    None => break,
                }
            }
            if !self.pending.is_empty() {
                self.durable = self.session.durable();
                self.answer(now);
            }
            if self.acks.failure().is_some() {
                return Ok(());
            }
            while self.ready.is_empty() {
                let Some(first) = self.pending.front() else { break };
                self.durable = self.session.wait_for(first.ticket)?;
                now = self.clock.now_ns();
                self.answer(now);
            }
            let Some(index) = self.ready.pop_front() else { break };
            now = self.serve_one(index, now)?;
        }
        now = self.answer_all(now)?;
        if let Some(from) = measuring_since {
            self.stats.measured(from, now);
        } else {
            // Stopped during the warm-up: nothing of it counts.
            self.stats = Stats::new();
        }
        Ok(())
    }

    /// Runs a terminal's next transaction to its end; returns the time then.
    #[inline]
    fn serve_one(&mut self, index: u32, began_ns: u64) -> Result<u64, Failure<S::Error>> {
        let input = self.terminals[index as usize].next(self.world, &self.clock, began_ns);
        let (verdict, ticket) = self.execute(&input, self.terminals[index as usize].last())?;
        let now = self.clock.now_ns();
        let kind = input.kind();
        let skipped = if kind == Kind::Delivery { self.scratch.out.delivery.skipped() } else { 0 };
        self.stats.ran(&input, verdict == Verdict::Rollback, skipped);
        if self.pending.is_empty() && ticket > self.durable {
            self.durable = self.session.durable();
        }
        let pending = Pending { ticket, terminal: index, kind, verdict, began_ns };
        if self.pending.is_empty() && ticket <= self.durable {
            self.acknowledge(&pending, now);
            self.acks.flush();
        } else {
            self.pending.push_back(pending);
            self.ask(ticket);
        }
        Ok(now)
    }

    /// Asks for a flush when half the terminals wait for one: the other half keeps the worker busy meanwhile. Asked for
    /// at each commit, flushes would be as many as the disk can do, and their work is taken from the workers' cores.
    #[inline]
    fn ask(&mut self, ticket: Ticket) {
        if self.requested <= self.durable && self.pending.len() >= self.ready.len() {
            self.requested = ticket;
            self.session.request(ticket);
        }
    }

    /// Runs one transaction, again and again with the same input while it is a victim.
    #[inline]
    fn execute(&mut self, input: &Input, number: HistoryKey) -> Result<(Verdict, Ticket), Failure<S::Error>> {
        let mut tries = 0;
        loop {
            let failure = match self.attempt(input, number) {
                Ok(end) => return Ok(end),
                Err(failure) => failure,
            };
            let Some(abort) = failure.abort() else { return Err(failure) };
            self.stats.aborted(abort);
            Board::add(&self.board.aborted, 1);
            tries += 1;
            if tries > PATIENCE {
                std::thread::yield_now();
            }
        }
    }

    #[inline]
    fn attempt(&mut self, input: &Input, number: HistoryKey) -> Result<(Verdict, Ticket), Failure<S::Error>> {
        let mut transaction = self.session.begin()?;
        let verdict = txn::run(&mut transaction, self.steps, input, &mut self.scratch)?;
        if self.acks.is_wanted() && verdict == Verdict::Commit && input.kind().writes() {
            ack::write(&mut transaction, number)?;
        }
        let ticket = match verdict {
            Verdict::Commit => transaction.commit()?,
            Verdict::Rollback => transaction.rollback()?,
        };
        Ok((verdict, ticket))
    }

    /// Gives the answers that may be given.
    fn answer(&mut self, now: u64) {
        while self.pending.front().is_some_and(|first| first.ticket <= self.durable) {
            if let Some(pending) = self.pending.pop_front() {
                self.acknowledge(&pending, now);
            }
        }
        self.acks.flush();
    }

    /// Waits until all answers may be given, and gives them; returns the time then.
    fn answer_all(&mut self, now: u64) -> Result<u64, Failure<S::Error>> {
        let Some(last) = self.pending.back() else { return Ok(now) };
        self.durable = self.session.wait_for(last.ticket)?;
        let now = self.clock.now_ns();
        self.answer(now);
        Ok(now)
    }

    #[inline]
    fn acknowledge(&mut self, pending: &Pending, now: u64) {
        let terminal = &mut self.terminals[pending.terminal as usize];
        self.stats.acknowledged(pending.kind, now - pending.began_ns, now - terminal.ready_since);
        terminal.ready_since = now;
        self.acks.add(|| Ack::of(terminal.last(), pending.kind, pending.verdict));
        self.ready.push_back(pending.terminal);
        Board::add(&self.board.completed, 1);
    }
}
