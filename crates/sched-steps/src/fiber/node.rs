//! The 64 bytes that a switch reads and writes, and the words of a thread.
//!
//! One [`Node`] per context (a fiber, or the thread that drives an executor) lies on a cache line of its own;
//! the nodes of an executor are contiguous. A ring of nodes is what a team is: `next` is whom a hop runs.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;

use crate::executor::Core;

/// What a switch needs to know of one context. The offsets are known to the assembly.
#[repr(C, align(64))]
pub(crate) struct Node {
    /// 0: where the stack stood.
    pub(crate) sp: Cell<usize>,
    /// 8: whom a hop from here runs.
    pub(crate) next: Cell<*const Node>,
    /// 16: where to go on.
    pub(crate) rip: Cell<usize>,
    /// 24: the frame register, which the compiler does not let an `asm!` clobber.
    pub(crate) frame: Cell<usize>,
    /// 32: the base register, likewise reserved.
    pub(crate) base: Cell<usize>,
    /// 40: the other neighbour, for unlinking.
    pub(crate) prev: Cell<*const Node>,
    /// 48: one bit, the operation the fiber is in: which points are live for it.
    pub(crate) mask: Cell<u64>,
    /// 56: number of the fiber in its executor.
    pub(crate) index: Cell<u32>,
    /// 60: unused; a hop must not need it.
    pub(crate) spare: Cell<u32>,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    pub(crate) const fn new(index: u32) -> Node {
        Node {
            sp: Cell::new(0),
            next: Cell::new(ptr::null()),
            rip: Cell::new(0),
            frame: Cell::new(0),
            base: Cell::new(0),
            prev: Cell::new(ptr::null()),
            mask: Cell::new(1),
            index: Cell::new(index),
            spare: Cell::new(0),
        }
    }
}

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
    pub(crate) core: Cell<*const Core>,
}

impl Local {
    const fn new() -> Local {
        Local { hold: Cell::new(INERT), current: Cell::new(ptr::null()), core: Cell::new(ptr::null()) }
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
