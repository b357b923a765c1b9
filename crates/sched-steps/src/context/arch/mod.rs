//! Context switch, with one implementation per architecture. `hop(local)` is the inlined symmetric switch to the next
//! node of the ring, and `switch(from, to)` is the general out-of-line switch. The module `native` contains the parts
//! that all architectures share, and `threads` replaces both on targets without assembly:
//!
//! - `prepare(node, top)`: initialises a node so that its first switch enters `fiber_main`;
//! - `suspended_state(node)`: returns the kind of switch that suspended a node, or that the node is fresh;
//! - `make_unwind(node)`: makes a node, which a hop suspended, unwind when it resumes;
//! - `mark_last_switch(node)`: declares that the next switch from a node is its last;
//! - `dispose(node)`: frees the resources of a node other than its stack.
//!
//! A context consists of four words, regardless of the switch that saved it: stack pointer, resume address, frame
//! register, base register. So a hop may resume a context that a general switch suspended, and vice versa.
//!
//! MXCSR and the x87 control word are not saved: Rust code may not change them, and saving them doubles the cost of a
//! hop. Debug builds assert that MXCSR has its default value.

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

/// State of a context that does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuspendedState {
    /// The fiber's function has not begun.
    Fresh,
    /// Suspended in `switch`. The context itself tests for a cancellation when it resumes.
    Switched,
    /// Suspended in `hop`. `make_unwind` is necessary to cancel the fiber.
    Hopped,
}

/// Runs a fiber on its own stack. A fresh fiber begins here.
#[allow(unsafe_code)]
pub(crate) extern "C" fn fiber_main(node: *const Node) {
    let Some(driver) = local().driver.get() else { std::process::abort() };
    // SAFETY: the executor that switched here drives this thread, and the node is a node of this executor.
    unsafe { driver.as_ref().run(&*node) }
}
