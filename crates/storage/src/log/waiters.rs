//! Threads and fibers that wait for the log to become durable, and the positions that they wait for.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::base::hook::{Hook, WaitToken};
use crate::base::sync::Mutex;

#[derive(Debug)]
pub(super) struct Waiters {
    /// Waiting threads and fibers, unordered: one entry for each of them while it waits.
    list: Mutex<Vec<Waiter>>,
    hook: Arc<dyn Hook>,
}

#[derive(Debug)]
struct Waiter {
    end: u64,
    token: *const WaitToken,
}

// SAFETY: the token behind the pointer is `Sync`, and it is alive as long as the `Waiter` is in the list: `WaiterRegistration`
// borrows the token and removes the `Waiter`, under the list's lock, before the borrow ends. A `Waiter` that a wake removes
// is used and dropped under the same lock.
unsafe impl Send for Waiter {}

/// Entry in the list of waiters, removed on drop.
#[derive(Debug)]
pub(super) struct WaiterRegistration<'a> {
    waiters: &'a Waiters,
    token: &'a WaitToken,
}

impl Waiters {
    pub(super) fn new(hook: Arc<dyn Hook>) -> Waiters {
        Waiters { list: Mutex::default(), hook }
    }

    pub(super) fn hook(&self) -> &dyn Hook {
        &*self.hook
    }

    /// Registers `token` for a wake once the log is durable up to `end`. The caller must then load the durable end again,
    /// because it may have advanced before the registration.
    pub(super) fn register<'a>(&'a self, end: u64, token: &'a WaitToken) -> WaiterRegistration<'a> {
        let registered = WaiterRegistration { waiters: self, token };
        self.list.lock().push(Waiter { end, token });
        registered
    }

    /// Wakes each thread or fiber that waits for a position up to `durable`. Each is woken once.
    pub(super) fn wake(&self, durable: u64) {
        let mut list = self.list.lock();
        list.retain(|waiter| {
            if waiter.end > durable {
                return true;
            }
            // SAFETY: the waiter is in the list and the list is locked, so its `WaiterRegistration` has not been
            // dropped and the token it borrows is alive.
            self.hook.wake(unsafe { &*waiter.token });
            false
        });
    }
}

impl Drop for WaiterRegistration<'_> {
    fn drop(&mut self) {
        let mut list = self.waiters.list.lock();
        let before = list.len();
        list.retain(|waiter| !std::ptr::eq(waiter.token, self.token));
        if list.len() == before {
            // A wake has reached the token. If its owner never blocked, the next wait must not consume that wake.
            let _ = self.token.try_consume();
        }
    }
}
