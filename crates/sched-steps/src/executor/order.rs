//! Scheduling order of the embedder, which chooses the next fiber in an executor without teams.

use std::any::Any;
use std::cell::{Cell, RefCell};

use crate::context::call_outside;

/// Run queue of the embedder: chooses the next fiber among those that can run. It is given to an executor by
/// [`Builder::order`](super::Builder::order) and replaces teams.
///
/// The executor calls the order on its own thread, as if outside of a fiber, and never from inside another call of the
/// order. A call must not wait. If a call panics, the order is not called again: the fibers run in the order in which
/// they became ready until all have been unwound, and the scope resumes the panic.
pub trait Order {
    /// Announces that fiber `fiber`, below [`Builder::fibers`](super::Builder::fibers), can run: it was spawned, was
    /// woken, or gave up the CPU. If the running fiber is not announced before the next call of [`next`](Order::next), it
    /// waits or has ended.
    fn ready(&mut self, fiber: usize);

    /// Returns the fiber to run now: a fiber that was announced and has not been chosen since. Returns `None` if there
    /// is no such fiber; the thread then sleeps until a fiber is announced. A `None` while fibers can run, or a fiber
    /// that cannot run, counts as a panic of the order.
    fn next(&mut self) -> Option<usize>;

    /// Reports that the running fiber `fiber` has ended. Its number may later be announced for another fiber.
    fn ended(&mut self, _fiber: usize) {}
}

/// Outcome of a call of the order.
pub(super) enum OrderReply<R> {
    Value(R),
    /// The order has panicked in this call: the fibers that were announced to it must be queued elsewhere.
    Panicked,
    /// The order has panicked earlier, or the executor has no order.
    Absent,
}

/// Order of an executor, if it has one, and the panic payload of the order.
#[derive(Default)]
pub(super) struct ExecutorOrder {
    order: RefCell<Option<Box<dyn Order>>>,
    /// Order that has panicked. It is dropped only with the executor, because its destructor is user code that may
    /// panic.
    panicked: Cell<Option<Box<dyn Order>>>,
    /// True if the executor was built with an order.
    has_order: bool,
    /// Number of fibers that were announced and not chosen since.
    announced: Cell<i64>,
    failure: RefCell<Option<Box<dyn Any + Send>>>,
}

impl ExecutorOrder {
    pub(super) fn new(order: Option<Box<dyn Order>>) -> ExecutorOrder {
        ExecutorOrder { has_order: order.is_some(), order: RefCell::new(order), ..ExecutorOrder::default() }
    }

    /// Returns true if the executor was built with an order: it then has no teams, even after the order has panicked.
    #[inline]
    pub(super) fn replaces_teams(&self) -> bool {
        self.has_order
    }

    /// Calls the order with `call`, and catches a panic.
    #[inline]
    pub(super) fn call<R>(&self, call: impl FnOnce(&mut dyn Order) -> R) -> OrderReply<R> {
        let mut order = self.order.borrow_mut();
        let Some(present) = order.as_deref_mut() else { return OrderReply::Absent };
        match call_outside(|| call(present)) {
            Ok(answer) => OrderReply::Value(answer),
            Err(payload) => {
                self.panicked.set(order.take());
                *self.failure.borrow_mut() = Some(payload);
                OrderReply::Panicked
            }
        }
    }

    /// Adds `more` to the number of announced fibers; `more` is negative after a choice.
    #[inline]
    pub(super) fn add_announced(&self, more: i64) {
        self.announced.set(self.announced.get() + more);
    }

    /// Returns the number of fibers that were announced and not chosen since.
    pub(super) fn announced(&self) -> i64 {
        self.announced.get()
    }

    /// Takes the panic payload of the order; `None` if the order has not panicked.
    pub(super) fn take_failure(&self) -> Option<Box<dyn Any + Send>> {
        if self.has_order { self.failure.take() } else { None }
    }

    /// Returns true if the order has panicked and its payload has not been taken.
    pub(super) fn has_failed(&self) -> bool {
        self.has_order && self.failure.borrow().is_some()
    }
}
