//! Faults for the crate's own tests: of the calls of a kind that a thread makes, the n-th fails.
//!
//! The simulated disk refuses calls that reach a disk. Other calls are refused here: locks, room in the log. Only test
//! builds have it; elsewhere [`strikes`] is the constant `false`.

/// What can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "planned by tests alone")]
pub(crate) enum Refusable {
    /// A record lock: the transaction has too many.
    Lock,
    /// A record lock: its owner was chosen to break a deadlock.
    Wait,
    /// Room in the log: the disk is full.
    Log,
    /// Room in the log: a segment has to be made first.
    Segment,
    /// Appending to the log, with pages latched: a panic.
    Latched,
    /// Calls from the test's own closures.
    Closure,
    /// Starting a thread of the engine: the system gives none.
    Thread,
}

#[cfg(test)]
thread_local! {
    static PLANNED: std::cell::Cell<Option<(Refusable, u64)>> = const { std::cell::Cell::new(None) };
}

/// Whether this call is the one to be refused.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn strikes(_: Refusable) -> bool {
    false
}

/// Whether this call is the one to be refused.
#[cfg(test)]
pub(crate) fn strikes(what: Refusable) -> bool {
    let struck = PLANNED.get() == Some((what, 1));
    if let Some((planned, n)) = PLANNED.get()
        && planned == what
    {
        PLANNED.set((n > 1).then_some((what, n - 1)));
    }
    struck
}

/// Refuses the `n`-th call of a kind that this thread makes from now on.
#[cfg(test)]
pub(crate) fn plan(what: Refusable, n: u64) {
    PLANNED.set(Some((what, n)));
}

/// Cancels the fault; whether it was still to come.
#[cfg(test)]
pub(crate) fn clear() -> bool {
    PLANNED.take().is_some()
}
