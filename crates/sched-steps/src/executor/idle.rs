//! Callbacks of the embedder on the context of the thread, and waiting while no fiber can run.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::remote::Remote;

/// Time that an idle executor spins before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Maximum sleep while a condition must be polled.
const POLL: Duration = Duration::from_micros(50);

/// Idle callback, which is called when no fiber can run.
pub(super) type IdleCallback = Box<dyn FnMut(&Idle<'_>)>;
/// Service callback, with the number of times that fibers give up the CPU per call.
pub(super) type Service = (u32, Box<dyn FnMut()>);

/// Callbacks of the embedder, which run on the context of the thread.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(super) idle: RefCell<Option<IdleCallback>>,
    pub(super) service: RefCell<Option<Box<dyn FnMut()>>>,
    /// Number of times that fibers give up the CPU per call of the service callback; 0 if there is no service.
    every: u32,
    /// Number of times that a fiber has given up the CPU since the last call of the service callback.
    count: Cell<u32>,
    is_due: Cell<bool>,
    /// True after a callback has panicked. The callbacks are dropped with the executor, not earlier, because their
    /// destructors are user code that may panic.
    are_disabled: Cell<bool>,
}

impl Callbacks {
    pub(super) fn new(idle: Option<IdleCallback>, service: Option<Service>) -> Callbacks {
        let (every, service) = service.map_or((0, None), |(every, call)| (every.max(1), Some(call)));
        Callbacks { idle: RefCell::new(idle), service: RefCell::new(service), every, ..Callbacks::default() }
    }

    /// Counts that a fiber gives up the CPU. Returns true if the thread must get control to call the service callback.
    #[inline]
    pub(super) fn count(&self) -> bool {
        self.every != 0 && self.count_service()
    }

    fn count_service(&self) -> bool {
        self.count.set(self.count.get().saturating_add(1));
        let is_due = self.count.get() >= self.every && !self.are_disabled.get();
        if is_due {
            self.count.set(0);
            self.is_due.set(true);
        }
        is_due
    }

    /// Returns true if the service callback is due, and clears the flag.
    pub(super) fn take_due(&self) -> bool {
        self.is_due.replace(false) && !self.are_disabled.get()
    }

    /// Disables all callbacks permanently.
    pub(super) fn disable(&self) {
        self.are_disabled.set(true);
    }

    pub(super) fn are_disabled(&self) -> bool {
        self.are_disabled.get()
    }
}

/// Handle of the executor that the idle callback gets.
#[derive(Clone, Copy)]
pub struct Idle<'a> {
    pub(super) remote: &'a Remote,
    pub(super) polled: usize,
    /// Time at which the executor's limit without a running fiber expires; `None` without a limit.
    pub(super) until: Option<Instant>,
}

impl std::fmt::Debug for Idle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle").field("has_wakes", &self.has_wakes()).field("polled", &self.polled()).finish()
    }
}

impl Idle<'_> {
    /// Returns true if a fiber has been woken: the idle callback should then return soon. A call costs one load.
    #[must_use]
    pub fn has_wakes(&self) -> bool {
        self.remote.has_wakes()
    }

    /// Returns the number of blocked fibers whose conditions are polled after each return of the idle callback.
    #[must_use]
    pub fn polled(&self) -> usize {
        self.polled
    }

    /// Sleeps until a fiber is woken, or until `timeout` or the executor's [limit](super::Builder::limit) has passed.
    /// The function may return earlier.
    pub fn park(&self, timeout: Option<Duration>) {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        self.remote.park(timeout.map_or(left, |timeout| Some(left.map_or(timeout, |left| left.min(timeout)))));
    }

    /// Waits as an executor does without an idle callback: spins for up to 20 us until a fiber is woken, then sleeps
    /// until one is. With conditions to poll, this function spins for 5 us and sleeps for at most 50 us.
    pub fn wait(&self) {
        let begun = Instant::now();
        let limit = if self.polled > 0 { SPIN / 4 } else { SPIN };
        while !self.has_wakes() {
            if begun.elapsed() > limit {
                return self.park((self.polled > 0).then_some(POLL));
            }
            std::hint::spin_loop();
        }
    }
}
