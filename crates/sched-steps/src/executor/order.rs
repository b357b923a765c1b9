//! An order of the embedder: which fiber runs next, in an executor without teams.

use std::any::Any;
use std::cell::{Cell, RefCell};

use crate::context::outside;

/// Chooses which of the fibers that can run runs next: a runqueue. Given to an executor by
/// [`Builder::order`](super::Builder::order), it takes the place of teams.
///
/// The executor calls it on its thread, as if outside of a fiber, and never from inside of another call of it. A call must
/// not wait. If a call panics, the order is not asked again: fibers run in the order in which they became ready until all
/// have been unwound, and the panic is the scope's.
pub trait Order {
    /// Fiber `fiber`, below [`Builder::fibers`](super::Builder::fibers), can run: it was spawned, it was woken, or it gave
    /// way. A fiber that runs and is not announced before the next [`next`](Order::next) waits or has ended.
    fn ready(&mut self, fiber: usize);

    /// The fiber to run now: one that was announced and has not been chosen since. None if there is none; the thread then
    /// rests until one is announced. To answer none while there are some, or to name a fiber that cannot run, counts as a
    /// panic of the order.
    fn next(&mut self) -> Option<usize>;

    /// Fiber `fiber`, which runs, has ended; its number may be announced again for another.
    fn ended(&mut self, _fiber: usize) {}
}

/// What became of a question to the order.
pub(super) enum Asked<R> {
    Answer(R),
    /// It has panicked now: those that it knew of are to be queued otherwise.
    Failed,
    /// It has panicked before.
    Gone,
}

/// The order of an executor, if it has one, and what it panicked with.
#[derive(Default)]
pub(super) struct Ordering {
    order: RefCell<Option<Box<dyn Order>>>,
    /// One that has panicked. Not dropped before the executor is: its destructor, too, is the user's.
    broken: Cell<Option<Box<dyn Order>>>,
    /// There was an order when the executor was built.
    asked: bool,
    /// Fibers that were announced and not chosen since.
    held: Cell<i64>,
    failure: RefCell<Option<Box<dyn Any + Send>>>,
}

impl Ordering {
    pub(super) fn new(order: Option<Box<dyn Order>>) -> Ordering {
        Ordering { asked: order.is_some(), order: RefCell::new(order), ..Ordering::default() }
    }

    /// True in an executor that was built with an order: it has no teams, even after the order has panicked.
    #[inline]
    pub(super) fn replaces_teams(&self) -> bool {
        self.asked
    }

    /// Asks the order.
    #[inline]
    pub(super) fn ask<R>(&self, call: impl FnOnce(&mut dyn Order) -> R) -> Asked<R> {
        let mut order = self.order.borrow_mut();
        let Some(asked) = order.as_deref_mut() else { return Asked::Gone };
        match outside(|| call(asked)) {
            Ok(answer) => Asked::Answer(answer),
            Err(payload) => {
                self.broken.set(order.take());
                *self.failure.borrow_mut() = Some(payload);
                Asked::Failed
            }
        }
    }

    /// So many more were announced; fewer, if one was chosen.
    #[inline]
    pub(super) fn holds(&self, more: i64) {
        self.held.set(self.held.get() + more);
    }

    /// Fibers that were announced and not chosen since.
    pub(super) fn held(&self) -> i64 {
        self.held.get()
    }

    /// What the order has panicked with, once.
    pub(super) fn take_failure(&self) -> Option<Box<dyn Any + Send>> {
        if self.asked { self.failure.take() } else { None }
    }

    /// It has panicked, and that was not taken.
    pub(super) fn has_failed(&self) -> bool {
        self.asked && self.failure.borrow().is_some()
    }
}
