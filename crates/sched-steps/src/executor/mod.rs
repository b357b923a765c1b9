//! The executor runs the fibers of one thread: it chooses the next fiber, and waits while no fiber can run.
//!
//! There is no scheduler context between two fibers. A fiber that gives up the CPU chooses the next one itself, on its
//! own stack, and switches to it. The thread that drives the executor gets control only when no fiber can run, when the
//! event that it waits for has occurred, or when its service callback is due.

mod builder;
mod core;
mod drive;
mod fiber_local;
mod idle;
mod locals;
mod operations;
mod order;
#[cfg(test)]
mod order_tests;
mod remote;
mod running;
mod scope;
#[cfg(feature = "asan")]
mod shadow;
mod stop;
#[cfg(test)]
mod team_tests;
#[cfg(test)]
mod tests;
mod turns;

pub use builder::{BuildError, Builder, Executor, MIN_STACK_BYTES};
pub use fiber_local::FiberLocal;
pub use idle::Idle;
pub use operations::{
    begin_operation, current_operation, current_part, end_operation, go_on_as, operation, reset_statistics, statistics,
};
pub use order::Order;
pub use remote::{Monitor, Sample, Waker};
pub use running::{block_until, index, monitor, park, waker, yield_now};
pub use scope::{FiberError, JoinHandle, Scope};
pub use stop::{Stop, Waiting, WaitsFor};
