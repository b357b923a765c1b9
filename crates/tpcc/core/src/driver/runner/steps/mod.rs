//! A worker whose transactions run as a team of fibers (STEPS, VLDB 2004): each fiber takes a terminal's transaction, runs it
//! to its end, and takes the next. Which fiber runs is decided at points and by teams (see [`policy`]); which transactions
//! are under way together is decided by their [admission](crate::driver::admission).

mod points;
pub mod policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sched_steps::Executor;
use sched_steps::team::{self, LargestFirst, Membership, OldestFirst};

use super::crew::{Conduct, Crew};
use super::threads::ThreadsRunner;
use super::{Runner, STACK_BYTES, Workplace};
use crate::driver::Share;
use crate::driver::admission::Ready;
use crate::driver::desk::{Desk, Job};
use crate::engines::storage::fibers;
use crate::workload::engine::Engine;
use crate::workload::error::Error;
use crate::workload::settings::{CtxPoints, TeamsOf};
use policy::{StepsHook, hook_for};

/// Teams of fibers.
pub struct StepsRunner {
    team_size: usize,
    teams_of: TeamsOf,
    /// None where fibers only take turns between transactions: a team of one, or an engine that knows no fibers.
    hook: Option<Arc<StepsHook>>,
    /// Whether stacks ask for large pages.
    large_stacks: bool,
}

impl StepsRunner {
    /// Teams of `team_size` fibers that switch at these points. An engine must be opened with [`Self::hook`].
    ///
    /// # Errors
    /// A file of points that cannot be read.
    pub fn new(team_size: usize, teams_of: TeamsOf, points: &CtxPoints) -> Result<StepsRunner, Error> {
        // Made for a team of one as well, which never switches, so that a wrong file is refused.
        let hook = hook_for(teams_of, points)?;
        Ok(StepsRunner { team_size, teams_of, hook: (team_size > 1).then_some(hook), large_stacks: false })
    }

    /// The same, with stacks in large pages if `large`.
    pub fn large_stacks(self, large: bool) -> StepsRunner {
        StepsRunner { large_stacks: large, ..self }
    }

    /// Fibers on an engine that knows none.
    #[cfg(test)]
    pub fn without_hook(team_size: usize) -> StepsRunner {
        StepsRunner { team_size, teams_of: TeamsOf::Transaction, hook: None, large_stacks: false }
    }

    /// What the engine must be opened with; none for a team of one.
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

    fn serve<E: Engine, R: Ready>(&self, place: &Workplace<'_, E>, desk: Desk<'_, R>) -> Share {
        if place.size <= 1 {
            return ThreadsRunner.serve(place, desk);
        }
        let builder = Executor::builder().fibers(place.size).team_size(place.size).stack_bytes(STACK_BYTES);
        let builder = builder.large_pages(self.large_stacks);
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
        let share = Crew::new(self, desk, place.steps).run(&mut executor, place.size, place);
        Share { teams: Some(executor.statistics()), stacks: fibers::stacks(&executor), ..share }
    }
}

impl Conduct for &StepsRunner {
    /// Joins the fiber to a team, where teams are of whole transactions.
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
