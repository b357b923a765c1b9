//! Which team runs next (paper 4.1.1, footnote 2).

use super::queues::{Queues, WaitingTeam};
use crate::point::OperationId;

/// The teams that wait when one has to be chosen. There is at least one.
#[derive(Debug)]
pub struct WaitingTeams<'a> {
    pub(super) queues: &'a Queues,
    pub(crate) last: Option<OperationId>,
}

impl WaitingTeams<'_> {
    /// The teams, by number of operation.
    pub fn iter(&self) -> impl Iterator<Item = WaitingTeam> {
        self.queues.waiting()
    }

    /// The team joined last, if it still waits: the operation that the last member of the team that has
    /// ended, or the last stray, is interested in.
    #[must_use]
    pub fn last_joined(&self) -> Option<OperationId> {
        self.last
    }
}

/// Chooses the next team. Called once per launch, as if outside of a fiber. A team that has waited too long is launched
/// without asking. If it panics it is not asked again, and the longest waiting teams are launched; the panic is the scope's.
pub trait NextTeam {
    /// One of the waiting teams. Any other answer is taken for the longest waiting one.
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId;
}

/// The paper's policy: the operation that the last fiber to join is interested in. It costs least.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastInterest;

/// The team with most members, the longest waiting of equals: it saves most.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargestFirst;

/// The team whose first member has waited longest.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldestFirst;

impl NextTeam for LastInterest {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        waiting.last_joined().unwrap_or_else(|| OldestFirst.next(waiting))
    }
}

impl NextTeam for LargestFirst {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        first(waiting.iter().max_by_key(|team| (team.members, team.waited)))
    }
}

impl NextTeam for OldestFirst {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        first(waiting.iter().max_by_key(|team| (team.waited, team.members)))
    }
}

fn first(team: Option<WaitingTeam>) -> OperationId {
    team.map_or(OperationId(u8::MAX), |team| team.operation)
}
