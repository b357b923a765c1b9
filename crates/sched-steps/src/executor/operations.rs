//! Begin and end of operations by the running fiber.

use super::core::Core;
use crate::point::OperationId;
use crate::teams::Statistics;

/// Begins `operation` on the running fiber and ends its previous operation. Other fibers may run first.
///
/// Does nothing outside of a fiber. The fiber must not hold a latch (debug assertion).
///
/// # Panics
/// If `operation` does not come from the [`Operations`](crate::point::Operations) that the executor was built with.
#[inline]
pub fn begin_operation(operation: OperationId) {
    Core::current(|core| core.begin_operation(operation));
}

/// Ends the operation of the running fiber without beginning another. The fiber belongs to no team until it begins its
/// next operation.
#[inline]
pub fn end_operation() {
    Core::current(Core::end_operation);
}

/// Returns the current operation of the running fiber; `None` outside of an operation, and outside of a fiber.
#[inline]
#[must_use]
pub fn current_operation() -> Option<OperationId> {
    Core::current(Core::current_operation).flatten()
}

/// Keeps the running fiber in its team, and makes the points of `part` apply to it from now on. This function is for
/// operations that consist of smaller operations, such as the statements of a transaction, which the fibers of a team
/// execute in step anyway. Call [`fiber::hop`](crate::fiber::hop) afterwards if the code of one part should not share
/// the instruction cache with the code of the next. The call costs one store and is valid until the next
/// [`begin_operation`]. Does nothing outside of a fiber.
#[inline]
pub fn go_on_as(part: OperationId) {
    Core::current(|core| core.go_on_as(part));
}

/// Returns the operation whose points apply to the running fiber: the argument of the last [`go_on_as`], or else its
/// current operation. `None` outside of an operation, and outside of a fiber.
#[inline]
#[must_use]
pub fn current_part() -> Option<OperationId> {
    Core::current(Core::current_part).flatten()
}

/// Runs `body` as `operation`, and ends the operation afterwards.
#[inline]
pub fn operation<R>(operation: OperationId, body: impl FnOnce() -> R) -> R {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            end_operation();
        }
    }
    begin_operation(operation);
    let _end = End;
    body()
}

/// Returns the team statistics of the running fiber's executor since it was built, or since the last
/// [`reset_statistics`]; `None` outside of an executor.
#[must_use]
pub fn statistics() -> Option<Statistics> {
    Core::current(Core::statistics)
}

/// Resets the team statistics of the running fiber's executor, for example after a warm-up.
pub fn reset_statistics() {
    Core::current(Core::reset_statistics);
}
