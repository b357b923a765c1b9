//! Speculative loops on fibers of one thread.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Mutex;

use sched_steps::{Executor, fiber};
use speculate::{Epoch, Options, Seen, Speculator, Store, Written};

/// A store of numbers with version stamps, for one transaction.
#[derive(Default)]
struct Numbers(Mutex<HashMap<u64, (u64, u64)>>);

impl Store for Numbers {
    type Key = u64;
    type Value = u64;
    type Stamp = u64;
    type Local = ();
    type Order = ();
    type Error = Infallible;

    fn peek(&self, (): &mut (), key: &u64) -> Result<(Option<u64>, u64), Infallible> {
        let numbers = self.0.lock().unwrap();
        Ok(numbers.get(key).map_or((None, 0), |(value, stamp)| (Some(*value), *stamp)))
    }

    fn confirm(&self, (): &mut (), seen: Seen<'_, Self>) -> Result<bool, Infallible> {
        Ok(self.peek(&mut (), seen.key)?.1 == *seen.stamp)
    }

    fn read(&self, (): &mut (), key: &u64) -> Result<Option<u64>, Infallible> {
        Ok(self.peek(&mut (), key)?.0)
    }

    fn write(&self, (): &mut (), write: &Written<'_, Self>) -> Result<(), Infallible> {
        let mut numbers = self.0.lock().unwrap();
        let (value, stamp) = numbers.entry(*write.key).or_default();
        (*value, *stamp) = (*write.value.unwrap(), *stamp + 1);
        Ok(())
    }
}

#[test]
fn loops_of_several_fibers_are_not_inside_each_other() {
    // SAFETY: when a body hops, its loop has no open thread-local that is bound to the stack.
    let mut steps = unsafe { Executor::builder().fibers(3).team_size(3).build() }.unwrap();
    let sums = steps.scope(|fibers| {
        let summing = [1, 2, 3_u64].map(|me| {
            fibers.spawn(move || {
                let mut speculator = Speculator::new(Options::new().workers(1)).unwrap();
                let body = |epoch: &mut Epoch<'_, Numbers>, item: &u64| {
                    let sum = epoch.get(&0)?.unwrap_or(0) + item * me;
                    fiber::hop();
                    epoch.put(0, sum);
                    Ok::<_, Infallible>(sum)
                };
                let mut last = 0;
                let then = |(): &mut (), sum| {
                    fiber::hop();
                    last = sum;
                    Ok(())
                };
                speculator.run(&Numbers::default(), &mut (), 0..10, body, then).unwrap();
                last
            })
        });
        summing.map(|fiber| fiber.join().unwrap())
    });
    assert_eq!(sums.unwrap(), [45, 90, 135]);
}
