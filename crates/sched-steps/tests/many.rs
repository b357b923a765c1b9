//! Tests with many fibers and long runs.

#![allow(clippy::unwrap_used)]

mod common;

use std::cell::Cell;

use sched_steps::{Executor, MIN_STACK_BYTES, fiber};

#[test]
fn ten_thousand_fibers_at_a_time() {
    let n = if cfg!(miri) { 8 } else { 10_000_usize };
    let turns = Cell::new(0_usize);
    let mut steps = common::build(Executor::builder().fibers(n).team_size(n).stack_bytes(MIN_STACK_BYTES));
    steps
        .scope(|s| {
            for _ in 0..n {
                let turns = &turns;
                s.spawn(move || {
                    for _ in 0..3 {
                        fiber::hop();
                        turns.set(turns.get() + 1);
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(turns.get(), 3 * n);
}

#[test]
fn slots_are_used_again_and_again() {
    let n = if cfg!(miri) { 20 } else { 20_000_u64 };
    let sum = Cell::new(0);
    let mut steps = common::build(Executor::builder().fibers(5).team_size(3));
    for round in 0..2 {
        let result = steps.scope(|s| {
            for i in 0..n {
                let sum = &sum;
                s.spawn(move || {
                    fiber::hop();
                    assert!(i != n / 2 || round == 0, "in the second round");
                    sum.set(sum.get() + 1);
                });
            }
        });
        assert_eq!(result.is_err(), round == 1);
    }
    assert_eq!(sum.get(), 2 * n - 1);
}

/// The compiler preserves floating-point and vector registers across a hop.
#[test]
fn values_survive_hops() {
    let mut steps = common::build(Executor::builder().fibers(16));
    steps
        .scope(|s| {
            for fiber in 0..16_u32 {
                s.spawn(move || {
                    let mut floats = [f64::from(fiber); 24];
                    let mut words = [u64::from(fiber); 24];
                    for round in 0..50_u32 {
                        for (f, w) in floats.iter_mut().zip(&mut words) {
                            *f = *f * 1.5 + f64::from(round % 3);
                            *w = w.wrapping_mul(31).wrapping_add(u64::from(round));
                        }
                        fiber::hop();
                        for (f, w) in floats.iter_mut().zip(&mut words) {
                            *f = (*f - f64::from(round % 3)) / 1.5;
                            *w = w.wrapping_sub(u64::from(round)).wrapping_mul(0xef7b_def7_bdef_7bdf);
                        }
                        assert!(words.iter().all(|w| *w == u64::from(fiber)), "{words:?}");
                        assert!(floats.iter().all(|f| (*f - f64::from(fiber)).abs() < 1e-6), "{floats:?}");
                    }
                });
            }
        })
        .unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "counts how often a thread woke by a clock")]
fn the_thread_sleeps_when_nothing_can_run() {
    let waker = std::sync::Mutex::new(None::<fiber::Waker>);
    let idled = std::rc::Rc::new(Cell::new(0));
    let count = std::rc::Rc::clone(&idled);
    let mut steps = common::build(Executor::builder().fibers(2).idle(move |idle| {
        count.set(count.get() + 1);
        idle.wait();
    }));
    std::thread::scope(|t| {
        let waker = &waker;
        t.spawn(move || {
            loop {
                std::thread::sleep(std::time::Duration::from_millis(2));
                if let Some(waker) = waker.lock().unwrap().take() {
                    return waker.wake();
                }
            }
        });
        steps
            .scope(|s| {
                s.spawn(move || {
                    *waker.lock().unwrap() = fiber::waker();
                    while waker.lock().unwrap().is_some() {
                        fiber::park();
                    }
                });
            })
            .unwrap();
    });
    assert!((1..1000).contains(&idled.get()), "{}", idled.get());
}

#[test]
fn a_service_runs_between_fibers_and_its_panic_ends_them() {
    let served = std::rc::Rc::new(Cell::new(0));
    let count = std::rc::Rc::clone(&served);
    let mut steps = common::build(Executor::builder().fibers(2).service(10, move || {
        assert!(!fiber::is_fiber());
        count.set(count.get() + 1);
        assert!(count.get() < 5, "enough");
    }));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = steps.scope(|s| {
            s.spawn(|| {
                loop {
                    fiber::yield_now();
                }
            });
        });
    }));
    assert!(caught.is_err());
    assert_eq!(served.get(), 5);
}

#[test]
#[cfg_attr(miri, ignore = "sleeps")]
fn a_monitor_names_the_fiber_that_blocks_its_thread() {
    let mut steps = common::build(Executor::builder().fibers(3));
    let monitor = steps.monitor();
    let watch = std::thread::spawn(move || {
        let mut before = monitor.sample();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let now = monitor.sample();
            if now.is_stalled_since(&before) {
                return now.fiber;
            }
            before = now;
        }
    });
    let done = Cell::new(false);
    let caught = Cell::new(None);
    steps
        .scope(|s| {
            let (done, caught) = (&done, &caught);
            s.spawn(move || {
                while !done.get() {
                    fiber::yield_now();
                }
            });
            s.spawn(move || {
                for _ in 0..1000 {
                    fiber::yield_now();
                }
                caught.set(watch.join().unwrap()); // blocks the thread
                done.set(true);
            });
        })
        .unwrap();
    assert_eq!(caught.get(), Some(1));
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
fn the_high_water_mark_is_that_of_the_fullest_stack() {
    fn sink(depth: u32) -> u64 {
        let frame = std::hint::black_box([u64::from(depth); 128]);
        if depth == 0 { frame[3] } else { sink(depth - 1) + frame[7] }
    }
    let mut steps = common::build(Executor::builder().fibers(4).stack_bytes(128 * 1024));
    let mut mark_of = |depth| {
        steps.scope(|s| s.spawn(move || sink(depth)).join().unwrap()).unwrap();
        steps.stack_high_water().unwrap()
    };
    let (shallow, deep, after) = (mark_of(1), mark_of(60), mark_of(1));
    assert!(shallow < 32 * 1024, "{shallow}");
    assert!((60 * 1024..=132 * 1024).contains(&deep), "{deep}");
    assert_eq!(after, deep);
}
