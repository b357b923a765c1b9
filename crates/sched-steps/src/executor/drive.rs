//! The side of the thread: driving fibers, waiting when none can run, and work between them.

use std::panic::resume_unwind;
use std::ptr::{self, NonNull};
use std::time::Instant;

use super::core::{Awaits, Core};
use super::idle::Idle;
use super::stop::Stop;
use crate::context::{Driver, INERT, Node, local, outside};

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
            // Before a choice takes a fiber out of the queue.
            failure = self.ordering.take_failure();
            if failure.is_some() {
                break;
            }
            let next = self.pick();
            if !ptr::eq(next, &raw const self.main) {
                self.rests_since.set(None);
                self.switch(next, false);
                failure = self.teams.take_failure().or_else(|| self.ordering.take_failure());
            } else if self.ordering.has_failed() {
                // The choice found that out; the next round tells it.
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
        match failure.or_else(|| self.ordering.take_failure()) {
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
        self.callbacks.begin_anew();
        outside(|| {
            if let Some(service) = &mut *self.callbacks.service.borrow_mut() {
                service();
            }
        })
    }

    /// Waits until something may have become ready.
    fn idle(&self) -> std::thread::Result<()> {
        let idle = self.idle_now();
        outside(|| match &mut *self.callbacks.idle.borrow_mut() {
            Some(callback) => callback(&idle),
            None => idle.wait(),
        })
    }

    /// What may be looked at and done while no fiber can run.
    fn idle_now(&self) -> Idle<'_> {
        // A limit beyond what a clock can show is none.
        let until = self.limit.and_then(|limit| self.rests_since.get().unwrap_or_else(Instant::now).checked_add(limit));
        Idle { remote: self.remote, polled: self.polled.len() as usize, until }
    }

    /// Waits on the stack of a fiber, where no other fiber may run.
    pub(super) fn idle_in_place(&self) {
        self.idle_now().wait();
    }
}

/// This thread's executor while it drives; the one before it when dropped.
struct Driving<'a> {
    core: &'a Core,
    before: (Option<NonNull<dyn Driver>>, *const Node, u32),
}

impl<'a> Driving<'a> {
    fn begin(core: &'a Core) -> Driving<'a> {
        let local = local();
        Driving {
            core,
            before: (
                local.driver.replace(Some(NonNull::from_ref(core))),
                local.current.replace(&raw const core.main),
                local.hold.replace(INERT),
            ),
        }
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.core.awaits.set(Awaits::Rest);
        self.core.driving.set(false);
        let local = local();
        local.driver.set(self.before.0);
        local.current.set(self.before.1);
        local.hold.set(self.before.2);
    }
}
