//! Fibers of a worker. Each fiber takes a transaction of a terminal, runs it to its end, and takes the next one. The
//! scheduler of the fibers decides how they share the thread.

use std::cell::{Cell, RefCell};

use sched_steps::{Executor, fiber};

use super::Workplace;
use crate::driver::admission::Ready;
use crate::driver::attempt::execute;
use crate::driver::counters::Meter;
use crate::driver::worker_terminals::{Job, Next, WorkerTerminals};
use crate::driver::{Control, Phase, WorkerResult};
use crate::workload::engine::{Engine, Session};
use crate::workload::txn::{Failure, Scratch, StepOrder};

/// Scheduler callbacks between two transactions of a fiber.
pub(super) trait SchedulerCallbacks {
    /// Called by a fiber before it runs `job`.
    fn begins(&self, job: &Job);

    /// Called by a fiber that has no work, before it parks.
    fn rests(&self) {}

    /// Called at the start of the measurement: resets the statistics.
    fn measuring(&self) {}
}

/// State that the fibers of a worker share. Cells are borrowed briefly, never across a switch point.
pub(super) struct FiberPool<'a, R, C> {
    callbacks: C,
    terminals: RefCell<WorkerTerminals<'a, R>>,
    /// Parked fibers without work.
    idle: RefCell<Vec<fiber::Waker>>,
    /// True while one of the fibers waits for the log.
    awaiting: Cell<bool>,
    /// True once the statistics were reset at the start of the measurement.
    measuring: Cell<bool>,
    failure: RefCell<Option<String>>,
    steps: StepOrder,
    /// Hardware and operating system counters of the thread; `None` unless requested.
    meter: RefCell<Option<Box<Meter>>>,
}

impl<'a, R: Ready, C: SchedulerCallbacks> FiberPool<'a, R, C> {
    /// Creates a pool that serves `terminals`.
    pub(super) fn new(callbacks: C, terminals: WorkerTerminals<'a, R>, steps: StepOrder) -> Self {
        FiberPool {
            callbacks,
            terminals: RefCell::new(terminals),
            idle: RefCell::default(),
            awaiting: Cell::new(false),
            measuring: Cell::new(false),
            failure: RefCell::default(),
            steps,
            meter: RefCell::default(),
        }
    }

    /// Runs `fibers` fibers on an executor until the run stops.
    pub(super) fn run<E: Engine>(
        self,
        executor: &mut Executor,
        fibers: usize,
        place: &Workplace<'_, E>,
    ) -> WorkerResult {
        *self.meter.borrow_mut() = place.counters.then(|| Box::new(Meter::open()));
        let ended = executor.scope(|team| {
            for _ in 0..fibers {
                let pool = &self;
                team.spawn(move || pool.fiber(place.engine, place.number, place.control));
            }
        });
        let failure = self.failure.take();
        let failure =
            failure.or_else(|| ended.err().map(|e| format!("a transaction {e}; this is a fault of the program")));
        let terminals = self.terminals.into_inner();
        let counted = self.meter.into_inner().map(|meter| meter.close(Some(terminals.completed())));
        let result = terminals.close();
        WorkerResult { failure: failure.or(result.failure), counted, ..result }
    }

    /// Runs transactions on the calling fiber until the run stops.
    fn fiber<E: Engine>(&self, engine: &E, number: usize, control: &Control) {
        let guard = FiberGuard { pool: self, control, is_open: Cell::new(false) };
        let result = match engine.session(number) {
            Ok(mut session) => self.serve(&mut session, &guard.is_open).map_err(|failure| failure.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(message) = result {
            control.set(Phase::Stop);
            self.failure.borrow_mut().get_or_insert(message);
        }
        self.wake_idle();
    }

    fn serve<S: Session>(&self, session: &mut S, is_open: &Cell<bool>) -> Result<(), Failure<S::Error>> {
        let mut scratch = Box::<Scratch>::default();
        loop {
            let next = self.terminals.borrow_mut().next(session);
            if !self.measuring.get() && self.terminals.borrow().is_measuring() {
                self.measuring.set(true);
                self.callbacks.measuring();
                self.meter.borrow_mut().iter_mut().for_each(|meter| meter.begin());
            }
            match next {
                Next::Run(job) => {
                    is_open.set(true);
                    self.callbacks.begins(&job);
                    let aborted = |abort| self.terminals.borrow_mut().aborted(abort);
                    let end = execute(session, &mut scratch, self.steps, &job.input, job.number, aborted)
                        .inspect_err(|_| self.terminals.borrow_mut().failed())?;
                    is_open.set(false);
                    self.terminals.borrow_mut().ended(session, &job, &end);
                    self.wake_idle();
                }
                Next::Await(ticket) if !self.awaiting.replace(true) => {
                    let durable = session.wait_for(ticket);
                    self.awaiting.set(false);
                    self.terminals.borrow_mut().durable_to(durable?);
                    self.wake_idle();
                }
                Next::Await(_) | Next::Idle => self.rest(),
                Next::Done => return Ok(()),
            }
        }
    }

    /// Parks the calling fiber until [`FiberPool::wake_idle`] is called.
    fn rest(&self) {
        if let Some(waker) = fiber::waker() {
            self.callbacks.rests();
            self.idle.borrow_mut().push(waker);
            fiber::park();
        }
    }

    /// Wakes all parked fibers, after a change that may give them work.
    #[inline]
    fn wake_idle(&self) {
        let mut idle = self.idle.borrow_mut();
        if !idle.is_empty() {
            idle.drain(..).for_each(fiber::Waker::wake);
        }
    }
}

/// Guard of a fiber. If the fiber panics, the drop stops the run for all fibers. The drop also subtracts the fiber's
/// transaction from the number of jobs in progress, so that no other fiber waits for its end.
struct FiberGuard<'a, 'd, R: Ready, C: SchedulerCallbacks> {
    pool: &'a FiberPool<'d, R, C>,
    control: &'a Control,
    /// True while a transaction of the fiber is in progress.
    is_open: Cell<bool>,
}

impl<R: Ready, C: SchedulerCallbacks> Drop for FiberGuard<'_, '_, R, C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.set(Phase::Stop);
            if self.is_open.get() {
                self.pool.terminals.borrow_mut().failed();
            }
            self.pool.wake_idle();
        }
    }
}
