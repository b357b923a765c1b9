//! The switch, once per architecture: `hop(local)`, the inlined symmetric switch to the next node of the ring, and
//! `switch(from, to)`, the general one, out of line. Beside them, `native` for all architectures and `threads` where there
//! is no assembly:
//!
//! - `prepare(node, top)`: makes a node whose first switch enters `fiber_main`;
//! - `rest(node)`: how a suspended node was suspended;
//! - `divert(node)`: lets a node that a hop suspended unwind instead of going on;
//! - `conclude(node)`: says that the next switch from a node is its last;
//! - `dispose(node)`: frees what a node holds beyond its stack.
//!
//! A context is four words, whichever switch saved it: stack pointer, place to go on, frame and base register. So a
//! hop may resume what a general switch suspended and the other way round.
//!
//! MXCSR and the x87 control word are not saved: Rust code may not change them, and saving them doubles the
//! price of a hop. Debug builds assert that MXCSR is at its default.

use super::local::local;
use super::node::Node;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod threads;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
pub(crate) use threads::*;

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod x86_64;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::*;

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri), feature = "save-callee"))]
mod x86_64_saving;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri), feature = "save-callee"))]
pub(crate) use x86_64_saving::*;

#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
pub(crate) use aarch64::*;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod native;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
pub(crate) use native::*;

/// How a context that does not run came to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Its function has not begun.
    Fresh,
    /// In `switch`; it looks for a cancellation by itself when it goes on.
    Switched,
    /// In `hop`; `divert` is needed to cancel it.
    Hopped,
}

/// Where a fiber begins, on its own stack.
#[allow(unsafe_code)]
pub(crate) extern "C" fn fiber_main(node: *const Node) {
    let Some(driver) = local().driver.get() else { std::process::abort() };
    // SAFETY: the executor that switched here drives this thread, and the node is one of its own.
    unsafe { driver.as_ref().run(&*node) }
}
