//! A worker whose transactions run as a team of fibers (STEPS, VLDB 2004): each fiber takes a terminal's transaction, runs it
//! to its end, and takes the next. Which fiber runs is decided at points and by teams (see [`policy`]); which transactions
//! are under way together is decided by their [admission](crate::driver::admission).

mod points;
pub(crate) mod policy;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use sched_steps::team::{self, LargestFirst, Membership, OldestFirst};
use sched_steps::{Executor, fiber};

use super::threads::ThreadsRunner;
use super::{Runner, Workplace};
use crate::driver::admission::Ready;
use crate::driver::attempt::execute;
use crate::driver::desk::{Desk, Next};
use crate::driver::{Control, Phase, Share};
use crate::engines::storage::fibers;
use crate::workload::engine::{Engine, Session};
use crate::workload::error::Error;
use crate::workload::generate::deck::Kind;
use crate::workload::settings::{CtxPoints, TeamsOf};
use crate::workload::txn::{Failure, Scratch, StepOrder};
use policy::{StepsHook, hook_for};

/// Stack of a fiber: transactions keep groups of rows on theirs.
const STACK_BYTES: usize = 128 << 10;

/// Teams of fibers.
pub(crate) struct StepsRunner {
    team_size: usize,
    teams_of: TeamsOf,
    /// None where fibers only take turns between transactions: a team of one, or an engine that knows no fibers.
    hook: Option<Arc<StepsHook>>,
}

impl StepsRunner {
    /// Teams of `team_size` fibers that switch at these points. An engine must be opened with [`Self::hook`].
    ///
    /// # Errors
    /// A file of points that cannot be read.
    pub(crate) fn new(team_size: usize, teams_of: TeamsOf, points: &CtxPoints) -> Result<StepsRunner, Error> {
        // Made for a team of one as well, which never switches, so that a wrong file is refused.
        let hook = hook_for(teams_of, points)?;
        Ok(StepsRunner { team_size, teams_of, hook: (team_size > 1).then_some(hook) })
    }

    /// Fibers on an engine that knows none.
    #[cfg(test)]
    pub(crate) fn without_hook(team_size: usize) -> StepsRunner {
        StepsRunner { team_size, teams_of: TeamsOf::Transaction, hook: None }
    }

    /// What the engine must be opened with; none for a team of one.
    pub(crate) fn hook(&self) -> Option<Arc<StepsHook>> {
        self.hook.clone()
    }

    /// Joins the fiber to a team, where teams are of whole transactions.
    #[inline]
    fn begins(&self, kind: Kind) {
        if let Some(hook) = &self.hook {
            hook.policy().begins(kind);
        }
    }
}

impl Runner for StepsRunner {
    fn team_size(&self) -> usize {
        self.team_size
    }

    fn keep_apart(&self, apart: bool) {
        if let Some(hook) = &self.hook {
            hook.policy().keep_apart(apart);
        }
    }

    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, desk: Desk<'_, R>) -> Share {
        if place.size <= 1 {
            return ThreadsRunner.serve(place, desk);
        }
        let crew = Crew {
            runner: self,
            desk: RefCell::new(desk),
            idle: RefCell::default(),
            awaiting: Cell::new(false),
            measuring: Cell::new(false),
            failure: RefCell::default(),
            steps: place.steps,
        };
        let builder = Executor::builder().fibers(place.size).team_size(place.size).stack_bytes(STACK_BYTES);
        let builder = match self.hook.as_ref().and_then(|hook| hook.policy().operations()) {
            None => builder,
            Some(operations) => {
                let builder = builder.operations(operations).membership(Membership::PerOperation);
                match self.teams_of {
                    // The oldest first: the others gather meanwhile, and those who end together gather together again.
                    TeamsOf::Transaction => builder.policy(OldestFirst),
                    TeamsOf::Operation => builder.policy(LargestFirst),
                }
            }
        };
        let mut executor = match fibers::executor(builder) {
            Ok(executor) => executor,
            Err(e) => return Share::failed(format!("{e}; pass a smaller --team-size")),
        };
        let ended = executor.scope(|scope| {
            for _ in 0..place.size {
                let crew = &crew;
                scope.spawn(move || crew.fiber(place.engine, place.number, place.control));
            }
        });
        let failure = crew.failure.take();
        let failure =
            failure.or_else(|| ended.err().map(|e| format!("a transaction {e}; this is a fault of the program")));
        let share = crew.desk.into_inner().close();
        Share { teams: Some(executor.statistics()), failure: failure.or(share.failure), ..share }
    }
}

/// What the fibers of a worker share. Borrowed for moments, never across a point.
struct Crew<'a, R> {
    runner: &'a StepsRunner,
    desk: RefCell<Desk<'a, R>>,
    /// Fibers that found nothing to do.
    idle: RefCell<Vec<fiber::Waker>>,
    /// One of them waits for the log.
    awaiting: Cell<bool>,
    /// What teams did before is forgotten.
    measuring: Cell<bool>,
    failure: RefCell<Option<String>>,
    steps: StepOrder,
}

impl<R: Ready> Crew<'_, R> {
    /// A fiber, from its first transaction to its last.
    fn fiber<E: Engine>(&self, engine: &E, number: usize, control: &Control) {
        let serving = Serving { crew: self, control, is_open: Cell::new(false) };
        let result = match engine.session(number) {
            Ok(mut session) => self.serve(&mut session, &serving.is_open).map_err(|failure| failure.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(message) = result {
            control.set(Phase::Stop);
            self.failure.borrow_mut().get_or_insert(message);
        }
        self.rouse();
    }

    fn serve<S: Session>(&self, session: &mut S, is_open: &Cell<bool>) -> Result<(), Failure<S::Error>> {
        let mut scratch = Box::<Scratch>::default();
        loop {
            let next = self.desk.borrow_mut().next(session);
            if !self.measuring.get() && self.desk.borrow().is_measuring() {
                self.measuring.set(true);
                team::reset_statistics();
            }
            match next {
                Next::Run(job) => {
                    is_open.set(true);
                    self.runner.begins(job.input.kind());
                    let aborted = |abort| self.desk.borrow_mut().aborted(abort);
                    let end = execute(session, &mut scratch, self.steps, &job.input, job.number, aborted)
                        .inspect_err(|_| self.desk.borrow_mut().failed())?;
                    is_open.set(false);
                    self.desk.borrow_mut().ended(session, &job, &end);
                    self.rouse();
                }
                Next::Await(ticket) if !self.awaiting.replace(true) => {
                    let durable = session.wait_for(ticket);
                    self.awaiting.set(false);
                    self.desk.borrow_mut().durable_to(durable?);
                    self.rouse();
                }
                Next::Await(_) | Next::Idle => self.rest(),
                Next::Done => return Ok(()),
            }
        }
    }

    /// Waits until something has changed.
    fn rest(&self) {
        if let Some(waker) = fiber::waker() {
            team::end_operation();
            self.idle.borrow_mut().push(waker);
            fiber::park();
        }
    }

    /// Something has changed: those who rest look again.
    #[inline]
    fn rouse(&self) {
        let mut idle = self.idle.borrow_mut();
        if !idle.is_empty() {
            idle.drain(..).for_each(fiber::Waker::wake);
        }
    }
}

/// What a fiber is at. If it panics the run is over for all, and no other fiber waits for what it had begun.
struct Serving<'a, 'd, R: Ready> {
    crew: &'a Crew<'d, R>,
    control: &'a Control,
    /// A transaction is under way.
    is_open: Cell<bool>,
}

impl<R: Ready> Drop for Serving<'_, '_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.set(Phase::Stop);
            if self.is_open.get() {
                self.crew.desk.borrow_mut().failed();
            }
            self.crew.rouse();
        }
    }
}
