//! Cancelled fibers, and code that runs during a panic.

#![allow(clippy::unwrap_used)]

mod common;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use sched_steps::team::{self, Membership, Operations};
use sched_steps::{Executor, FiberError, JoinHandle, Scope, ctx_point, fiber};

fn team(fibers: usize) -> Executor {
    common::build(Executor::builder().fibers(fibers))
}

/// A call that may let other fibers run, with its name.
type Wait = (&'static str, fn());

const WAITS: [Wait; 5] = [
    ("hop", fiber::hop),
    ("point", || ctx_point!("unwinding/point")),
    ("yield_now", fiber::yield_now),
    ("park", fiber::park),
    ("block_until", || fiber::block_until(|| false)),
];

#[test]
fn a_fiber_that_cancels_itself_unwinds_at_its_next_wait() {
    for (name, wait) in WAITS {
        for mates in [0, 2] {
            let went_on = Cell::new(0);
            team(4)
                .scope(|s| {
                    let own: Rc<RefCell<Option<JoinHandle<'_, ()>>>> = Rc::default();
                    let (its, went_on) = (Rc::clone(&own), &went_on);
                    let handle = s.spawn(move || {
                        let handle = its.take().unwrap();
                        handle.cancel();
                        wait();
                        went_on.set(went_on.get() + 1);
                    });
                    *own.borrow_mut() = Some(handle);
                    for _ in 0..mates {
                        s.spawn(|| (0..10).for_each(|_| fiber::hop()));
                    }
                })
                .unwrap();
            assert_eq!(went_on.get(), 0, "{name}, {mates} mates");
        }
    }
}

#[test]
fn a_cancelled_fiber_unwinds_at_each_wait_until_it_has_ended() {
    for rests in WAITS {
        let unwound = Cell::new(0);
        let others = Cell::new(0);
        team(4)
            .scope(|s| {
                let (unwound, others) = (&unwound, &others);
                let waits = s.spawn(move || {
                    for (_, wait) in [rests].into_iter().chain(WAITS) {
                        let caught = catch_unwind(AssertUnwindSafe(|| {
                            loop {
                                wait();
                            }
                        }));
                        unwound.set(unwound.get() + i32::from(caught.is_err()));
                    }
                    7
                });
                s.spawn(move || (0..20).for_each(|_| others.set(others.get() + 1)));
                s.spawn(|| (0..3).for_each(|_| fiber::yield_now())).join().unwrap();
                waits.cancel();
                assert_eq!(waits.join().unwrap(), 7, "it caught all, and ended");
            })
            .unwrap();
        assert_eq!((unwound.get(), others.get()), (6, 20), "rests in {}", rests.0);
    }
}

#[test]
fn a_fiber_may_be_cancelled_by_an_executor_that_it_drives() {
    for (name, wait) in WAITS {
        let (went_on, inner_ended) = (Cell::new(false), Cell::new(0));
        team(3)
            .scope(|s| {
                let own: Rc<RefCell<Option<JoinHandle<'_, ()>>>> = Rc::default();
                let (its, went_on, inner_ended) = (Rc::clone(&own), &went_on, &inner_ended);
                let handle = s.spawn(move || {
                    // The fiber has then been suspended by a hop before.
                    fiber::hop();
                    team(2)
                        .scope(|inner| {
                            inner.spawn(|| {
                                its.borrow().as_ref().unwrap().cancel();
                                fiber::yield_now();
                                inner_ended.set(inner_ended.get() + 1);
                            });
                        })
                        .unwrap();
                    wait();
                    went_on.set(true);
                });
                *own.borrow_mut() = Some(handle);
                s.spawn(|| (0..5).for_each(|_| fiber::hop()));
            })
            .unwrap();
        assert_eq!((went_on.get(), inner_ended.get()), (false, 1), "{name}");
    }
}

/// Calls a function when it is dropped.
struct CallOnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn no_other_fiber_runs_in_the_middle_of_a_panic() {
    let mut operations = Operations::new();
    let operation = operations.add("a", "").unwrap();
    for membership in [Membership::Ring, Membership::PerOperation] {
        let builder = Executor::builder().fibers(8).membership(membership).operations(operations.clone());
        let (seen, finished, asked) = (Cell::new(false), Cell::new(0), Cell::new(0));
        let told = common::build(builder)
            .scope(|s| {
                let (seen, finished, asked) = (&seen, &finished, &asked);
                let work = move || {
                    for _ in 0..10 {
                        ctx_point!("unwinding/work");
                        fiber::yield_now();
                        seen.set(seen.get() | std::thread::panicking());
                    }
                };
                s.spawn(move || {
                    fiber::block_until(|| {
                        seen.set(seen.get() | std::thread::panicking());
                        finished.get() == 4
                    });
                });
                let fibers: Vec<_> = (0..6)
                    .map(|i| {
                        s.spawn(move || {
                            team::begin_operation(operation);
                            work();
                            if i % 3 == 1 {
                                let _call = CallOnDrop(|| {
                                    ctx_point!("unwinding/destructor");
                                    fiber::hop();
                                    fiber::yield_now();
                                    fiber::park();
                                    fiber::block_until(|| {
                                        asked.set(asked.get() + 1);
                                        asked.get() % 3 == 0
                                    });
                                    team::begin_operation(operation);
                                    fiber::hop();
                                });
                                panic!("of fiber {i}");
                            }
                            work();
                            finished.set(finished.get() + 1);
                        })
                    })
                    .collect();
                fibers.into_iter().filter(|_| true).map(|fiber| fiber.join().is_err()).collect::<Vec<_>>()
            })
            .unwrap();
        assert_eq!(told, [false, true, false, false, true, false]);
        assert_eq!((seen.get(), finished.get(), asked.get()), (false, 4, 6));
    }
}

#[test]
fn what_cannot_be_waited_for_in_the_middle_of_a_panic_is_told() {
    struct SpawnOnDrop<'s, 'e>(&'s Scope<'s, 'e>, &'s Cell<u32>);
    impl Drop for SpawnOnDrop<'_, '_> {
        fn drop(&mut self) {
            let count = self.1;
            let refused = self.0.spawn_named("late", move || count.set(100));
            assert!(refused.is_finished());
            refused.cancel();
            if matches!(refused.join(), Err(FiberError::Unwinding { fiber }) if fiber == "late") {
                count.set(count.get() + 1);
            }
        }
    }
    let count = Cell::new(0);
    let error = team(1)
        .scope(|s| {
            let count = &count;
            s.spawn_named("fails", move || {
                let _spawn = SpawnOnDrop(s, count);
                panic!("first");
            });
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "fiber 'fails' panicked: first");
    assert_eq!(count.get(), 1);
    // A live fiber cannot be joined there; it continues to run, and its panic is reported.
    let error = team(3)
        .scope(|s| {
            let rests = s.spawn_named("rests", || (0..3).for_each(|_| fiber::yield_now()));
            let handle = Cell::new(Some(rests));
            s.spawn(move || {
                let _call = CallOnDrop(move || {
                    let error = handle.take().unwrap().join().unwrap_err().to_string();
                    assert!(error.contains("'rests' was not waited for: in the middle of a panic"), "{error}");
                });
                fiber::yield_now();
                panic!("second");
            });
        })
        .unwrap_err();
    assert!(error.to_string().contains("second"), "{error}");
}

/// The fibers of such a scope could not distinguish their own panic from the outer one.
#[test]
fn a_scope_does_not_begin_in_the_middle_of_a_panic() {
    let (told, begun) = (RefCell::new(String::new()), Cell::new(false));
    let error = team(2)
        .scope(|s| {
            let (told, begun) = (&told, &begun);
            s.spawn(move || {
                let _call = CallOnDrop(|| {
                    let refused = team(3).scope(|_| begun.set(true)).unwrap_err();
                    assert!(matches!(refused, FiberError::InPanic));
                    *told.borrow_mut() = refused.to_string();
                });
                panic!("outer");
            });
        })
        .unwrap_err();
    assert!(error.to_string().contains("outer"));
    assert_eq!(&told.borrow()[..], "no scope of fibers begins in the middle of a panic");
    assert!(!begun.get());
    // The same executor works after the panic.
    assert_eq!(team(1).scope(|s| s.spawn(|| 7).join().unwrap()).unwrap(), 7);
}

#[test]
fn panics_of_destructors_are_told() {
    struct PanicOnDrop(&'static str);
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("{}", self.0);
            }
        }
    }
    // Panic of a result that no handle takes.
    let told = team(2).scope(|s| drop(s.spawn_named("a", || PanicOnDrop("result")))).unwrap_err();
    assert_eq!(told.to_string(), "fiber 'a' panicked: result");
    // Panic of a captured value of a fiber that never began.
    let told = team(2)
        .scope(|s| {
            let angry = PanicOnDrop("captured");
            let fresh = s.spawn_named("b", move || drop(angry));
            fresh.cancel();
            fresh.join().unwrap_err().to_string()
        })
        .unwrap();
    assert_eq!(told, "fiber 'b' panicked: captured");
    // Panic of a payload that is not reported.
    let told = team(3)
        .scope(|s| {
            for _ in 0..3 {
                s.spawn_named("c", || resume_unwind(Box::new(PanicOnDrop("payload"))));
            }
        })
        .unwrap_err();
    assert_eq!(told.to_string(), "fiber 'c' panicked: a value that is not text");
    let FiberError::Panicked { payload, .. } = told else { unreachable!() };
    assert!(catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err());
    // Panic of a fiber-local value.
    sched_steps::fiber_local! {
        static FIRST: PanicOnDrop = PanicOnDrop("local");
        static SECOND: PanicOnDrop = PanicOnDrop("local");
    }
    let told = team(2)
        .scope(|s| {
            s.spawn_named("d", || {
                FIRST.with(|_| ());
                SECOND.with(|_| ());
                PanicOnDrop("result as well")
            })
            .join()
            .map(drop)
            .unwrap_err()
            .to_string()
        })
        .unwrap();
    assert_eq!(told, "fiber 'd' panicked: local");
}

/// A wake that comes while a fiber waits for the end of another is kept for the fiber's own `park`.
#[test]
fn a_join_swallows_no_wake() {
    team(3)
        .scope(|s| {
            let waker = Rc::new(Cell::new(None));
            let (given, woken) = (Rc::clone(&waker), Cell::new(false));
            let other = s.spawn(move || {
                (0..3).for_each(|_| fiber::yield_now());
                given.take().into_iter().for_each(fiber::Waker::wake);
                (0..3).for_each(|_| fiber::yield_now());
            });
            s.spawn(move || {
                waker.set(fiber::waker());
                other.join().unwrap();
                fiber::park();
                woken.set(true);
            });
        })
        .unwrap();
}

/// An idle executor does not consume the `unpark` token of its thread.
#[test]
#[cfg_attr(miri, ignore = "waits by a clock")]
fn an_idle_executor_swallows_no_wake_of_its_thread() {
    let thread = std::thread::current();
    let waker = std::sync::Mutex::new(None::<fiber::Waker>);
    std::thread::scope(|t| {
        let waker = &waker;
        t.spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            thread.unpark();
            std::thread::sleep(Duration::from_millis(5));
            loop {
                if let Some(waker) = waker.lock().unwrap().take() {
                    return waker.wake();
                }
                std::thread::yield_now();
            }
        });
        team(2)
            .scope(|s| {
                s.spawn(move || {
                    *waker.lock().unwrap() = fiber::waker();
                    while waker.lock().unwrap().is_some() {
                        fiber::park();
                    }
                })
                .join()
                .unwrap();
            })
            .unwrap();
        std::thread::park();
    });
}

#[test]
fn a_service_that_is_due_each_time_lets_fibers_get_on_and_rest() {
    for every in [1, 2, 3] {
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let builder = Executor::builder().fibers(4).service(every, move || counted.set(counted.get() + 1));
        let mut steps = common::build(builder);
        steps
            .scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| (0..100).for_each(|_| fiber::yield_now()));
                }
            })
            .unwrap();
        // Each of them gives up the CPU 100 times, and ends.
        assert!((280 / every..=303 / every).contains(&calls.get()), "every {every}: {}", calls.get());
        // If no fiber can run, a due service does not prevent the executor from detecting that.
        assert!(matches!(steps.scope(|s| drop(s.spawn(fiber::park))), Err(FiberError::Stopped(_))));
    }
}

/// Code that runs outside of fibers may add a team mate of the fiber on the stack.
#[test]
fn a_mate_that_a_condition_has_spawned_gets_its_turn() {
    let mut operations = Operations::new();
    let operation = operations.add("a", "").unwrap();
    let builder = Executor::builder().fibers(4).operations(operations);
    let (spawned, ran) = (Cell::new(false), Cell::new(false));
    common::build(builder)
        .scope(|s| {
            let (spawned, ran) = (&spawned, &ran);
            s.spawn(move || {
                fiber::block_until(|| {
                    if !spawned.replace(true) {
                        s.spawn(|| ran.set(true));
                    }
                    ran.get()
                });
            });
            s.spawn(move || {
                for _ in 0..1000 {
                    team::begin_operation(operation);
                    fiber::hop();
                }
                assert!(ran.get(), "it hops, and its mate does not run");
            });
        })
        .unwrap();
}
