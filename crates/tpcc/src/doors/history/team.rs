//! Sessions as fibers: worker threads, each with a team of sessions that switch at points inside their statements.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};

use sched_steps::team::{LargestFirst, Membership};
use sched_steps::{Executor, FiberError, fiber};
use storage::{Database, Hook, TxnError};

use super::session::drive;
use super::{RecordedSession, World};
use crate::driver::runner::steps::policy::{StepsHook, hook_at, hook_for};
use crate::engines::storage::fiber_hook::FiberPolicy;
use crate::workload::error::Error;
use crate::workload::generate::Random;
use crate::workload::settings::CtxPoints;
use crate::workload::settings::TeamsOf;

/// Stack of a fiber: sessions keep what they read on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Worker threads, and what their teams are like.
#[derive(Clone, Debug)]
pub struct Teams {
    workers: usize,
    size: usize,
    membership: Membership,
    hook: Arc<StepsHook>,
}

/// A session when it has ended, and what ended it early.
pub(super) type SessionEnd<'w, 'db> = (RecordedSession<'w, 'db>, Option<TxnError>);

impl Teams {
    /// Teams as `tpcc run` has them, of at most `size` fibers.
    pub(crate) fn as_run(workers: usize, size: usize, of: TeamsOf, points: &CtxPoints) -> Result<Teams, Error> {
        Ok(Teams { workers, size, membership: Membership::PerOperation, hook: hook_for(of, points)? })
    }

    /// Random teams for so many sessions: up to three workers, teams of two or more, one per operation or transaction or a
    /// ring of all, at all points or at some.
    pub fn of_seed(seed: u64, sessions: u32) -> Teams {
        let mut random = Random::stream(seed, 0x7465_616d);
        let all = random.percent(50);
        let mut live = || if all { u64::MAX } else { random.bits() };
        let live = storage::points().iter().map(|_| live()).collect();
        let of = if random.percent(50) { TeamsOf::Transaction } else { TeamsOf::Operation };
        let hook = hook_at(of, live);
        Teams {
            workers: random.within(1, 3.min(sessions)) as usize,
            size: random.within(2, sessions.max(2)) as usize,
            membership: if random.percent(50) { Membership::Ring } else { Membership::PerOperation },
            hook,
        }
    }

    /// What a database must be opened with for these teams to run in it.
    pub fn hook(&self) -> Arc<dyn Hook> {
        Arc::clone(&self.hook) as Arc<dyn Hook>
    }

    /// Learns which tables there are: they must have been created.
    fn know(&self, db: &Database) -> Result<(), String> {
        self.hook.policy().know(&db.indexes()).map_err(|e| e.to_string())
    }

    fn executor(&self, fibers: usize) -> Result<Executor, String> {
        let builder = Executor::builder().fibers(fibers).team_size(self.size).stack_bytes(STACK_BYTES);
        let builder = match self.hook.policy().operations() {
            Some(operations) => builder.operations(operations).membership(self.membership).policy(LargestFirst),
            None => builder,
        };
        crate::engines::storage::fibers::executor(builder).map_err(|e| e.to_string())
    }

    /// Runs all sessions of a world, each a fiber of the worker whose turn it is by its number.
    ///
    /// # Errors
    /// When there are no fibers to be had.
    pub(super) fn run<'w, 'db>(
        &self,
        world: &'w World<'db>,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<SessionEnd<'w, 'db>>, String> {
        self.know(world.db)?;
        let sessions = world.params.sessions;
        let workers = self.workers.min(sessions as usize);
        let together = Barrier::new(workers);
        let ended = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|worker| {
                    let mine = (0..sessions).filter(move |session| *session as usize % workers == worker);
                    let together = &together;
                    scope.spawn(move || {
                        let executor = self.executor(mine.clone().count());
                        together.wait();
                        executor.and_then(|executor| serve(executor, mine, world, interrupted))
                    })
                })
                .collect();
            let join =
                |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|p| resume_unwind(p));
            let all: Vec<Result<Vec<SessionEnd<'_, '_>>, String>> = threads.into_iter().map(join).collect();
            all.into_iter().collect::<Result<Vec<_>, _>>()
        })?;
        let mut all: Vec<SessionEnd<'_, '_>> = ended.into_iter().flatten().collect();
        all.sort_by_key(|(session, _)| session.number());
        Ok(all)
    }
}

/// A worker: runs its sessions to their ends.
fn serve<'w, 'db>(
    mut executor: Executor,
    sessions: impl Iterator<Item = u32>,
    world: &'w World<'db>,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<SessionEnd<'w, 'db>>, String> {
    let ran = executor.scope(|scope| {
        let fibers: Vec<_> = sessions
            .map(|number| {
                scope.spawn(move || {
                    let mut session = RecordedSession::new(world, number);
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
