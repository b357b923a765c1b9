//! A worker whose transactions run as a team of fibers: each fiber takes a terminal's transaction, runs it to its end, and
//! takes the next. Which fiber runs is decided at points and by teams (see [`crate::engines::storage::steps`]); here it is decided
//! which transactions are under way together.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use sched_steps::team::{self, LargestFirst, Membership, OldestFirst};
use sched_steps::{Executor, fiber};

use super::attempt::execute;
use super::desk::{Desk, Next, Ready};
use super::terminal::Terminal;
use super::{Control, Phase, Plan, Share};
use crate::engines::storage::fibers;
use crate::workload::engine::{Engine, Session};
use crate::workload::settings::TeamsOf;
use crate::workload::txn::{Failure, Scratch, Steps};

/// Stack of a fiber: transactions keep groups of rows on theirs.
const STACK_BYTES: usize = 128 << 10;

/// Ready terminals by what they ask for next. Whoever has waited longest says what kind of transaction is admitted, and
/// the next ones admitted are of the same kind while there are any, up to the size of a team: they go through the same
/// code together. Nobody waits for more than those who came before and a team of each other kind.
///
/// Where there are warehouses enough those under way are kept apart: whose warehouse has one under way waits until it has
/// ended, or until it has waited too long ([`PATIENCE`]).
pub(super) struct ByKind {
    queues: [VecDeque<Waiting>; 5],
    /// Terminals taken in so far.
    arrivals: u64,
    kind: usize,
    /// How many more of this kind before the longest waiting is asked again.
    left: usize,
    size: usize,
    /// Warehouses that have a transaction under way, by number; empty if that does not matter.
    busy: Vec<bool>,
}

/// A terminal in a queue.
#[derive(Clone, Copy)]
struct Waiting {
    since: u64,
    terminal: u32,
    warehouse: u32,
}

/// A terminal waits too long for its warehouse when, since it came, so many others more than now wait have come.
const PATIENCE: u64 = 256;

impl ByKind {
    /// For teams of `size`. Those under way are kept apart if the number of `warehouses` is given.
    pub(super) fn new(size: usize, warehouses: Option<u32>) -> ByKind {
        let busy = warehouses.map_or_else(Vec::new, |n| vec![false; n as usize + 1]);
        ByKind { queues: Default::default(), arrivals: 0, kind: 0, left: 0, size, busy }
    }

    /// Who comes next of a kind.
    fn first_of(&self, kind: usize) -> Option<usize> {
        let queue = &self.queues[kind];
        let front = queue.front()?;
        let is_free = |waiting: &Waiting| self.busy.get(waiting.warehouse as usize).is_none_or(|busy| !busy);
        if is_free(front) || self.arrivals - front.since > PATIENCE + self.len() as u64 {
            return Some(0);
        }
        queue.iter().position(is_free).or(Some(0))
    }
}

impl Ready for ByKind {
    #[inline]
    fn push(&mut self, index: u32, terminal: &mut Terminal) {
        self.arrivals += 1;
        let waiting = Waiting { since: self.arrivals, terminal: index, warehouse: terminal.warehouse() };
        self.queues[terminal.draw() as usize].push_back(waiting);
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        if self.left == 0 || self.queues[self.kind].is_empty() {
            let fronts =
                self.queues.iter().enumerate().filter_map(|(kind, q)| q.front().map(|front| (front.since, kind)));
            self.kind = fronts.min()?.1;
            self.left = self.size;
        }
        self.left -= 1;
        let at = self.first_of(self.kind)?;
        let next = self.queues[self.kind].remove(at)?;
        if let Some(busy) = self.busy.get_mut(next.warehouse as usize) {
            *busy = true;
        }
        Some(next.terminal)
    }

    #[inline]
    fn ended(&mut self, terminal: &Terminal) {
        if let Some(busy) = self.busy.get_mut(terminal.warehouse() as usize) {
            *busy = false;
        }
    }

    fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}

/// What the fibers of a worker share. Borrowed for moments, never across a point.
struct Crew<'a, R> {
    desk: RefCell<Desk<'a, R>>,
    /// Fibers that found nothing to do.
    idle: RefCell<Vec<fiber::Waker>>,
    /// One of them waits for the log.
    awaiting: Cell<bool>,
    /// What teams did before is forgotten.
    measuring: Cell<bool>,
    failure: RefCell<Option<String>>,
    steps: Steps,
}

/// Serves the terminals of `desk` with `size` fibers until the run stops, in the teams of the plan if the engine has
/// operations for them. A failure stops the run for all; what was counted before it stays.
pub(super) fn run<E: Engine, R: Ready>(
    engine: &E,
    number: usize,
    desk: Desk<'_, R>,
    size: usize,
    plan: &Plan,
    control: &Control,
) -> Share {
    let crew = Crew {
        desk: RefCell::new(desk),
        idle: RefCell::default(),
        awaiting: Cell::new(false),
        measuring: Cell::new(false),
        failure: RefCell::default(),
        steps: plan.steps,
    };
    let builder = Executor::builder().fibers(size).team_size(size).stack_bytes(STACK_BYTES);
    let builder = match plan.teams_of.zip(engine.operations()) {
        None => builder,
        Some((of, operations)) => {
            let builder = builder.operations(operations).membership(Membership::PerOperation);
            match of {
                // Whoever came first: the others gather meanwhile, and those who end together gather together again.
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
        for _ in 0..size {
            let crew = &crew;
            scope.spawn(move || crew.fiber(engine, number, control));
        }
    });
    let failure = crew.failure.take();
    let failure = failure.or_else(|| ended.err().map(|e| format!("a transaction {e}; this is a fault of the program")));
    let share = crew.desk.into_inner().close();
    Share { teams: Some(executor.statistics()), failure: failure.or(share.failure), ..share }
}

impl<R: Ready> Crew<'_, R> {
    /// A fiber, from its first transaction to its last.
    fn fiber<E: Engine>(&self, engine: &E, number: usize, control: &Control) {
        let serving = Serving { crew: self, control, is_open: Cell::new(false) };
        let result = match engine.session(number) {
            Ok(mut session) => {
                self.serve(engine, &mut session, &serving.is_open).map_err(|failure| failure.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(message) = result {
            control.set(Phase::Stop);
            self.failure.borrow_mut().get_or_insert(message);
        }
        self.rouse();
    }

    fn serve<'e, E: Engine>(
        &self,
        engine: &'e E,
        session: &mut E::Session<'e>,
        is_open: &Cell<bool>,
    ) -> Result<(), Failure<E::Error>> {
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
                    engine.begins(job.input.kind());
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

/// What a fiber is at. If it panics the run is over for all, and nobody waits for what it had begun.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_kind_are_admitted_together_and_nobody_is_forgotten() {
        let mut ready = ByKind::new(3, None);
        // Kinds of terminals 0 to 9, in the order of their arrival.
        let kinds = [0, 1, 0, 0, 2, 0, 1, 0, 3, 1];
        for (index, kind) in kinds.into_iter().enumerate() {
            ready.arrivals += 1;
            ready.queues[kind].push_back(Waiting { since: ready.arrivals, terminal: index as u32, warehouse: 1 });
        }
        assert_eq!(ready.len(), 10);
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order, [0, 2, 3, 1, 6, 9, 4, 5, 7, 8]);
    }

    #[test]
    fn those_of_a_warehouse_wait_for_each_other_but_not_for_ever() {
        let mut ready = ByKind::new(3, Some(3));
        // Warehouses of terminals 0 to 5, all of one kind.
        for (index, warehouse) in [1, 1, 2, 1, 2, 3].into_iter().enumerate() {
            ready.arrivals += 1;
            ready.queues[0].push_back(Waiting { since: ready.arrivals, terminal: index as u32, warehouse });
        }
        let first: Vec<u32> = (0..3).filter_map(|_| ready.pop()).collect();
        assert_eq!(first, [0, 2, 5], "one of each warehouse");
        assert_eq!(ready.pop(), Some(1), "all are busy: whoever came first");
        ready.busy[2] = false;
        assert_eq!(ready.pop(), Some(4), "the one whose warehouse is free");
        ready.arrivals += PATIENCE + 10;
        ready.queues[0].push_back(Waiting { since: ready.arrivals, terminal: 6, warehouse: 2 });
        ready.busy[2] = false;
        assert_eq!(ready.pop(), Some(3), "who has waited too long waits no longer");
    }
}
