//! Schedulers in virtual time: cores without threads, whose fibers are numbers that run for as long as a model says.
//!
//! What holds for all loads can be looked for among millions of slices a second, and what a policy would do on 32 cores
//! can be asked of a machine that has two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::group::{GroupError, GroupId};
use crate::scheduler::{Scheduler, Stops};

/// What a fiber does when its run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It can go on.
    GoesOn,
    /// It waits for so many nanoseconds.
    Waits(u64),
    /// It ends. Another fiber, of this group, takes its slot after so many nanoseconds.
    Ends(GroupId, u64),
    /// It ends. Another fiber, of this group, takes this slot, which is free, at once.
    EndsFor(GroupId, u32),
    /// It ends, and its slot stays free.
    Leaves,
}

/// A run of a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How long it lasts, in nanoseconds, at least 1. A model should end it at the slice; one that is longer overruns.
    pub ns: u64,
    /// What then.
    pub after: After,
}

/// What fibers do when they run.
pub trait Model {
    /// Runs fiber `fiber` of `group` on `core` for a slice that begins at `now_ns`.
    fn run(&mut self, core: usize, fiber: u32, group: GroupId, slice_ns: u64, now_ns: u64) -> Run;
}

impl<F: FnMut(usize, u32, GroupId, u64, u64) -> Run> Model for F {
    fn run(&mut self, core: usize, fiber: u32, group: GroupId, slice_ns: u64, now_ns: u64) -> Run {
        self(core, fiber, group, slice_ns, now_ns)
    }
}

/// What happens on a core at some time.
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

/// Cores that advance together.
#[derive(Debug, Default)]
pub struct VirtualCores {
    cores: Vec<VirtualCore>,
}

impl VirtualCores {
    /// One core per scheduler, at time 0.
    #[must_use]
    pub fn new(schedulers: Vec<Scheduler>) -> VirtualCores {
        let core = |scheduler| VirtualCore { scheduler, now_ns: 0, events: BinaryHeap::new() };
        VirtualCores { cores: schedulers.into_iter().map(core).collect() }
    }

    /// A fiber of `group` takes slot `fiber` of `core` at `at_ns`.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn arrive(&mut self, core: usize, fiber: u32, group: GroupId, at_ns: u64) {
        self.cores[core].events.push(Reverse((at_ns, fiber, Event::Arrives(group))));
    }

    /// A core's scheduler.
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn scheduler(&self, core: usize) -> &Scheduler {
        &self.cores[core].scheduler
    }

    /// A core's scheduler, to change settings between runs.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn scheduler_mut(&mut self, core: usize) -> &mut Scheduler {
        &mut self.cores[core].scheduler
    }

    /// Time passes on a core between two runs, as if the operating system had taken its thread away.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn delay(&mut self, core: usize, ns: u64) {
        self.cores[core].now_ns += ns;
    }

    /// The time of the core that is furthest behind, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.cores.iter().map(|core| core.now_ns).min().unwrap_or(0)
    }

    /// Runs `slices` slices, always on the core that is furthest behind; fewer if nothing is left that could ever run.
    ///
    /// # Errors
    /// A fiber of an unknown group was to arrive.
    pub fn run(&mut self, slices: u64, model: &mut impl Model) -> Result<u64, GroupError> {
        let mut done = 0;
        while done < slices {
            // A core with nothing to come is out of it.
            let can_run = |core: &VirtualCore| core.scheduler.queued() > 0 || !core.events.is_empty();
            let next = self.cores.iter().enumerate().filter(|(_, core)| can_run(core)).min_by_key(|(_, c)| c.now_ns);
            let Some(at) = next.map(|(at, _)| at) else { break };
            done += u64::from(self.cores[at].step(at, model)?);
        }
        Ok(done)
    }
}

impl VirtualCore {
    /// One slice; false if time only passed until the next event.
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
        // Who becomes ready in the meantime waits from then on.
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

    /// What has happened up to now.
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
