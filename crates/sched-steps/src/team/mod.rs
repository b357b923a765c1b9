//! Execution teams: fibers in the same operation go through its code together (paper 4.1).
//!
//! A fiber says what it is about to do with [`begin_operation`]. What follows depends on the [`Membership`]:
//!
//! - [`PerOperation`](Membership::PerOperation), the paper's: the fiber joins the team that waits for this
//!   operation. When the running team has dissolved, every fiber that can run has reached its next team; then
//!   the [`NextTeam`] policy chooses which one runs. A team that runs is closed: who repeats the operation
//!   waits for the next team of it, so that all members stand at the same place.
//! - [`Ring`](Membership::Ring): all fibers that can run form one ring, up to the team size, whatever they do.
//!   This is for hiding data misses, where it does not matter whose they are.
//!
//! # Strays
//! A fiber that waits or yields inside an operation leaves its team and is a *stray* (paper 4.1.3): with
//! teams per operation its points are inert until it begins its next operation; in a ring it takes a place
//! again as soon as it is ready and there is one.
//!
//! # Fairness
//! No policy can starve a team: one whose first member has waited for more than
//! [`patience`](crate::Builder::patience) launches runs next, the longest waiting first. So a team waits for
//! at most `patience` + 64 launches, and a fiber for as many times that as full teams of its operation are in
//! front of it. Fibers outside of teams run between teams, each once per launch. A fiber that never leaves
//! its operation keeps its team running: operations must end.
//!
//! # Differences to the paper
//! - The wrapper runs at the begin of an operation, not at the end of the one before: application code
//!   between the two belongs to no team.
//! - A team is formed when it is launched, from those that wait in order of arrival.

mod consolidate;
mod operation;
mod policy;
mod stats;
mod teams;

pub use operation::{OperationId, Operations, TooManyOperations};
pub use policy::{LargestFirst, LastInterest, NextTeam, OldestFirst, WaitingTeam, WaitingTeams};
pub(crate) use stats::add;
pub use stats::{OperationStatistics, Statistics};
pub(crate) use teams::{Member, NO_OPERATION, Teams};

use crate::executor::Core;

/// Who shares a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Membership {
    /// Whoever can run.
    #[default]
    Ring,
    /// Those in the same operation (the paper's execution teams).
    PerOperation,
}

/// The running fiber begins `operation`, and ends the one it was in. Others may run first.
///
/// Does nothing outside of a fiber. A latch must not be held (debug assertion).
///
/// # Panics
/// If `operation` was not made by the [`Operations`] the executor was built with.
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

#[cfg(test)]
mod tests;
