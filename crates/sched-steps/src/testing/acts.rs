//! Random actions of the fibers of a program.
// The points below are defined in this crate, so the lint `unsafe_code` applies to their macro expansions.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread::panicking;

use super::callbacks::executor;
use super::world::{Known, World, blow, is_provoked, words};
use crate::context::panic::Unwound;
use crate::team::{self, OperationId};
use crate::{Executor, FiberError, JoinHandle, Scope, ctx_point, ctx_prefetch, fiber};

/// Maximum nesting depth of executors.
const DEPTH: usize = 3;

/// Result of a fiber.
struct Made<'w> {
    fiber: usize,
    _noise: Noise<'w>,
}

/// Value whose destructor acts, and may panic.
struct Noise<'w> {
    world: &'w World,
    /// Dropped after the destructor has run, even if the destructor panics.
    _given: Rc<()>,
}

impl<'w> Noise<'w> {
    fn new(world: &'w World) -> Noise<'w> {
        Noise { world, _given: Rc::clone(&world.given) }
    }
}

impl Drop for Noise<'_> {
    fn drop(&mut self) {
        let draws = &self.world.draws;
        if draws.once_in(4) {
            match draws.below(5) {
                0 => fiber::yield_now(),
                1 => ctx_point!("testing/noise"),
                // Outside of a fiber `park` would park the thread.
                2 if fiber::is_fiber() => fiber::park(),
                3 if !panicking() => blow(draws),
                _ => fiber::hop(),
            }
        }
    }
}

/// Fiber-local value: the number of its fiber, and a flag that makes its destructor panic.
struct Own(Cell<Option<(usize, bool)>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some((_, true)) = self.0.get() {
            fiber::yield_now();
            if !panicking() {
                blow(&super::world::Draws::new(1));
            }
        }
    }
}

crate::fiber_local! {
    static OWN: Own = Own(Cell::new(None));
}

/// State that the fibers of a scope share.
struct Room<'w, 's, 'e> {
    world: &'w World,
    scope: &'s Scope<'s, 'e>,
    ids: &'w [OperationId],
    handles: RefCell<Vec<(usize, JoinHandle<'s, Made<'w>>)>>,
    /// Numbers of all fibers of the scope.
    born: &'w RefCell<Vec<usize>>,
    /// Scope in which this scope's executor runs, if nested.
    outer: Option<&'w dyn Outer>,
}

/// A scope, as used from inside of another executor.
trait Outer {
    /// Cancels, joins or spawns a fiber of the outer scope, or yields the fiber that drives the inner executor.
    fn meddle(&self, in_closure: bool);
}

impl<'w: 's, 's> Outer for Rc<Room<'w, 's, '_>> {
    fn meddle(&self, in_closure: bool) {
        match self.world.draws.below(5) {
            0 | 1 => self.cancel_any(),
            2 => self.spawn(),
            3 => self.join_any(),
            _ if in_closure => fiber::yield_now(),
            _ => {}
        }
    }
}

/// Spawning of further fibers in the same room.
trait Spawns {
    fn spawn(&self);
}

impl<'w: 's, 's> Spawns for Rc<Room<'w, 's, '_>> {
    fn spawn(&self) {
        let world = self.world;
        let Some(number) = world.born() else { return };
        self.born.borrow_mut().push(number);
        let (room, noise) = (Rc::clone(self), Noise::new(world));
        // The room holds handles, and the handles keep the room alive: a cycle, which `Broken` breaks.
        let handle = self.scope.spawn_named(&number.to_string(), move || {
            let known = world.of(number);
            let me = Me { known: Rc::clone(&known), number, index: fiber::index(), room };
            let ran = catch_unwind(AssertUnwindSafe(|| me.live()));
            known.ended.set(true);
            world.current.set(None);
            // Dropped before a result exists: if a destructor panicked after that, the language would leak the result.
            drop((me, noise));
            match ran {
                Ok(()) => Made { fiber: number, _noise: Noise::new(world) },
                Err(payload) => {
                    known.unwound.set(payload.is::<Unwound>());
                    resume_unwind(payload)
                }
            }
        });
        if world.draws.once_in(5) { drop(handle) } else { self.handles.borrow_mut().push((number, handle)) }
    }
}

impl<'w: 's, 's> Room<'w, 's, '_> {
    fn any(&self) -> Option<usize> {
        let len = self.handles.borrow().len();
        (len > 0).then(|| self.world.draws.below(len))
    }

    fn cancel_any(&self) {
        if let Some(at) = self.any() {
            let handles = self.handles.borrow();
            let (number, handle) = &handles[at];
            let known = self.world.of(*number);
            if !known.ended.get() {
                known.cancelled.set(true);
            }
            handle.cancel();
        }
    }

    fn join_any(&self) {
        let Some(at) = self.any() else { return };
        let (number, handle) = self.handles.borrow_mut().swap_remove(at);
        let was_panicking = panicking();
        match handle.join() {
            Ok(made) => self.world.must(made.fiber == number, || format!("{number} returned what {} made", made.fiber)),
            Err(FiberError::Panicked { payload, fiber }) => {
                self.world
                    .must(fiber == number.to_string(), || format!("{number} has panicked by the name of {fiber}"));
                self.world.must(is_provoked(&*payload), || format!("fiber {number} panicked: {}", words(&*payload)));
                crate::context::discard(payload);
            }
            Err(FiberError::Cancelled { fiber }) => {
                self.world
                    .must(fiber == number.to_string(), || format!("{number} is cancelled by the name of {fiber}"));
            }
            Err(FiberError::Unwinding { .. }) => {
                self.world.must(was_panicking || !self.world.of(number).begun.get(), || {
                    format!("{number} was not waited for without a panic")
                });
            }
            Err(error) => self.world.find(format!("fiber {number}: {error}")),
        }
    }
}

/// A running fiber of a program.
struct Me<'w, 's, 'e> {
    number: usize,
    index: Option<usize>,
    known: Rc<Known>,
    room: Rc<Room<'w, 's, 'e>>,
}

impl<'w: 's, 's> Me<'w, 's, '_> {
    fn world(&self) -> &'w World {
        self.room.world
    }

    fn live(&self) {
        let (world, known) = (self.world(), &self.known);
        world.must(!known.begun.replace(true), || format!("fiber {} has begun twice", self.number));
        world.must(!known.cancelled.get(), || format!("fiber {} has begun after it was cancelled", self.number));
        world.must(!panicking(), || format!("fiber {} begins in a panic", self.number));
        world.current.set(Some(self.number));
        let _dropped = Acts(self);
        for _ in 0..world.draws.below(24) {
            if !world.step() {
                break;
            }
            self.act();
        }
    }

    /// Makes a call that may let other fibers run, and checks the invariants afterwards. If `looks` is true, a cancelled
    /// fiber must not continue after the call.
    fn wait<R>(&self, what: &str, looks: bool, call: impl FnOnce() -> R) -> R {
        struct Back<'a>(&'a World, Option<usize>);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.current.set(self.1);
            }
        }
        let (world, me) = (self.world(), self.number);
        let words = black_box([me; 16]);
        let unwound = panicking();
        let clock = world.clock.get();
        let result = {
            let _back = Back(world, world.current.replace(None));
            call()
        };
        world
            .must(words.iter().all(|word| *word == me), || format!("{what}: the frames of fiber {me} are overwritten"));
        world.must(!self.known.ended.get(), || format!("{what}: fiber {me} goes on after its end"));
        world
            .must(fiber::index() == self.index || fiber::index().is_none(), || format!("{what}: another runs as {me}"));
        if unwound {
            world.must(world.clock.get() == clock, || format!("{what}: others ran while {me} unwound"));
        } else {
            world.must(!panicking(), || format!("{what}: fiber {me} sees the panic of another"));
            world.must(!(looks && self.known.cancelled.get()), || {
                format!("{what}: {me} went on after it was cancelled")
            });
        }
        result
    }

    fn act(&self) {
        let (world, draws) = (self.world(), &self.world().draws);
        let any_id = || self.room.ids[draws.below(self.room.ids.len())];
        match draws.below(28) {
            0 | 1 => self.wait("hop", true, fiber::hop),
            2 | 3 => self.wait("yield", true, fiber::yield_now),
            4 => self.park(),
            5 | 6 => self.block(),
            7..=9 => self.wait("spawn", false, || self.room.spawn()),
            10 => self.wait("join", false, || self.room.join_any()),
            11 | 12 => self.room.cancel_any(),
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
            19 => self.own(),
            20 if draws.once_in(3) => blow(draws),
            21 | 22 => {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    let _dropped = Acts(self);
                    (0..draws.below(4)).for_each(|_| self.act());
                }));
                if let Err(payload) = caught {
                    let known = payload.is::<Unwound>() || is_provoked(&*payload);
                    world.must(known, || format!("fiber {} panicked: {}", self.number, words(&*payload)));
                    crate::context::discard(payload);
                }
            }
            23 => self.wait("scope", false, || nested(world, Some(&self.room))),
            24 => {
                if let Some(outer) = self.room.outer {
                    self.wait("outer", false, || outer.meddle(false));
                }
            }
            25 => {
                let _ = (fiber::monitor().map(fiber::Monitor::sample), team::statistics(), team::current_part());
                let id = any_id();
                self.wait("operation", false, || team::operation(id, fiber::hop));
            }
            26 => {
                let noise = Noise::new(world);
                self.wait("drop", false, || drop(noise));
            }
            _ => world.must(fiber::is_fiber(), || format!("fiber {} is none", self.number)),
        }
    }

    fn park(&self) {
        let world = self.world();
        if world.draws.once_in(2)
            && let Some(waker) = fiber::waker()
        {
            world.wakers.borrow_mut().push(waker);
            if world.draws.once_in(2) {
                waker.wake();
            }
        }
        self.wait("park", true, fiber::park);
    }

    fn wake_any(&self) {
        let world = self.world();
        let wakers = world.wakers.borrow();
        if !wakers.is_empty() {
            wakers[world.draws.below(wakers.len())].wake();
        }
    }

    fn latch(&self) {
        let world = self.world();
        let latch = fiber::LatchGuardCount::hold();
        let clock = world.clock.get();
        fiber::hop();
        ctx_point!("testing/latched", latched);
        world.must(world.clock.get() == clock, || format!("others ran while fiber {} held a latch", self.number));
        drop(latch);
    }

    fn own(&self) {
        let (world, me) = (self.world(), self.number);
        let panics = world.draws.once_in(6);
        let seen = OWN.try_with(|own| {
            let seen = own.0.replace(Some((me, panics)));
            self.wait("own", true, fiber::hop);
            (seen, own.0.get())
        });
        if let Some((before, now)) = seen {
            let others = before.is_some_and(|(of, _)| of != me) || now.is_none_or(|(of, _)| of != me);
            world.must(!others, || format!("fiber {me} finds {before:?} and {now:?} of its own"));
        }
    }

    fn block(&self) {
        let (world, me) = (self.world(), self.number);
        let waits = Rc::new(Cell::new(true));
        let answer = Rc::new(Cell::new(false));
        let (asked, needed, mischief) = (Cell::new(0), world.draws.below(5), world.draws.below(16));
        let words = black_box([me; 16]);
        let unwinds = panicking();
        let (waits_for, answered) = (Rc::clone(&waits), Rc::clone(&answer));
        let condition = move || {
            world.must(waits_for.get(), || format!("a condition of fiber {me} is asked that waits no more"));
            world.must(words.iter().all(|word| *word == me), || format!("a condition of fiber {me} is overwritten"));
            world.must(world.current.get().is_none(), || {
                format!("a condition of fiber {me} is asked while a fiber runs")
            });
            world.must(panicking() == unwinds, || format!("a condition of {me} sees a panic"));
            asked.set(asked.get() + 1);
            if asked.get() == 2 && !unwinds {
                match mischief {
                    0 => self.room.spawn(),
                    1 => self.room.cancel_any(),
                    2 => self.wake_any(),
                    3 => nested(world, Some(&self.room)),
                    4 => self.room.join_any(),
                    5 => blow(&world.draws),
                    6 => fiber::yield_now(),
                    _ => {}
                }
            }
            answered.set(asked.get() > needed);
            answered.get()
        };
        struct Over(Rc<Cell<bool>>);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let _over = Over(waits);
        self.wait("block_until", false, || fiber::block_until(condition));
        world.must(answer.get(), || format!("the condition of fiber {me} does not hold, and it goes on"));
    }
}

/// Acts when it is dropped, also during a panic.
struct Acts<'a, 'w: 's, 's, 'e>(&'a Me<'w, 's, 'e>);

impl<'w: 's, 's> Drop for Acts<'_, 'w, 's, '_> {
    fn drop(&mut self) {
        let me = self.0;
        let (world, draws) = (me.room.world, &me.room.world.draws);
        // A destructor must not panic during a panic. Some actions may panic, so few are used here.
        if panicking() && world.step() {
            let any_id = me.room.ids[draws.below(me.room.ids.len())];
            match draws.below(12) {
                0 => me.wait("hop", true, fiber::hop),
                1 => me.wait("yield", true, fiber::yield_now),
                2 => me.wait("point", true, || ctx_point!("testing/unwinds")),
                3 => me.wait("prefetch", true, || ctx_prefetch!("testing/unwinds", world, 1)),
                4 => me.wait("park", true, fiber::park),
                5 => me.block(),
                6 => me.wait("spawn", false, || me.room.spawn()),
                7 => me.wait("join", false, || me.room.join_any()),
                8 => me.room.cancel_any(),
                9 => me.wait("operation", false, || team::begin_operation(any_id)),
                10 => nested(world, None),
                _ => me.wake_any(),
            }
        }
    }
}

/// Runs an executor inside of a fiber, of a condition, or of a destructor.
fn nested<'w: 's, 's>(world: &'w World, outer: Option<&Rc<Room<'w, 's, '_>>>) {
    if world.depth.get() < DEPTH && world.step() {
        struct Depth<'a>(&'a World, Option<usize>);
        impl Drop for Depth<'_> {
            fn drop(&mut self) {
                self.0.depth.set(self.0.depth.get() - 1);
                self.0.current.set(self.1);
            }
        }
        world.depth.set(world.depth.get() + 1);
        let _depth = Depth(world, world.current.replace(None));
        let (mut steps, ids) = executor(&world.draws);
        scope(world, &mut steps, &ids, outer.map(|outer| outer as &dyn Outer));
        drop_executor(world, steps);
    }
}

/// Drops an executor; its callbacks may panic when they are dropped.
fn drop_executor(world: &World, steps: Executor) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(steps))) {
        world.must(is_provoked(&*payload), || format!("the drop of an executor panicked: {}", words(&*payload)));
        crate::context::discard(payload);
    }
}

/// Runs a scope of random fibers and checks its result.
fn scope(world: &World, steps: &mut Executor, ids: &[OperationId], outer: Option<&dyn Outer>) {
    let in_panic = panicking();
    let born = RefCell::new(Vec::new());
    let result = catch_unwind(AssertUnwindSafe(|| {
        steps.scope(|s| {
            let room = Rc::new(Room { world, scope: s, ids, handles: RefCell::default(), born: &born, outer });
            let _broken = Broken(&room);
            (0..1 + world.draws.below(6)).for_each(|_| room.spawn());
            for _ in 0..world.draws.below(4) {
                match world.draws.below(6) {
                    0 => room.cancel_any(),
                    1 => room.join_any(),
                    2 => room.spawn(),
                    3 if world.draws.once_in(4) => blow(&world.draws),
                    4 => outer.into_iter().for_each(|outer| outer.meddle(true)),
                    _ => {}
                }
            }
        })
    }));
    let of = |known: fn(&Known) -> bool| born.borrow().iter().any(|&number| known(&world.of(number)));
    world.must(!of(|known| known.begun.get() && !known.ended.get()), || {
        "a scope has ended before its fibers".to_owned()
    });
    match result {
        Ok(Err(FiberError::InPanic)) => world.must(in_panic, || "a scope was refused outside of a panic".to_owned()),
        _ if in_panic => world.find("a scope has begun in the middle of a panic".to_owned()),
        Ok(Ok(())) => {
            let unwound = of(|known| known.unwound.get() && !known.cancelled.get());
            world.must(!unwound, || "a fiber was unwound that nobody has cancelled".to_owned());
        }
        Ok(Err(FiberError::Panicked { payload, fiber })) => {
            world.must(is_provoked(&*payload), || format!("fiber {fiber} panicked: {}", words(&*payload)));
            crate::context::discard(payload);
        }
        Ok(Err(FiberError::Cancelled { fiber })) => world.find(format!("the scope ends as if {fiber} were all")),
        Ok(Err(_)) => {}
        Err(payload) if payload.is::<Unwound>() => resume_unwind(payload),
        Err(payload) => {
            world.must(is_provoked(&*payload), || format!("a scope panicked: {}", words(&*payload)));
            crate::context::discard(payload);
        }
    }
}

/// Guard that drops the room's handles when the closure of the scope ends, which breaks the cycle of handles and room.
struct Broken<'a, 'w, 's, 'e>(&'a Rc<Room<'w, 's, 'e>>);

impl Drop for Broken<'_, '_, '_, '_> {
    fn drop(&mut self) {
        let handles = self.0.handles.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(handles))) {
            crate::context::discard(payload);
        }
    }
}

/// Runs the program: a random scope, then a second scope of the same executor, which must not be affected by the first.
pub(super) fn outermost(world: &World) {
    let (mut steps, ids) = executor(&world.draws);
    scope(world, &mut steps, &ids, None);
    let second = catch_unwind(AssertUnwindSafe(|| {
        steps.scope(|s| {
            let innocents = [0, 1].map(|mine| {
                s.spawn(move || {
                    let asked = Cell::new(0);
                    fiber::block_until(|| asked.replace(asked.get() + 1) > 0);
                    fiber::yield_now();
                    OWN.with(|own| own.0.get()).map_or(mine, |_| usize::MAX)
                })
            });
            innocents.map(JoinHandle::join)
        })
    }));
    match second {
        Ok(Ok(joined)) => {
            for (mine, joined) in joined.iter().enumerate() {
                let holds = joined.as_ref().is_ok_and(|made| *made == mine);
                world.must(holds, || format!("an innocent fiber: {joined:?}"));
            }
        }
        Ok(Err(error)) => world.find(format!("a scope of innocent fibers: {error}")),
        // Panic of a callback.
        Err(payload) => {
            world.must(is_provoked(&*payload), || format!("a scope of innocents panicked: {}", words(&*payload)));
            crate::context::discard(payload);
        }
    }
    drop_executor(world, steps);
}
