//! Policies that choose the next team (paper 4.1.1, footnote 2).

use super::queues::{Queues, WaitingTeam};
use crate::point::OperationId;

/// View of the waiting teams when the policy chooses a team. At least one team waits.
#[derive(Debug)]
pub struct WaitingTeams<'a> {
    pub(super) queues: &'a Queues,
    pub(crate) last: Option<OperationId>,
}

impl WaitingTeams<'_> {
    /// Iterates over the waiting teams, in the order of operation indexes.
    pub fn iter(&self) -> impl Iterator<Item = WaitingTeam> {
        self.queues.waiting()
    }

    /// Returns the team that a fiber joined last, if this team still waits. It is the team of the next operation of the
    /// last member of the previous team, or of the last stray.
    #[must_use]
    pub fn last_joined(&self) -> Option<OperationId> {
        self.last
    }
}

/// Policy that chooses the next team. The executor calls the policy once per launch, as if outside of a fiber. A team
/// that has waited too long is launched without a call of the policy. A policy that panics is not called again: the
/// longest waiting teams are launched instead, and the scope resumes the panic.
pub trait NextTeam {
    /// Returns one of the waiting teams. Any other value selects the longest waiting team.
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId;
}

/// The paper's policy: launches the team that a fiber joined last. It is the cheapest policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastInterest;

/// Launches the team with the most members, and of equally large teams the longest waiting. It saves the most misses
/// per launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargestFirst;

/// Launches the team whose first member has waited longest.
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
