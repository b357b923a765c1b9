//! Sibling-thread aggregation in user space.
//!
//! Fibers of one database, tenant or client program are *siblings*: they share a working set. If siblings run one after
//! the other on a core, each finds in its caches the data that the previous one loaded (TAS, time aggregation). If they
//! run at the same time on several cores, they share the contents of the shared cache (ITAS, inter-core time
//! aggregation). This crate implements the scheduler of the ITAS paper (Yamada and Kusakabe, "Impact of inter-core time
//! aggregation scheduler on a database server workload", AJIT 8(4), 2009) for fibers, without a change to the kernel. It
//! knows nothing of databases.
//!
//! ```
//! use itas::{Progress, Runtime, policy::Tas};
//!
//! // SAFETY: the work uses no thread-local, so none is open where it is suspended.
//! let mut runtime = unsafe { Runtime::builder().workers(1).policy(Tas).build() }?;
//! let group = runtime.group("a tenant")?;
//! let (sum, report) = runtime.run(|spawner| {
//!     let (sender, sums) = std::sync::mpsc::channel();
//!     for terminal in 0..4u64 {
//!         let sender = sender.clone();
//!         let work = move || sender.send(terminal).expect("the receiver is there");
//!         spawner.spawn(group, work).expect("a group of this runtime");
//!     }
//!     sums.iter().take(4).sum::<u64>()
//! })?;
//! assert_eq!((sum, report.total().groups[group.index()].slices > 0), (6, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Parts
//! A [`Scheduler`] belongs to one core. It consists of the vruntimes, a two-level run queue, and a
//! [`Policy`](policy::Policy) that chooses the next fiber. It has no clock and no threads. The [`Runtime`] drives one
//! scheduler per worker thread. [`core_order`] connects a scheduler to an executor of the embedder. [`virtual_time`]
//! drives schedulers without threads, and [`simulate`] does so over a model of caches. [`auto`] chooses policies and
//! parameters at run time.
//!
//! # Bound on waiting
//! A core chooses no fiber whose vruntime exceeds the smallest vruntime by more than the *lead* of the fiber's group,
//! `min(agg_bonus, agg_limit * slice)`, regardless of the policy. The vruntime of a fiber only grows, and a new fiber
//! starts above the smallest vruntime by a lead and a slice. Let `n` be the maximum number of live fibers on a core,
//! regardless of the number of fibers that start and end, and let `k` be 1024 / the smallest weight. Then
//!
//! ```text
//! wait <= 2 * longest + (n - 1) * max(1, longest / (2 * slice)) * (largest weight / 1024) * (3 * lead + credit + 6 * slice * k)
//! ```
//!
//! Here `longest` is the longest time between two choices, and `credit` is the amount of vruntime by which sleepers are
//! preferred. The proof is in the source file `bound.rs`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

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

/// Schedulers with a deliberate defect, to be detected by campaigns.
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
