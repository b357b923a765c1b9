//! Scopes: fibers that borrow from their caller, and join handles that return their results.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread::panicking;

use super::core::{AwaitedEvent, Core, Task};
use super::stop::Stop;
use crate::context::panic::{CancellationPayload, message};
use crate::context::{catch_drop, discard};
use crate::fifo::{NONE, abort_with};

/// Error of a scope, or of a fiber that returned no value.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FiberError {
    /// The fiber panicked.
    #[error("fiber '{fiber}' panicked: {}", message(&**payload))]
    Panicked {
        /// Name of the fiber.
        fiber: String,
        /// Panic payload.
        payload: Box<dyn Any + Send>,
    },
    /// No fiber of the scope could continue, so all fibers were unwound. Lists the event that each fiber waited for.
    #[error("{0}")]
    Stopped(Stop),
    /// The fiber was cancelled, and unwound before its end.
    #[error("fiber '{fiber}' was cancelled")]
    Cancelled {
        /// Name of the fiber.
        fiber: String,
    },
    /// A destructor that ran during a panic either spawned the fiber while no slot was free, or joined the fiber before
    /// its end. No other fiber may run during a panic, so the fiber was not spawned, or not waited for.
    #[error("fiber '{fiber}' was not waited for: in the middle of a panic no other fiber may run")]
    Unwinding {
        /// Name of the fiber.
        fiber: String,
    },
    /// A destructor that ran during a panic attempted to begin a scope. No fiber may run there, so the scope's closure
    /// was not called.
    #[error("no scope of fibers begins in the middle of a panic")]
    InPanic,
}

impl std::fmt::Debug for FiberError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// State that the fibers of a scope share.
struct ScopeState {
    failure: RefCell<Option<FiberError>>,
}

impl ScopeState {
    /// Records an error for the scope. The scope reports the first error, but prefers any other error to
    /// [`FiberError::Unwinding`].
    fn record_error(&self, error: FiberError) {
        let rest = {
            let mut failure = self.failure.borrow_mut();
            match &*failure {
                Some(FiberError::Unwinding { .. }) | None => failure.replace(error),
                Some(_) => Some(error),
            }
        };
        if let Some(rest) = rest {
            discard_error(rest);
        }
    }

    /// Records the panic of a destructor that ran when a value of a fiber was dropped; this panic is reported nowhere
    /// else.
    fn report_drop(&self, core: &Core, dropped: std::thread::Result<()>) {
        match dropped {
            Err(payload) if payload.is::<CancellationPayload>() => discard(payload),
            Err(payload) => self.record_error(FiberError::Panicked { fiber: core.running_name(), payload }),
            Ok(()) => {}
        }
    }
}

/// Drops an error that is not reported.
fn discard_error(error: FiberError) {
    if let FiberError::Panicked { payload, .. } = error {
        discard(payload);
    }
}

/// State shared by a fiber and its join handle.
struct Packet<T> {
    result: RefCell<Option<Result<T, FiberError>>>,
    ended: Cell<bool>,
    /// Fiber of the same executor that waits in `join` for the end of this fiber.
    joiner: Cell<Option<u32>>,
    shared: Rc<ScopeState>,
}

impl<T> Packet<T> {
    /// Stores the result of the fiber, and makes the fiber that waits for it ready.
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
        // The scope reports a panic that no `join` has reported.
        if let Some(Err(error @ FiberError::Panicked { .. })) = self.result.take() {
            self.shared.record_error(error);
        }
    }
}

/// Runs the body of a fiber from start to end. All user code is called under `catch_unwind`: the fiber's function, and
/// the destructors of its captured values, its fiber-local values, and its result.
fn run_fiber<T>(core: &Core, packet: Rc<Packet<T>>, run: impl FnOnce() -> T, is_cancelled: bool) {
    let ran = if is_cancelled {
        catch_drop(run).and_then(|()| Err(Box::new(CancellationPayload) as Box<dyn Any + Send>))
    } else {
        catch_unwind(AssertUnwindSafe(run))
    };
    // A panic while the fiber-local values are dropped is reported unless the fiber's function itself panicked.
    let result = match (ran, end_locals(core)) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(value), Err(payload)) => {
            if let Err(second) = catch_drop(value) {
                discard(second);
            }
            Err(payload)
        }
        (Err(payload), Err(other)) if payload.is::<CancellationPayload>() => Err(other),
        (Err(payload), others) => {
            others.unwrap_or_else(discard);
            Err(payload)
        }
    };
    let result = result.map_err(|payload| {
        let fiber = core.running_name();
        if payload.is::<CancellationPayload>() {
            FiberError::Cancelled { fiber }
        } else {
            FiberError::Panicked { fiber, payload }
        }
    });
    let shared = Rc::clone(&packet.shared);
    packet.end(core, result);
    // The result is dropped here if no join handle is left to take it.
    shared.report_drop(core, catch_drop(packet));
    shared.report_drop(core, end_locals(core));
}

/// Drops all fiber-local values of the running fiber. Returns the first panic of a destructor that is not a
/// cancellation.
fn end_locals(core: &Core) -> std::thread::Result<()> {
    let mut first_panic = Ok(());
    while let Some(index) = core.running()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| core.locals(index).drop_values()))
    {
        if first_panic.is_ok() && !payload.is::<CancellationPayload>() {
            first_panic = Err(payload);
        } else {
            discard(payload);
        }
    }
    first_panic
}

/// Guard that aborts the process if a panic leaves a scope with live fibers, because these borrow from the scope's
/// caller.
struct BorrowGuard<'a>(&'a Core);

impl Drop for BorrowGuard<'_> {
    fn drop(&mut self) {
        if self.0.live() > 0 {
            abort_with("a panic leaves a scope whose fibers live");
        }
    }
}

pub(super) fn run_scope<'env, R>(
    core: &Core,
    with: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> Result<R, FiberError> {
    // Fibers share the thread's panic count: inside a panic, a fiber's own panic could not be distinguished from the
    // outer one.
    if panicking() {
        catch_drop(with).unwrap_or_else(discard);
        return Err(FiberError::InPanic);
    }
    let shared = Rc::new(ScopeState { failure: RefCell::new(None) });
    let scope = Scope { core, shared: Rc::clone(&shared), env: PhantomData };
    let guard = BorrowGuard(core);
    let mut result = catch_unwind(AssertUnwindSafe(|| with(&scope)));
    if result.is_err() {
        core.cancel_all();
    }
    while core.live() > 0 {
        // A callback of the embedder may panic. The callback is not called again, and the fibers are run to their end.
        match catch_unwind(AssertUnwindSafe(|| core.drive(AwaitedEvent::NoneReady, || false))) {
            Ok(Ok(())) => {}
            Ok(Err(stop)) => shared.record_error(FiberError::Stopped(stop)),
            Err(payload) => {
                // The first panic is reported. A value that the closure returned is dropped, even if its destructor
                // panics.
                match std::mem::replace(&mut result, Err(Box::new(()))) {
                    Ok(value) => {
                        result = Err(payload);
                        catch_drop(value).unwrap_or_else(discard);
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
    // All values that the fibers borrow are still alive at this line.
    drop(guard);
    let failure = shared.failure.take();
    match (result, failure) {
        (Ok(result), None) => Ok(result),
        (Ok(result), Some(failure)) => match catch_drop(result) {
            Ok(()) => Err(failure),
            Err(payload) => {
                discard_error(failure);
                resume_unwind(payload)
            }
        },
        (Err(payload), failure) => {
            failure.into_iter().for_each(discard_error);
            resume_unwind(payload)
        }
    }
}

/// Spawns fibers, which end before [`Executor::scope`](super::Executor::scope) returns.
///
/// The scope's closure and its fibers can use this value. Their code keeps the contract of
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
    shared: Rc<ScopeState>,
    env: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// Join handle of a fiber, used to wait for its result.
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
    /// Spawns a fiber whose name is its number. The fiber begins when the running context next gives up the CPU.
    ///
    /// If all slots are taken, other fibers run until one of them ends. If fibers hold all slots and all of them wait
    /// to spawn another fiber, the scope ends with [`FiberError::Stopped`]. In a destructor that runs during a panic no
    /// other fiber may run: if all slots are taken there, no fiber is spawned, and both the handle and the scope report
    /// [`FiberError::Unwinding`].
    pub fn spawn<T: 'scope>(&'scope self, run: impl FnOnce() -> T + 'scope) -> JoinHandle<'scope, T> {
        self.spawn_named("", run)
    }

    /// Spawns a fiber with the name `name`, which appears in reports of its panics and stack overflows.
    pub fn spawn_named<T: 'scope>(&'scope self, name: &str, run: impl FnOnce() -> T + 'scope) -> JoinHandle<'scope, T> {
        let packet = Rc::new(Packet {
            result: RefCell::new(None),
            ended: Cell::new(false),
            joiner: Cell::new(None),
            shared: Rc::clone(&self.shared),
        });
        let (own, core) = (Rc::clone(&packet), self.core);
        let task: Box<dyn FnOnce(bool) + 'scope> =
            Box::new(move |is_cancelled| run_fiber(core, own, run, is_cancelled));
        // SAFETY: only the lifetime changes. The scope does not return before the task has ended.
        let mut task = unsafe { std::mem::transmute::<Box<dyn FnOnce(bool) + 'scope>, Task>(task) };
        loop {
            match self.core.spawn(name, task) {
                Ok(index) => return JoinHandle { core: self.core, packet, index },
                Err(back) => task = back,
            }
            if panicking() {
                catch_drop(task).unwrap_or_else(discard);
                let error = || FiberError::Unwinding { fiber: name.to_owned() };
                self.shared.record_error(error());
                packet.end(self.core, Err(error()));
                return JoinHandle { core: self.core, packet, index: NONE };
            }
            if let Err(stop) = self.core.await_slot() {
                self.shared.record_error(FiberError::Stopped(stop));
            }
        }
    }
}

impl<T> JoinHandle<'_, T> {
    /// Waits until the fiber has ended, and returns its result. Other fibers run meanwhile.
    ///
    /// # Errors
    /// The fiber panicked or was cancelled. [`FiberError::Unwinding`] if the fiber has not ended and the caller is a
    /// destructor during a panic.
    pub fn join(self) -> Result<T, FiberError> {
        while !self.packet.ended.get() {
            if panicking() {
                return Err(FiberError::Unwinding { fiber: self.core.name(self.index) });
            }
            // If the caller is a fiber of another executor, it drives this executor, as the thread does.
            match self.core.running() {
                Some(index) => {
                    self.packet.joiner.set(Some(index));
                    self.core.await_end(self.index);
                }
                None => {
                    if let Err(stop) = self.core.drive(AwaitedEvent::End(self.index), || self.packet.ended.get()) {
                        self.packet.shared.record_error(FiberError::Stopped(stop));
                    }
                }
            }
        }
        let result = self.packet.result.take();
        // An ended fiber has stored a result, and `join` takes it only once.
        result.unwrap_or_else(|| Err(FiberError::Cancelled { fiber: self.core.name(self.index) }))
    }

    /// Returns true if the fiber has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.ended.get()
    }

    /// Cancels the fiber. A suspended fiber unwinds from its place of suspension, and its destructors run, when it next
    /// gets the CPU. A running fiber (one that cancels itself, or drives another executor whose fiber cancels it)
    /// unwinds when it next waits or hops. If a fiber catches the unwinding and waits again, it unwinds again, until it
    /// has ended. Cancelling a fiber that has ended has no effect.
    pub fn cancel(&self) {
        if !self.packet.ended.get() {
            self.core.cancel(self.index);
        }
    }
}
