//! The 64 bytes of a context that a switch reads and writes.
//!
//! There is one [`Node`] per context (a fiber, or the thread that drives an executor), on its own cache line; the nodes
//! of an executor are contiguous. A team is a ring of nodes: a hop runs the node in `next`.

use std::cell::Cell;
use std::ptr;

/// Switch state of one context. The assembly depends on the offsets.
#[repr(C, align(64))]
pub(crate) struct Node {
    /// Offset 0: saved stack pointer.
    pub(crate) sp: Cell<usize>,
    /// Offset 8: node that a hop from here runs.
    pub(crate) next: Cell<*const Node>,
    /// Offset 16: resume address.
    pub(crate) rip: Cell<usize>,
    /// Offset 24: frame register, which the compiler does not accept as a clobber of an `asm!`.
    pub(crate) frame: Cell<usize>,
    /// Offset 32: base register, likewise reserved.
    pub(crate) base: Cell<usize>,
    /// Offset 40: previous node of the ring, for unlinking.
    pub(crate) prev: Cell<*const Node>,
    /// Offset 48: bit of the fiber's operation, or all bits outside of operations; selects the points that are live for
    /// the fiber.
    pub(crate) mask: Cell<u64>,
    /// Offset 56: number of the fiber in its executor.
    pub(crate) index: Cell<u32>,
    /// Offset 60: unused; a hop must not need it.
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

/// Value of [`Node::index`] for the context of a thread, which is not a fiber.
pub(crate) const NO_INDEX: u32 = u32::MAX;
