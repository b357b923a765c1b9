//! Schedulers in virtual time: cores without threads, whose fibers are numbers with run times given by a model.
//!
//! With virtual time, properties of all loads can be tested over millions of slices per second, and a machine with two
//! cores can simulate a policy on 32 cores.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::group::{GroupError, GroupId};
use crate::scheduler::{Scheduler, Stops};

/// Action of a fiber at the end of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The fiber can continue.
    GoesOn,
    /// The fiber waits for this number of nanoseconds.
    Waits(u64),
    /// The fiber ends. Its slot is taken by another fiber of this group after this number of nanoseconds.
    Ends(GroupId, u64),
    /// The fiber ends. Another fiber of this group takes the free slot with this number at once.
    EndsFor(GroupId, u32),
    /// The fiber ends, and its slot stays free.
    Leaves,
}

/// A run of a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Duration in nanoseconds, at least 1. A model should end a run with the slice; a longer run is an overrun.
    pub ns: u64,
    /// Action at the end of the run.
    pub after: After,
}

/// Model of the fibers' behaviour.
pub trait Model {
    /// Runs fiber `fiber` of `group` on `core` for a slice that begins at `now_ns`.
    fn run(&mut self, core: usize, fiber: u32, group: GroupId, slice_ns: u64, now_ns: u64) -> Run;
}

impl<F: FnMut(usize, u32, GroupId, u64, u64) -> Run> Model for F {
    fn run(&mut self, core: usize, fiber: u32, group: GroupId, slice_ns: u64, now_ns: u64) -> Run {
        self(core, fiber, group, slice_ns, now_ns)
    }
}

/// Event on a core at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wakes,
    Arrives(GroupId),
}

#[derive(Debug)]
struct VirtualCore {
    scheduler: Scheduler,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u32, Event)>>,
}

/// Simulated cores in virtual time. Each step runs the core whose time is furthest behind.
#[derive(Debug, Default)]
pub struct VirtualCores {
    cores: Vec<VirtualCore>,
}

impl VirtualCores {
    /// Creates one core per scheduler, at time 0.
    #[must_use]
    pub fn new(schedulers: Vec<Scheduler>) -> VirtualCores {
        let core = |scheduler| VirtualCore { scheduler, now_ns: 0, events: BinaryHeap::new() };
        VirtualCores { cores: schedulers.into_iter().map(core).collect() }
    }

    /// Schedules the arrival of a fiber of `group` in slot `fiber` of core `core` at time `at_ns`.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn arrive(&mut self, core: usize, fiber: u32, group: GroupId, at_ns: u64) {
        self.cores[core].events.push(Reverse((at_ns, fiber, Event::Arrives(group))));
    }

    /// Returns the scheduler of a core.
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn scheduler(&self, core: usize) -> &Scheduler {
        &self.cores[core].scheduler
    }

    /// Returns the mutable scheduler of a core, for changes of its settings between runs.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn scheduler_mut(&mut self, core: usize) -> &mut Scheduler {
        &mut self.cores[core].scheduler
    }

    /// Advances the time of a core between two runs, as if the operating system had preempted its thread.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn delay(&mut self, core: usize, ns: u64) {
        self.cores[core].now_ns += ns;
    }

    /// Returns the time of the core that is furthest behind, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.cores.iter().map(|core| core.now_ns).min().unwrap_or(0)
    }

    /// Runs `slices` slices, each on the core that is furthest behind. Stops early if no core has a fiber that can run
    /// or a future event. Returns the number of slices that ran.
    ///
    /// # Errors
    /// A fiber arrives in an unknown group.
    pub fn run(&mut self, slices: u64, model: &mut impl Model) -> Result<u64, GroupError> {
        let mut done = 0;
        while done < slices {
            // A core without runnable fibers and events is excluded.
            let can_run = |core: &VirtualCore| core.scheduler.queued() > 0 || !core.events.is_empty();
            let next = self.cores.iter().enumerate().filter(|(_, core)| can_run(core)).min_by_key(|(_, c)| c.now_ns);
            let Some(at) = next.map(|(at, _)| at) else { break };
            done += u64::from(self.cores[at].step(at, model)?);
        }
        Ok(done)
    }
}

impl VirtualCore {
    /// Runs one slice; returns false if the time only advanced to the next event.
    fn step(&mut self, number: usize, model: &mut impl Model) -> Result<bool, GroupError> {
        self.take_events()?;
        let Some(fiber) = self.scheduler.pick(self.now_ns) else {
            if let Some(Reverse((at, ..))) = self.events.peek() {
                self.now_ns = self.now_ns.max(*at);
            }
            return Ok(false);
        };
        let group = self.scheduler.group_of(fiber).ok_or(GroupError::Unknown(usize::MAX))?;
        let run = model.run(number, fiber, group, self.scheduler.slice_ns(), self.now_ns);
        let ends = self.now_ns + run.ns.max(1);
        // A fiber that becomes ready during this run waits from the time at which it becomes ready.
        self.now_ns = ends;
        self.take_events()?;
        match run.after {
            After::GoesOn => self.scheduler.stop(ends, Stops::Preempted),
            After::Waits(ns) => {
                self.scheduler.stop(ends, Stops::Blocked);
                self.events.push(Reverse((ends + ns, fiber, Event::Wakes)));
            }
            After::Ends(group, ns) => {
                self.scheduler.stop(ends, Stops::Ended);
                self.events.push(Reverse((ends + ns, fiber, Event::Arrives(group))));
            }
            After::EndsFor(group, slot) => {
                self.scheduler.stop(ends, Stops::Ended);
                self.events.push(Reverse((ends, slot, Event::Arrives(group))));
            }
            After::Leaves => self.scheduler.stop(ends, Stops::Ended),
        }
        Ok(true)
    }

    /// Processes the events that are due at the current time.
    fn take_events(&mut self) -> Result<(), GroupError> {
        while let Some(&Reverse((at, fiber, event))) = self.events.peek()
            && at <= self.now_ns
        {
            self.events.pop();
            match event {
                Event::Wakes => self.scheduler.wake(at, fiber),
                Event::Arrives(group) => self.scheduler.arrive(at, fiber, group)?,
            }
        }
        Ok(())
    }
}
