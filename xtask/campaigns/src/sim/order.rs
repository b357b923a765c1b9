//! The order in which workers run, from a seed, and the virtual clock: the interface of every scheduler of a
//! simulation, and the choices that each of them makes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::Hook;

use super::rng::Rng;
use super::seats::Work;

/// Steps that servants may take in a row without any worker running: after so many, no worker ever will.
pub(super) const VAIN_STEPS_MAX: u32 = 20_000;
/// Virtual time between two decisions is below this, in nanoseconds.
const TICK_NS: u64 = 2_000_000;

/// Nanoseconds of a duration; the largest number for one that has more.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The limit of a wait; a time that does not come is none.
pub(crate) fn limit(of: Option<Duration>) -> Option<Duration> {
    of.filter(|limit| nanos(*limit) < u64::MAX)
}

/// One run's scheduler, and as its [`Hook`] the engine's.
pub(crate) trait Sim: Hook {
    /// A number that differs between two runs, unless all decisions were equal.
    fn trace(&self) -> u64;

    /// Runs all to their ends.
    ///
    /// # Errors
    /// The first panic, or a state in which no worker could go on.
    fn run(&self, roles: Vec<Role<'_>>) -> Result<(), String>;

    /// Lets the seed decide which worker goes on.
    fn pause(&self);

    /// Whether all workers have ended: servants then end too.
    fn is_over(&self) -> bool;

    /// Whether the caller is the last one left: the waits of other workers for it end then.
    fn is_last(&self) -> bool;
}

/// A participant of a run.
pub(crate) struct Role<'a> {
    /// Whether it loops until [`Sim::is_over`] says that all others have ended.
    pub(crate) serves: bool,
    /// Its work.
    pub(crate) work: Work<'a>,
}

/// All random choices of a run, and the number that differs between runs.
#[derive(Debug)]
pub(super) struct Dice {
    rng: Rng,
    trace: u64,
}

impl Dice {
    pub(super) fn new(rng: Rng) -> Dice {
        Dice { rng, trace: 0xcbf2_9ce4_8422_2325 }
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

    /// Lets time pass.
    pub(super) fn tick(&mut self, now_ns: &AtomicU64) {
        // Mostly little, now and then enough for periodic work.
        let longest = if self.rng.once_in(16) { 100 * TICK_NS } else { TICK_NS };
        let step = self.rng.below(longest);
        now_ns.fetch_add(step, Ordering::Relaxed);
    }
}
