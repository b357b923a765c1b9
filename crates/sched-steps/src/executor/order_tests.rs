//! Tests of scheduling orders of the embedder.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::{Executor, Order};
use crate::fiber;

/// Order that runs the fiber with the highest number first.
#[derive(Default)]
struct Highest {
    ready: BTreeSet<usize>,
    /// Number of calls until a call panics; no call panics if the number is negative.
    fuse: Rc<Cell<i32>>,
    ended: Rc<RefCell<Vec<usize>>>,
}

impl Highest {
    fn burn(&self) {
        self.fuse.set(self.fuse.get() - 1);
        assert!(self.fuse.get() != 0, "the fuse has burnt down");
    }
}

impl Order for Highest {
    fn ready(&mut self, fiber: usize) {
        assert!(self.ready.insert(fiber), "{fiber} was announced twice");
        self.burn();
    }

    fn next(&mut self) -> Option<usize> {
        self.burn();
        self.ready.pop_last()
    }

    fn ended(&mut self, fiber: usize) {
        self.ended.borrow_mut().push(fiber);
        self.burn();
    }
}

fn executor(order: impl Order + 'static, fibers: usize) -> Executor {
    Executor::builder().fibers(fibers).order(order).for_test()
}

#[test]
fn the_order_chooses() {
    let ended = Rc::default();
    let mut steps = executor(Highest { ended: Rc::clone(&ended), ..Highest::default() }, 4);
    let ran = RefCell::new(Vec::new());
    steps
        .scope(|s| {
            for i in 0..4 {
                let ran = &ran;
                s.spawn(move || {
                    ran.borrow_mut().push(i);
                    fiber::yield_now();
                    crate::ctx_point!("an order makes points inert");
                    ran.borrow_mut().push(i);
                });
            }
        })
        .unwrap();
    assert_eq!(*ran.borrow(), [3, 3, 2, 2, 1, 1, 0, 0]);
    assert_eq!(*ended.borrow(), [3, 2, 1, 0]);
}

#[test]
fn parked_fibers_are_announced_when_they_are_woken() {
    let mut steps = executor(Highest::default(), 3);
    let ran = RefCell::new(Vec::new());
    let waker: Cell<Option<fiber::Waker>> = Cell::new(None);
    steps
        .scope(|s| {
            let (ran, waker) = (&ran, &waker);
            s.spawn(move || {
                ran.borrow_mut().push("low");
                waker.take().unwrap().wake();
                fiber::yield_now();
                ran.borrow_mut().push("low again");
            });
            s.spawn(move || {
                waker.set(fiber::waker());
                fiber::park();
                ran.borrow_mut().push("high");
            });
        })
        .unwrap();
    assert_eq!(*ran.borrow(), ["low", "high", "low again"]);
}

#[test]
fn fibers_beyond_the_slots_wait_their_turn() {
    let mut steps = executor(Highest::default(), 2);
    let sum = Cell::new(0);
    steps
        .scope(|s| {
            for i in 0..100 {
                let sum = &sum;
                s.spawn(move || {
                    fiber::yield_now();
                    sum.set(sum.get() + i);
                });
            }
        })
        .unwrap();
    assert_eq!(sum.get(), 4950);
}

/// The scope resumes a panic of any call of the order, after all fibers have ended.
#[test]
fn an_order_that_panics_is_not_asked_again() {
    for fuse in 1..60 {
        let burns = Rc::new(Cell::new(fuse));
        let mut steps = executor(Highest { fuse: Rc::clone(&burns), ..Highest::default() }, 10);
        let alive = Rc::new(());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            steps.scope(|s| {
                for _ in 0..5 {
                    let alive = Rc::clone(&alive);
                    s.spawn(move || {
                        fiber::yield_now();
                        let waker = fiber::waker();
                        s.spawn(move || waker.unwrap().wake());
                        fiber::park();
                        drop(alive);
                    });
                }
            })
        }));
        assert_eq!(Rc::strong_count(&alive), 1, "fuse {fuse}");
        if burns.get() > 0 {
            outcome.unwrap().unwrap();
        } else {
            let payload = outcome.unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"the fuse has burnt down"), "fuse {fuse}");
        }
        burns.set(-1);
        // The executor remains usable. If its order has panicked, fibers run in the order in which they became ready.
        steps.scope(|s| s.spawn(|| 7).join()).unwrap().unwrap();
    }
}

#[test]
fn a_fiber_that_cannot_run_is_not_run() {
    struct FixedOrder(usize);
    impl Order for FixedOrder {
        fn ready(&mut self, _fiber: usize) {}
        fn next(&mut self) -> Option<usize> {
            Some(self.0)
        }
    }
    for wrong in [1, 5000] {
        let mut steps = executor(FixedOrder(wrong), 2);
        let outcome = catch_unwind(AssertUnwindSafe(|| steps.scope(|s| drop(s.spawn(|| ())))));
        let payload = outcome.unwrap_err();
        assert!(payload.downcast_ref::<String>().unwrap().contains("cannot run"));
    }
}

#[test]
fn an_order_that_loses_a_fiber_is_seen() {
    struct EmptyOrder;
    impl Order for EmptyOrder {
        fn ready(&mut self, _fiber: usize) {}
        fn next(&mut self) -> Option<usize> {
            None
        }
    }
    let mut steps = executor(EmptyOrder, 2);
    let outcome = catch_unwind(AssertUnwindSafe(|| steps.scope(|s| drop(s.spawn(|| ())))));
    let payload = outcome.unwrap_err();
    assert!(payload.downcast_ref::<String>().unwrap().contains("none of the 1 fibers"));
}

thread_local! {
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Order that runs fibers first come, first served, and panics while `FAILS` is set.
#[derive(Default)]
struct FailingOrder(std::collections::VecDeque<usize>);

impl Order for FailingOrder {
    fn ready(&mut self, fiber: usize) {
        assert!(!FAILS.get(), "of the order");
        self.0.push_back(fiber);
    }

    fn next(&mut self) -> Option<usize> {
        self.0.pop_front()
    }
}

/// The order panics when a condition spawns a fiber, while another fiber that has not given up the CPU is on the stack.
/// The fiber on the stack is in no queue, even while another executor drives the thread.
#[test]
fn an_order_that_panics_does_not_queue_the_fiber_on_the_stack() {
    use crate::team::{self, Operations};
    let mut operations = Operations::new();
    let operation = operations.add("o", "").unwrap();
    for (nested, then) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
        let mut steps =
            Executor::builder().fibers(8).order(FailingOrder::default()).operations(operations.clone()).for_test();
        let (armed, begun, ended, early) = (Cell::new(false), Cell::new(0), Cell::new(0), Cell::new(0));
        struct CountOnDrop<'a>(&'a Cell<i32>);
        impl Drop for CountOnDrop<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            steps.scope(|s| {
                let (armed, begun, ended, early) = (&armed, &begun, &ended, &early);
                let counted = move |body: &dyn Fn()| {
                    begun.set(begun.get() + 1);
                    let _count = CountOnDrop(ended);
                    body();
                };
                let spawn = move || {
                    FAILS.set(true);
                    s.spawn(move || counted(&|| ()));
                    FAILS.set(false);
                };
                s.spawn(move || {
                    counted(&|| {
                        fiber::block_until(|| {
                            if armed.take() {
                                spawn();
                            }
                            false
                        });
                    });
                });
                s.spawn(move || counted(&|| (0..50).for_each(|_| fiber::yield_now())));
                s.spawn(move || {
                    counted(&|| {
                        if nested {
                            executor(Highest::default(), 2).scope(|inner| drop(inner.spawn(spawn))).unwrap();
                        } else {
                            armed.set(true);
                            (0..64).for_each(|_| team::begin_operation(operation));
                        }
                        match then {
                            0 => (0..3).for_each(|_| fiber::yield_now()),
                            1 => {
                                let asked = Cell::new(0);
                                fiber::block_until(|| asked.replace(asked.get() + 1) > 100);
                                early.set(early.get() + i32::from(asked.get() <= 100));
                            }
                            _ => {}
                        }
                    });
                });
            })
        }));
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"of the order"), "{nested}, {then}");
        assert_eq!((begun.get(), early.get()), (ended.get(), 0), "{nested}, {then}");
        steps.scope(|s| s.spawn(|| 7).join()).unwrap().unwrap();
    }
}
