//! Choosing among policies and placements by what they do for the work at hand.
//!
//! Which policy is best depends on the working sets, the caches, the length of slices and on neighbours: there are loads
//! on which each of them wins, and some on which aggregation across cores halves the throughput. Hardware counters are
//! often not to be had, so the choice is made by work done: each way of scheduling gets windows of time in turn, and what
//! counts is the operations that fibers ended in them.

mod chooser;
pub(crate) mod places;
mod tuner;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use chooser::Chooser;
pub use places::PLACES;
pub use tuner::{Tuner, TunerSettings};

use crate::placement::Placement;
use crate::policy::{Choice, Fair, Itas, Policy, Tas, View};

/// What the fibers of a group did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupWork {
    /// Operations that they ended.
    pub operations: u64,
    /// Time that they ran, in nanoseconds.
    pub run_ns: u64,
}

/// A way to schedule: a policy and where groups are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// [`Fair`], spread.
    Fair,
    /// [`Tas`], spread.
    Tas,
    /// [`Tas`], each group on its home core.
    Packed,
    /// [`Itas`], spread.
    Itas,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 4] = [Mode::Fair, Mode::Tas, Mode::Packed, Mode::Itas];

    /// Where it places groups.
    #[must_use]
    pub fn placement(self) -> Placement {
        if self == Mode::Packed { Placement::Packed } else { Placement::Spread }
    }

    /// Its policy.
    #[must_use]
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Mode::Fair => Box::new(Fair),
            Mode::Tas | Mode::Packed => Box::new(Tas),
            Mode::Itas => Box::new(Itas),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Fair => "fair",
            Mode::Tas => "tas",
            Mode::Packed => "packed",
            Mode::Itas => "itas",
        }
    }
}

/// Settings of the automatic choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoSettings {
    /// Time that a mode is tried for at once. It should cover the turns of all groups: see [`AutoSettings::for_cycle`].
    pub window: Duration,
    /// Windows between two trials of another mode, once one is chosen.
    pub windows_between_trials: u32,
}

impl AutoSettings {
    /// For a load whose groups all had their turn, aggregated, after `cycle`: windows of one and a half of it, from 30 to
    /// 250 ms.
    #[must_use]
    pub fn for_cycle(cycle: Duration) -> AutoSettings {
        let window = (cycle * 3 / 2).clamp(Duration::from_millis(30), Duration::from_millis(250));
        AutoSettings { window, windows_between_trials: 24 }
    }
}

/// The mode that all cores follow; the chooser changes it.
#[derive(Debug)]
pub(crate) struct ModeWord(AtomicU32);

impl ModeWord {
    pub(crate) fn new(mode: Mode) -> ModeWord {
        ModeWord(AtomicU32::new(mode as u32))
    }

    #[inline]
    pub(crate) fn get(&self) -> Mode {
        Mode::ALL[self.0.load(Ordering::Relaxed) as usize % Mode::ALL.len()]
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.0.store(mode as u32, Ordering::Relaxed);
    }
}

/// The policy of whatever mode is set.
#[derive(Clone, Debug)]
pub(crate) struct Switching(pub(crate) Arc<ModeWord>);

impl Policy for Switching {
    fn name(&self) -> &'static str {
        "auto"
    }

    #[inline]
    fn choose(&mut self, view: &View<'_>) -> Choice {
        match self.0.get() {
            Mode::Fair => Fair.choose(view),
            Mode::Tas | Mode::Packed => Tas.choose(view),
            Mode::Itas => Itas.choose(view),
        }
    }
}
