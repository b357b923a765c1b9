use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::{Executor, FiberError, fiber};

fn executor(fibers: usize, team: usize) -> Executor {
    Executor::builder().fibers(fibers).team_size(team).for_test()
}

#[test]
fn mates_run_in_turn() {
    let log = RefCell::new(Vec::new());
    executor(3, 3)
        .scope(|s| {
            for name in ["a", "b", "c"] {
                let log = &log;
                s.spawn(move || {
                    for step in 0..3 {
                        log.borrow_mut().push((step, name));
                        fiber::hop();
                    }
                });
            }
        })
        .unwrap();
    let expected: Vec<_> = (0..3).flat_map(|step| ["a", "b", "c"].map(|name| (step, name))).collect();
    assert_eq!(*log.borrow(), expected);
}

#[test]
fn more_fibers_than_slots_all_end() {
    let sum = Cell::new(0);
    executor(4, 3)
        .scope(|s| {
            for i in 0..100 {
                let sum = &sum;
                s.spawn(move || {
                    fiber::hop();
                    fiber::yield_now();
                    sum.set(sum.get() + i);
                });
            }
        })
        .unwrap();
    assert_eq!(sum.get(), 4950);
}

#[test]
fn join_returns_results_and_panics() {
    executor(4, 4)
        .scope(|s| {
            let good = s.spawn(|| {
                fiber::hop();
                7
            });
            let bad = s.spawn_named("bad", || -> u32 {
                fiber::hop();
                panic!("on purpose")
            });
            assert_eq!(good.join().unwrap(), 7);
            let error = bad.join().unwrap_err();
            assert_eq!(error.to_string(), "fiber 'bad' panicked: on purpose");
            assert_eq!(s.spawn(|| s.spawn(|| 5).join().unwrap() + 1).join().unwrap(), 6);
        })
        .unwrap();
}

#[test]
fn a_panic_nobody_joined_is_the_scopes() {
    let error = executor(2, 2)
        .scope(|s| {
            s.spawn_named("teller", || panic!("no money"));
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "fiber 'teller' panicked: no money");
}

struct CountOnDrop<'a>(&'a Cell<u32>);
impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn cancelled_fibers_run_their_destructors_wherever_they_rest() {
    let dropped = Cell::new(0);
    executor(8, 3)
        .scope(|s| {
            let dropped = &dropped;
            let guard = move || CountOnDrop(dropped);
            let hopped: Vec<_> = (0..2)
                .map(|_| {
                    s.spawn(move || {
                        let _guard = guard();
                        loop {
                            fiber::hop();
                        }
                    })
                })
                .collect();
            let parked = s.spawn(move || {
                let _guard = guard();
                loop {
                    fiber::park();
                }
            });
            let polled = s.spawn(move || {
                let _guard = guard();
                fiber::block_until(|| false);
            });
            s.spawn(|| ()).join().unwrap();
            let captured = guard();
            let fresh = s.spawn(move || drop(captured));
            fresh.cancel();
            for handle in hopped.into_iter().chain([parked, polled]) {
                handle.cancel();
                assert!(matches!(handle.join(), Err(FiberError::Cancelled { .. })));
            }
            assert!(matches!(fresh.join(), Err(FiberError::Cancelled { .. })));
        })
        .unwrap();
    assert_eq!(dropped.get(), 5);
}

#[test]
fn a_panic_of_the_scope_unwinds_its_fibers() {
    let dropped = Cell::new(0);
    let mut steps = executor(4, 4);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        steps.scope(|s| {
            let guard = CountOnDrop(&dropped);
            s.spawn(move || {
                let _guard = guard;
                loop {
                    fiber::yield_now();
                }
            });
            s.spawn(|| ()).join().unwrap();
            panic!("scope");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(dropped.get(), 1);
    steps.scope(|s| s.spawn(|| 1).join().unwrap()).unwrap();
}

#[test]
fn wakes_come_from_other_threads_and_are_not_lost() {
    let mut steps = executor(4, 4);
    let rounds = if cfg!(miri) { 5 } else { 2000 };
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let (send, receive) = std::sync::mpsc::channel::<fiber::Waker>();
    std::thread::scope(|t| {
        let turn = &turn;
        t.spawn(move || {
            for waker in receive {
                turn.fetch_add(1, std::sync::atomic::Ordering::Release);
                fiber::Waker::from_bits(waker.to_bits()).unwrap().wake();
            }
        });
        steps
            .scope(|s| {
                s.spawn(|| {
                    for round in 1..=rounds {
                        send.send(fiber::waker().unwrap()).unwrap();
                        while turn.load(std::sync::atomic::Ordering::Acquire) < round {
                            fiber::park();
                        }
                    }
                    drop(send);
                });
            })
            .unwrap();
    });
}

#[test]
fn conditions_are_asked_and_their_panics_belong_to_the_fiber() {
    let flag = Rc::new(Cell::new(false));
    executor(4, 4)
        .scope(|s| {
            let mine = Rc::clone(&flag);
            let waits = s.spawn(move || fiber::block_until(|| mine.get()));
            let bad = s.spawn(|| {
                let asked = Cell::new(0);
                fiber::block_until(|| {
                    asked.set(asked.get() + 1);
                    assert!(asked.get() < 3, "asked too often");
                    false
                });
            });
            let flag = Rc::clone(&flag);
            s.spawn(move || flag.set(true));
            waits.join().unwrap();
            assert!(bad.join().unwrap_err().to_string().contains("asked too often"));
        })
        .unwrap();
}

#[test]
fn a_latch_keeps_the_cpu() {
    let log = RefCell::new(Vec::new());
    executor(2, 2)
        .scope(|s| {
            for name in ["a", "b"] {
                let log = &log;
                s.spawn(move || {
                    let latch = fiber::LatchGuardCount::hold();
                    log.borrow_mut().push(name);
                    fiber::hop();
                    log.borrow_mut().push(name);
                    drop(latch);
                    fiber::hop();
                    log.borrow_mut().push(name);
                });
            }
        })
        .unwrap();
    assert_eq!(*log.borrow(), ["a", "a", "b", "b", "a", "b"]);
}

#[test]
fn an_executor_may_run_inside_a_fiber_of_another() {
    let mut outer = executor(3, 3);
    let sum = Cell::new(0);
    outer
        .scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let mut inner = executor(3, 3);
                    inner
                        .scope(|s| {
                            let joined = s.spawn(|| {
                                fiber::yield_now();
                                1
                            });
                            for _ in 0..2 {
                                s.spawn(|| {
                                    fiber::hop();
                                    sum.set(sum.get() + 1);
                                });
                            }
                            // The closure of the scope runs on a fiber of the outer executor.
                            sum.set(sum.get() + joined.join().unwrap());
                        })
                        .unwrap();
                    fiber::hop();
                    sum.set(sum.get() + 10);
                });
            }
        })
        .unwrap();
    assert_eq!(sum.get(), 39);
}

#[test]
fn what_a_fiber_that_never_began_was_given_may_wait_when_it_is_dropped() {
    struct YieldOnDrop<'a>(&'a Cell<bool>);
    impl Drop for YieldOnDrop<'_> {
        fn drop(&mut self) {
            fiber::yield_now();
            self.0.set(true);
        }
    }
    let waited = Cell::new(false);
    executor(2, 2)
        .scope(|s| {
            let waits = YieldOnDrop(&waited);
            let fresh = s.spawn(move || drop(waits));
            s.spawn(|| ());
            fresh.cancel();
            assert!(matches!(fresh.join(), Err(FiberError::Cancelled { .. })));
        })
        .unwrap();
    assert!(waited.get());
}

/// A fiber that gives up the CPU while it holds a latch panics, and unwinds from that call; it is in no queue then.
#[test]
#[cfg(debug_assertions)]
fn who_gives_way_with_a_latch_is_told_and_the_others_go_on() {
    use crate::team::{self, Membership, Operations};
    let mut operations = Operations::new();
    let operation = operations.add("a", "").unwrap();
    type Way = (&'static str, fn(team::OperationId));
    let ways: [Way; 4] = [
        ("yields", |_| fiber::yield_now()),
        ("parks", |_| fiber::park()),
        ("blocks", |_| fiber::block_until(|| false)),
        ("begins", team::begin_operation),
    ];
    for (name, switch_to_next) in ways {
        let steps = Executor::builder().fibers(4).operations(operations.clone());
        steps
            .membership(Membership::PerOperation)
            .for_test()
            .scope(|s| {
                let bad = s.spawn_named(name, || {
                    let _latch = fiber::LatchGuardCount::hold();
                    switch_to_next(operation);
                });
                let others: Vec<_> = (0..3)
                    .map(|i| {
                        s.spawn(move || {
                            for _ in 0..3 {
                                team::begin_operation(operation);
                                fiber::hop();
                                fiber::yield_now();
                            }
                            i
                        })
                    })
                    .collect();
                let error = bad.join().unwrap_err().to_string();
                assert!(error.contains("while it holds a latch"), "{name}: {error}");
                assert_eq!(others.into_iter().map(|other| other.join().unwrap()).sum::<i32>(), 3, "{name}");
            })
            .unwrap();
    }
}

/// Excess releases of latches must not change the flag above the latch counter.
#[test]
#[cfg(not(debug_assertions))]
fn unbalanced_releases_leave_points_alone() {
    executor(1, 1)
        .scope(|s| {
            s.spawn(|| {
                fiber::latch_released();
                fiber::latch_taken();
                fiber::latch_released();
                fiber::latch_released();
                fiber::hop();
            });
        })
        .unwrap();
}

/// Regression test: a fiber was cancelled after its condition had panicked and before the fiber ran. It caught the panic,
/// and no hop unwound it.
#[test]
fn a_cancelled_fiber_that_catches_the_panic_of_its_condition_unwinds_at_a_hop() {
    let went_on = &Cell::new(false);
    executor(2, 2)
        .scope(|s| {
            let waits = s.spawn(move || {
                // The condition is called on the fiber first, then by the executor.
                let caught = std::panic::catch_unwind(|| fiber::block_until(|| !fiber::is_fiber() && panic!("asked")));
                assert!(caught.is_err());
                fiber::hop();
                went_on.set(true);
            });
            s.spawn(move || {
                waits.cancel();
                assert!(matches!(waits.join(), Err(FiberError::Cancelled { .. })));
            });
        })
        .unwrap();
    assert!(!went_on.get());
}

/// A fiber is cancelled after its condition has panicked and before the fiber runs: no fiber of the next scope gets the
/// panic.
#[test]
fn the_panic_of_a_condition_is_its_own_fibers() {
    let mut steps = executor(2, 2);
    let told = steps
        .scope(|s| {
            let waits = s.spawn(|| {
                fiber::block_until(|| {
                    // The condition is called on the fiber first, then by the executor.
                    assert!(fiber::is_fiber(), "of the first");
                    false
                });
            });
            let cancels = s.spawn(move || {
                waits.cancel();
                waits.join()
            });
            cancels.join().unwrap().unwrap_err().to_string()
        })
        .unwrap();
    assert_eq!(told, "fiber '0' panicked: of the first");
    steps
        .scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let asked = Cell::new(0);
                    fiber::block_until(|| asked.replace(asked.get() + 1) > 3);
                });
            }
        })
        .unwrap();
}
