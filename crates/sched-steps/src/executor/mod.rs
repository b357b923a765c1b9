//! The executor: fibers of one thread, who runs next, and what waits.
//!
//! There is no scheduler context between two fibers. Whoever gives way picks the next one itself, on its own
//! stack, and switches there; the thread that drives the executor gets control only when nothing can run,
//! when what it waits for has happened, or between teams when it asked for that.

mod builder;
mod core;
mod drive;
mod fifo;
mod scope;
#[cfg(feature = "asan")]
mod shadow;
mod stop;
#[cfg(test)]
mod tests;
mod turns;

pub use builder::{BuildError, Builder, Executor, MIN_STACK_BYTES};
pub(crate) use core::{Core, fiber_main};
pub use drive::Idle;
pub(crate) use fifo::{Fifo, Links};
pub use scope::{FiberError, JoinHandle, Scope};
pub use stop::{Stop, Waiting, WaitsFor};
pub(crate) use turns::outside;
