//! Fibers on naked-asm context switches, and execution teams on top of them.
//!
//! The STEPS paper (Harizopoulos and Ailamaki, VLDB 2004) runs transactions that perform the same operation
//! as a team: at fixed points in the code each passes the CPU to the next, so that one of them pays for
//! fetching the instructions and the others find them in the cache. The same switch behind a prefetch hides
//! data misses. This crate is that mechanism for any Rust program; it knows nothing of databases.
//!
//! ```
//! use sched_steps::{Executor, ctx_point};
//!
//! // SAFETY: nothing below has a stack-scoped thread-local open at a point.
//! let mut steps = unsafe { Executor::builder().fibers(8).team_size(8).build() }?;
//! let sum = std::cell::Cell::new(0);
//! steps.scope(|s| {
//!     for i in 0..20 {
//!         let sum = &sum;
//!         s.spawn(move || {
//!             ctx_point!("half way"); // someone else may run here
//!             sum.set(sum.get() + i);
//!         });
//!     }
//! })?;
//! assert_eq!(sum.get(), 190);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The contract
//! Fibers of one thread share its thread-locals and leave calls in another order than they entered them. Safe code may
//! rely on the order that a thread would keep (`scoped_tls`, guards that restore what they found), so building an
//! executor is `unsafe`: the caller that builds it promises that nothing of that kind is open where a fiber gives way. The words
//! of the contract are at [`Builder::build`]. What belongs to a fiber is declared with [`fiber_local!`].
//! Points are safe: a library that has some, even one that forbids unsafe code, promises nothing.

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
    //! Fibers: what runs on a stack of its own and gives way only where it says so.
    //!
    //! The functions of this module act on the running fiber; outside of one they do nothing, or wait as a
    //! thread would.
    //!
    //! # Rules of a fiber
    //! - It stays on the thread of its executor: neither handles nor executors are `Send`.
    //! - It shares the thread's thread-locals with its mates: none that must be closed in the reverse order of opening is
    //!   open where it gives way (the contract of [`Builder::build`](crate::Builder::build)). What belongs to a fiber is
    //!   declared with [`fiber_local!`](crate::fiber_local).
    //! - What it calls must not block the thread; it waits with [`park`] or [`block_until`].
    //! - MXCSR and x87 control words are those of the thread and must not be changed across a point.
    //! - In the middle of a panic no other fiber runs: a destructor that waits there blocks the whole worker.
    //! - Shadow stacks (CET) are not supported.

    pub use crate::context::{
        LatchGuardCount, StackError, hop, is_fiber, latch_released, latch_taken, latches_held, may_hop,
    };
    pub use crate::executor::{
        FiberLocal, Monitor, Sample, Waker, block_until, index, monitor, park, waker, yield_now,
    };
}

pub mod team {
    //! Execution teams: fibers in the same operation go through its code together (paper 4.1).
    //!
    //! A fiber says what it is about to do with [`begin_operation`]. What follows depends on the [`Membership`]:
    //!
    //! - [`PerOperation`](Membership::PerOperation), the paper's: the fiber joins the team that waits for this
    //!   operation. When the running team has dissolved, every fiber that can run has reached its next team; then
    //!   the [`NextTeam`] policy chooses which one runs. A team that runs is closed: who repeats the operation
    //!   waits for the next team of it, so that all members stand at the same place.
    //! - [`Ring`](Membership::Ring): all fibers that can run form one ring, up to the team size, whatever they do.
    //!   This is for hiding data misses, where it does not matter whose they are.
    //!
    //! # Strays
    //! A fiber that waits or yields inside an operation leaves its team and is a *stray* (paper 4.1.3): with
    //! teams per operation its points are inert until it begins its next operation; in a ring it takes a place
    //! again as soon as it is ready and there is one.
    //!
    //! # Fairness
    //! No policy can starve a team: one whose first member has waited for more than
    //! [`patience`](crate::Builder::patience) launches runs next, the longest waiting first. So a team waits for
    //! at most `patience` + 64 launches, and a fiber for as many times that as full teams of its operation are in
    //! front of it. Fibers outside of teams run between teams, each once per launch. A fiber that never leaves
    //! its operation keeps its team running: operations must end.
    //!
    //! # Differences to the paper
    //! - The wrapper runs at the begin of an operation, not at the end of the one before: application code
    //!   between the two belongs to no team.
    //! - A team is formed when it is launched, from those that wait in order of arrival.

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
