//! Random callbacks of an executor: orders, policies, a service callback, an idle callback. Each may panic at one of
//! its calls.

use std::collections::VecDeque;
use std::time::Duration;

use super::model::{Random, panic_on_purpose};
use crate::team::{
    LargestFirst, LastInterest, Membership, NextTeam, OldestFirst, OperationId, Operations, WaitingTeams,
};
use crate::{Builder, Executor, Idle, Order, fiber};

/// Counter that decreases with each call of a callback; the call at which it reaches zero panics.
struct PanicCountdown {
    left: usize,
    random: Random,
}

impl PanicCountdown {
    fn new(random: &Random) -> PanicCountdown {
        let left = if random.once_in(3) { 1 + random.below(30) } else { usize::MAX };
        PanicCountdown { left, random: random.split() }
    }

    fn count_call(&mut self) {
        assert!(!fiber::is_fiber() && fiber::index().is_none(), "a callback finds itself in a fiber");
        assert!(self.left > 0, "a callback that has panicked is called again");
        self.left -= 1;
        if self.left == 0 {
            panic_on_purpose(&self.random);
        }
    }
}

impl Drop for PanicCountdown {
    fn drop(&mut self) {
        if self.left == 0 && self.random.once_in(4) && !std::thread::panicking() {
            panic_on_purpose(&self.random);
        }
    }
}

/// Order that is first come first served, last come first served, or random.
struct RandomOrder {
    ready: VecDeque<usize>,
    kind: usize,
    countdown: PanicCountdown,
}

impl Order for RandomOrder {
    fn ready(&mut self, fiber: usize) {
        assert!(!self.ready.contains(&fiber), "fiber {fiber} is announced twice");
        self.countdown.count_call();
        self.ready.push_back(fiber);
    }

    fn next(&mut self) -> Option<usize> {
        self.countdown.count_call();
        match self.kind {
            0 => self.ready.pop_front(),
            1 => self.ready.pop_back(),
            _ => self.ready.remove(self.countdown.random.below(self.ready.len())),
        }
    }

    fn ended(&mut self, fiber: usize) {
        assert!(!self.ready.contains(&fiber), "fiber {fiber} has ended and waits for its turn");
        self.countdown.count_call();
    }
}

struct RandomPolicy(PanicCountdown);

impl NextTeam for RandomPolicy {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        self.0.count_call();
        fiber::yield_now();
        match self.0.random.below(3) {
            0 => LastInterest.next(waiting),
            1 => LargestFirst.next(waiting),
            _ => OldestFirst.next(waiting),
        }
    }
}

/// Builds an executor with random settings. Returns the executor and its operations.
#[allow(unsafe_code)]
pub(super) fn executor(random: &Random) -> (Executor, Vec<OperationId>) {
    let mut operations = Operations::new();
    let ids = ["a", "b", "c"].map(|name| operations.add("op", name).unwrap_or(OperationId(0)));
    let mut builder = Builder::default()
        .fibers(1 + random.below(6))
        .team_size(1 + random.below(4))
        .stack_bytes(256 << 10)
        .operations(operations)
        .patience(random.below(6) as u64)
        .limit(Duration::ZERO);
    match random.below(4) {
        0 => {
            builder = builder.order(RandomOrder {
                ready: VecDeque::new(),
                kind: random.below(3),
                countdown: PanicCountdown::new(random),
            });
        }
        1 => builder = builder.membership(Membership::PerOperation).policy(RandomPolicy(PanicCountdown::new(random))),
        2 => builder = builder.membership(Membership::PerOperation),
        _ => {}
    }
    if random.once_in(3) {
        let mut countdown = PanicCountdown::new(random);
        builder = builder.service(random.below(4) as u32, move || countdown.count_call());
    }
    if random.once_in(3) {
        let mut countdown = PanicCountdown::new(random);
        builder = builder.idle(move |_: &Idle<'_>| countdown.count_call());
    }
    // SAFETY: programs have no thread-local scope open where a fiber is suspended.
    let built = unsafe { builder.build() };
    (built.unwrap_or_else(|e| panic!("{e}")), ids.to_vec())
}
