//! Automatic choice of policy and placement by measured work.
//!
//! The best policy depends on the working sets, the caches, the slice length and other load on the machine: each policy
//! is the best for some loads, and for some loads aggregation across cores halves the throughput. Hardware counters are
//! often unavailable, so the choice is based on completed work: each mode gets windows of time in turn, and the numbers
//! of operations that fibers completed in the windows are compared.

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

/// Work done by the fibers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupWork {
    /// Number of completed operations.
    pub operations: u64,
    /// Run time of the fibers, in nanoseconds.
    pub run_ns: u64,
}

/// Scheduling mode: a policy and a placement of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Policy [`Fair`], groups spread over all cores.
    Fair,
    /// Policy [`Tas`], groups spread over all cores.
    Tas,
    /// Policy [`Tas`], each group on its home core.
    Packed,
    /// Policy [`Itas`], groups spread over all cores.
    Itas,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Fair, Mode::Tas, Mode::Packed, Mode::Itas];

    /// Returns the placement of groups in this mode.
    #[must_use]
    pub fn placement(self) -> Placement {
        if self == Mode::Packed { Placement::Packed } else { Placement::Spread }
    }

    /// Returns the policy of this mode.
    #[must_use]
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Mode::Fair => Box::new(Fair),
            Mode::Tas | Mode::Packed => Box::new(Tas),
            Mode::Itas => Box::new(Itas),
        }
    }

    /// Returns the name of this mode.
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
    /// Length of a window in which one mode runs. It should cover the turns of all groups: see
    /// [`AutoSettings::for_cycle`].
    pub window: Duration,
    /// Number of windows between two trials of other modes, after a mode has been chosen.
    pub windows_between_trials: u32,
}

impl AutoSettings {
    /// Returns settings for a load in which every group gets one turn per `cycle` when siblings are aggregated. The
    /// windows last one and a half cycles, but at least 30 ms and at most 250 ms.
    #[must_use]
    pub fn for_cycle(cycle: Duration) -> AutoSettings {
        let window = (cycle * 3 / 2).clamp(Duration::from_millis(30), Duration::from_millis(250));
        AutoSettings { window, windows_between_trials: 24 }
    }
}

/// Current mode of all cores, set by the chooser.
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

/// Policy that delegates to the current mode.
#[derive(Clone, Debug)]
pub(crate) struct ModePolicy(pub(crate) Arc<ModeWord>);

impl Policy for ModePolicy {
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
