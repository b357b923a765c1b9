//! Part of the executor that runs on the thread's context: driving fibers, waiting while no fiber can run, and
//! callbacks between fibers.

use std::any::Any;
use std::panic::resume_unwind;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use super::core::{AwaitedEvent, Core};
use super::idle::Idle;
use super::stop::Stop;
use crate::context::{Driver, call_outside, local};

/// Time that a fiber waits between two tests of its condition during a panic.
const IN_PLACE_WAIT: Duration = Duration::from_micros(50);

impl Core {
    /// Runs fibers until `done` returns true or no fiber is left. `done` is called each time the thread gets control.
    ///
    /// # Errors
    /// `Stop` if no fiber can continue. All fibers have then been cancelled, and unwind when the executor is driven
    /// again.
    pub(super) fn drive(&self, awaited_event: AwaitedEvent, done: impl FnMut() -> bool) -> Result<(), Stop> {
        assert!(!self.is_driving.get(), "an executor is driven from inside of one of its own fibers or conditions");
        self.is_driving.set(true);
        let _guard = DriveGuard(self);
        let driver: NonNull<dyn Driver> = NonNull::from_ref(self);
        let driven = local().with_driver(Some(driver), &raw const self.main, || self.drive_on(awaited_event, done));
        match driven.unwrap_or_else(|payload| resume_unwind(payload)) {
            Some(stop) => Err(stop),
            None => Ok(()),
        }
    }

    /// Runs fibers until `done` returns true or no fiber is left. Returns `Ok` with a `Stop` if no fiber can continue,
    /// and an error with the panic of a callback.
    fn drive_on(
        &self,
        awaited_event: AwaitedEvent,
        mut done: impl FnMut() -> bool,
    ) -> Result<Option<Stop>, Box<dyn Any + Send>> {
        while !done() && self.live() > 0 {
            self.awaited_event.set(awaited_event);
            // This check precedes the choice, because a choice takes a fiber out of the queue.
            self.failure()?;
            if self.callbacks.take_due() {
                self.serve()?;
                continue;
            }
            let next = self.pick();
            if !ptr::eq(next, &raw const self.main) {
                self.idle_since.set(None);
                self.switch(next, false);
                self.unwind_cancelled_running();
                self.failure()?;
            } else if self.order.has_failed() {
                // The order panicked during the choice; the next round of the loop reports the panic.
            } else if let Some(stop) = self.find_stop() {
                self.idle_since.set(None);
                self.cancel_all();
                return Ok(Some(stop));
            } else {
                self.idle()?;
            }
        }
        self.failure()?;
        Ok(None)
    }

    /// Returns the panic of the embedder's policy or order as an error, if it has not been reported yet.
    fn failure(&self) -> std::thread::Result<()> {
        self.teams.take_failure().or_else(|| self.order.take_failure()).map_or(Ok(()), Err)
    }

    /// Waits until a slot is free.
    ///
    /// # Errors
    /// The errors of [`Core::drive`].
    pub(super) fn await_slot(&self) -> Result<(), Stop> {
        if self.running().is_some() {
            self.park_for_slot();
            return Ok(());
        }
        self.drive(AwaitedEvent::Slot, || self.free.len() > 0)
    }

    fn serve(&self) -> std::thread::Result<()> {
        let served = call_outside(|| {
            if let Some(service) = &mut *self.callbacks.service.borrow_mut() {
                service();
            }
        });
        served.inspect_err(|_| self.callbacks.disable())
    }

    /// Waits until a fiber may have become ready.
    fn idle(&self) -> std::thread::Result<()> {
        let idle = self.idle_handle();
        if self.callbacks.are_disabled() {
            idle.wait();
            return Ok(());
        }
        let idled = call_outside(|| match &mut *self.callbacks.idle.borrow_mut() {
            Some(callback) => callback(&idle),
            None => idle.wait(),
        });
        idled.inspect_err(|_| self.callbacks.disable())
    }

    /// Returns the handle for the idle callback.
    fn idle_handle(&self) -> Idle<'_> {
        // A limit beyond the range of the clock counts as no limit.
        let until = self.limit.and_then(|limit| self.idle_since.get().unwrap_or_else(Instant::now).checked_add(limit));
        Idle { remote: self.remote, polled: self.polled.len() as usize, until }
    }

    /// Waits for a short time, or until a wake, on the stack of an unwinding fiber. No other fiber may run during the
    /// wait.
    pub(super) fn idle_in_place(&self) {
        self.remote.park(Some(IN_PLACE_WAIT));
    }
}

/// Guard of a drive: the executor drives its thread until this value is dropped.
struct DriveGuard<'a>(&'a Core);

impl Drop for DriveGuard<'_> {
    fn drop(&mut self) {
        self.0.awaited_event.set(AwaitedEvent::NoneReady);
        self.0.is_driving.set(false);
    }
}
