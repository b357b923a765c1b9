//! Fibers that cannot continue: the scope ends and reports what each fiber waits for, instead of hanging.

#![allow(clippy::unwrap_used)]

mod common;

use std::cell::Cell;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sched_steps::{Executor, FiberError, Scope, Stop, Waiting, WaitsFor, fiber};

fn team(fibers: usize) -> Executor {
    common::build(Executor::builder().fibers(fibers))
}

fn stop_of<T: std::fmt::Debug>(result: Result<T, FiberError>) -> Stop {
    match result {
        Err(FiberError::Stopped(stop)) => stop,
        other => panic!("not stopped: {other:?}"),
    }
}

fn waiting(fiber: &str, waits_for: WaitsFor) -> Waiting {
    Waiting { fiber: fiber.into(), waits_for }
}

struct CountOnDrop<'a>(&'a Cell<u32>);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn parked_fibers_that_nothing_can_wake_are_named_and_unwound() {
    let dropped = Cell::new(0);
    let mut steps = team(4);
    let ended = steps.scope(|s| {
        let dropped = &dropped;
        let sleeper = s.spawn_named("sleeper", move || {
            let _count = CountOnDrop(dropped);
            loop {
                fiber::park();
            }
        });
        s.spawn_named("heir", move || {
            let _count = CountOnDrop(dropped);
            sleeper.join().unwrap();
        });
        s.spawn_named("worker", fiber::yield_now);
    });
    let error = stop_of(ended);
    assert_eq!(error.after, None);
    assert_eq!(
        error.waiting,
        [waiting("sleeper", WaitsFor::WakeByNothing), waiting("heir", WaitsFor::End("sleeper".into()))]
    );
    let told = "no fiber can ever run again: fiber 'sleeper' is parked and has given its waker to nothing; \
                fiber 'heir' waits for the end of fiber 'sleeper'";
    assert_eq!(error.to_string(), told);
    assert_eq!(dropped.get(), 2);
    // The executor remains usable.
    assert_eq!(steps.scope(|s| s.spawn(|| 7).join().unwrap()).unwrap(), 7);
}

#[test]
fn a_scope_that_waits_for_a_fiber_that_waits_for_nothing_goes_on() {
    let joined = Cell::new(false);
    let ended = team(2).scope(|s| {
        let sleeper = s.spawn(fiber::park);
        assert!(matches!(sleeper.join(), Err(FiberError::Cancelled { .. })));
        joined.set(true);
    });
    assert_eq!(stop_of(ended).waiting, [waiting("0", WaitsFor::WakeByNothing)]);
    assert!(joined.get());
}

#[test]
fn fibers_that_hold_all_slots_and_wait_for_one_are_named() {
    let ended = team(2).scope(|s| {
        for name in ["one", "two"] {
            s.spawn_named(name, || {
                fiber::yield_now();
                s.spawn(|| ());
            });
        }
    });
    assert_eq!(stop_of(ended).waiting, [waiting("one", WaitsFor::Slot), waiting("two", WaitsFor::Slot)]);
}

#[test]
fn a_slot_that_comes_free_goes_to_one_that_waits_for_it() {
    let children = Cell::new(0);
    team(3)
        .scope(|s| {
            let children = &children;
            for _ in 0..2 {
                s.spawn(move || {
                    for _ in 0..20 {
                        s.spawn(move || {
                            fiber::hop();
                            children.set(children.get() + 1);
                        });
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(children.get(), 40);
}

#[test]
fn a_fiber_that_waits_for_a_slot_may_be_cancelled() {
    team(2)
        .scope(|s| {
            let waits = s.spawn(move || {
                s.spawn(|| ());
                unreachable!("there is no slot");
            });
            // The other fiber holds the second slot until the first one waits, then cancels the first one.
            let ends = s.spawn(move || {
                fiber::yield_now();
                waits.cancel();
                assert!(matches!(waits.join(), Err(FiberError::Cancelled { .. })));
            });
            ends.join().unwrap();
        })
        .unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "waits by a clock")]
fn where_wakes_are_expected_a_limit_ends_the_wait() {
    let limit = Duration::from_millis(30);
    let mut steps = common::build(Executor::builder().fibers(3).limit(limit));
    let begun = Instant::now();
    let ended = steps.scope(|s| {
        s.spawn_named("listens", || {
            let _waker = fiber::waker();
            fiber::park();
        });
        s.spawn_named("asks", || fiber::block_until(|| false));
        s.spawn_named("sleeps", fiber::park);
    });
    let stop = stop_of(ended);
    assert!(begun.elapsed() >= limit);
    assert_eq!(stop.after, Some(limit));
    let all = [("listens", WaitsFor::Wake), ("asks", WaitsFor::Condition), ("sleeps", WaitsFor::WakeByNothing)];
    assert_eq!(stop.waiting, all.map(|(fiber, waits_for)| waiting(fiber, waits_for)));
}

/// Each wait is shorter than the limit, all together are longer: the limit applies to the time since a fiber last ran.
#[test]
#[cfg_attr(miri, ignore = "waits by a clock")]
fn a_limit_counts_from_when_a_fiber_last_ran() {
    let limit = Duration::from_secs(20);
    let mut steps = common::build(Executor::builder().fibers(2).limit(limit));
    let asked = Cell::new(0);
    steps
        .scope(|s| {
            s.spawn(|| {
                for _ in 0..3 {
                    let until = Instant::now() + Duration::from_millis(5);
                    fiber::block_until(|| {
                        asked.set(asked.get() + 1);
                        Instant::now() >= until
                    });
                }
            });
        })
        .unwrap();
    assert!(asked.get() >= 3);
}

#[test]
fn a_panic_that_came_first_is_the_scopes() {
    let error = team(3)
        .scope(|s| {
            s.spawn_named("waits", fiber::park);
            s.spawn_named("fails", || panic!("first"));
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "fiber 'fails' panicked: first");
}

/// Step of a fiber of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Hop,
    Yield,
    /// Parks without a waker.
    Sleep,
    /// Spawns a child with this behaviour and does not join it.
    Spawn(Child),
    /// Spawns a child with this behaviour and joins it.
    Join(Child),
}

#[derive(Clone, Copy, Debug)]
enum Child {
    Ends,
    Sleeps,
    /// Spawns one more fiber.
    Spawns,
}

fn step() -> impl Strategy<Value = Step> {
    let child = || prop_oneof![4 => Just(Child::Ends), 1 => Just(Child::Sleeps), 1 => Just(Child::Spawns)];
    prop_oneof![
        3 => Just(Step::Hop),
        3 => Just(Step::Yield),
        1 => Just(Step::Sleep),
        3 => child().prop_map(Step::Spawn),
        3 => child().prop_map(Step::Join),
    ]
}

/// Counts of the fibers that have begun and ended.
#[derive(Default)]
struct FiberCounts {
    begun: Cell<u32>,
    ended: Cell<u32>,
    /// Number of fibers that ended by unwinding.
    unwound: Cell<u32>,
}

struct CountedFiber<'a>(&'a FiberCounts);

impl<'a> CountedFiber<'a> {
    fn begin(counts: &'a FiberCounts) -> CountedFiber<'a> {
        counts.begun.set(counts.begun.get() + 1);
        CountedFiber(counts)
    }
}

impl Drop for CountedFiber<'_> {
    fn drop(&mut self) {
        let count = if std::thread::panicking() { &self.0.unwound } else { &self.0.ended };
        count.set(count.get() + 1);
    }
}

fn act<'s>(s: &'s Scope<'s, '_>, counts: &'s FiberCounts, child: Child) {
    let _counted = CountedFiber::begin(counts);
    match child {
        Child::Ends => fiber::hop(),
        Child::Sleeps => fiber::park(),
        Child::Spawns => drop(s.spawn(|| act(s, counts, Child::Ends))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Regardless of the events that fibers wait for, the scope ends: successfully, or with a stop that names the
    /// fibers which had not ended.
    #[test]
    fn no_program_stands_still(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..12), 1..6),
        slots in 1..8_usize,
        team_size in 1..5_usize,
    ) {
        let mut steps = common::build(Executor::builder().fibers(slots).team_size(team_size));
        let counts = FiberCounts::default();
        let ended = steps.scope(|s| {
            for program in &programs {
                let counts = &counts;
                s.spawn(move || {
                    let _counted = CountedFiber::begin(counts);
                    for step in program {
                        match *step {
                            Step::Hop => fiber::hop(),
                            Step::Yield => fiber::yield_now(),
                            Step::Sleep => fiber::park(),
                            Step::Spawn(child) => drop(s.spawn(move || act(s, counts, child))),
                            Step::Join(child) => drop(s.spawn(move || act(s, counts, child)).join()),
                        }
                    }
                });
            }
        });
        match ended {
            Ok(()) => prop_assert_eq!(counts.unwound.get(), 0),
            Err(FiberError::Stopped(stop)) => {
                prop_assert_eq!(stop.after, None);
                prop_assert!(!stop.waiting.is_empty() && stop.waiting.len() <= slots, "{:?}", stop);
                prop_assert!(counts.unwound.get() >= 1, "{:?}", stop);
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
        prop_assert_eq!(counts.begun.get(), counts.ended.get() + counts.unwound.get());
    }
}
