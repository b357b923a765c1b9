//! Interface of the schedulers of a simulation. Also the random choices of the schedulers, and the virtual clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::Hook;

use super::rng::Rng;
use super::slots::Work;

/// Maximum number of consecutive steps of servants without a step of a worker. A run that exceeds it hangs.
pub(super) const MAX_SERVANT_STEPS: u32 = 20_000;
/// Upper bound of the virtual time that usually passes between two decisions, in nanoseconds.
const TICK_NS: u64 = 2_000_000;

/// Returns the nanoseconds of a duration; `u64::MAX` if they exceed 64 bits.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the limit of a wait; `None` if the limit exceeds the range of the virtual clock.
pub(crate) fn limit(of: Option<Duration>) -> Option<Duration> {
    of.filter(|limit| nanos(*limit) < u64::MAX)
}

/// Scheduler of a run, which is also the [`Hook`] of its engine.
pub(crate) trait Sim: Hook {
    /// Returns a hash of all decisions. Equal runs have equal hashes.
    fn trace(&self) -> u64;

    /// Runs all participants to their ends.
    ///
    /// # Errors
    /// Returns the first panic, or a description of a state in which no worker can continue.
    fn run(&self, roles: Vec<Role<'_>>) -> Result<(), String>;

    /// Switches to another worker if the seed decides so.
    fn pause(&self);

    /// Returns true if all workers have ended; servants then end too.
    fn is_over(&self) -> bool;

    /// Returns true if all other participants have ended, so that none of them waits for the caller.
    fn is_last(&self) -> bool;
}

/// Participant of a run: a worker or a servant.
pub(crate) struct Role<'a> {
    /// True for a servant, which loops until [`Sim::is_over`] returns true.
    pub(crate) serves: bool,
    pub(crate) work: Work<'a>,
}

/// Random choices of a run, with a hash of its decisions.
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

    /// Adds an event to the hash.
    pub(super) fn note(&mut self, fact: u64) {
        self.trace = (self.trace ^ fact).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Advances the virtual clock by a random time.
    pub(super) fn tick(&mut self, now_ns: &AtomicU64) {
        // The time is usually short, but sometimes long enough for periodic work to be due.
        let longest = if self.rng.once_in(16) { 100 * TICK_NS } else { TICK_NS };
        let step = self.rng.below(longest);
        now_ns.fetch_add(step, Ordering::Relaxed);
    }
}
