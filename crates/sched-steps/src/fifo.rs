//! Queues of fibers. The links of a queue are fields of the fibers.

use std::cell::Cell;
use std::io::Write;

/// Index that stands for no fiber.
pub(crate) const NONE: u32 = u32::MAX;
/// Link value of a fiber that is in no queue.
pub(crate) const UNLINKED: u32 = u32::MAX - 1;

/// First-in first-out queue of fibers. The links are stored with the fibers, so a fiber is in at most one queue.
/// Pushing a fiber that is already in a queue aborts the process.
#[derive(Debug)]
pub(crate) struct Fifo {
    head: Cell<u32>,
    tail: Cell<u32>,
    len: Cell<u32>,
}

/// Access to the queue links of the fibers.
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

    /// Returns the fiber that [`Fifo::pop`] would return, without removing it.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.head.get() != NONE).then_some(self.head.get())
    }

    pub(crate) fn push(&self, links: &impl Links, index: u32) {
        if links.link(index).replace(NONE) != UNLINKED {
            abort_with("a fiber is in two queues");
        }
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
        let next = links.link(index).replace(UNLINKED);
        self.head.set(next);
        if next == NONE {
            self.tail.set(NONE);
        }
        self.len.set(self.len.get() - 1);
        Some(index)
    }
}

/// Aborts the process after an internal invariant was violated, because continuing could access a freed stack.
#[cold]
#[inline(never)]
pub(crate) fn abort_with(what: &str) -> ! {
    // This function must not unwind, even if writing to stderr fails.
    let _ = writeln!(std::io::stderr(), "sched-steps: {what}: a mistake of the executor, which cannot go on");
    std::process::abort()
}
