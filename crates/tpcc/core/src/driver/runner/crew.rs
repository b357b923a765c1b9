//! The fibers of a worker: each takes a terminal's transaction, runs it to its end, and takes the next. How they pass the
//! thread on is the business of their scheduler.

use std::cell::{Cell, RefCell};

use sched_steps::{Executor, fiber};

use super::Workplace;
use crate::driver::admission::Ready;
use crate::driver::attempt::execute;
use crate::driver::counters::Meter;
use crate::driver::desk::{Desk, Job, Next};
use crate::driver::{Control, Phase, Share};
use crate::workload::engine::{Engine, Session};
use crate::workload::txn::{Failure, Scratch, StepOrder};

/// What a scheduler does where the fibers of a crew are between two transactions.
pub(super) trait Conduct {
    /// The running fiber is about to run this job.
    fn begins(&self, job: &Job);

    /// The running fiber finds nothing to do, and is about to rest.
    fn rests(&self) {}

    /// Measuring begins: what was counted before is forgotten.
    fn measuring(&self) {}
}

/// What the fibers of a worker share. Borrowed for moments, never across a point.
pub(super) struct Crew<'a, R, C> {
    conduct: C,
    desk: RefCell<Desk<'a, R>>,
    /// Fibers that found nothing to do.
    idle: RefCell<Vec<fiber::Waker>>,
    /// One of them waits for the log.
    awaiting: Cell<bool>,
    /// What teams did before is forgotten.
    measuring: Cell<bool>,
    failure: RefCell<Option<String>>,
    steps: StepOrder,
    /// Counters of the thread; none unless they were asked for.
    meter: RefCell<Option<Box<Meter>>>,
}

impl<'a, R: Ready, C: Conduct> Crew<'a, R, C> {
    /// Fibers that serve the terminals of `desk`.
    pub(super) fn new(conduct: C, desk: Desk<'a, R>, steps: StepOrder) -> Self {
        Crew {
            conduct,
            desk: RefCell::new(desk),
            idle: RefCell::default(),
            awaiting: Cell::new(false),
            measuring: Cell::new(false),
            failure: RefCell::default(),
            steps,
            meter: RefCell::default(),
        }
    }

    /// Runs `fibers` of them on an executor until the run stops.
    pub(super) fn run<E: Engine>(self, executor: &mut Executor, fibers: usize, place: &Workplace<'_, E>) -> Share {
        *self.meter.borrow_mut() = place.counters.then(|| Box::new(Meter::open()));
        let ended = executor.scope(|team| {
            for _ in 0..fibers {
                let crew = &self;
                team.spawn(move || crew.fiber(place.engine, place.number, place.control));
            }
        });
        let failure = self.failure.take();
        let failure =
            failure.or_else(|| ended.err().map(|e| format!("a transaction {e}; this is a fault of the program")));
        let desk = self.desk.into_inner();
        let counted = self.meter.into_inner().map(|meter| meter.close(Some(desk.completed())));
        let share = desk.close();
        Share { failure: failure.or(share.failure), counted, ..share }
    }

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
                self.conduct.measuring();
                self.meter.borrow_mut().iter_mut().for_each(|meter| meter.begin());
            }
            match next {
                Next::Run(job) => {
                    is_open.set(true);
                    self.conduct.begins(&job);
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
            self.conduct.rests();
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
struct Serving<'a, 'd, R: Ready, C: Conduct> {
    crew: &'a Crew<'d, R, C>,
    control: &'a Control,
    /// A transaction is under way.
    is_open: Cell<bool>,
}

impl<R: Ready, C: Conduct> Drop for Serving<'_, '_, R, C> {
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
