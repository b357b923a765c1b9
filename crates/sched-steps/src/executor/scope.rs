//! Scopes: fibers that borrow, handles that return what they made.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread::panicking;

use super::core::{Awaits, Core, Task};
use super::stop::Stop;
use crate::context::panic::{Unwound, message};
use crate::context::{discard, dropped};
use crate::fifo::{NONE, broken};

/// Why a fiber returned nothing.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FiberError {
    /// It panicked.
    #[error("fiber '{fiber}' panicked: {}", message(&**payload))]
    Panicked {
        /// Its name.
        fiber: String,
        /// What it panicked with.
        payload: Box<dyn Any + Send>,
    },
    /// No fiber of the scope could go on, so all were unwound: what each waited for.
    #[error("{0}")]
    Stopped(Stop),
    /// It was unwound before its end.
    #[error("fiber '{fiber}' was cancelled")]
    Cancelled {
        /// Its name.
        fiber: String,
    },
    /// A destructor that ran in the middle of a panic spawned it where no slot was free, or joined it before its end. No other
    /// fiber may run there, so it was not spawned, or not waited for.
    #[error("fiber '{fiber}' was not waited for: in the middle of a panic no other fiber may run")]
    Unwinding {
        /// Its name.
        fiber: String,
    },
    /// A destructor that ran in the middle of a panic was to begin a scope. No fiber may run there, so nothing of it ran.
    #[error("no scope of fibers begins in the middle of a panic")]
    InPanic,
}

impl std::fmt::Debug for FiberError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// What the fibers of a scope share.
struct Shared {
    failure: RefCell<Option<FiberError>>,
}

impl Shared {
    /// Keeps an error for the scope: the first, or the first that is worse than a wait that could not be.
    fn fail(&self, error: FiberError) {
        let rest = {
            let mut failure = self.failure.borrow_mut();
            match &*failure {
                Some(FiberError::Unwinding { .. }) | None => failure.replace(error),
                Some(_) => Some(error),
            }
        };
        if let Some(rest) = rest {
            forget(rest);
        }
    }

    /// A fiber's value was dropped; its panic is reported nowhere else.
    fn tell(&self, core: &Core, dropped: std::thread::Result<()>) {
        match dropped {
            Err(payload) if payload.is::<Unwound>() => discard(payload),
            Err(payload) => self.fail(FiberError::Panicked { fiber: core.running_name(), payload }),
            Ok(()) => {}
        }
    }
}

/// Drops an error that is not reported.
fn forget(error: FiberError) {
    if let FiberError::Panicked { payload, .. } = error {
        discard(payload);
    }
}

/// The meeting place of a fiber and its handle.
struct Packet<T> {
    result: RefCell<Option<Result<T, FiberError>>>,
    ended: Cell<bool>,
    /// The fiber of the same executor that waits for the end.
    joiner: Cell<Option<u32>>,
    shared: Rc<Shared>,
}

impl<T> Packet<T> {
    /// Keeps what became of the fiber, and lets the one go on that waits for it.
    fn end(&self, core: &Core, result: Result<T, FiberError>) {
        *self.result.borrow_mut() = Some(result);
        self.ended.set(true);
        if let Some(joiner) = self.joiner.take() {
            core.end_wait_of(joiner);
        }
    }
}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        // A panic that no `join` has reported is reported by the scope.
        if let Some(Err(error @ FiberError::Panicked { .. })) = self.result.take() {
            self.shared.fail(error);
        }
    }
}

/// A fiber from begin to end. All that it calls is caught: its function, and the destructors of its values, of what belongs
/// to it, and of its result.
fn live<T>(core: &Core, packet: Rc<Packet<T>>, run: impl FnOnce() -> T, is_cancelled: bool) {
    let ran = if is_cancelled {
        dropped(run).and_then(|()| Err(Box::new(Unwound) as Box<dyn Any + Send>))
    } else {
        catch_unwind(AssertUnwindSafe(run))
    };
    // What the fiber's own values panic with when they are dropped is told unless there is worse.
    let result = match (ran, end_locals(core)) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(value), Err(payload)) => {
            if let Err(second) = dropped(value) {
                discard(second);
            }
            Err(payload)
        }
        (Err(payload), Err(other)) if payload.is::<Unwound>() => Err(other),
        (Err(payload), others) => {
            others.unwrap_or_else(discard);
            Err(payload)
        }
    };
    let result = result.map_err(|payload| {
        let fiber = core.running_name();
        if payload.is::<Unwound>() { FiberError::Cancelled { fiber } } else { FiberError::Panicked { fiber, payload } }
    });
    let shared = Rc::clone(&packet.shared);
    packet.end(core, result);
    // The result is dropped here if no handle is left to take it.
    shared.tell(core, dropped(packet));
    shared.tell(core, end_locals(core));
}

/// Drops all that belongs to the running fiber; the first panic, if there is one other than a cancellation.
fn end_locals(core: &Core) -> std::thread::Result<()> {
    let mut told = Ok(());
    while let Some(index) = core.running()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| core.locals(index).drop_values()))
    {
        if told.is_ok() && !payload.is::<Unwound>() {
            told = Err(payload);
        } else {
            discard(payload);
        }
    }
    told
}

/// Ends the process rather than let a panic out of a scope whose fibers live: they borrow from who called it.
struct Borrowing<'a>(&'a Core);

impl Drop for Borrowing<'_> {
    fn drop(&mut self) {
        if self.0.live() > 0 {
            broken("a panic leaves a scope whose fibers live");
        }
    }
}

pub(super) fn enter<'env, R>(
    core: &Core,
    with: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> Result<R, FiberError> {
    // Fibers share the thread's count of panics: one of them could not be told from one that unwinds.
    if panicking() {
        dropped(with).unwrap_or_else(discard);
        return Err(FiberError::InPanic);
    }
    let shared = Rc::new(Shared { failure: RefCell::new(None) });
    let scope = Scope { core, shared: Rc::clone(&shared), env: PhantomData };
    let borrowing = Borrowing(core);
    let mut result = catch_unwind(AssertUnwindSafe(|| with(&scope)));
    if result.is_err() {
        core.cancel_all();
    }
    while core.live() > 0 {
        // A callback of the embedder may panic. It is not called again, and the fibers end all the same.
        match catch_unwind(AssertUnwindSafe(|| core.drive(Awaits::Rest, || false))) {
            Ok(Ok(())) => {}
            Ok(Err(stop)) => shared.fail(FiberError::Stopped(stop)),
            Err(payload) => {
                // The first panic is told. The value that the closure has returned is not, whatever its destructor does.
                match std::mem::replace(&mut result, Err(Box::new(()))) {
                    Ok(value) => {
                        result = Err(payload);
                        dropped(value).unwrap_or_else(discard);
                    }
                    Err(first) => {
                        result = Err(first);
                        discard(payload);
                    }
                }
                core.cancel_all();
            }
        }
    }
    // Nothing that a fiber borrows ends before this line.
    drop(borrowing);
    let failure = shared.failure.take();
    match (result, failure) {
        (Ok(result), None) => Ok(result),
        (Ok(result), Some(failure)) => match dropped(result) {
            Ok(()) => Err(failure),
            Err(payload) => {
                forget(failure);
                resume_unwind(payload)
            }
        },
        (Err(payload), failure) => {
            failure.into_iter().for_each(forget);
            resume_unwind(payload)
        }
    }
}

/// Spawns fibers that end before [`Executor::scope`](super::Executor::scope) returns.
///
/// It may be used from the closure of the scope and from its fibers. What they run keeps the contract of
/// [`Builder::build`](super::Builder::build): fibers share the thread's thread-locals.
///
/// ```compile_fail,E0277
/// # // SAFETY: no thread-local is used.
/// # let mut steps = unsafe { sched_steps::Executor::builder().build() }.unwrap();
/// steps.scope(|s| {
///     let handle = s.spawn(|| 1);
///     std::thread::scope(|t| { t.spawn(|| handle.join()); }); // a fiber stays on its thread
/// });
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    core: &'scope Core,
    shared: Rc<Shared>,
    env: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// Asks a fiber for its result.
pub struct JoinHandle<'scope, T> {
    core: &'scope Core,
    packet: Rc<Packet<T>>,
    index: u32,
}

impl<T> std::fmt::Debug for JoinHandle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("ended", &self.packet.ended.get()).finish_non_exhaustive()
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a fiber named by its number. It begins when the running context next gives way.
    ///
    /// If all slots are taken, others run until one of them ends. Fibers that hold all slots and all wait to
    /// spawn another cannot go on: the scope ends with [`FiberError::Stopped`]. In a destructor that runs in the middle of a
    /// panic no other fiber may run: with all slots taken nothing is spawned there, and the handle and the scope say so
    /// ([`FiberError::Unwinding`]).
    pub fn spawn<T: 'scope>(&'scope self, run: impl FnOnce() -> T + 'scope) -> JoinHandle<'scope, T> {
        self.spawn_named("", run)
    }

    /// Spawns a fiber whose panics and overflows carry `name`.
    pub fn spawn_named<T: 'scope>(&'scope self, name: &str, run: impl FnOnce() -> T + 'scope) -> JoinHandle<'scope, T> {
        let packet = Rc::new(Packet {
            result: RefCell::new(None),
            ended: Cell::new(false),
            joiner: Cell::new(None),
            shared: Rc::clone(&self.shared),
        });
        let (own, core) = (Rc::clone(&packet), self.core);
        let task: Box<dyn FnOnce(bool) + 'scope> = Box::new(move |is_cancelled| live(core, own, run, is_cancelled));
        // SAFETY: only the lifetime changes. The scope does not return before the task has ended.
        let mut task = unsafe { std::mem::transmute::<Box<dyn FnOnce(bool) + 'scope>, Task>(task) };
        loop {
            match self.core.spawn(name, task) {
                Ok(index) => return JoinHandle { core: self.core, packet, index },
                Err(back) => task = back,
            }
            if panicking() {
                dropped(task).unwrap_or_else(discard);
                let error = || FiberError::Unwinding { fiber: name.to_owned() };
                self.shared.fail(error());
                packet.end(self.core, Err(error()));
                return JoinHandle { core: self.core, packet, index: NONE };
            }
            if let Err(stop) = self.core.await_slot() {
                self.shared.fail(FiberError::Stopped(stop));
            }
        }
    }
}

impl<T> JoinHandle<'_, T> {
    /// Waits for the fiber to end and returns what it returned. Others run meanwhile.
    ///
    /// # Errors
    /// The fiber panicked or was cancelled. [`FiberError::Unwinding`] if it has not ended and the caller is a destructor in
    /// the middle of a panic.
    pub fn join(self) -> Result<T, FiberError> {
        while !self.packet.ended.get() {
            if panicking() {
                return Err(FiberError::Unwinding { fiber: self.core.name(self.index) });
            }
            // A fiber of another executor drives this one, as the thread does.
            match self.core.running() {
                Some(index) => {
                    self.packet.joiner.set(Some(index));
                    self.core.await_end(self.index);
                }
                None => {
                    if let Err(stop) = self.core.drive(Awaits::End(self.index), || self.packet.ended.get()) {
                        self.packet.shared.fail(FiberError::Stopped(stop));
                    }
                }
            }
        }
        let result = self.packet.result.take();
        // A fiber that has ended has left one, and `join` takes it once.
        result.unwrap_or_else(|| Err(FiberError::Cancelled { fiber: self.core.name(self.index) }))
    }

    /// True once the fiber has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.ended.get()
    }

    /// Lets the fiber unwind from where it rests; its destructors run when it next gets its turn. One that runs, and cancels
    /// itself or drives another executor whose fibers do, unwinds when it next waits or hops. One that catches that and waits
    /// again unwinds again, until it has ended. One that has ended is left alone.
    pub fn cancel(&self) {
        if !self.packet.ended.get() {
            self.core.cancel(self.index);
        }
    }
}
