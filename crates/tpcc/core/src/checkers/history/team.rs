//! Sessions as fibers: worker threads, each with a team of sessions that switch at points inside statements.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use itas::auto::Mode;
use itas::{Aggregation, Board, CoreOrder, CoreSettings, GroupError, GroupId, Groups, Scheduler, core_order};
use sched_steps::team::{LargestFirst, Membership};
use sched_steps::{Executor, FiberError, fiber};
use storage::{Database, Hook, TxnError};

use super::session::drive;
use super::{RecordedSession, SharedState};
use crate::driver::runner::steps::policy::{StepsHook, hook_at, hook_for};
use crate::engines::storage::fiber_hook::FiberPolicy;
use crate::workload::error::Error;
use crate::workload::generate::Random;
use crate::workload::settings::SwitchPoints;
use crate::workload::settings::TeamUnit;
use crate::workload::threads;
use crate::workload::time::nanos;

/// Stack size of a fiber in bytes. Sessions keep the rows that they read on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Worker threads and the settings of their teams.
#[derive(Clone, Debug)]
pub struct Teams {
    workers: usize,
    size: usize,
    membership: Membership,
    hook: Arc<StepsHook>,
    siblings: Option<Siblings>,
}

/// Settings of sibling groups, a fiber scheduling that replaces teams.
#[derive(Clone, Debug)]
struct Siblings {
    mode: Mode,
    settings: CoreSettings,
    groups: Arc<Groups>,
    ids: Vec<GroupId>,
    board: Arc<Board>,
}

impl Siblings {
    fn new(workers: usize, mode: Mode, slice: Duration, groups: usize) -> Result<Siblings, GroupError> {
        let table = Groups::new();
        let ids = (0..groups)
            .map(|n| table.add(&n.to_string(), itas::DEFAULT_WEIGHT, Aggregation::default()))
            .collect::<Result<_, _>>()?;
        let settings = CoreSettings { slice, sleeper_credit: slice, paper_slaves: false };
        Ok(Siblings { mode, settings, groups: Arc::new(table), ids, board: Arc::new(Board::new(workers)) })
    }

    /// Creates the scheduling order of a worker's sibling groups.
    fn order(&self, worker: usize) -> Result<CoreOrder, GroupError> {
        let (groups, board) = (Arc::clone(&self.groups), Arc::clone(&self.board));
        let scheduler = Scheduler::new(worker, groups, board, self.mode.policy(), self.settings);
        let began = Instant::now();
        let clock = move || nanos(began.elapsed());
        core_order(scheduler, self.ids.clone(), clock).map(|(order, _)| order)
    }
}

/// A session that has ended, and the error that ended it early.
pub(super) type SessionEnd<'w, 'db> = (RecordedSession<'w, 'db>, Option<TxnError>);

impl Teams {
    /// Creates the same teams as `tpcc run`, of at most `size` fibers.
    pub fn as_run(workers: usize, size: usize, of: TeamUnit, points: &SwitchPoints) -> Result<Teams, Error> {
        Ok(Teams { workers, size, membership: Membership::PerOperation, hook: hook_for(of, points)?, siblings: None })
    }

    /// Draws random teams for `sessions` sessions: up to three workers; teams of two or more fibers; one team per operation
    /// or transaction, or a ring of all fibers; switches at all points or at some.
    pub fn of_seed(seed: u64, sessions: u32) -> Teams {
        let mut random = Random::stream(seed, 0x7465_616d);
        let all = random.percent(50);
        let mut live = || if all { u64::MAX } else { random.bits() };
        let live = storage::points().iter().map(|_| live()).collect();
        let of = if random.percent(50) { TeamUnit::Transaction } else { TeamUnit::Operation };
        let hook = hook_at(of, live);
        Teams {
            workers: random.in_range(1, 3.min(sessions)) as usize,
            size: random.in_range(2, sessions.max(2)) as usize,
            membership: if random.percent(50) { Membership::Ring } else { Membership::PerOperation },
            hook,
            siblings: None,
        }
    }

    /// Creates fibers of two sibling groups, as in `tpcc run --scheduler itas`.
    pub fn of_siblings(workers: usize, mode: Mode, slice: Duration) -> Result<Teams, Error> {
        let hook = hook_for(TeamUnit::Transaction, &SwitchPoints::None)?;
        let siblings = Siblings::new(workers, mode, slice, 2).map_err(|error| Error::failed(error.to_string()))?;
        Ok(Teams { workers, size: 1, membership: Membership::Ring, hook, siblings: Some(siblings) })
    }

    /// Draws random sibling groups for `sessions` sessions: up to three workers, one to three groups, any policy, time
    /// slices of one microsecond or more.
    ///
    /// # Errors
    /// Errors do not depend on the seed.
    pub fn of_seed_as_siblings(seed: u64, sessions: u32) -> Result<Teams, String> {
        let mut random = Random::stream(seed, 0x7369_626c);
        let workers = random.in_range(1, 3.min(sessions)) as usize;
        let mode = [Mode::Fair, Mode::Tas, Mode::Itas][random.in_range(0, 2) as usize];
        let slice = Duration::from_micros(random.in_range(1, 20).into());
        let siblings =
            Siblings::new(workers, mode, slice, random.in_range(1, 3) as usize).map_err(|e| e.to_string())?;
        let hook = hook_at(TeamUnit::Transaction, storage::points().iter().map(|_| 0).collect());
        Ok(Teams { workers, size: 1, membership: Membership::Ring, hook, siblings: Some(siblings) })
    }

    /// Returns the hook with which the database must be opened for these teams.
    pub fn hook(&self) -> Arc<dyn Hook> {
        Arc::clone(&self.hook) as Arc<dyn Hook>
    }

    /// Passes the tables of the database to the switch policy of the hook. The tables must already exist.
    pub(in crate::checkers) fn set_indexes(&self, db: &Database) -> Result<(), String> {
        self.hook.policy().set_indexes(&db.indexes()).map_err(|e| e.to_string())
    }

    pub(in crate::checkers) fn executor(&self, worker: usize, fibers: usize) -> Result<Executor, String> {
        let builder = Executor::builder().fibers(fibers).team_size(self.size).stack_bytes(STACK_BYTES);
        let builder = match self.hook.policy().operations() {
            // Statements announce their operations, but there are no teams to join.
            Some(operations) if self.siblings.is_some() => builder.operations(operations),
            Some(operations) => builder.operations(operations).membership(self.membership).policy(LargestFirst),
            None => builder,
        };
        let builder = match &self.siblings {
            Some(siblings) => builder.order(siblings.order(worker).map_err(|e| e.to_string())?),
            None => builder,
        };
        crate::engines::storage::fibers::executor(builder).map_err(|e| e.to_string())
    }

    /// Runs all sessions as fibers. Sessions are assigned to the workers round-robin.
    ///
    /// # Errors
    /// If the system provides no fibers.
    pub(super) fn run<'w, 'db>(
        &self,
        shared: &'w SharedState<'db>,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<SessionEnd<'w, 'db>>, String> {
        self.set_indexes(shared.db)?;
        let sessions = shared.params.sessions;
        let workers = self.workers.min(sessions as usize);
        let together = Barrier::new(workers);
        let works = (0..workers).map(|worker| {
            let mine = (0..sessions).filter(move |session| *session as usize % workers == worker);
            let together = &together;
            move || {
                let executor = self.executor(worker, mine.clone().count());
                together.wait();
                executor.and_then(|executor| serve(executor, mine, shared, interrupted))
            }
        });
        let ended = threads::run_each("worker", works).map_err(|error| error.to_string())?;
        let ended = ended.into_iter().collect::<Result<Vec<_>, String>>()?;
        let mut all: Vec<SessionEnd<'_, '_>> = ended.into_iter().flatten().collect();
        all.sort_by_key(|(session, _)| session.number());
        Ok(all)
    }
}

/// Runs the sessions of one worker to their ends.
fn serve<'w, 'db>(
    mut executor: Executor,
    sessions: impl Iterator<Item = u32>,
    shared: &'w SharedState<'db>,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<SessionEnd<'w, 'db>>, String> {
    let ran = executor.scope(|fibers| {
        let fibers: Vec<_> = sessions
            .map(|number| {
                fibers.spawn(move || {
                    let mut session = RecordedSession::new(shared, number);
                    let error = drive(&mut session, number == 0, &mut fiber::yield_now, interrupted).err();
                    (session, error)
                })
            })
            .collect();
        fibers.into_iter().map(|fiber| fiber.join()).collect::<Result<Vec<_>, _>>()
    });
    match ran.and_then(|ended| ended) {
        Ok(ended) => Ok(ended),
        Err(FiberError::Panicked { payload, .. }) => resume_unwind(payload),
        Err(error) => Err(error.to_string()),
    }
}
