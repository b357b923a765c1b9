//! Panics end at a fiber's root; a suspended fiber that is cancelled unwinds from where it rests.

use std::any::Any;
use std::panic;

use super::local::driving;

/// What a cancelled fiber unwinds with. Raised without calling the panic hook.
pub(crate) struct Unwound;

/// Unwinds the running fiber to its root, running destructors.
#[cold]
#[inline(never)]
pub(crate) fn unwind_now() -> ! {
    driving(|driver| driver.begin_unwinding());
    panic::resume_unwind(Box::new(Unwound))
}

/// The words of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a value that is not text"
    }
}
