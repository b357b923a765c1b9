//! What can be counted, and what a reading is.

use std::collections::BTreeMap;

/// A counter of the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Event {
    /// Cycles of the processor.
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
    /// All of them, in the order of their numbers.
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

    /// Its key in a report.
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

/// Whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Ring {
    /// The program's.
    User,
    /// The system's, on behalf of the program.
    Kernel,
}

impl Ring {
    /// Both rings, in the order of their numbers.
    pub const BOTH: [Ring; 2] = [Ring::User, Ring::Kernel];
}

/// Counters of a reading: each event in both rings.
pub(super) const PLACES: usize = 2 * Event::ALL.len();

/// Where a reading has a counter.
pub(super) fn place(event: Event, ring: Ring) -> usize {
    2 * event as usize + ring as usize
}

/// A counter at one moment, or between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    pub(super) count: u64,
    /// Nanoseconds that it was wanted.
    pub(super) enabled: u64,
    /// Nanoseconds that it counted: less where counters take turns, 0 where there is no such counter.
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

    /// What it would have counted had it run all the time; none if it never ran.
    pub(super) fn scaled(self) -> Option<f64> {
        (self.running > 0).then(|| self.count as f64 * (self.enabled as f64 / self.running as f64))
    }
}

/// Where readings come from.
pub(super) trait Source {
    /// Whether it has no counter at all, so that reading is of no use.
    fn is_empty(&self) -> bool;

    /// All counters now; those that are not there have not run.
    fn read(&mut self) -> [Reading; PLACES];
}

/// Why counters are not there, by their keys.
pub(super) type Reasons = BTreeMap<String, String>;
