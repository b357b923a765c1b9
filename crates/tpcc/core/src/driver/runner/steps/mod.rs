//! Worker whose transactions run as a team of fibers (STEPS, VLDB 2004). Each fiber takes a transaction of a terminal, runs
//! it to its end, and takes the next. Switch points and teams determine the fiber that runs (see [`policy`]); the
//! Admission (`driver::admission`) determines the concurrent transactions.

mod points;
pub mod policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sched_steps::Executor;
use sched_steps::team::{self, LargestFirst, Membership, OldestFirst};

use super::fiber_pool::{FiberPool, SchedulerCallbacks};
use super::threads::ThreadsRunner;
use super::{Runner, STACK_BYTES, Workplace};
use crate::driver::WorkerResult;
use crate::driver::admission::Ready;
use crate::driver::worker_terminals::{Job, WorkerTerminals};
use crate::engines::storage::fibers;
use crate::workload::engine::Engine;
use crate::workload::error::Error;
use crate::workload::settings::{SwitchPoints, TeamUnit};
use policy::{StepsHook, hook_for};

/// Runner with teams of fibers.
pub struct StepsRunner {
    team_size: usize,
    teams_of: TeamUnit,
    /// Engine hook. `None` if fibers switch only between transactions, that is, for a team of one or an engine without fiber
    /// support.
    hook: Option<Arc<StepsHook>>,
    /// True if fiber stacks request large pages.
    large_stacks: bool,
}

impl StepsRunner {
    /// Creates a runner with teams of `team_size` fibers that switch at `points`. Open the engine with [`Self::hook`].
    ///
    /// # Errors
    /// If the file of points cannot be read.
    pub fn new(team_size: usize, teams_of: TeamUnit, points: &SwitchPoints) -> Result<StepsRunner, Error> {
        // The hook is created even for a team of one, which never switches, so that an invalid file of points is rejected.
        let hook = hook_for(teams_of, points)?;
        Ok(StepsRunner { team_size, teams_of, hook: (team_size > 1).then_some(hook), large_stacks: false })
    }

    /// Sets the use of large pages for stacks.
    pub fn large_stacks(self, large: bool) -> StepsRunner {
        StepsRunner { large_stacks: large, ..self }
    }

    /// Creates a runner for an engine without fiber support.
    #[cfg(test)]
    pub fn without_hook(team_size: usize) -> StepsRunner {
        StepsRunner { team_size, teams_of: TeamUnit::Transaction, hook: None, large_stacks: false }
    }

    /// Returns the hook with which the engine must be opened. `None` for a team of one.
    pub fn hook(&self) -> Option<Arc<StepsHook>> {
        self.hook.clone()
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

    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, terminals: WorkerTerminals<'_, R>) -> WorkerResult {
        if place.size <= 1 {
            return ThreadsRunner.serve(place, terminals);
        }
        let builder = Executor::builder().fibers(place.size).team_size(place.size).stack_bytes(STACK_BYTES);
        let builder = builder.large_pages(self.large_stacks);
        let builder = match self.hook.as_ref().and_then(|hook| hook.policy().operations()) {
            None => builder,
            Some(operations) => {
                let builder = builder.operations(operations).membership(Membership::PerOperation);
                match self.teams_of {
                    // The oldest team runs first. The other teams grow meanwhile, and fibers that end a transaction together
                    // start the next one together.
                    TeamUnit::Transaction => builder.policy(OldestFirst),
                    TeamUnit::Operation => builder.policy(LargestFirst),
                }
            }
        };
        let mut executor = match fibers::executor(builder) {
            Ok(executor) => executor,
            Err(e) => return WorkerResult::failed(format!("{e}; pass a smaller --team-size")),
        };
        let result = FiberPool::new(self, terminals, place.steps).run(&mut executor, place.size, place);
        WorkerResult { teams: Some(executor.statistics()), stacks: fibers::stacks(&executor), ..result }
    }
}

impl SchedulerCallbacks for &StepsRunner {
    /// Adds the fiber to a team, if teams execute whole transactions.
    #[inline]
    fn begins(&self, job: &Job) {
        if let Some(hook) = &self.hook {
            hook.policy().begins(job.input.kind());
        }
    }

    fn rests(&self) {
        team::end_operation();
    }

    fn measuring(&self) {
        team::reset_statistics();
    }
}
