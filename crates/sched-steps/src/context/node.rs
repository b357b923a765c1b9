//! The 64 bytes that a switch reads and writes.
//!
//! One [`Node`] per context (a fiber, or the thread that drives an executor) lies on a cache line of its own;
//! the nodes of an executor are contiguous. A ring of nodes is what a team is: `next` is whom a hop runs.

use std::cell::Cell;
use std::ptr;

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

/// [`Node::index`] of the context of a thread, which is no fiber.
pub(crate) const NO_INDEX: u32 = u32::MAX;
