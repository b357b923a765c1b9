//! Fibers that wait for what will never come: the executor sees it, says who waits for what, and unwinds them.
//!
//! When nothing can run, each fiber waits for one of four things. That another fiber ends, or that a slot is free, only
//! fibers of the executor can bring about. A wake brings one on that has given its waker away, to whatever may hold it now;
//! one that has not is parked for good. A condition may come true by itself. So if no fiber waits for a wake that may come
//! or for a condition, it is proven that none will ever run. Where wakes are expected, only time can tell:
//! [`Builder::limit`](super::Builder::limit).

use std::fmt;
use std::time::{Duration, Instant};

use super::core::{Core, FiberState};

/// What a fiber waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// That a slot is free, to spawn a fiber.
    Slot,
    /// That the fiber of this name ends.
    End(String),
    /// A call of its waker, which it has given away.
    Wake,
    /// A call of its waker, which nothing can make: it has never asked for it.
    WakeByNothing,
    /// That a condition holds.
    Condition,
}

/// A fiber that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub fiber: String,
    /// What it waits for.
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

/// Why no fiber of an executor goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// How long none has run, if that is why they were ended; `None` if it is certain that none ever would.
    pub after: Option<Duration>,
    /// The fibers that had not ended, by their numbers.
    pub waiting: Vec<Waiting>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Fibers that a message names.
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
    /// Asked when nothing can run: whether that is the end.
    pub(super) fn find_stop(&self) -> Option<Stop> {
        if self.remote.has_wakes() {
            return None;
        }
        let after = if self.may_go_on() {
            let limit = self.limit?;
            let since = self.rests_since.get().unwrap_or_else(|| {
                let now = Instant::now();
                self.rests_since.set(Some(now));
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

    /// Whether something outside of the fibers may let one go on.
    fn may_go_on(&self) -> bool {
        self.polled.len() > 0
            || (0..self.fibers()).any(|index| {
                let cold = self.cold(index);
                cold.place.get() == FiberState::Parked && cold.waker_given.get()
            })
    }

    fn waits_for(&self, index: u32) -> Option<WaitsFor> {
        let cold = self.cold(index);
        Some(match cold.place.get() {
            FiberState::Free
            | FiberState::Ended
            | FiberState::Ready
            | FiberState::Running
            | FiberState::Team
            | FiberState::Ring => return None,
            FiberState::Polled => WaitsFor::Condition,
            FiberState::Slot => WaitsFor::Slot,
            FiberState::Joining => WaitsFor::End(self.name(cold.awaits_end_of.get())),
            FiberState::Parked if cold.waker_given.get() => WaitsFor::Wake,
            FiberState::Parked => WaitsFor::WakeByNothing,
        })
    }
}
