//! Hardware events and counter readings.

use std::collections::BTreeMap;

/// A hardware event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Event {
    /// CPU cycles.
    Cycles,
    /// Instructions retired.
    Instructions,
    /// Read misses of the first-level instruction cache.
    L1iMisses,
    /// Read misses of the first-level data cache.
    L1dMisses,
    /// Read misses of the last-level cache.
    LlcMisses,
    /// Read misses of the data translation buffer (TLB).
    DtlbMisses,
    /// Read misses of the instruction translation buffer (TLB).
    ItlbMisses,
    /// Mispredicted branches.
    BranchMisses,
    /// Cycles stalled in the front end, which fetches and decodes instructions.
    StalledFrontend,
    /// Cycles stalled in the back end, which executes instructions.
    StalledBackend,
}

impl Event {
    /// All events, in the order of their numbers.
    pub const ALL: [Event; 10] = [
        Event::Cycles,
        Event::Instructions,
        Event::L1iMisses,
        Event::L1dMisses,
        Event::LlcMisses,
        Event::DtlbMisses,
        Event::ItlbMisses,
        Event::BranchMisses,
        Event::StalledFrontend,
        Event::StalledBackend,
    ];

    /// Returns the key of the event in a report.
    pub fn name(self) -> &'static str {
        match self {
            Event::Cycles => "cycles",
            Event::Instructions => "instructions",
            Event::L1iMisses => "l1i_misses",
            Event::L1dMisses => "l1d_misses",
            Event::LlcMisses => "llc_misses",
            Event::DtlbMisses => "dtlb_misses",
            Event::ItlbMisses => "itlb_misses",
            Event::BranchMisses => "branch_misses",
            Event::StalledFrontend => "stalled_cycles_frontend",
            Event::StalledBackend => "stalled_cycles_backend",
        }
    }
}

/// Privilege level of counted instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Ring {
    /// User code of the program.
    User,
    /// Kernel code on behalf of the program.
    Kernel,
}

impl Ring {
    /// Both privilege levels, in the order of their numbers.
    pub const BOTH: [Ring; 2] = [Ring::User, Ring::Kernel];
}

/// Number of counters in a reading: each event at both privilege levels.
pub(super) const PLACES: usize = 2 * Event::ALL.len();

/// Returns the position of a counter in a reading.
pub(super) fn place(event: Event, ring: Ring) -> usize {
    2 * event as usize + ring as usize
}

/// Value of a counter at one moment, or the difference of two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    pub(super) count: u64,
    /// Time during which the counter was enabled, nanoseconds.
    pub(super) enabled: u64,
    /// Time during which the counter ran, nanoseconds. Less than `enabled` if counters are multiplexed; 0 if the counter is
    /// not available.
    pub(super) running: u64,
}

impl Reading {
    pub(super) fn since(self, before: Reading) -> Reading {
        Reading {
            count: self.count.saturating_sub(before.count),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }

    pub(super) fn add(&mut self, other: Reading) {
        self.count += other.count;
        self.enabled += other.enabled;
        self.running += other.running;
    }

    /// Returns the count, extrapolated to the whole enabled time. `None` if the counter never ran.
    pub(super) fn scaled(self) -> Option<f64> {
        (self.running > 0).then(|| self.count as f64 * (self.enabled as f64 / self.running as f64))
    }
}

/// Source of counter readings.
pub(super) trait Source {
    /// Returns true if no counter is available, so that readings contain no counts.
    fn is_empty(&self) -> bool;

    /// Reads all counters. Unavailable counters have a `running` time of 0.
    fn read(&mut self) -> [Reading; PLACES];
}

/// Reasons why counters are not available, indexed by counter key.
pub(super) type Reasons = BTreeMap<String, String>;
