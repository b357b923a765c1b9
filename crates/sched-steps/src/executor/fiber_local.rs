//! Values that belong to a fiber, as those of `thread_local!` belong to a thread.

use std::any::Any;
use std::rc::Rc;

use super::core::Core;
use super::locals::{LocalState, Locals};

/// A value of which each fiber has its own. Made by [`fiber_local!`](crate::fiber_local).
///
/// It is made at a fiber's first access and dropped when the fiber ends, before its [`join`](crate::JoinHandle::join)
/// returns; a fiber that comes later begins anew. Outside of a fiber, in a condition of
/// [`block_until`](crate::fiber::block_until) and in callbacks of the executor it is a value of the thread.
///
/// An access looks through the values that the fiber has made so far: keep them few, or behind one key.
pub struct FiberLocal<T: 'static> {
    make: fn() -> T,
}

impl<T> std::fmt::Debug for FiberLocal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FiberLocal").finish_non_exhaustive()
    }
}

impl<T: 'static> FiberLocal<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(make: fn() -> T) -> FiberLocal<T> {
        FiberLocal { make }
    }

    /// Calls `access` with the value of the running fiber, which is made if this is the first access.
    ///
    /// The fiber may give way meanwhile; others see values of their own.
    ///
    /// # Panics
    /// If the value needs itself to be made, or has been dropped because the fiber (or the thread) ends.
    pub fn with<R>(&'static self, access: impl FnOnce(&T) -> R) -> R {
        match self.value() {
            Ok(value) => access(&value),
            Err(why) => panic!("a fiber-local {why}"),
        }
    }

    /// The same; `None` where [`with`](FiberLocal::with) panics.
    pub fn try_with<R>(&'static self, access: impl FnOnce(&T) -> R) -> Option<R> {
        self.value().ok().map(|value| access(&value))
    }

    fn value(&'static self) -> Result<Rc<T>, &'static str> {
        // A static of its own has an address of its own.
        let key = std::ptr::from_ref(self).addr();
        let own = Core::current(|core| core.running().map(|index| self.find(core.locals(index), key))).flatten();
        own.unwrap_or_else(|| {
            let of_thread = OF_THREAD.try_with(Rc::clone).map_err(|_| GONE)?;
            self.find(&of_thread.0, key)
        })
    }

    fn find(&self, locals: &Locals, key: usize) -> Result<Rc<T>, &'static str> {
        match locals.state(key) {
            Some(LocalState::Here(value)) => return value.downcast().map_err(|_| "is no static"),
            Some(LocalState::Gone) => return Err(GONE),
            Some(LocalState::InTheMaking) => return Err("needs itself to be made"),
            None => {}
        }
        // Nothing is borrowed while it is made: that may make others, and other fibers may run.
        let making = Making { locals, key };
        locals.set(key, LocalState::InTheMaking);
        let value = Rc::new((self.make)());
        std::mem::forget(making);
        locals.set(key, LocalState::Here(Rc::clone(&value) as Rc<dyn Any>));
        Ok(value)
    }
}

const GONE: &str = "is used after it was dropped";

/// Forgets that a value is in the making, if making it panicked.
struct Making<'a> {
    locals: &'a Locals,
    key: usize,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.locals.forget(self.key);
    }
}

/// The values of a thread that runs no fiber.
#[derive(Default)]
struct OfThread(Locals);

impl Drop for OfThread {
    fn drop(&mut self) {
        self.0.drop_values();
    }
}

thread_local! {
    static OF_THREAD: Rc<OfThread> = Rc::default();
}

/// Declares values of which each fiber has its own: what `thread_local!` is to a thread.
///
/// Fibers of one thread share its thread-locals, and one fiber may find there what another has left while it rests at
/// a point. What belongs to a piece of work and lives across points belongs here.
///
/// ```
/// use std::cell::Cell;
/// use sched_steps::{Executor, ctx_point, fiber_local};
///
/// fiber_local! {
///     /// The request that this fiber serves.
///     static REQUEST: Cell<u32> = Cell::new(0);
/// }
///
/// // SAFETY: nothing below has a scoped thread-local open at a point.
/// let mut steps = unsafe { Executor::builder().fibers(2).build() }?;
/// steps.scope(|s| {
///     for request in 1..=2 {
///         s.spawn(move || {
///             REQUEST.with(|mine| mine.set(request));
///             ctx_point!("served"); // the other fiber runs, and sets its own
///             assert_eq!(REQUEST.with(Cell::get), request);
///         });
///     }
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// See [`FiberLocal`] for when a value is made and dropped.
#[macro_export]
macro_rules! fiber_local {
    () => {};
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = $value:expr; $($more:tt)*) => {
        $crate::fiber_local!($(#[$attribute])* $visible static $name: $type = $value);
        $crate::fiber_local!($($more)*);
    };
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = $value:expr) => {
        $(#[$attribute])*
        $visible static $name: $crate::fiber::FiberLocal<$type> = $crate::fiber::FiberLocal::new(|| $value);
    };
}
