//! Loops on fibers of one thread.
#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]
#![allow(unsafe_code)]

mod common;

use std::convert::Infallible;

use common::{Locks, Rows};
use sched_steps::{Executor, fiber};
use speculate::{Epoch, Options, Speculator};

#[test]
fn loops_of_several_fibers_are_not_inside_each_other() {
    // SAFETY: a loop has no thread-local open that is bound to the stack when its bodies hop.
    let mut steps = unsafe { Executor::builder().fibers(3).team_size(3).build() }.unwrap();
    let sums = steps.scope(|scope| {
        let fibers = [1, 2, 3_u64].map(|me| {
            scope.spawn(move || {
                let store = Rows::default();
                let mut speculator = Speculator::new(Options::new().workers(1)).unwrap();
                let body = |epoch: &mut Epoch<'_, Rows>, item: &u64| {
                    let sum = epoch.get(&0)?.unwrap_or(0) + item * me;
                    fiber::hop();
                    epoch.put(0, sum);
                    Ok::<_, Infallible>(sum)
                };
                let mut last = 0;
                let then = |_: &mut Locks, sum| {
                    fiber::hop();
                    last = sum;
                    Ok(())
                };
                speculator.run(&store, &mut Locks::default(), 0..10, body, then).unwrap();
                last
            })
        });
        fibers.map(|fiber| fiber.join().unwrap())
    });
    assert_eq!(sums.unwrap(), [45, 90, 135]);
}
