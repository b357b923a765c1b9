//! Waiting teams, and the choice of the next team to run. See [`team`](crate::team) for their purpose.

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

/// Membership rule: decides which fibers share a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Membership {
    /// All ready fibers share one ring.
    #[default]
    Ring,
    /// Fibers in the same operation share a ring (the paper's execution teams).
    PerOperation,
}
