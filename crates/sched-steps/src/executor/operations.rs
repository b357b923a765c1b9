//! What the running fiber says of its operations.

use super::core::Core;
use crate::point::OperationId;
use crate::teams::Statistics;

/// The running fiber begins `operation`, and ends the one it was in. Others may run first.
///
/// Does nothing outside of a fiber. A latch must not be held (debug assertion).
///
/// # Panics
/// If `operation` was not made by the [`Operations`](crate::point::Operations) the executor was built with.
#[inline]
pub fn begin_operation(operation: OperationId) {
    Core::current(|core| core.begin_operation(operation));
}

/// The running fiber ends its operation without beginning another: it belongs to no team until then.
#[inline]
pub fn end_operation() {
    Core::current(Core::end_operation);
}

/// The operation that the running fiber is in; `None` outside of one, and outside of a fiber.
#[inline]
#[must_use]
pub fn current_operation() -> Option<OperationId> {
    Core::current(Core::current_operation).flatten()
}

/// The running fiber stays in its team, and its points are those of `part` from now on: for operations that are made of
/// smaller ones, through which a team goes in step anyway, such as the statements of a transaction. Follow it with a
/// [`fiber::hop`](crate::fiber::hop) where the code of one part should not meet that of the next in the instruction cache.
/// Costs a store; until the next [`begin_operation`]. Does nothing outside of a fiber.
#[inline]
pub fn go_on_as(part: OperationId) {
    Core::current(|core| core.go_on_as(part));
}

/// The operation whose points the running fiber's are: that of the last [`go_on_as`], else the one it is in; `None` outside
/// of an operation, and outside of a fiber.
#[inline]
#[must_use]
pub fn current_part() -> Option<OperationId> {
    Core::current(Core::current_part).flatten()
}

/// Runs `body` as `operation`.
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

/// Counts of the executor whose fiber runs, since it was built or since [`reset_statistics`].
#[must_use]
pub fn statistics() -> Option<Statistics> {
    Core::current(Core::statistics)
}

/// Sets the counts of the executor whose fiber runs to zero, after a warm-up say.
pub fn reset_statistics() {
    Core::current(Core::reset_statistics);
}
