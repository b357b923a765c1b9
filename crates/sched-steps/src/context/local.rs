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
}

impl Local {
    const fn new() -> Local {
        Local { hold: Cell::new(INERT), current: Cell::new(ptr::null()), driver: Cell::new(None) }
    }
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
