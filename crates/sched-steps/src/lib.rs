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
//! executor is `unsafe`: whoever builds it promises that nothing of that kind is open where a fiber gives way. The words
//! of the contract are at [`Builder::build`]. What belongs to a fiber is declared with [`fiber_local!`].
//! Points are safe: a library that has some, even one that forbids unsafe code, promises nothing.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("sched-steps runs on Linux and macOS: its stacks, guards and signals are those of these systems");

mod executor;
pub mod fiber;
#[cfg(feature = "measure")]
pub mod measure;
pub mod point;
pub mod team;

pub use executor::{
    BuildError, Builder, Executor, FiberError, Idle, JoinHandle, MIN_STACK_BYTES, Scope, Stop, Waiting, WaitsFor,
};
