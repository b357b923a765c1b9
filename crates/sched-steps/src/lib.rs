//! Fibers on naked-asm context switches, and execution teams on top of them.
//!
//! The STEPS paper (Harizopoulos and Ailamaki, VLDB 2004) runs transactions that perform the same operation as a team:
//! at fixed points in the code each fiber passes the CPU to the next. One fiber pays for fetching the instructions, and
//! the others find the instructions in the cache. The same switch, placed behind a prefetch, hides data misses. This
//! crate provides that mechanism for any Rust program; it knows nothing of databases.
//!
//! ```
//! use sched_steps::{Executor, ctx_point};
//!
//! // SAFETY: the code below has no stack-scoped thread-local open at a point.
//! let mut steps = unsafe { Executor::builder().fibers(8).team_size(8).build() }?;
//! let sum = std::cell::Cell::new(0);
//! steps.scope(|s| {
//!     for i in 0..20 {
//!         let sum = &sum;
//!         s.spawn(move || {
//!             ctx_point!("half way"); // another fiber may run here
//!             sum.set(sum.get() + i);
//!         });
//!     }
//! })?;
//! assert_eq!(sum.get(), 190);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The contract
//! Fibers of one thread share its thread-locals, and calls on different fibers do not return in reverse order of entry.
//! Safe code may rely on that order (`scoped_tls`, guards that restore an earlier value). Therefore building an
//! executor is `unsafe`: the caller promises that no scope of this kind is open at a place where a fiber is suspended.
//! [`Builder::build`] states the contract in full. Fiber-local values are declared with [`fiber_local!`]. Points are
//! safe: a library that contains points makes no promise, even if it forbids unsafe code.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("sched-steps runs on Linux and macOS: its stacks, guards and signals are those of these systems");

mod context;
mod executor;
mod fifo;
#[cfg(feature = "measure")]
pub mod measure;
pub mod point;
mod teams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod fiber {
    //! Fibers: functions that run on their own stacks and are suspended only at explicit calls.
    //!
    //! The functions of this module act on the running fiber. Outside of a fiber they do nothing, or wait as the
    //! corresponding functions of a thread do.
    //!
    //! # Rules of a fiber
    //! - A fiber stays on the thread of its executor: neither handles nor executors are `Send`.
    //! - A fiber shares the thread's thread-locals with the other fibers. No scope that must be closed in reverse order
    //!   of opening may be open at a place where the fiber is suspended (the contract of
    //!   [`Builder::build`](crate::Builder::build)). Fiber-local values are declared with
    //!   [`fiber_local!`](crate::fiber_local).
    //! - Code on a fiber must not block the thread. To wait, it calls [`park`] or [`block_until`].
    //! - MXCSR and the x87 control word belong to the thread and must not change across a point.
    //! - During a panic no other fiber runs: a destructor that waits during a panic blocks the whole thread.
    //! - Shadow stacks (CET) are not supported.

    pub use crate::context::{
        LatchGuardCount, StackError, hop, is_fiber, latch_released, latch_taken, latches_held, may_hop,
    };
    pub use crate::executor::{
        FiberLocal, Monitor, Sample, Waker, block_until, index, monitor, park, waker, yield_now,
    };
}

pub mod team {
    //! Execution teams: fibers in the same operation execute its code together (paper 4.1).
    //!
    //! A fiber announces its next operation with [`begin_operation`]. The effect depends on the [`Membership`]:
    //!
    //! - [`PerOperation`](Membership::PerOperation), the paper's mode: the fiber joins the team that waits for this
    //!   operation. After the running team has dissolved, every ready fiber first gets one turn, in which it can join its
    //!   next team; then the [`NextTeam`] policy chooses the team to run. A running team admits no members: a fiber that
    //!   repeats the operation joins the next team of that operation, so that all members of a team are at the same place
    //!   in the code.
    //! - [`Ring`](Membership::Ring): all ready fibers form one ring, up to the team size, regardless of their operations.
    //!   This mode is for hiding data misses, which does not require that the fibers run the same code.
    //!
    //! # Strays
    //! A fiber that waits or yields inside an operation leaves its team and is a *stray* (paper 4.1.3). With teams per
    //! operation its points are inert until it begins its next operation. In a ring it takes a place again when it is
    //! ready and a place is free.
    //!
    //! # Fairness
    //! No policy can starve a team: a team whose first member has waited for more than
    //! [`patience`](crate::Builder::patience) launches runs next, the longest waiting first. So a team waits for at
    //! most `patience` + 64 launches. A fiber waits for at most this number of launches for each full team of its
    //! operation that is ahead of it, and once more for its own team. Fibers outside of teams run between teams, each
    //! once per launch. A fiber that never ends its operation keeps its team running: operations must end.
    //!
    //! # Differences to the paper
    //! - The wrapper code runs at the beginning of an operation, not at the end of the previous one: application code
    //!   between two operations belongs to no team.
    //! - A team is formed when it is launched, from the waiting fibers in order of arrival.

    pub use crate::executor::{
        begin_operation, current_operation, current_part, end_operation, go_on_as, operation, reset_statistics,
        statistics,
    };
    pub use crate::point::{OperationId, Operations, TooManyOperations};
    pub use crate::teams::{
        LargestFirst, LastInterest, Membership, NextTeam, OldestFirst, OperationStatistics, Statistics, WaitingTeam,
        WaitingTeams,
    };
}

pub use executor::{
    BuildError, Builder, Executor, FiberError, Idle, JoinHandle, MIN_STACK_BYTES, Order, Scope, Stop, Waiting, WaitsFor,
};
