//! Scopes: fibers that borrow, handles that return what they made.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::core::{Awaits, Core};
use super::remote::Waker;
use super::stop::Stop;
use crate::context::panic::{Unwound, message};

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
    /// Keeps an error for the scope, unless there was one before.
    fn fail(&self, error: FiberError) {
        self.failure.borrow_mut().get_or_insert(error);
    }
}

/// The meeting place of a fiber and its handle.
struct Packet<T> {
    result: RefCell<Option<Result<T, FiberError>>>,
    ended: Cell<bool>,
    joiner: Cell<Option<Waker>>,
    shared: Rc<Shared>,
}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        // A panic that no `join` has reported is reported by the scope.
        if let Some(Err(error @ FiberError::Panicked { .. })) = self.result.take() {
            self.shared.fail(error);
        }
    }
}

/// Marks the end of a fiber when dropped, however it came about.
struct Ended<T>(Rc<Packet<T>>);

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        self.0.ended.set(true);
        if let Some(joiner) = self.0.joiner.take() {
            joiner.wake();
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

/// Ends the process rather than let a panic out of a scope whose fibers live: they borrow from who called it. (Callbacks
/// and payloads are dropped on the way, and their destructors may panic.)
struct Borrowing<'a>(&'a Core);

impl Drop for Borrowing<'_> {
    fn drop(&mut self) {
        if self.0.live() > 0 {
            std::process::abort();
        }
    }
}

pub(super) fn enter<'env, R>(
    core: &Core,
    with: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> Result<R, FiberError> {
    let shared = Rc::new(Shared { failure: RefCell::new(None) });
    let scope = Scope { core, shared: Rc::clone(&shared), env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| with(&scope)));
    if result.is_err() {
        core.cancel_all();
    }
    let mut failed = None;
    let borrowing = Borrowing(core);
    while core.live() > 0 {
        // A callback of the embedder may panic. It is not called again, and the fibers end all the same.
        match catch_unwind(AssertUnwindSafe(|| core.drive(Awaits::Rest, || false))) {
            Ok(Ok(())) => {}
            Ok(Err(stop)) => shared.fail(FiberError::Stopped(stop)),
            Err(payload) => {
                failed.get_or_insert(payload);
                core.forget_callbacks();
                core.cancel_all();
            }
        }
    }
    // Nothing that a fiber borrows ends before this line.
    drop(borrowing);
    match (result, failed) {
        (Err(payload), _) | (_, Some(payload)) => resume_unwind(payload),
        (Ok(result), None) => shared.failure.take().map_or(Ok(result), Err),
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a fiber named by its number. It begins when the running context next gives way.
    ///
    /// If all slots are taken, others run until one of them ends. Fibers that hold all slots and all wait to
    /// spawn another cannot go on: the scope ends with [`FiberError::Stopped`].
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
        let (meeting, core) = (Ended(Rc::clone(&packet)), self.core);
        let task: Box<dyn FnOnce() + 'scope> = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(run));
            // What the fiber's own values panic with when they are dropped is told unless there is worse.
            let mut dropped = Ok(());
            while let Some(index) = core.running()
                && let Err(payload) = catch_unwind(AssertUnwindSafe(|| core.locals(index).drop_values()))
            {
                dropped = dropped.and(Err(payload));
            }
            let result = result.and_then(|value| dropped.map(|()| value)).map_err(|payload| {
                let fiber = core.running().map(|index| core.name(index)).unwrap_or_default();
                if payload.is::<Unwound>() {
                    FiberError::Cancelled { fiber }
                } else {
                    FiberError::Panicked { fiber, payload }
                }
            });
            *meeting.0.result.borrow_mut() = Some(result);
        });
        // SAFETY: only the lifetime changes. The scope does not return before the task has ended.
        let mut task = unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'scope>, Box<dyn FnOnce() + 'static>>(task) };
        loop {
            match self.core.spawn(name, task) {
                Ok(index) => return JoinHandle { core: self.core, packet, index },
                Err(back) => task = back,
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
    /// The fiber panicked or was cancelled.
    pub fn join(self) -> Result<T, FiberError> {
        while !self.packet.ended.get() {
            // A fiber of another executor drives this one, as the thread does.
            match self.core.running() {
                Some(index) => {
                    self.packet.joiner.set(Some(self.core.waker(index)));
                    self.core.park_for(self.index);
                }
                None => {
                    if let Err(stop) = self.core.drive(Awaits::End(self.index), || self.packet.ended.get()) {
                        self.packet.shared.fail(FiberError::Stopped(stop));
                    }
                }
            }
        }
        let result = self.packet.result.take();
        result.unwrap_or_else(|| Err(FiberError::Cancelled { fiber: self.core.name(self.index) }))
    }

    /// True once the fiber has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.ended.get()
    }

    /// Lets the fiber unwind from where it rests; its destructors run when it next gets its turn. One that cancels
    /// itself unwinds when it next waits. One that has ended is left alone.
    pub fn cancel(&self) {
        if !self.packet.ended.get() {
            self.core.cancel(self.index);
        }
    }
}
