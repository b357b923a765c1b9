//! Panics of fibers: unwinding of cancelled fibers, and the messages of panic payloads.

use std::any::Any;
use std::panic;

use super::local::with_current_driver;

/// Panic payload of a cancelled fiber. It is raised without calling the panic hook.
pub(crate) struct CancellationPayload;

/// Unwinds the running fiber from here to the start of its stack, running destructors.
#[cold]
#[inline(never)]
pub(crate) fn unwind_now() -> ! {
    with_current_driver(|driver| driver.begin_unwinding());
    panic::resume_unwind(Box::new(CancellationPayload))
}

/// Returns the message of a panic payload.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a value that is not text"
    }
}
