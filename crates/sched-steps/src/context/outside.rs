//! Code of the embedder: it must not find itself in a fiber, and what it panics with is a value.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::local::local;

/// Calls what belongs to the user as if no fiber ran, and catches its panic.
pub(crate) fn outside<R>(call: impl FnOnce() -> R) -> std::thread::Result<R> {
    let local = local();
    local.with_driver(None, local.current.get(), || catch_unwind(AssertUnwindSafe(call)))
}

/// Drops a value of the user and returns what its destructor panicked with, if that is fit to be told.
pub(crate) fn dropped<T>(value: T) -> std::thread::Result<()> {
    catch_unwind(AssertUnwindSafe(|| drop(value)))
}

/// Drops a payload that is not reported. Its destructor may panic in turn.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    /// Payloads, each from the destructor of the one before, that are dropped; the next one is leaked.
    const MOST: usize = 16;
    let mut payload = payload;
    for _ in 0..MOST {
        match dropped(payload) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}
