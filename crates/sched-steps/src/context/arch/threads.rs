//! Fibers as OS threads that pass a baton: exactly one of the threads runs at any time. This module is used under
//! Miri, which does not support assembly, to check rings, teams and queues there. It is also used on targets without a
//! native switch.
#![allow(unsafe_code)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::{SuspendedState, fiber_main};
use crate::context::local::{Local, adopt, local};
use crate::context::node::Node;

/// False: fibers run on the stacks of their OS threads.
pub(crate) const OWN_STACKS: bool = false;

/// Values of `Node::rip`: the context has not begun (`FRESH`), has begun, or is at its end.
const FRESH: usize = 1;
const BEGUN: usize = 2;
const OVER: usize = 3;

/// Baton of a context: the right to run. `Node::sp` holds the address of the baton.
#[derive(Default)]
struct Baton {
    mine: Mutex<bool>,
    passed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Baton {
    /// Passes the baton. Holds the lock until after the notification, because the thread that takes the baton may free
    /// it.
    fn pass(&self) {
        let mut mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        *mine = true;
        self.passed.notify_one();
        drop(mine);
    }

    fn take(&self) {
        let mut mine = self.mine.lock().unwrap_or_else(PoisonError::into_inner);
        while !*mine {
            mine = self.passed.wait(mine).unwrap_or_else(PoisonError::into_inner);
        }
        *mine = false;
    }
}

fn baton(node: &Node) -> &Baton {
    if node.sp.get() == 0 {
        node.sp.set(Box::into_raw(Box::new(Baton::default())).expose_provenance());
    }
    // SAFETY: the baton was allocated above, in this call or an earlier one, and only `dispose` frees it.
    unsafe { &*std::ptr::with_exposed_provenance(node.sp.get()) }
}

/// Addresses that are passed to the thread of a fiber. The thread accesses their targets only while it holds the baton.
struct FiberAddresses(*const Node, *const Local);
// SAFETY: see the comment on the type.
unsafe impl Send for FiberAddresses {}

/// Suspends `from`, the running context, and runs `to`.
///
/// # Safety
/// `to` is a suspended or prepared context of this executor; `local.current` has been set to it.
pub(crate) unsafe fn switch(from: *const Node, to: *const Node) {
    // SAFETY: both are nodes of an executor that outlives the switch.
    let (own, other) = unsafe { (&*from, &*to) };
    let own_baton = baton(own);
    // The baton must exist before a thread waits for it.
    let other_baton = baton(other);
    let over = own.rip.get() == OVER;
    if other.rip.replace(BEGUN) == FRESH {
        let addresses = FiberAddresses(to, local());
        let run = move || {
            let FiberAddresses(node, shared) = { addresses };
            // SAFETY: the node outlives its thread, which `dispose` joins.
            baton(unsafe { &*node }).take();
            adopt(shared);
            fiber_main(node);
        };
        // SAFETY: the values that the thread borrows outlive the thread, as shown above.
        let thread = unsafe { thread::Builder::new().spawn_unchecked(run) };
        let Ok(thread) = thread else { std::process::abort() };
        *other_baton.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
    other_baton.pass();
    if !over {
        own_baton.take();
    }
}

/// Initialises `node` so that it begins at `fiber_main(node)`.
///
/// # Safety
/// The fiber that used `node` before has ended.
pub(crate) unsafe fn prepare(node: &Node, _top: usize) {
    dispose(node);
    node.rip.set(FRESH);
}

/// Declares that the next switch from `node` is its last.
pub(crate) fn mark_last_switch(node: &Node) {
    node.rip.set(OVER);
}

/// Returns the kind of switch that suspended `node`, or that the node is fresh.
pub(crate) fn suspended_state(node: &Node) -> SuspendedState {
    if node.rip.get() == FRESH { SuspendedState::Fresh } else { SuspendedState::Switched }
}

/// Does nothing and is never called: on this back end a hop is a general switch, and tests for cancellation itself.
///
/// # Safety
/// None.
pub(crate) unsafe fn make_unwind(_node: &Node) {}

/// Joins the thread of an ended fiber and frees its baton.
pub(crate) fn dispose(node: &Node) {
    let address = node.sp.replace(0);
    if address != 0 {
        // SAFETY: `baton` allocated the baton; the thread that waits for it has ended or ends now.
        let baton: Box<Baton> = unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(address)) };
        let thread = baton.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // No error is possible here: the body of a fiber catches all panics, so the thread ends normally.
            let _ = thread.join();
        }
    }
}
