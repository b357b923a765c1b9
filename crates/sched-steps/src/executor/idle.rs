//! What happens on the context of the thread: calls of the embedder, and waiting while no fiber can run.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::remote::Remote;

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
    /// Times that fibers give way between two services; 0 without any.
    every: u32,
    /// Times that one has given way since the last.
    count: Cell<u32>,
    is_due: Cell<bool>,
    /// One has panicked. What they hold is not dropped before the executor is: its destructors, too, are the user's.
    are_silent: Cell<bool>,
}

impl Callbacks {
    pub(super) fn new(idle: Option<OnIdle>, service: Option<Service>) -> Callbacks {
        let (every, service) = service.map_or((0, None), |(every, call)| (every.max(1), Some(call)));
        Callbacks { idle: RefCell::new(idle), service: RefCell::new(service), every, ..Callbacks::default() }
    }

    /// A fiber gives way; true if the thread is to have control, to serve.
    #[inline]
    pub(super) fn count(&self) -> bool {
        self.every != 0 && self.count_service()
    }

    fn count_service(&self) -> bool {
        self.count.set(self.count.get().saturating_add(1));
        let is_due = self.count.get() >= self.every && !self.are_silent.get();
        if is_due {
            self.count.set(0);
            self.is_due.set(true);
        }
        is_due
    }

    /// Whether the service is to be called now.
    pub(super) fn take_due(&self) -> bool {
        self.is_due.replace(false) && !self.are_silent.get()
    }

    /// Never calls any of them again.
    pub(super) fn silence(&self) {
        self.are_silent.set(true);
    }

    pub(super) fn are_silent(&self) -> bool {
        self.are_silent.get()
    }
}

/// What an idle executor may look at and do.
#[derive(Clone, Copy)]
pub struct Idle<'a> {
    pub(super) remote: &'a Remote,
    pub(super) polled: usize,
    /// When the executor's limit has passed.
    pub(super) until: Option<Instant>,
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
        self.remote.has_wakes()
    }

    /// Fibers whose conditions are asked each time the callback returns.
    #[must_use]
    pub fn polled(&self) -> usize {
        self.polled
    }

    /// Sleeps until a fiber is woken, or `timeout` or the executor's [limit](super::Builder::limit) has passed. May return
    /// earlier.
    pub fn park(&self, timeout: Option<Duration>) {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        self.remote.park(timeout.map_or(left, |timeout| Some(left.map_or(timeout, |left| left.min(timeout)))));
    }

    /// What happens without a callback: look for wakes for 20 us, then sleep until one comes, or for 50 us
    /// if there are conditions to ask.
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
