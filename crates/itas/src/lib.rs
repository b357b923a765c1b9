//! Sibling-thread aggregation in user space.
//!
//! Fibers of one database, tenant or client program are *siblings*: they share a working set. Run one after the other on a
//! core they find in its caches what the one before loaded (TAS, time aggregation); run at the same time on several cores
//! they share what is in the cache between them (ITAS, inter-core time aggregation). This crate is the scheduler of the ITAS
//! paper (Yamada and Kusakabe, "Impact of inter-core time aggregation scheduler on a database server workload", AJIT 8(4),
//! 2009) for fibers, without a change to the kernel. It knows nothing of databases.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod auto;
mod bound;
mod executor;
mod group;
mod mutant;
mod placement;
pub mod policy;
mod publish;
mod queue;
mod runtime;
mod scheduler;
pub mod simulate;
mod stats;
pub mod virtual_time;

/// Schedulers with a deliberate defect, for campaigns to detect.
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants {
    pub use crate::mutant::{Mutant, VARIABLE, chosen};
}

pub use executor::{CoreHandle, CoreOrder, core_order};
pub use group::{Aggregation, DEFAULT_WEIGHT, GroupError, GroupId, Groups, MAX_BONUS, MAX_GROUPS};
pub use placement::Placement;
pub use publish::{Board, Role};
pub use queue::{Candidate, RunQueue};
pub use runtime::{
    BuildError, Builder, PlacementChanger, Progress, Report, RunError, Runtime, Slice, Spawner, Stuck, Work, blocking,
    point,
};
pub use scheduler::{CoreSettings, Scheduler, Stops};
pub use stats::{CoreStatistics, GroupStatistics, jain};
