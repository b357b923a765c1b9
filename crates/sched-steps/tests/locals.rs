//! Fiber-local and thread-local values: `fiber_local!`, and the reason why no scoped thread-local may be open where a
//! fiber is suspended.

#![allow(clippy::unwrap_used)]

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sched_steps::{Executor, fiber, fiber_local};

fn team(fibers: usize) -> Executor {
    common::build(Executor::builder().fibers(fibers))
}

/// Example of a user crate that forbids unsafe code and contains points and fiber-local values.
#[forbid(unsafe_code)]
mod library {
    use std::cell::Cell;

    sched_steps::fiber_local! {
        /// The current request.
        pub(crate) static REQUEST: Cell<u32> = Cell::new(0);
        static STEPS: Cell<u32> = Cell::new(100);
    }

    pub(crate) fn serve(request: u32, row: &[u8; 128]) -> (u32, u32) {
        REQUEST.with(|mine| mine.set(request));
        sched_steps::ctx_point!("locals/serve");
        STEPS.with(|steps| steps.set(steps.get() + 1));
        sched_steps::ctx_prefetch!("locals/row", row, 2);
        sched_steps::ctx_point!("locals/latched", latched);
        (REQUEST.with(Cell::get), STEPS.with(Cell::get))
    }
}

#[test]
fn a_crate_that_forbids_unsafe_code_has_points_and_values_of_fibers() {
    let row = [0; 128];
    let served = team(3).scope(|s| {
        let served = [1, 2, 3].map(|request| {
            let row = &row;
            s.spawn(move || library::serve(request, row))
        });
        served.map(|fiber| fiber.join().unwrap())
    });
    assert_eq!(served.unwrap(), [(1, 101), (2, 101), (3, 101)]);
    assert_eq!(library::REQUEST.with(Cell::get), 0, "the thread has a value of its own");
}

scoped_tls::scoped_thread_local!(static SCOPED: Cell<u32>);

/// Demonstrates the hazard behind the contract of `Builder::build` with a real scoped thread-local. The values it is set
/// to outlive the scope here, so that the test can observe the error. If they were locals of the fiber, this would read
/// freed memory.
#[test]
#[cfg_attr(miri, ignore = "fibers are threads there")]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(unsafe_code)]
fn a_scoped_thread_local_that_is_open_at_a_point_shows_fibers_each_others_values() {
    let (one, two) = (Cell::new(1), Cell::new(2));
    let seen = RefCell::new(Vec::new());
    // SAFETY: the contract is broken on purpose. The dangling pointers in the thread-local lead to `one` and `two`, which
    // outlive all accesses.
    let mut steps = unsafe { Executor::builder().fibers(2).build() }.unwrap();
    let see = |who: &'static str| {
        let value = SCOPED.is_set().then(|| SCOPED.with(Cell::get));
        seen.borrow_mut().push((who, value));
    };
    steps
        .scope(|s| {
            s.spawn(|| {
                SCOPED.set(&one, || {
                    see("one, at once");
                    fiber::hop();
                    see("one, after a hop");
                });
                fiber::hop();
            });
            s.spawn(|| {
                SCOPED.set(&two, || {
                    fiber::hop();
                    see("two, after one has left");
                });
            });
        })
        .unwrap();
    see("nothing is set any more");
    let expected = [
        ("one, at once", Some(1)),
        ("one, after a hop", Some(2)),
        ("two, after one has left", None),
        ("nothing is set any more", Some(1)),
    ];
    assert_eq!(*seen.borrow(), expected);
}

/// The same program with a fiber-local works.
#[test]
fn a_fiber_local_keeps_fibers_apart() {
    fiber_local!(static OWN: Cell<u32> = Cell::new(0));
    let seen = RefCell::new(Vec::new());
    team(2)
        .scope(|s| {
            for mine in [1, 2] {
                let seen = &seen;
                s.spawn(move || {
                    OWN.with(|own| {
                        own.set(mine);
                        fiber::hop();
                        seen.borrow_mut().push((mine, own.get()));
                    });
                    fiber::yield_now();
                    seen.borrow_mut().push((mine, OWN.with(Cell::get)));
                });
            }
        })
        .unwrap();
    assert!(seen.borrow().iter().all(|(mine, own)| mine == own), "{seen:?}");
    assert_eq!(seen.borrow().len(), 4);
}

struct LoggedDrop {
    log: Rc<RefCell<Vec<&'static str>>>,
    name: &'static str,
}

impl Drop for LoggedDrop {
    fn drop(&mut self) {
        self.log.borrow_mut().push(self.name);
    }
}

#[test]
fn values_are_made_at_first_access_and_dropped_before_the_join_returns() {
    fiber_local! {
        static LOG: Rc<RefCell<Vec<&'static str>>> = Rc::default();
        static FIRST: LoggedDrop = LoggedDrop { log: LOG.with(Rc::clone), name: "first" };
        static SECOND: LoggedDrop = LoggedDrop { log: LOG.with(Rc::clone), name: "second" };
        static UNUSED: LoggedDrop = panic!("nothing asks for it");
    }
    team(2)
        .scope(|s| {
            // Slots are reused: a fiber does not see the values of the slot's previous fiber.
            for round in 0..6 {
                let log = s.spawn(move || {
                    let log = LOG.with(Rc::clone);
                    assert!(log.borrow().is_empty(), "round {round}");
                    FIRST.with(|_| log.borrow_mut().push("begun"));
                    SECOND.with(|_| fiber::yield_now());
                    if round == 4 { panic!("on purpose") } else { log }
                });
                let log = log.join();
                assert_eq!(log.is_err(), round == 4);
                if let Ok(log) = log {
                    assert_eq!(*log.borrow(), ["begun", "second", "first"], "round {round}");
                }
            }
        })
        .unwrap();
    let _ = &UNUSED;
}

#[test]
fn values_of_a_cancelled_fiber_are_dropped_and_a_panic_of_a_destructor_is_told() {
    struct PanicOnDrop(Rc<Cell<u32>>);
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            assert!(std::thread::panicking() || self.0.get() > 1, "angry");
        }
    }
    fiber_local! {
        static DROPPED: Rc<Cell<u32>> = Rc::default();
        static ANGRY: PanicOnDrop = PanicOnDrop(DROPPED.with(Rc::clone));
    }
    let told = team(2).scope(|s| {
        let dropped = s.spawn(|| ANGRY.with(|angry| Rc::clone(&angry.0)));
        let error = dropped.join().unwrap_err().to_string();
        let seen = Rc::new(Cell::new(None));
        let rests = {
            let seen = Rc::clone(&seen);
            s.spawn(move || {
                seen.set(Some(ANGRY.with(|angry| Rc::clone(&angry.0))));
                DROPPED.with(|dropped| dropped.set(1));
                loop {
                    fiber::yield_now();
                }
            })
        };
        s.spawn(|| ()).join().unwrap();
        rests.cancel();
        assert!(rests.join().unwrap_err().to_string().contains("cancelled"));
        assert_eq!(seen.take().unwrap().get(), 2);
        error
    });
    assert!(told.unwrap().contains("angry"));
}

#[test]
fn what_is_gone_or_needs_itself_is_not_to_be_had() {
    fiber_local! {
        static LATE: UseOnDrop = UseOnDrop;
        static LOOP: u32 = LOOP.with(|_| 1);
    }
    struct UseOnDrop;
    impl Drop for UseOnDrop {
        fn drop(&mut self) {
            assert!(LATE.try_with(|_| ()).is_none());
        }
    }
    team(2)
        .scope(|s| {
            s.spawn(|| LATE.with(|_| ())).join().unwrap();
            let error = s.spawn(|| LOOP.with(|_| ())).join().unwrap_err();
            assert!(error.to_string().contains("a fiber-local needs itself to be made"), "{error}");
        })
        .unwrap();
    // On a thread that runs no fiber the behaviour is the same; the value is dropped when the thread ends.
    std::thread::spawn(|| LATE.with(|_| ())).join().unwrap();
}
