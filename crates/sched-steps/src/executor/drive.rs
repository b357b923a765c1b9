//! The side of the thread: driving fibers, waiting when none can run, and work between them.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::ptr;
use std::time::{Duration, Instant};

use super::core::{Awaits, Core};
use super::outside;
use super::stop::Stop;
use crate::fiber::{INERT, Node, local};

/// How long an idle executor looks for wakes before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// How long it sleeps at most while a condition has to be asked for.
const POLL: Duration = Duration::from_micros(50);

/// Called when no fiber can run.
pub(super) type OnIdle = Box<dyn FnMut(&Idle<'_>)>;
/// Called between fibers, once in so many choices.
pub(super) type Service = (u32, Box<dyn FnMut()>);

/// What the embedder wants to be called for, on the context of the thread.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(super) idle: RefCell<Option<OnIdle>>,
    pub(super) service: RefCell<Option<Box<dyn FnMut()>>>,
    pub(super) every: u32,
    picks: Cell<u32>,
}

impl Callbacks {
    pub(super) fn new(idle: Option<OnIdle>, service: Option<Service>) -> Callbacks {
        let (every, service) = service.map_or((0, None), |(every, call)| (every.max(1), Some(call)));
        Callbacks { idle: RefCell::new(idle), service: RefCell::new(service), every, picks: Cell::new(0) }
    }

    /// Counts a choice; true if the thread should have control.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.picks.set(self.picks.get().saturating_add(1));
        self.picks.get() > self.every
    }
}

/// What an idle executor may look at and do.
#[derive(Clone, Copy)]
pub struct Idle<'a> {
    core: &'a Core,
}

impl std::fmt::Debug for Idle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle").field("has_wakes", &self.has_wakes()).field("polled", &self.polled()).finish()
    }
}

impl Idle<'_> {
    /// A fiber has been woken: return soon. One load.
    #[must_use]
    pub fn has_wakes(&self) -> bool {
        self.core.remote.has_wakes()
    }

    /// Fibers whose conditions are asked each time the callback returns.
    #[must_use]
    pub fn polled(&self) -> usize {
        self.core.polled.len() as usize
    }

    /// Sleeps until a fiber is woken, or `timeout` or the executor's [limit](super::Builder::limit) has passed. May return
    /// earlier.
    pub fn park(&self, timeout: Option<Duration>) {
        let left = self.core.limit_left();
        self.core.remote.park(timeout.map_or(left, |timeout| Some(left.map_or(timeout, |left| left.min(timeout)))));
    }

    /// What happens without a callback: look for wakes for 20 us, then sleep until one comes, or for 50 us
    /// if there are conditions to ask.
    pub fn wait(&self) {
        let begun = Instant::now();
        let limit = if self.polled() > 0 { SPIN / 4 } else { SPIN };
        while !self.has_wakes() {
            if begun.elapsed() > limit {
                return self.park((self.polled() > 0).then_some(POLL));
            }
            std::hint::spin_loop();
        }
    }
}

impl Core {
    /// Runs fibers until `done`, which is asked each time the thread gets control, or until none is left.
    ///
    /// # Errors
    /// None of them goes on. They have been told to unwind, and do so when the executor is driven again.
    pub(super) fn drive(&self, awaits: Awaits, mut done: impl FnMut() -> bool) -> Result<(), Stop> {
        assert!(
            !self.driving.replace(true),
            "an executor is driven from inside of one of its own fibers or conditions"
        );
        let _driving = Driving::begin(self);
        let mut failure = None;
        while !done() && self.live() > 0 && failure.is_none() {
            self.awaits.set(awaits);
            let next = self.pick();
            if !ptr::eq(next, &raw const self.main) {
                self.rests_since.set(None);
                self.switch(next, false);
                failure = self.teams.take_failure();
            } else if self.callbacks.is_due() {
                failure = self.serve().err();
            } else if let Some(stop) = self.find_stop() {
                self.rests_since.set(None);
                self.cancel_all();
                return Err(stop);
            } else {
                failure = self.idle().err();
            }
        }
        match failure {
            Some(payload) => resume_unwind(payload),
            None => Ok(()),
        }
    }

    /// Never calls the embedder again. (A policy that panicked is not asked again either.)
    pub(super) fn forget_callbacks(&self) {
        self.callbacks.idle.take();
        self.callbacks.service.take();
    }

    /// Waits until a slot is free.
    ///
    /// # Errors
    /// As [`Core::drive`].
    pub(super) fn await_slot(&self) -> Result<(), Stop> {
        if self.running().is_some() {
            self.park_for_slot();
            return Ok(());
        }
        self.drive(Awaits::Slot, || self.free.len() > 0)
    }

    fn serve(&self) -> std::thread::Result<()> {
        self.callbacks.picks.set(0);
        outside(|| {
            if let Some(service) = &mut *self.callbacks.service.borrow_mut() {
                service();
            }
        })
    }

    /// Waits until something may have become ready.
    fn idle(&self) -> std::thread::Result<()> {
        let idle = Idle { core: self };
        outside(|| match &mut *self.callbacks.idle.borrow_mut() {
            Some(callback) => callback(&idle),
            None => idle.wait(),
        })
    }

    /// Waits on the stack of a fiber, where nobody else may run.
    pub(super) fn idle_in_place(&self) {
        Idle { core: self }.wait();
    }
}

/// This thread's executor while it drives; the one before it when dropped.
struct Driving<'a> {
    core: &'a Core,
    before: (*const Core, *const Node, u32),
}

impl<'a> Driving<'a> {
    fn begin(core: &'a Core) -> Driving<'a> {
        let local = local();
        Driving {
            core,
            before: (local.core.replace(core), local.current.replace(&raw const core.main), local.hold.replace(INERT)),
        }
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.core.awaits.set(Awaits::Rest);
        self.core.driving.set(false);
        let local = local();
        local.core.set(self.before.0);
        local.current.set(self.before.1);
        local.hold.set(self.before.2);
    }
}
