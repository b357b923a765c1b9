//! Random actions that the fibers of a test program perform.
// The points below are defined in this crate, so the lint `unsafe_code` applies to their macro expansions.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread::panicking;

use super::callbacks::executor;
use super::model::{FiberModel, Model, is_expected_panic, panic_message, panic_on_purpose};
use crate::context::panic::CancellationPayload;
use crate::team::{self, OperationId};
use crate::{Executor, FiberError, JoinHandle, Scope, ctx_point, ctx_prefetch, fiber};

/// Maximum nesting depth of executors in a test program.
const DEPTH: usize = 3;

/// Result of a fiber, with a value whose destructor acts.
struct FiberResult<'w> {
    fiber: usize,
    _acting_drop: ActingDrop<'w>,
}

/// Value whose destructor performs a random action, and may panic.
struct ActingDrop<'w> {
    model: &'w Model,
    /// Counted reference. It is dropped after the destructor has run, even if the destructor panics.
    _given: Rc<()>,
}

impl<'w> ActingDrop<'w> {
    fn new(model: &'w Model) -> ActingDrop<'w> {
        ActingDrop { model, _given: Rc::clone(&model.given_values) }
    }
}

impl Drop for ActingDrop<'_> {
    fn drop(&mut self) {
        let random = &self.model.random;
        if random.once_in(4) {
            match random.below(5) {
                0 => fiber::yield_now(),
                1 => ctx_point!("testing/noise"),
                // Outside of a fiber `park` would park the thread.
                2 if fiber::is_fiber() => fiber::park(),
                3 if !panicking() => panic_on_purpose(random),
                _ => fiber::hop(),
            }
        }
    }
}

/// Fiber-local value: the number of the fiber that owns it, and a flag that makes the value's destructor panic.
struct LocalOwner(Cell<Option<(usize, bool)>>);

impl Drop for LocalOwner {
    fn drop(&mut self) {
        if let Some((_, true)) = self.0.get() {
            fiber::yield_now();
            if !panicking() {
                panic_on_purpose(&super::model::Random::new(1));
            }
        }
    }
}

crate::fiber_local! {
    static LOCAL_OWNER: LocalOwner = LocalOwner(Cell::new(None));
}

/// State that the fibers of a scope share.
struct ScopeContext<'w, 's, 'e> {
    model: &'w Model,
    scope: &'s Scope<'s, 'e>,
    ids: &'w [OperationId],
    handles: RefCell<Vec<(usize, JoinHandle<'s, FiberResult<'w>>)>>,
    /// Numbers of all fibers of the scope.
    fiber_numbers: &'w RefCell<Vec<usize>>,
    /// Scope in which this scope's executor runs; `None` if the executor is not nested.
    outer: Option<&'w dyn OuterScope>,
}

/// Scope that code inside of another executor uses.
trait OuterScope {
    /// Performs a random action: cancels, joins or spawns a fiber of the outer scope, or yields the fiber that drives
    /// the inner executor.
    fn act_in_outer(&self, in_closure: bool);
}

impl<'w: 's, 's> OuterScope for Rc<ScopeContext<'w, 's, '_>> {
    fn act_in_outer(&self, in_closure: bool) {
        match self.model.random.below(5) {
            0 | 1 => self.cancel_any(),
            2 => self.spawn(),
            3 => self.join_any(),
            _ if in_closure => fiber::yield_now(),
            _ => {}
        }
    }
}

/// Spawns further fibers in the same scope.
trait FiberSpawner {
    fn spawn(&self);
}

impl<'w: 's, 's> FiberSpawner for Rc<ScopeContext<'w, 's, '_>> {
    fn spawn(&self) {
        let model = self.model;
        let Some(number) = model.register_fiber() else { return };
        self.fiber_numbers.borrow_mut().push(number);
        let (context, acting_drop) = (Rc::clone(self), ActingDrop::new(model));
        // The context holds handles, and the handles keep the context alive: a cycle, which `HandleCycleGuard` breaks.
        let handle = self.scope.spawn_named(&number.to_string(), move || {
            let record = model.of(number);
            let me = Actor { record: Rc::clone(&record), number, index: fiber::index(), context };
            let ran = catch_unwind(AssertUnwindSafe(|| me.run()));
            record.ended.set(true);
            model.current.set(None);
            // These values are dropped before a result exists: if a destructor panicked later, the language would leak
            // the result.
            drop((me, acting_drop));
            match ran {
                Ok(()) => FiberResult { fiber: number, _acting_drop: ActingDrop::new(model) },
                Err(payload) => {
                    record.unwound.set(payload.is::<CancellationPayload>());
                    resume_unwind(payload)
                }
            }
        });
        if model.random.once_in(5) { drop(handle) } else { self.handles.borrow_mut().push((number, handle)) }
    }
}

impl<'w: 's, 's> ScopeContext<'w, 's, '_> {
    fn any(&self) -> Option<usize> {
        let len = self.handles.borrow().len();
        (len > 0).then(|| self.model.random.below(len))
    }

    fn cancel_any(&self) {
        if let Some(at) = self.any() {
            let handles = self.handles.borrow();
            let (number, handle) = &handles[at];
            let record = self.model.of(*number);
            if !record.ended.get() {
                record.cancelled.set(true);
            }
            handle.cancel();
        }
    }

    fn join_any(&self) {
        let Some(at) = self.any() else { return };
        let (number, handle) = self.handles.borrow_mut().swap_remove(at);
        let was_panicking = panicking();
        match handle.join() {
            Ok(made) => {
                self.model.check(made.fiber == number, || format!("{number} returned what {} made", made.fiber))
            }
            Err(FiberError::Panicked { payload, fiber }) => {
                self.model
                    .check(fiber == number.to_string(), || format!("{number} has panicked by the name of {fiber}"));
                self.model.check(is_expected_panic(&*payload), || {
                    format!("fiber {number} panicked: {}", panic_message(&*payload))
                });
                crate::context::discard(payload);
            }
            Err(FiberError::Cancelled { fiber }) => {
                self.model
                    .check(fiber == number.to_string(), || format!("{number} is cancelled by the name of {fiber}"));
            }
            Err(FiberError::Unwinding { .. }) => {
                self.model.check(was_panicking || !self.model.of(number).begun.get(), || {
                    format!("{number} was not waited for without a panic")
                });
            }
            Err(error) => self.model.record_violation(format!("fiber {number}: {error}")),
        }
    }
}

/// Running fiber of a test program.
struct Actor<'w, 's, 'e> {
    number: usize,
    index: Option<usize>,
    record: Rc<FiberModel>,
    context: Rc<ScopeContext<'w, 's, 'e>>,
}

impl<'w: 's, 's> Actor<'w, 's, '_> {
    fn model(&self) -> &'w Model {
        self.context.model
    }

    fn run(&self) {
        let (model, record) = (self.model(), &self.record);
        model.check(!record.begun.replace(true), || format!("fiber {} has begun twice", self.number));
        model.check(!record.cancelled.get(), || format!("fiber {} has begun after it was cancelled", self.number));
        model.check(!panicking(), || format!("fiber {} begins in a panic", self.number));
        model.current.set(Some(self.number));
        let _action = DropAction(self);
        for _ in 0..model.random.below(24) {
            if !model.step() {
                break;
            }
            self.act();
        }
    }

    /// Makes a call that may let other fibers run, and checks the invariants of the model afterwards. If
    /// `tests_cancellation` is true, a cancelled fiber must not continue after the call.
    fn wait<R>(&self, what: &str, tests_cancellation: bool, call: impl FnOnce() -> R) -> R {
        struct RestoreCurrent<'a>(&'a Model, Option<usize>);
        impl Drop for RestoreCurrent<'_> {
            fn drop(&mut self) {
                self.0.current.set(self.1);
            }
        }
        let (model, me) = (self.model(), self.number);
        let words = black_box([me; 16]);
        let unwound = panicking();
        let clock = model.clock.get();
        let result = {
            let _restore = RestoreCurrent(model, model.current.replace(None));
            call()
        };
        model.check(words.iter().all(|word| *word == me), || {
            format!("{what}: the frames of fiber {me} are overwritten")
        });
        model.check(!self.record.ended.get(), || format!("{what}: fiber {me} goes on after its end"));
        model.check(fiber::index() == self.index || fiber::index().is_none(), || {
            format!("{what}: another runs as {me}")
        });
        if unwound {
            model.check(model.clock.get() == clock, || format!("{what}: others ran while {me} unwound"));
        } else {
            model.check(!panicking(), || format!("{what}: fiber {me} sees the panic of another"));
            model.check(!(tests_cancellation && self.record.cancelled.get()), || {
                format!("{what}: {me} went on after it was cancelled")
            });
        }
        result
    }

    fn act(&self) {
        let (model, random) = (self.model(), &self.model().random);
        let any_id = || self.context.ids[random.below(self.context.ids.len())];
        match random.below(28) {
            0 | 1 => self.wait("hop", true, fiber::hop),
            2 | 3 => self.wait("yield", true, fiber::yield_now),
            4 => self.park(),
            5 | 6 => self.block(),
            7..=9 => self.wait("spawn", false, || self.context.spawn()),
            10 => self.wait("join", false, || self.context.join_any()),
            11 | 12 => self.context.cancel_any(),
            13 | 14 => self.wake_any(),
            15 => self.wait("operation", false, || team::begin_operation(any_id())),
            16 => team::end_operation(),
            17 => {
                team::go_on_as(any_id());
                self.wait("point", false, || ctx_point!("testing/point"));
                let data = [0_u64; 8];
                self.wait("prefetch", false, || ctx_prefetch!("testing/data", data.as_ptr(), 1));
            }
            18 => self.latch(),
            19 => self.access_local(),
            20 if random.once_in(3) => panic_on_purpose(random),
            21 | 22 => {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    let _action = DropAction(self);
                    (0..random.below(4)).for_each(|_| self.act());
                }));
                if let Err(payload) = caught {
                    let expected = payload.is::<CancellationPayload>() || is_expected_panic(&*payload);
                    model.check(expected, || format!("fiber {} panicked: {}", self.number, panic_message(&*payload)));
                    crate::context::discard(payload);
                }
            }
            23 => self.wait("scope", false, || nested(model, Some(&self.context))),
            24 => {
                if let Some(outer) = self.context.outer {
                    self.wait("outer", false, || outer.act_in_outer(false));
                }
            }
            25 => {
                let _ = (fiber::monitor().map(fiber::Monitor::sample), team::statistics(), team::current_part());
                let id = any_id();
                self.wait("operation", false, || team::operation(id, fiber::hop));
            }
            26 => {
                let acting_drop = ActingDrop::new(model);
                self.wait("drop", false, || drop(acting_drop));
            }
            _ => model.check(fiber::is_fiber(), || format!("fiber {} is none", self.number)),
        }
    }

    fn park(&self) {
        let model = self.model();
        if model.random.once_in(2)
            && let Some(waker) = fiber::waker()
        {
            model.wakers.borrow_mut().push(waker);
            if model.random.once_in(2) {
                waker.wake();
            }
        }
        self.wait("park", true, fiber::park);
    }

    fn wake_any(&self) {
        let model = self.model();
        let wakers = model.wakers.borrow();
        if !wakers.is_empty() {
            wakers[model.random.below(wakers.len())].wake();
        }
    }

    fn latch(&self) {
        let model = self.model();
        let latch = fiber::LatchGuardCount::hold();
        let clock = model.clock.get();
        fiber::hop();
        ctx_point!("testing/latched", latched);
        model.check(model.clock.get() == clock, || format!("others ran while fiber {} held a latch", self.number));
        drop(latch);
    }

    fn access_local(&self) {
        let (model, me) = (self.model(), self.number);
        let panics = model.random.once_in(6);
        let seen = LOCAL_OWNER.try_with(|owner| {
            let seen = owner.0.replace(Some((me, panics)));
            self.wait("own", true, fiber::hop);
            (seen, owner.0.get())
        });
        if let Some((before, now)) = seen {
            let others = before.is_some_and(|(of, _)| of != me) || now.is_none_or(|(of, _)| of != me);
            model.check(!others, || format!("fiber {me} finds {before:?} and {now:?} of its own"));
        }
    }

    fn block(&self) {
        let (model, me) = (self.model(), self.number);
        let waits = Rc::new(Cell::new(true));
        let answer = Rc::new(Cell::new(false));
        let (asked, needed, mischief) = (Cell::new(0), model.random.below(5), model.random.below(16));
        let words = black_box([me; 16]);
        let unwinds = panicking();
        let (waits_for, answered) = (Rc::clone(&waits), Rc::clone(&answer));
        let condition = move || {
            model.check(waits_for.get(), || format!("a condition of fiber {me} is asked that waits no more"));
            model.check(words.iter().all(|word| *word == me), || format!("a condition of fiber {me} is overwritten"));
            model.check(model.current.get().is_none(), || {
                format!("a condition of fiber {me} is asked while a fiber runs")
            });
            model.check(panicking() == unwinds, || format!("a condition of {me} sees a panic"));
            asked.set(asked.get() + 1);
            if asked.get() == 2 && !unwinds {
                match mischief {
                    0 => self.context.spawn(),
                    1 => self.context.cancel_any(),
                    2 => self.wake_any(),
                    3 => nested(model, Some(&self.context)),
                    4 => self.context.join_any(),
                    5 => panic_on_purpose(&model.random),
                    6 => fiber::yield_now(),
                    _ => {}
                }
            }
            answered.set(asked.get() > needed);
            answered.get()
        };
        struct WaitEndGuard(Rc<Cell<bool>>);
        impl Drop for WaitEndGuard {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let _wait_end = WaitEndGuard(waits);
        self.wait("block_until", false, || fiber::block_until(condition));
        model.check(answer.get(), || format!("the condition of fiber {me} does not hold, and it goes on"));
    }
}

/// Value that performs random actions when it is dropped, also during a panic.
struct DropAction<'a, 'w: 's, 's, 'e>(&'a Actor<'w, 's, 'e>);

impl<'w: 's, 's> Drop for DropAction<'_, 'w, 's, '_> {
    fn drop(&mut self) {
        let me = self.0;
        let (model, random) = (me.context.model, &me.context.model.random);
        // A destructor must not panic during a panic. Some actions may panic, so only few actions are used here.
        if panicking() && model.step() {
            let any_id = me.context.ids[random.below(me.context.ids.len())];
            match random.below(12) {
                0 => me.wait("hop", true, fiber::hop),
                1 => me.wait("yield", true, fiber::yield_now),
                2 => me.wait("point", true, || ctx_point!("testing/unwinds")),
                3 => me.wait("prefetch", true, || ctx_prefetch!("testing/unwinds", model, 1)),
                4 => me.wait("park", true, fiber::park),
                5 => me.block(),
                6 => me.wait("spawn", false, || me.context.spawn()),
                7 => me.wait("join", false, || me.context.join_any()),
                8 => me.context.cancel_any(),
                9 => me.wait("operation", false, || team::begin_operation(any_id)),
                10 => nested(model, None),
                _ => me.wake_any(),
            }
        }
    }
}

/// Runs an executor inside of a fiber, a condition, or a destructor.
fn nested<'w: 's, 's>(model: &'w Model, outer: Option<&Rc<ScopeContext<'w, 's, '_>>>) {
    if model.depth.get() < DEPTH && model.step() {
        struct DepthGuard<'a>(&'a Model, Option<usize>);
        impl Drop for DepthGuard<'_> {
            fn drop(&mut self) {
                self.0.depth.set(self.0.depth.get() - 1);
                self.0.current.set(self.1);
            }
        }
        model.depth.set(model.depth.get() + 1);
        let _depth = DepthGuard(model, model.current.replace(None));
        let (mut steps, ids) = executor(&model.random);
        scope(model, &mut steps, &ids, outer.map(|outer| outer as &dyn OuterScope));
        drop_executor(model, steps);
    }
}

/// Drops an executor. Its callbacks may panic when they are dropped.
fn drop_executor(model: &Model, steps: Executor) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(steps))) {
        model.check(is_expected_panic(&*payload), || {
            format!("the drop of an executor panicked: {}", panic_message(&*payload))
        });
        crate::context::discard(payload);
    }
}

/// Runs a scope of random fibers and checks its result.
fn scope(model: &Model, steps: &mut Executor, ids: &[OperationId], outer: Option<&dyn OuterScope>) {
    let in_panic = panicking();
    let fiber_numbers = RefCell::new(Vec::new());
    let result = catch_unwind(AssertUnwindSafe(|| {
        steps.scope(|s| {
            let context = Rc::new(ScopeContext {
                model,
                scope: s,
                ids,
                handles: RefCell::default(),
                fiber_numbers: &fiber_numbers,
                outer,
            });
            let _guard = HandleCycleGuard(&context);
            (0..1 + model.random.below(6)).for_each(|_| context.spawn());
            for _ in 0..model.random.below(4) {
                match model.random.below(6) {
                    0 => context.cancel_any(),
                    1 => context.join_any(),
                    2 => context.spawn(),
                    3 if model.random.once_in(4) => panic_on_purpose(&model.random),
                    4 => outer.into_iter().for_each(|outer| outer.act_in_outer(true)),
                    _ => {}
                }
            }
        })
    }));
    let of = |record: fn(&FiberModel) -> bool| fiber_numbers.borrow().iter().any(|&number| record(&model.of(number)));
    model.check(!of(|record| record.begun.get() && !record.ended.get()), || {
        "a scope has ended before its fibers".to_owned()
    });
    match result {
        Ok(Err(FiberError::InPanic)) => model.check(in_panic, || "a scope was refused outside of a panic".to_owned()),
        _ if in_panic => model.record_violation("a scope has begun in the middle of a panic".to_owned()),
        Ok(Ok(())) => {
            let unwound = of(|record| record.unwound.get() && !record.cancelled.get());
            model.check(!unwound, || "a fiber was unwound that nobody has cancelled".to_owned());
        }
        Ok(Err(FiberError::Panicked { payload, fiber })) => {
            model.check(is_expected_panic(&*payload), || {
                format!("fiber {fiber} panicked: {}", panic_message(&*payload))
            });
            crate::context::discard(payload);
        }
        Ok(Err(FiberError::Cancelled { fiber })) => {
            model.record_violation(format!("the scope ends as if {fiber} were all"))
        }
        Ok(Err(_)) => {}
        Err(payload) if payload.is::<CancellationPayload>() => resume_unwind(payload),
        Err(payload) => {
            model.check(is_expected_panic(&*payload), || format!("a scope panicked: {}", panic_message(&*payload)));
            crate::context::discard(payload);
        }
    }
}

/// Guard that drops the context's handles when the closure of the scope ends, which breaks the cycle of handles and
/// context.
struct HandleCycleGuard<'a, 'w, 's, 'e>(&'a Rc<ScopeContext<'w, 's, 'e>>);

impl Drop for HandleCycleGuard<'_, '_, '_, '_> {
    fn drop(&mut self) {
        let handles = self.0.handles.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(handles))) {
            crate::context::discard(payload);
        }
    }
}

/// Runs the program: a random scope, then a second scope of the same executor, which the first scope must not affect.
pub(super) fn outermost(model: &Model) {
    let (mut steps, ids) = executor(&model.random);
    scope(model, &mut steps, &ids, None);
    let second = catch_unwind(AssertUnwindSafe(|| {
        steps.scope(|s| {
            let innocents = [0, 1].map(|mine| {
                s.spawn(move || {
                    let asked = Cell::new(0);
                    fiber::block_until(|| asked.replace(asked.get() + 1) > 0);
                    fiber::yield_now();
                    LOCAL_OWNER.with(|owner| owner.0.get()).map_or(mine, |_| usize::MAX)
                })
            });
            innocents.map(JoinHandle::join)
        })
    }));
    match second {
        Ok(Ok(joined)) => {
            for (mine, joined) in joined.iter().enumerate() {
                let holds = joined.as_ref().is_ok_and(|made| *made == mine);
                model.check(holds, || format!("an innocent fiber: {joined:?}"));
            }
        }
        Ok(Err(error)) => model.record_violation(format!("a scope of innocent fibers: {error}")),
        // The error is the panic of a callback.
        Err(payload) => {
            model.check(is_expected_panic(&*payload), || {
                format!("a scope of innocents panicked: {}", panic_message(&*payload))
            });
            crate::context::discard(payload);
        }
    }
    drop_executor(model, steps);
}
