//! Node: the 64 bytes of a context that a switch reads and writes.
//!
//! Each context (a fiber, or the thread that drives an executor) has one [`Node`] on its own cache line. The nodes of
//! an executor are contiguous. A team is a ring of nodes: a hop runs the node in the field `next`.

use std::cell::Cell;
use std::ptr;

/// State of one context for switches. The assembly code depends on the offsets of the fields.
#[repr(C, align(64))]
pub(crate) struct Node {
    /// Offset 0: saved stack pointer.
    pub(crate) sp: Cell<usize>,
    /// Offset 8: node that a hop from this node runs.
    pub(crate) next: Cell<*const Node>,
    /// Offset 16: resume address.
    pub(crate) rip: Cell<usize>,
    /// Offset 24: frame register, which the compiler does not accept as a clobber of an `asm!`.
    pub(crate) frame: Cell<usize>,
    /// Offset 32: base register, which the compiler does not accept as a clobber either.
    pub(crate) base: Cell<usize>,
    /// Offset 40: previous node of the ring, used to unlink this node.
    pub(crate) prev: Cell<*const Node>,
    /// Offset 48: bit of the fiber's operation, or all bits outside of operations. The mask selects the points that are
    /// live for the fiber.
    pub(crate) mask: Cell<u64>,
    /// Offset 56: number of the fiber in its executor.
    pub(crate) index: Cell<u32>,
    /// Offset 60: unused; no hop may need this field.
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
