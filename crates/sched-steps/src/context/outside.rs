//! Code of the embedder that must not find itself in a fiber.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::local::{INERT, local};

/// Calls what belongs to the user as if no fiber ran, and catches its panic.
pub(crate) fn outside<R>(call: impl FnOnce() -> R) -> std::thread::Result<R> {
    let local = local();
    let (hold, driver) = (local.hold.replace(INERT), local.driver.replace(None));
    let result = catch_unwind(AssertUnwindSafe(call));
    local.driver.set(driver);
    local.hold.set(hold);
    result
}
