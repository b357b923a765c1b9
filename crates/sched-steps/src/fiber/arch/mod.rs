//! The switch, once per architecture. Each file has the same few functions:
//!
//! - `hop(local)`: the inlined symmetric switch to the next node of the ring;
//! - `switch(from, to)`: the general switch, out of line;
//! - `prepare(node, top)`: makes a node whose first switch enters `fiber_main`;
//! - `state(node)`: how a suspended node was suspended;
//! - `divert(node)`: lets a node that a hop suspended unwind instead of going on.
//!
//! A context is four words, whoever saved it: stack pointer, place to go on, frame and base register. So a
//! hop may resume what a general switch suspended and the other way round.
//!
//! MXCSR and the x87 control word are not saved: Rust code may not change them, and saving them doubles the
//! price of a hop. Debug builds assert that MXCSR is at its default.

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod threads;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) use threads::*;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::*;

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(crate) use aarch64::*;

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
