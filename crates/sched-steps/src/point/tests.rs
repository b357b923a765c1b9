// The points below are defined in this crate, so the lint `unsafe_code` applies to their macro expansions.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use super::*;
use crate::team::Operations;
use crate::{Executor, fiber};

/// Lock that serialises the tests that change the live operations of points.
static LIVE: Mutex<()> = Mutex::new(());

fn step(log: &RefCell<Vec<u32>>, name: u32) {
    log.borrow_mut().push(name);
    ctx_point!("tests/step");
    log.borrow_mut().push(name);
}

#[test]
#[cfg_attr(miri, ignore = "the linker's section is not there")]
fn points_are_listed() {
    let point = points().find(|point| point.name() == "tests/step").unwrap();
    assert_eq!(point.file(), file!());
    assert_eq!(point.module(), module_path!());
    assert!(point.line() > 10);
    assert!(points().all(|point| !point.file().is_empty()));
}

#[test]
#[cfg_attr(miri, ignore = "the linker's section is not there")]
fn a_point_is_live_by_operation() {
    let _one = LIVE.lock();
    let mut operations = Operations::new();
    let (fetch, commit) = (operations.add("fetch", "").unwrap(), operations.add("commit", "").unwrap());
    let point = points().find(|point| point.name() == "tests/step").unwrap();
    point.set_live(fetch.bit());
    let run = |operation| {
        let log = RefCell::new(Vec::new());
        let mut steps = Executor::builder().fibers(2).operations(operations.clone()).for_test();
        steps
            .scope(|s| {
                for name in 0..2 {
                    let log = &log;
                    s.spawn(move || {
                        crate::team::begin_operation(operation);
                        step(log, name);
                    });
                }
            })
            .unwrap();
        log.into_inner()
    };
    assert_eq!(run(fetch), [0, 1, 0, 1]);
    assert_eq!(run(commit), [0, 0, 1, 1]);
    point.set_live(u64::MAX);
}

#[test]
fn prefetch_and_hop_only_with_a_mate() {
    let order = RefCell::new(Vec::new());
    let hopped = Cell::new(false);
    let data = [0_u64; 64];
    Executor::builder()
        .fibers(2)
        .for_test()
        .scope(|s| {
            for name in 0..2 {
                let (order, data) = (&order, &data);
                s.spawn(move || {
                    ctx_prefetch!("tests/data", data, 8);
                    order.borrow_mut().push(name);
                    ctx_prefetch!("tests/data", data, 8);
                    order.borrow_mut().push(name);
                });
            }
            hopped.set(true);
        })
        .unwrap();
    assert_eq!(order.into_inner(), [0, 1, 0, 1]);
    ctx_prefetch!("tests/outside", &raw const data, 1);
}

#[test]
#[cfg(debug_assertions)]
fn a_point_inside_a_latch_is_an_assertion() {
    let error = Executor::builder()
        .fibers(2)
        .for_test()
        .scope(|s| {
            s.spawn(|| {
                let _latch = fiber::LatchGuardCount::hold();
                ctx_point!("tests/latched", latched);
                ctx_point!("tests/latch");
            });
        })
        .unwrap_err();
    assert!(error.to_string().contains("point 'tests/latch' is reached with a latch held"), "{error}");
}
