//! Thread-local state that points access.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::driver::Driver;
use super::node::Node;

/// Flag in [`Local::hop_block_word`]: a point must do nothing, because no fiber runs or because the fiber has no team
/// mate.
pub(crate) const NO_MATE_FLAG: u32 = 1 << 31;

/// Thread-local state that points access.
///
/// `hop_block_word` is zero only while the running fiber may hop. Its low bits count the latches that the fiber holds.
/// The count need not be saved in the node: a fiber that is suspended by a hop holds no latch by construction, and a
/// fiber that waits saves the count on its stack.
pub(crate) struct Local {
    pub(crate) hop_block_word: Cell<u32>,
    pub(crate) current: Cell<*const Node>,
    /// Driver of this thread. The driver outlives its drive, and removes itself from here at the end of the drive.
    pub(crate) driver: Cell<Option<NonNull<dyn Driver>>>,
    /// Newest [`SavedThreadState`] of this thread, the head of the chain.
    saved: Cell<*const SavedThreadState>,
}

impl Local {
    const fn new() -> Local {
        Local {
            hop_block_word: Cell::new(NO_MATE_FLAG),
            current: Cell::new(ptr::null()),
            driver: Cell::new(None),
            saved: Cell::new(ptr::null()),
        }
    }

    /// Calls `with` while `driver` drives the thread from the context `current`. Restores the previous state of the
    /// thread afterwards, even if `with` panics.
    pub(crate) fn with_driver<R>(
        &self,
        driver: Option<NonNull<dyn Driver>>,
        current: *const Node,
        with: impl FnOnce() -> R,
    ) -> R {
        /// Guard that restores the saved state when it is dropped.
        struct RestoreGuard<'a>(&'a Local, &'a SavedThreadState);
        impl Drop for RestoreGuard<'_> {
            fn drop(&mut self) {
                let RestoreGuard(local, saved) = *self;
                local.saved.set(saved.previous);
                local.driver.set(saved.driver);
                local.current.set(saved.current);
                local.hop_block_word.set(saved.hop_block_word.get());
            }
        }
        let saved = SavedThreadState {
            driver: self.driver.replace(driver),
            current: self.current.replace(current),
            hop_block_word: Cell::new(self.hop_block_word.replace(NO_MATE_FLAG)),
            previous: self.saved.get(),
        };
        self.saved.set(&raw const saved);
        let _guard = RestoreGuard(self, &saved);
        with()
    }

    /// Returns the context of `driver` whose frames are on the running stack, and its `hop_block_word`. While another
    /// driver or code of the embedder runs, both are stored in a [`SavedThreadState`], where this function finds them.
    /// `None` if `driver` does not drive this thread.
    pub(crate) fn context_of(&self, driver: *const ()) -> Option<(*const Node, &Cell<u32>)> {
        let is = |other: Option<NonNull<dyn Driver>>| other.is_some_and(|other| ptr::addr_eq(other.as_ptr(), driver));
        if is(self.driver.get()) {
            return Some((self.current.get(), &self.hop_block_word));
        }
        let mut at = self.saved.get();
        // SAFETY: a saved state is in a frame of `with_driver` that has not returned: the state is removed from the
        // chain before that function returns. A context inside such a frame is never switched away from: only its own
        // driver could do that, and this driver does not drive the thread then.
        while let Some(saved) = unsafe { at.as_ref() } {
            if is(saved.driver) {
                return Some((saved.current, &saved.hop_block_word));
            }
            at = saved.previous;
        }
        None
    }
}

/// State of a thread, saved while another driver drives the thread or none does.
struct SavedThreadState {
    driver: Option<NonNull<dyn Driver>>,
    current: *const Node,
    hop_block_word: Cell<u32>,
    /// Previous entry of the chain of saved states.
    previous: *const SavedThreadState,
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod storage {
    use super::Local;

    thread_local! {
        static LOCAL: Local = const { Local::new() };
    }

    /// Returns the thread-local state of this thread.
    #[inline(always)]
    pub(crate) fn local() -> &'static Local {
        // SAFETY: the value has no destructor, so the storage lives as long as the thread. The reference is not sent to
        // another thread, because `Local` is not `Sync`. Every caller uses the reference at once.
        LOCAL.with(|local| unsafe { &*std::ptr::from_ref(local) })
    }
}

/// On the thread back end each fiber is an OS thread, which shares the `Local` of the thread that drives the executor.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod storage {
    use std::cell::Cell;
    use std::sync::{Mutex, PoisonError};

    use super::Local;

    thread_local! {
        static LOCAL: Cell<*const Local> = const { Cell::new(std::ptr::null()) };
    }

    /// Address of a leaked value. It is stored and never dereferenced.
    struct LeakedLocal(#[allow(dead_code)] *const Local);
    // SAFETY: see the comment on the type.
    unsafe impl Send for LeakedLocal {}

    /// List of the leaked values, which keeps them reachable, so that leak checkers do not report them.
    static ALL: Mutex<Vec<LeakedLocal>> = Mutex::new(Vec::new());

    pub(crate) fn local() -> &'static Local {
        LOCAL.with(|cell| {
            if cell.get().is_null() {
                let own: *const Local = Box::leak(Box::new(Local::new()));
                ALL.lock().unwrap_or_else(PoisonError::into_inner).push(LeakedLocal(own));
                cell.set(own);
            }
            // SAFETY: the value was leaked above, or by the thread whose state this thread has adopted.
            unsafe { &*cell.get() }
        })
    }

    /// Makes this thread share the state `of` of another thread.
    pub(crate) fn adopt(of: *const Local) {
        LOCAL.with(|cell| cell.set(of));
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
pub(crate) use storage::adopt;
pub(crate) use storage::local;

/// Calls `with` with the driver of this thread; `None` if the thread has no driver.
#[inline]
pub(crate) fn with_current_driver<R>(with: impl FnOnce(&dyn Driver) -> R) -> Option<R> {
    let driver = local().driver.get()?;
    // SAFETY: an executor outlives its drive, and `driver` points to the executor only during the drive.
    Some(with(unsafe { driver.as_ref() }))
}
