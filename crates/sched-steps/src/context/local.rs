//! Thread-local state that a point accesses.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::driver::Driver;
use super::node::Node;

/// Flag in [`Local::hold`]: a point must do nothing, because no fiber runs or the fiber has no team mate.
pub(crate) const INERT: u32 = 1 << 31;

/// Thread-local state that a point accesses.
///
/// `hold` is zero only while the running fiber may hop. Its low bits count the latches that the fiber holds. The node
/// needs no copy of the count: a fiber that is suspended by a hop holds no latch by construction, and a fiber that waits
/// saves the count on its stack.
pub(crate) struct Local {
    pub(crate) hold: Cell<u32>,
    pub(crate) current: Cell<*const Node>,
    /// Driver of this thread. It outlives its drive, and removes itself at the end of the drive.
    pub(crate) driver: Cell<Option<NonNull<dyn Driver>>>,
    /// The newest [`Aside`] of this thread.
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

    /// Calls `with` while `driver` drives the thread from the context `current`, and restores the previous state
    /// afterwards, even if `with` panics.
    pub(crate) fn with_driver<R>(
        &self,
        driver: Option<NonNull<dyn Driver>>,
        current: *const Node,
        with: impl FnOnce() -> R,
    ) -> R {
        /// Guard that restores the state that was set aside.
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

    /// Returns the context of `driver` whose frames lie on the running stack, and its `hold`. While another driver or
    /// code of the embedder runs, both are in an [`Aside`] and are found there. `None` if `driver` does not drive this
    /// thread.
    pub(crate) fn seat_of(&self, driver: *const ()) -> Option<(*const Node, &Cell<u32>)> {
        let is = |other: Option<NonNull<dyn Driver>>| other.is_some_and(|other| ptr::addr_eq(other.as_ptr(), driver));
        if is(self.driver.get()) {
            return Some((self.current.get(), &self.hold));
        }
        let mut at = self.aside.get();
        // SAFETY: an aside lies in a frame of `with_driver` that has not returned: it is removed from the chain before
        // that. A context inside such a frame is never switched away from: only its own driver could do that, and it does
        // not drive then.
        while let Some(aside) = unsafe { at.as_ref() } {
            if is(aside.driver) {
                return Some((aside.current, &aside.hold));
            }
            at = aside.below;
        }
        None
    }
}

/// State of a thread, set aside while another driver or none drives it.
struct Aside {
    driver: Option<NonNull<dyn Driver>>,
    current: *const Node,
    hold: Cell<u32>,
    /// The previous aside in the chain.
    below: *const Aside,
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod place {
    use super::Local;

    thread_local! {
        static LOCAL: Local = const { Local::new() };
    }

    /// Returns the state of this thread.
    #[inline(always)]
    pub(crate) fn local() -> &'static Local {
        // SAFETY: the value has no destructor, so the storage lives as long as the thread. The reference is not sent to
        // another thread because `Local` is not `Sync`. Every caller uses it at once.
        LOCAL.with(|local| unsafe { &*std::ptr::from_ref(local) })
    }
}

/// On the thread back end each fiber is an OS thread, which shares the state of the thread that drives the executor.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod place {
    use std::cell::Cell;
    use std::sync::{Mutex, PoisonError};

    use super::Local;

    thread_local! {
        static LOCAL: Cell<*const Local> = const { Cell::new(std::ptr::null()) };
    }

    /// An address that is stored and never dereferenced.
    struct Kept(#[allow(dead_code)] *const Local);
    // SAFETY: see the comment on the type.
    unsafe impl Send for Kept {}

    /// Keeps the leaked values reachable, so that leak checkers do not report them.
    static ALL: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

    pub(crate) fn local() -> &'static Local {
        LOCAL.with(|cell| {
            if cell.get().is_null() {
                let own: *const Local = Box::leak(Box::new(Local::new()));
                ALL.lock().unwrap_or_else(PoisonError::into_inner).push(Kept(own));
                cell.set(own);
            }
            // SAFETY: leaked above, or by the thread whose state this one adopted.
            unsafe { &*cell.get() }
        })
    }

    /// Makes this thread share the state of another.
    pub(crate) fn adopt(of: *const Local) {
        LOCAL.with(|cell| cell.set(of));
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
pub(crate) use place::adopt;
pub(crate) use place::local;

/// Calls `with` with the driver of this thread; `None` if there is none.
#[inline]
pub(crate) fn driving<R>(with: impl FnOnce(&dyn Driver) -> R) -> Option<R> {
    let driver = local().driver.get()?;
    // SAFETY: an executor outlives its drive, and `driver` names it only during the drive.
    Some(with(unsafe { driver.as_ref() }))
}
