//! The words of a thread that a point touches.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::driver::Driver;
use super::node::Node;

/// Set in [`Local::hold`] while a point must fall through: no fiber runs, or it has no team mate.
pub(crate) const INERT: u32 = 1 << 31;

/// The words of a thread that a point touches.
///
/// `hold` is zero only while the running fiber may hop. The low bits count the latches it holds. The count
/// needs no place in the node: a fiber that is suspended by a hop holds none by construction, and a fiber
/// that blocks saves it aside.
pub(crate) struct Local {
    pub(crate) hold: Cell<u32>,
    pub(crate) current: Cell<*const Node>,
    /// What drives this thread. It outlives its drive, and takes its name out at its end.
    pub(crate) driver: Cell<Option<NonNull<dyn Driver>>>,
    /// The newest of the [`Aside`]s of this thread.
    aside: Cell<*const Aside>,
}

impl Local {
    const fn new() -> Local {
        Local {
            hold: Cell::new(INERT),
            current: Cell::new(ptr::null()),
            driver: Cell::new(None),
            aside: Cell::new(ptr::null()),
        }
    }

    /// Calls `with` while `driver` drives the thread from the context `current`, and puts the words of before back, even
    /// if it panics.
    pub(crate) fn with_driver<R>(
        &self,
        driver: Option<NonNull<dyn Driver>>,
        current: *const Node,
        with: impl FnOnce() -> R,
    ) -> R {
        /// Puts back what its thread had set aside.
        struct Back<'a>(&'a Local, &'a Aside);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                let Back(local, aside) = *self;
                local.aside.set(aside.below);
                local.driver.set(aside.driver);
                local.current.set(aside.current);
                local.hold.set(aside.hold.get());
            }
        }
        let aside = Aside {
            driver: self.driver.replace(driver),
            current: self.current.replace(current),
            hold: Cell::new(self.hold.replace(INERT)),
            below: self.aside.get(),
        };
        self.aside.set(&raw const aside);
        let _back = Back(self, &aside);
        with()
    }

    /// The context of `driver` whose frames lie on the running stack, and its `hold`. While another driver or code of the
    /// embedder runs, both are set aside, and found there. `None` if `driver` does not drive.
    pub(crate) fn seat_of(&self, driver: *const ()) -> Option<(*const Node, &Cell<u32>)> {
        let is = |other: Option<NonNull<dyn Driver>>| other.is_some_and(|other| ptr::addr_eq(other.as_ptr(), driver));
        if is(self.driver.get()) {
            return Some((self.current.get(), &self.hold));
        }
        let mut at = self.aside.get();
        // SAFETY: an aside lies in a frame of `with_driver` that has not returned: it takes itself out of the chain before.
        // A context in the middle of one is not switched away from: only its own driver could, which does not drive then.
        while let Some(aside) = unsafe { at.as_ref() } {
            if is(aside.driver) {
                return Some((aside.current, &aside.hold));
            }
            at = aside.below;
        }
        None
    }
}

/// The words of a thread, set aside while another driver or none drives it.
struct Aside {
    driver: Option<NonNull<dyn Driver>>,
    current: *const Node,
    hold: Cell<u32>,
    /// The one set aside before.
    below: *const Aside,
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod place {
    use super::Local;

    thread_local! {
        static LOCAL: Local = const { Local::new() };
    }

    /// The words of this thread.
    #[inline(always)]
    pub(crate) fn local() -> &'static Local {
        // SAFETY: the value has no destructor, so the storage lives as long as the thread; the reference is
        // not sent to another thread because `Local` is not `Sync`. Every caller uses it at once.
        LOCAL.with(|local| unsafe { &*std::ptr::from_ref(local) })
    }
}

/// On the back end of threads a fiber has an OS thread of its own, which shares the words of the thread
/// that drives the executor.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod place {
    use std::cell::Cell;
    use std::sync::{Mutex, PoisonError};

    use super::Local;

    thread_local! {
        static LOCAL: Cell<*const Local> = const { Cell::new(std::ptr::null()) };
    }

    /// An address that is kept and never followed.
    struct Kept(#[allow(dead_code)] *const Local);
    // SAFETY: see above.
    unsafe impl Send for Kept {}

    /// Keeps the leaked ones reachable, for checkers of leaks.
    static ALL: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

    pub(crate) fn local() -> &'static Local {
        LOCAL.with(|cell| {
            if cell.get().is_null() {
                let own: *const Local = Box::leak(Box::new(Local::new()));
                ALL.lock().unwrap_or_else(PoisonError::into_inner).push(Kept(own));
                cell.set(own);
            }
            // SAFETY: leaked above or by the thread that adopted this one.
            unsafe { &*cell.get() }
        })
    }

    /// Makes this thread share the words of another.
    pub(crate) fn adopt(of: *const Local) {
        LOCAL.with(|cell| cell.set(of));
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
pub(crate) use place::adopt;
pub(crate) use place::local;

/// Calls `with` with what drives this thread; `None` if nothing does.
#[inline]
pub(crate) fn driving<R>(with: impl FnOnce(&dyn Driver) -> R) -> Option<R> {
    let driver = local().driver.get()?;
    // SAFETY: an executor outlives its drive, and has itself named in `driver` for no longer.
    Some(with(unsafe { driver.as_ref() }))
}
