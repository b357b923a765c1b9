//! Fault injection for the crate's own tests: the n-th call of a given kind on a thread fails.
//!
//! The simulated disk injects faults into disk calls. This module injects faults into other calls, such as lock requests
//! and reservations of log space. It exists only in test builds; elsewhere [`should_fail`] is the constant `false`.

/// Kind of a call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "planned by tests alone")]
pub(crate) enum FaultKind {
    /// A record lock request, which fails because the transaction has too many locks.
    Lock,
    /// A record lock request, which fails because its owner is chosen as the victim of a deadlock.
    Wait,
    /// A reservation of log space, which fails because the disk is full.
    Log,
    /// A reservation of log space, which fails because a segment has to be made first.
    Segment,
    /// An append to the log while pages are latched, which panics.
    Latched,
    /// A call of a closure that belongs to the test.
    Closure,
    /// The start of an engine thread, which the system refuses.
    Thread,
}

#[cfg(test)]
thread_local! {
    static PLANNED: std::cell::Cell<Option<(FaultKind, u64)>> = const { std::cell::Cell::new(None) };
}

/// Returns true if this call must fail.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn should_fail(_: FaultKind) -> bool {
    false
}

/// Returns true if this call must fail.
#[cfg(test)]
pub(crate) fn should_fail(what: FaultKind) -> bool {
    let fails = PLANNED.get() == Some((what, 1));
    if let Some((planned, n)) = PLANNED.get()
        && planned == what
    {
        PLANNED.set((n > 1).then_some((what, n - 1)));
    }
    fails
}

/// Plans a fault: the `n`-th call of this kind that this thread makes from now on fails.
#[cfg(test)]
pub(crate) fn plan(what: FaultKind, n: u64) {
    PLANNED.set(Some((what, n)));
}

/// Cancels the planned fault. Returns true if the fault had not occurred yet.
#[cfg(test)]
pub(crate) fn clear() -> bool {
    PLANNED.take().is_some()
}
