//! Fibers as OS threads that hand each other a baton: exactly one runs at any time. For Miri, which knows no
//! assembly, so that rings, teams and queues can be checked there, and for targets without a switch.
#![allow(unsafe_code)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::{Rest, fiber_main};
use crate::context::local::{Local, adopt, local};
use crate::context::node::Node;

/// Fibers bring the stacks of their threads.
pub(crate) const OWN_STACKS: bool = false;

/// `Node::rip` of a context that has not begun, and of one that has.
const FRESH: usize = 1;
const BEGUN: usize = 2;
/// And of one at its end.
const OVER: usize = 3;

/// The right to run. `Node::sp` holds the address of one.
#[derive(Default)]
struct Baton {
    mine: Mutex<bool>,
    passed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Baton {
    /// Under the lock to its end: who takes the baton may free it.
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
    // SAFETY: made above or earlier in the same way, and freed by `dispose` only.
    unsafe { &*std::ptr::with_exposed_provenance(node.sp.get()) }
}

/// Lets addresses cross to the thread of a fiber. It touches what they point to only while it has the baton.
struct Sent(*const Node, *const Local);
// SAFETY: see above.
unsafe impl Send for Sent {}

/// Suspends `from`, the running context, and runs `to`.
///
/// # Safety
/// `to` is a suspended or prepared context of this executor; `local.current` has been set to it.
pub(crate) unsafe fn switch(from: *const Node, to: *const Node) {
    // SAFETY: both are nodes of an executor that outlives the switch.
    let (own, other) = unsafe { (&*from, &*to) };
    let own_baton = baton(own);
    // Before there is a thread that looks for it.
    let other_baton = baton(other);
    let over = own.rip.get() == OVER;
    if other.rip.replace(BEGUN) == FRESH {
        let sent = Sent(to, local());
        let run = move || {
            let Sent(node, shared) = { sent };
            // SAFETY: the node outlives its thread, which `dispose` joins.
            baton(unsafe { &*node }).take();
            adopt(shared);
            fiber_main(node);
        };
        // SAFETY: what the thread borrows outlives it, as above.
        let thread = unsafe { thread::Builder::new().spawn_unchecked(run) };
        let Ok(thread) = thread else { std::process::abort() };
        *other_baton.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
    other_baton.pass();
    if !over {
        own_baton.take();
    }
}

/// Makes `node` begin at `fiber_main(node)`.
///
/// # Safety
/// The fiber that `node` was before has ended.
pub(crate) unsafe fn prepare(node: &Node, _top: usize) {
    dispose(node);
    node.rip.set(FRESH);
}

/// Says that the next switch from `node` is its last.
pub(crate) fn conclude(node: &Node) {
    node.rip.set(OVER);
}

/// How the suspended `node` came to rest.
pub(crate) fn rest(node: &Node) -> Rest {
    if node.rip.get() == FRESH { Rest::Fresh } else { Rest::Switched }
}

/// Never needed: a hop is a general switch here.
///
/// # Safety
/// None.
pub(crate) unsafe fn divert(_node: &Node) {}

/// Joins the thread of an ended fiber and frees its baton.
pub(crate) fn dispose(node: &Node) {
    let address = node.sp.replace(0);
    if address != 0 {
        // SAFETY: made by `baton`; the thread that waits on it has ended or ends now.
        let baton: Box<Baton> = unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(address)) };
        let thread = baton.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It ends without a panic: fibers catch theirs.
            let _ = thread.join();
        }
    }
}
