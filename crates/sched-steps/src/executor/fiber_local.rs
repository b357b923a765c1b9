//! Fiber-local values, the counterpart of `thread_local!` for fibers.

use std::any::Any;
use std::rc::Rc;

use super::core::Core;
use super::locals::{LocalState, Locals};

/// Key of a fiber-local value. It is declared with [`fiber_local!`](crate::fiber_local).
///
/// The value is created at a fiber's first access and dropped when the fiber ends, before its
/// [`join`](crate::JoinHandle::join) returns; a later fiber gets a new value. Outside of a fiber, in a condition of
/// [`block_until`](crate::fiber::block_until), and in callbacks of the executor, the value belongs to the thread.
///
/// An access searches linearly through the values that the fiber has created so far. Therefore declare few values, or
/// group them in one value.
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

    /// Calls `access` with the value of the running fiber. The first access creates the value.
    ///
    /// The fiber may be suspended during `access`; other fibers see their own values.
    ///
    /// # Panics
    /// If the initialiser of the value accesses the value, or if the value was dropped because the fiber (or the
    /// thread) is ending.
    pub fn with<R>(&'static self, access: impl FnOnce(&T) -> R) -> R {
        match self.value() {
            Ok(value) => access(&value),
            Err(why) => panic!("a fiber-local {why}"),
        }
    }

    /// Like [`with`](FiberLocal::with), but returns `None` in the cases in which `with` panics.
    pub fn try_with<R>(&'static self, access: impl FnOnce(&T) -> R) -> Option<R> {
        self.value().ok().map(|value| access(&value))
    }

    fn value(&'static self) -> Result<Rc<T>, &'static str> {
        // The key is the address of the static, which is unique.
        let key = std::ptr::from_ref(self).addr();
        let own = Core::current(|core| core.running().map(|index| self.find(core.locals(index), key))).flatten();
        own.unwrap_or_else(|| {
            let thread_locals = THREAD_LOCALS.try_with(Rc::clone).map_err(|_| USE_AFTER_DROP)?;
            self.find(&thread_locals.0, key)
        })
    }

    fn find(&self, locals: &Locals, key: usize) -> Result<Rc<T>, &'static str> {
        match locals.state(key) {
            Some(LocalState::Present(value)) => return value.downcast().map_err(|_| "is no static"),
            Some(LocalState::Dropped) => return Err(USE_AFTER_DROP),
            Some(LocalState::Initialising) => return Err("needs itself to be made"),
            None => {}
        }
        // No `RefCell` is borrowed while the initialiser runs, because it may create other values, and other fibers may
        // run.
        let guard = InitGuard { locals, key };
        locals.set(key, LocalState::Initialising);
        let value = Rc::new((self.make)());
        std::mem::forget(guard);
        locals.set(key, LocalState::Present(Rc::clone(&value) as Rc<dyn Any>));
        Ok(value)
    }
}

const USE_AFTER_DROP: &str = "is used after it was dropped";

/// Guard that resets the state of a value if its initialiser panics.
struct InitGuard<'a> {
    locals: &'a Locals,
    key: usize,
}

impl Drop for InitGuard<'_> {
    fn drop(&mut self) {
        self.locals.forget(self.key);
    }
}

/// Fiber-local values of a thread, used outside of fibers.
#[derive(Default)]
struct ThreadLocals(Locals);

impl Drop for ThreadLocals {
    fn drop(&mut self) {
        self.0.drop_values();
    }
}

thread_local! {
    static THREAD_LOCALS: Rc<ThreadLocals> = Rc::default();
}

/// Declares fiber-local values, like `thread_local!` for threads.
///
/// Fibers of one thread share its thread-locals: a fiber may find there a value that another fiber stored before it was
/// suspended at a point. State of one piece of work that must survive points belongs in a fiber-local.
///
/// ```
/// use std::cell::Cell;
/// use sched_steps::{Executor, ctx_point, fiber_local};
///
/// fiber_local! {
///     /// Request that this fiber serves.
///     static REQUEST: Cell<u32> = Cell::new(0);
/// }
///
/// // SAFETY: the code below has no scoped thread-local open at a point.
/// let mut steps = unsafe { Executor::builder().fibers(2).build() }?;
/// steps.scope(|s| {
///     for request in 1..=2 {
///         s.spawn(move || {
///             REQUEST.with(|mine| mine.set(request));
///             ctx_point!("served"); // the other fiber runs, and sets its own value
///             assert_eq!(REQUEST.with(Cell::get), request);
///         });
///     }
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// See [`FiberLocal`] for the lifetime of a value.
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
