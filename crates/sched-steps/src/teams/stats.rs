//! What teams did: the figures of the paper's Table 4.

use std::cell::Cell;

/// Counts of one operation.
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

/// Adds to a count.
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

/// What happened to one operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationStatistics {
    /// Its name.
    pub name: String,
    /// Times a fiber began it.
    pub begun: u64,
    /// Teams launched that held at least one fiber in this operation. In a ring: equal to `begun`.
    pub teams: u64,
    /// Fibers per team on entry (Table 4, "in"). In a ring: members of the ring when the operation began.
    pub mean_in: f64,
    /// Fibers per team that ended the operation in it, without being strays (Table 4, "out"). In a ring:
    /// members of the ring when the operation ended.
    pub mean_out: f64,
    /// Times a fiber became a stray in it.
    pub strays: u64,
    /// Times a fiber was suspended in it until woken, as a stray or already one.
    pub waits: u64,
    /// Launches of other teams that a fiber saw between joining and running, on average.
    pub mean_launches_waited: f64,
}

/// What the teams of an executor did.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Per operation, in the order they were added.
    pub operations: Vec<OperationStatistics>,
    /// Teams launched.
    pub launches: u64,
    /// Fibers ready to run when a team was launched, on average (Table 4, "# of ready threads").
    pub mean_ready: f64,
    /// Size of a team when launched, on average.
    pub mean_team: f64,
    /// Times a team was launched out of turn because it had waited for longer than the patience.
    pub overdue: u64,
    /// The most launches that any fiber waited for.
    pub longest_wait: u64,
    /// Operations that share a team with others at present.
    pub consolidated: usize,
}

pub(crate) fn mean(sum: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { sum as f64 / of as f64 }
}
