//! Deadlock detection: the executor detects fibers that wait for an event that cannot occur, reports them, and unwinds
//! them.
//!
//! If no fiber can run, each fiber waits for one of four events. The end of another fiber and a free slot can be caused
//! only by fibers of the executor. A wake can come only if the fiber has given its waker to any holder; otherwise it is
//! parked without end. A condition may become true by itself. So if no fiber waits for a possible wake or for a
//! condition, no fiber can ever run again. If wakes are possible, only a timeout can decide:
//! [`Builder::limit`](super::Builder::limit).

use std::fmt;
use std::time::{Duration, Instant};

use super::core::{Core, FiberState};

/// Event that a fiber waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A free slot, to spawn a fiber.
    Slot,
    /// The end of the fiber with this name.
    End(String),
    /// A call of the fiber's waker, which the fiber has requested.
    Wake,
    /// A call of the fiber's waker, which cannot occur: the fiber never requested its waker.
    WakeByNothing,
    /// A condition that becomes true.
    Condition,
}

/// Fiber that cannot continue, with the event that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Name of the fiber.
    pub fiber: String,
    /// Event that the fiber waits for.
    pub waits_for: WaitsFor,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fiber = &self.fiber;
        match &self.waits_for {
            WaitsFor::Slot => write!(f, "fiber '{fiber}' waits for a free slot to spawn another"),
            WaitsFor::End(other) => write!(f, "fiber '{fiber}' waits for the end of fiber '{other}'"),
            WaitsFor::Wake => write!(f, "fiber '{fiber}' waits to be woken"),
            WaitsFor::WakeByNothing => write!(f, "fiber '{fiber}' is parked and has given its waker to nothing"),
            WaitsFor::Condition => write!(f, "fiber '{fiber}' waits for a condition"),
        }
    }
}

/// Reason for which no fiber of an executor continues, with the fibers that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Time without a running fiber, if the limit ended the scope; `None` if no fiber could ever have run again.
    pub after: Option<Duration>,
    /// The fibers that had not ended, ordered by number.
    pub waiting: Vec<Waiting>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Maximum number of fibers whose names appear in a message.
        const NAMED: usize = 16;
        match self.after {
            None => write!(f, "no fiber can ever run again")?,
            Some(after) => write!(f, "no fiber has run for {after:?}, the limit")?,
        }
        for (number, waiting) in self.waiting.iter().take(NAMED).enumerate() {
            write!(f, "{} {waiting}", if number == 0 { ":" } else { ";" })?;
        }
        match self.waiting.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl Core {
    /// Returns the reason to end the scope, if there is one. The caller has found that no fiber can run.
    pub(super) fn find_stop(&self) -> Option<Stop> {
        if self.remote.has_wakes() {
            return None;
        }
        let after = if self.may_continue() {
            let limit = self.limit?;
            let since = self.idle_since.get().unwrap_or_else(|| {
                let now = Instant::now();
                self.idle_since.set(Some(now));
                now
            });
            (since.elapsed() >= limit).then_some(Some(limit))?
        } else {
            None
        };
        let waiting = (0..self.fibers()).filter_map(|index| {
            let waits_for = self.waits_for(index)?;
            Some(Waiting { fiber: self.name(index), waits_for })
        });
        Some(Stop { after, waiting: waiting.collect() })
    }

    /// Returns true if an event that no fiber causes may make a fiber ready.
    fn may_continue(&self) -> bool {
        self.polled.len() > 0
            || (0..self.fibers()).any(|index| {
                let record = self.record(index);
                record.state.get() == FiberState::Parked && record.waker_given.get()
            })
    }

    fn waits_for(&self, index: u32) -> Option<WaitsFor> {
        let record = self.record(index);
        Some(match record.state.get() {
            FiberState::Free
            | FiberState::Ended
            | FiberState::Ready
            | FiberState::Running
            | FiberState::Team
            | FiberState::Ring => return None,
            FiberState::Polled => WaitsFor::Condition,
            FiberState::Slot => WaitsFor::Slot,
            FiberState::Joining => WaitsFor::End(self.name(record.awaits_end_of.get())),
            FiberState::Parked if record.waker_given.get() => WaitsFor::Wake,
            FiberState::Parked => WaitsFor::WakeByNothing,
        })
    }
}
