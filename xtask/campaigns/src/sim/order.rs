//! Random scheduling of workers, and the virtual clock: the interface of every scheduler of a simulation, and their random
//! choices.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::Hook;

use super::rng::Rng;
use super::slots::Work;

/// Maximum number of consecutive steps of servants without a step of a worker; more than this is a hang.
pub(super) const MAX_SERVANT_STEPS: u32 = 20_000;
/// Upper bound of the usual virtual time between two decisions, in nanoseconds.
const TICK_NS: u64 = 2_000_000;

/// Nanoseconds of a duration, or `u64::MAX` if there are more.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the limit of a wait; `None` if the limit is beyond the range of the clock.
pub(crate) fn limit(of: Option<Duration>) -> Option<Duration> {
    of.filter(|limit| nanos(*limit) < u64::MAX)
}

/// The scheduler of a run, and the [`Hook`] of its engine.
pub(crate) trait Sim: Hook {
    /// A hash of all decisions: equal for equal runs.
    fn trace(&self) -> u64;

    /// Runs all participants until they end.
    ///
    /// # Errors
    /// The first panic, or a state in which no worker can continue.
    fn run(&self, roles: Vec<Role<'_>>) -> Result<(), String>;

    /// May switch to another worker, chosen by the seed.
    fn pause(&self);

    /// Returns true if all workers have ended; servants then end too.
    fn is_over(&self) -> bool;

    /// Returns true if the caller is the last participant; no other participant waits for it then.
    fn is_last(&self) -> bool;
}

/// A participant of a run.
pub(crate) struct Role<'a> {
    /// True for a servant, which loops until [`Sim::is_over`] returns true.
    pub(crate) serves: bool,
    pub(crate) work: Work<'a>,
}

/// The random choices of a run, and the hash of its decisions.
#[derive(Debug)]
pub(super) struct Decisions {
    rng: Rng,
    trace: u64,
}

impl Decisions {
    pub(super) fn new(rng: Rng) -> Decisions {
        Decisions { rng, trace: 0xcbf2_9ce4_8422_2325 }
    }

    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace
    }

    /// Adds an event to the trace.
    pub(super) fn note(&mut self, fact: u64) {
        self.trace = (self.trace ^ fact).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Advances the clock by a random time.
    pub(super) fn tick(&mut self, now_ns: &AtomicU64) {
        // Usually a short time; sometimes long enough for periodic work.
        let longest = if self.rng.once_in(16) { 100 * TICK_NS } else { TICK_NS };
        let step = self.rng.below(longest);
        now_ns.fetch_add(step, Ordering::Relaxed);
    }
}
