//! Worker for paced terminals: a thread that takes work from its inbox and sleeps if the inbox is empty. Responses and lines
//! of the result file are released in groups, once their tickets are durable.

use std::collections::VecDeque;

use super::figures::Deferrals;
use super::inbox::{Deferred, Inbox, PacedAnswer, PacedWork};
use super::results::DeliveryResults;
use crate::driver::attempt::execute;
use crate::driver::measure::Stats;
use crate::driver::worker_terminals::JobEnd;
use crate::driver::{Board, Clock, Control, Phase};
use crate::workload::engine::{Engine, Session, Ticket};
use crate::workload::generate::input::Input;
use crate::workload::interrupt;
use crate::workload::settings::ClockKind;
use crate::workload::txn::delivery::DeliveryOutput;
use crate::workload::txn::{Scratch, StepOrder, Verdict};

/// Objects that a worker of a paced run uses.
pub(super) struct WorkerPlace<'a, E> {
    pub(super) engine: &'a E,
    pub(super) number: usize,
    pub(super) steps: StepOrder,
    pub(super) dates: ClockKind,
    pub(super) inbox: &'a Inbox,
    pub(super) results: &'a DeliveryResults,
    pub(super) control: &'a Control,
    pub(super) board: &'a Board,
    pub(super) clock: Clock,
}

/// Results of a worker of a paced run.
pub(super) struct PacedWorkerResult {
    pub(super) stats: Stats,
    pub(super) deferrals: Deferrals,
    /// Error message if a failure ended the worker early.
    pub(super) failure: Option<String>,
}

impl PacedWorkerResult {
    /// Creates the result of a worker that failed before its first transaction.
    pub(super) fn failed(why: String) -> PacedWorkerResult {
        PacedWorkerResult { stats: Stats::new(), deferrals: Deferrals::default(), failure: Some(why) }
    }
}

/// An executed transaction whose ticket is not durable yet.
struct ExecutedTxn {
    ticket: Ticket,
    began_ns: u64,
    target: ResponseTarget,
}

#[expect(clippy::large_enum_variant, reason = "a worker keeps few, in a queue whose memory is used again")]
enum ResponseTarget {
    Terminal { reply: tokio::sync::oneshot::Sender<PacedAnswer>, rolled_back: bool, run_ns: u64 },
    Queue { deferred: Deferred, output: DeliveryOutput },
}

/// Executes requests and Deliveries until the run is over. A failure ends the run for all workers; counts from before the
/// failure remain valid.
pub(super) fn serve<E: Engine>(place: &WorkerPlace<'_, E>) -> PacedWorkerResult {
    let mut worker = PacedWorker {
        place,
        stats: Stats::new(),
        deferrals: Deferrals::default(),
        waiting: VecDeque::new(),
        line: String::new(),
    };
    let ended = match place.engine.session(place.number) {
        Ok(mut session) => worker.serve(&mut session),
        Err(error) => Err(error.to_string()),
    };
    if ended.is_err() {
        place.control.set(Phase::Stop);
    }
    PacedWorkerResult { stats: worker.stats, deferrals: worker.deferrals, failure: ended.err() }
}

struct PacedWorker<'a, E> {
    place: &'a WorkerPlace<'a, E>,
    stats: Stats,
    deferrals: Deferrals,
    /// Executed transactions in ticket order, which is the order of execution.
    waiting: VecDeque<ExecutedTxn>,
    line: String,
}

impl<E: Engine> PacedWorker<'_, E> {
    fn serve<S: Session>(&mut self, session: &mut S) -> Result<(), String> {
        let mut scratch = Scratch::default();
        loop {
            match self.place.inbox.take(self.waiting.is_empty()) {
                PacedWork::Request(request) => {
                    let began_ns = self.place.clock.now_ns();
                    let end = self.execute(session, &mut scratch, &request.input)?;
                    let rolled_back = end.verdict == Verdict::Rollback;
                    let run_ns = self.place.clock.now_ns() - began_ns;
                    let target = ResponseTarget::Terminal { reply: request.reply, rolled_back, run_ns };
                    self.waiting.push_back(ExecutedTxn { ticket: end.ticket, began_ns, target });
                }
                PacedWork::Deferred(mut deferred) => {
                    let began_ns = self.place.clock.now_ns();
                    if let (Input::Delivery(delivery), ClockKind::Real) = (&mut deferred.input, self.place.dates) {
                        // OL_DELIVERY_D is the time of execution, not of queueing.
                        delivery.now = self.place.clock.date(began_ns);
                    }
                    let end = self.execute(session, &mut scratch, &deferred.input)?;
                    if deferred.counts {
                        let run_ns = self.place.clock.now_ns() - began_ns;
                        self.stats.deferred(deferred.input.kind(), end.skipped, run_ns);
                    }
                    let target = ResponseTarget::Queue { deferred, output: scratch.out.delivery.clone() };
                    self.waiting.push_back(ExecutedTxn { ticket: end.ticket, began_ns, target });
                }
                // No request is waiting, so the worker waits for the log. A request that arrives meanwhile is delayed at
                // most until this wait ends.
                PacedWork::Nothing => {
                    if let Some(first) = self.waiting.front() {
                        let durable = session.wait_for(first.ticket).map_err(|e| e.to_string())?;
                        self.release(durable)?;
                    }
                    continue;
                }
                PacedWork::Over => break,
            }
            let durable = session.durable();
            self.release(durable)?;
        }
        // Sends the remaining responses. After Ctrl-C no terminal waits for them.
        if !interrupt::requested()
            && let Some(last) = self.waiting.back()
        {
            let durable = session.wait_for(last.ticket).map_err(|e| e.to_string())?;
            self.release(durable)?;
        }
        Ok(())
    }

    fn execute<S: Session>(&mut self, session: &mut S, scratch: &mut Scratch, input: &Input) -> Result<JobEnd, String> {
        let WorkerPlace { control, board, steps, .. } = *self.place;
        let stats = &mut self.stats;
        let aborted = |abort| {
            if control.phase() == Phase::Measure {
                stats.aborted(abort);
            }
            Board::add(&board.aborted, 1);
        };
        execute(session, scratch, steps, input, None, aborted).map_err(|failure| failure.to_string())
    }

    /// Releases the responses and result lines whose tickets are durable.
    fn release(&mut self, durable: Ticket) -> Result<(), String> {
        while self.waiting.front().is_some_and(|first| first.ticket <= durable) {
            let Some(ExecutedTxn { began_ns, target, .. }) = self.waiting.pop_front() else { break };
            let now_ns = self.place.clock.now_ns();
            match target {
                ResponseTarget::Terminal { reply, rolled_back, run_ns } => {
                    // Sending can fail at the end of the run, when the terminal's task may have ended.
                    let _ = reply.send(PacedAnswer { rolled_back, run_ns, service_ns: now_ns - began_ns });
                }
                ResponseTarget::Queue { deferred, output } => {
                    if let Input::Delivery(input) = &deferred.input {
                        let done_us = self.place.clock.unix_us(now_ns);
                        self.place.results.write(&mut self.line, input, &output, deferred.queued_us, done_us)?;
                    }
                    if deferred.counts {
                        self.deferrals.done(deferred.queued.elapsed());
                        self.stats.served(deferred.input.kind(), now_ns - began_ns);
                    }
                }
            }
        }
        Ok(())
    }
}
