//! Operations of the running fiber.

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

/// Ends the operation of the running fiber without beginning another: the fiber belongs to no team until it does.
#[inline]
pub fn end_operation() {
    Core::current(Core::end_operation);
}

/// Current operation of the running fiber; `None` outside of an operation, and outside of a fiber.
#[inline]
#[must_use]
pub fn current_operation() -> Option<OperationId> {
    Core::current(Core::current_operation).flatten()
}

/// Keeps the running fiber in its team, and makes the points of `part` apply from now on. This is for operations that
/// consist of smaller ones, which the fibers of a team execute in step anyway, such as the statements of a transaction.
/// Call [`fiber::hop`](crate::fiber::hop) afterwards where the code of one part should not share the instruction cache
/// with the code of the next. Costs one store; valid until the next [`begin_operation`]. Does nothing outside of a fiber.
#[inline]
pub fn go_on_as(part: OperationId) {
    Core::current(|core| core.go_on_as(part));
}

/// Operation whose points apply to the running fiber: the argument of the last [`go_on_as`], else its current operation.
/// `None` outside of an operation, and outside of a fiber.
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

/// Returns statistics of the executor of the running fiber, since it was built or since [`reset_statistics`]; `None`
/// outside of an executor.
#[must_use]
pub fn statistics() -> Option<Statistics> {
    Core::current(Core::statistics)
}

/// Resets the statistics of the executor of the running fiber, for example after a warm-up.
pub fn reset_statistics() {
    Core::current(Core::reset_statistics);
}
