//! The teams that wait, and the choice among them. What they are for: [`team`](crate::team).

mod consolidate;
mod policy;
mod queues;
mod stats;
mod waiting;

pub use policy::{LargestFirst, LastInterest, NextTeam, OldestFirst, WaitingTeams};
pub use queues::WaitingTeam;
pub(crate) use stats::add;
pub use stats::{OperationStatistics, Statistics};
pub(crate) use waiting::{Member, NO_OPERATION, Teams};

/// Who shares a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Membership {
    /// All fibers that can run.
    #[default]
    Ring,
    /// Those in the same operation (the paper's execution teams).
    PerOperation,
}
