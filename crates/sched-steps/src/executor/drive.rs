//! The side of the thread: driving fibers, waiting when none can run, and work between them.

use std::any::Any;
use std::panic::resume_unwind;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use super::core::{Awaits, Core};
use super::idle::Idle;
use super::stop::Stop;
use crate::context::{Driver, local, outside};

/// How long a wait in the middle of a panic rests between two looks.
const IN_PLACE: Duration = Duration::from_micros(50);

impl Core {
    /// Runs fibers until `done`, which is asked each time the thread gets control, or until none is left.
    ///
    /// # Errors
    /// None of them goes on. They have been told to unwind, and do so when the executor is driven again.
    pub(super) fn drive(&self, awaits: Awaits, done: impl FnMut() -> bool) -> Result<(), Stop> {
        assert!(!self.driving.get(), "an executor is driven from inside of one of its own fibers or conditions");
        self.driving.set(true);
        let _driving = Driving(self);
        let driver: NonNull<dyn Driver> = NonNull::from_ref(self);
        let driven = local().with_driver(Some(driver), &raw const self.main, || self.drive_on(awaits, done));
        match driven.unwrap_or_else(|payload| resume_unwind(payload)) {
            Some(stop) => Err(stop),
            None => Ok(()),
        }
    }

    /// Runs fibers. `Ok` with a stop if none goes on; an error is the panic of a callback.
    fn drive_on(&self, awaits: Awaits, mut done: impl FnMut() -> bool) -> Result<Option<Stop>, Box<dyn Any + Send>> {
        while !done() && self.live() > 0 {
            self.awaits.set(awaits);
            // Before a choice takes a fiber out of the queue.
            self.failure()?;
            if self.callbacks.take_due() {
                self.serve()?;
                continue;
            }
            let next = self.pick();
            if !ptr::eq(next, &raw const self.main) {
                self.rests_since.set(None);
                self.switch(next, false);
                self.send_back_condemned();
                self.failure()?;
            } else if self.ordering.has_failed() {
                // The choice found that out; the next round tells it.
            } else if let Some(stop) = self.find_stop() {
                self.rests_since.set(None);
                self.cancel_all();
                return Ok(Some(stop));
            } else {
                self.idle()?;
            }
        }
        self.failure()?;
        Ok(None)
    }

    /// What the embedder's policy or order has panicked with, if that was not told yet.
    fn failure(&self) -> std::thread::Result<()> {
        self.teams.take_failure().or_else(|| self.ordering.take_failure()).map_or(Ok(()), Err)
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
        let served = outside(|| {
            if let Some(service) = &mut *self.callbacks.service.borrow_mut() {
                service();
            }
        });
        served.inspect_err(|_| self.callbacks.silence())
    }

    /// Waits until something may have become ready.
    fn idle(&self) -> std::thread::Result<()> {
        let idle = self.idle_now();
        if self.callbacks.are_silent() {
            idle.wait();
            return Ok(());
        }
        let idled = outside(|| match &mut *self.callbacks.idle.borrow_mut() {
            Some(callback) => callback(&idle),
            None => idle.wait(),
        });
        idled.inspect_err(|_| self.callbacks.silence())
    }

    /// What may be looked at and done while no fiber can run.
    fn idle_now(&self) -> Idle<'_> {
        // A limit beyond what a clock can show is none.
        let until = self.limit.and_then(|limit| self.rests_since.get().unwrap_or_else(Instant::now).checked_add(limit));
        Idle { remote: self.remote, polled: self.polled.len() as usize, until }
    }

    /// Waits for a moment, or for a wake, on the stack of a fiber that unwinds, where no other fiber may run.
    pub(super) fn idle_in_place(&self) {
        self.remote.park(Some(IN_PLACE));
    }
}

/// The executor drives its thread until this is dropped.
struct Driving<'a>(&'a Core);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.awaits.set(Awaits::Rest);
        self.0.driving.set(false);
    }
}
