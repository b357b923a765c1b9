//! Statistics of teams: the figures of the paper's Table 4.

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
    /// Launched teams that held at least one fiber in this operation. In a ring: equal to `begun`.
    pub teams: u64,
    /// Mean number of fibers per team on entry (Table 4, "in"). In a ring: members of the ring when the operation began.
    pub mean_in: f64,
    /// Mean number of fibers per team that ended the operation in it, without being strays (Table 4, "out"). In a ring:
    /// members of the ring when the operation ended.
    pub mean_out: f64,
    /// Number of times that a fiber became a stray in this operation.
    pub strays: u64,
    /// Number of times that a fiber in this operation was suspended until an event, strays included.
    pub waits: u64,
    /// Mean number of launches of other teams between a fiber's join and its run.
    pub mean_launches_waited: f64,
}

/// Statistics of the teams of an executor.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Statistics per operation, in the order in which operations were added.
    pub operations: Vec<OperationStatistics>,
    /// Launched teams.
    pub launches: u64,
    /// Mean number of ready fibers at a launch (Table 4, "# of ready threads").
    pub mean_ready: f64,
    /// Mean size of a launched team.
    pub mean_team: f64,
    /// Teams launched out of turn because they had waited longer than the patience.
    pub overdue: u64,
    /// Maximum number of launches that any fiber waited for.
    pub longest_wait: u64,
    /// Operations that currently share a team with others.
    pub consolidated: usize,
}

pub(crate) fn mean(sum: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { sum as f64 / of as f64 }
}
