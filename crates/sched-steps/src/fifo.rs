//! Queues of fibers, linked through the fibers.

use std::cell::Cell;

/// No fiber.
pub(crate) const NONE: u32 = u32::MAX;

/// First in, first out. The links lie with the fibers, so a fiber is in at most one queue.
#[derive(Debug)]
pub(crate) struct Fifo {
    head: Cell<u32>,
    tail: Cell<u32>,
    len: Cell<u32>,
}

/// Where the links are.
pub(crate) trait Links {
    fn link(&self, index: u32) -> &Cell<u32>;
}

impl Fifo {
    pub(crate) const fn new() -> Fifo {
        Fifo { head: Cell::new(NONE), tail: Cell::new(NONE), len: Cell::new(0) }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len.get()
    }

    /// The next to be popped.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.head.get() != NONE).then_some(self.head.get())
    }

    pub(crate) fn push(&self, links: &impl Links, index: u32) {
        links.link(index).set(NONE);
        match self.tail.get() {
            NONE => self.head.set(index),
            tail => links.link(tail).set(index),
        }
        self.tail.set(index);
        self.len.set(self.len.get() + 1);
    }

    pub(crate) fn pop(&self, links: &impl Links) -> Option<u32> {
        let index = self.head.get();
        if index == NONE {
            return None;
        }
        let next = links.link(index).get();
        self.head.set(next);
        if next == NONE {
            self.tail.set(NONE);
        }
        self.len.set(self.len.get() - 1);
        Some(index)
    }
}
