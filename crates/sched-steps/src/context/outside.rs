//! Calls of user code, which must run as if outside of a fiber. A panic of the user code is returned as a value.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::local::local;

/// Calls user code as if no fiber ran. Returns a panic of the user code as an error.
pub(crate) fn call_outside<R>(call: impl FnOnce() -> R) -> std::thread::Result<R> {
    let local = local();
    local.with_driver(None, local.current.get(), || catch_unwind(AssertUnwindSafe(call)))
}

/// Drops a user's value and returns the panic of its destructor as an error.
pub(crate) fn catch_drop<T>(value: T) -> std::thread::Result<()> {
    catch_unwind(AssertUnwindSafe(|| drop(value)))
}

/// Drops a panic payload that is not reported. The destructor of the payload may panic in turn.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    /// Maximum number of payloads to drop, each from the destructor of the previous payload; the next payload is
    /// leaked.
    const MOST: usize = 16;
    let mut payload = payload;
    for _ in 0..MOST {
        match catch_drop(payload) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}
