//! Statistics of teams: the values of the paper's Table 4.

use std::cell::Cell;

/// Counters of one operation.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) begun: Cell<u64>,
    pub(crate) teams: Cell<u64>,
    pub(crate) size_in: Cell<u64>,
    pub(crate) size_out: Cell<u64>,
    pub(crate) strays: Cell<u64>,
    pub(crate) waits: Cell<u64>,
    pub(crate) launches_waited: Cell<u64>,
}

/// Adds `by` to a counter.
pub(crate) fn add(count: &Cell<u64>, by: u64) {
    count.set(count.get() + by);
}

impl Counts {
    pub(crate) fn clear(&self) {
        for count in
            [&self.begun, &self.teams, &self.size_in, &self.size_out, &self.strays, &self.waits, &self.launches_waited]
        {
            count.set(0);
        }
    }
}

/// Statistics of one operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationStatistics {
    /// Name of the operation.
    pub name: String,
    /// Number of times that a fiber began the operation.
    pub begun: u64,
    /// Number of launched teams that held at least one fiber in this operation. In a ring: equal to `begun`.
    pub teams: u64,
    /// Mean number of fibers per team at its launch (Table 4, "in"). In a ring: mean number of members when the
    /// operation began.
    pub mean_in: f64,
    /// Mean number of fibers per team that ended the operation in the team, without being strays (Table 4, "out"). In a
    /// ring: mean number of members when the operation ended.
    pub mean_out: f64,
    /// Number of times that a fiber became a stray in this operation.
    pub strays: u64,
    /// Number of times that a fiber in this operation was suspended until an event occurred, strays included.
    pub waits: u64,
    /// Mean number of launches of other teams between the time at which a fiber joins its team and the launch of the
    /// team.
    pub mean_launches_waited: f64,
}

/// Statistics of the teams of an executor.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Statistics per operation, in the order in which operations were added.
    pub operations: Vec<OperationStatistics>,
    /// Number of launched teams.
    pub launches: u64,
    /// Mean number of ready fibers at a launch (Table 4, "# of ready threads").
    pub mean_ready: f64,
    /// Mean number of members of a launched team.
    pub mean_team: f64,
    /// Number of teams that were launched out of turn because they had waited longer than the patience.
    pub overdue: u64,
    /// Maximum number of launches that any fiber has waited for.
    pub longest_wait: u64,
    /// Number of operations that currently share a team with other operations.
    pub consolidated: usize,
}

pub(crate) fn mean(sum: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { sum as f64 / of as f64 }
}
