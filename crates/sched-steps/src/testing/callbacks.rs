//! Random callbacks of an executor: orders, policies, a service, an idle callback. Each may panic at some call.

use std::collections::VecDeque;
use std::time::Duration;

use super::world::{Draws, blow};
use crate::team::{
    LargestFirst, LastInterest, Membership, NextTeam, OldestFirst, OperationId, Operations, WaitingTeams,
};
use crate::{Builder, Executor, Idle, Order, fiber};

/// Counter that decreases with each call; the call at which it reaches zero panics.
struct Fuse {
    left: usize,
    draws: Draws,
}

impl Fuse {
    fn new(draws: &Draws) -> Fuse {
        let left = if draws.once_in(3) { 1 + draws.below(30) } else { usize::MAX };
        Fuse { left, draws: draws.split() }
    }

    fn burn(&mut self) {
        assert!(!fiber::is_fiber() && fiber::index().is_none(), "a callback finds itself in a fiber");
        assert!(self.left > 0, "a callback that has panicked is called again");
        self.left -= 1;
        if self.left == 0 {
            blow(&self.draws);
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.left == 0 && self.draws.once_in(4) && !std::thread::panicking() {
            blow(&self.draws);
        }
    }
}

/// First come first served, last come first served, or random order.
struct AnyOrder {
    ready: VecDeque<usize>,
    kind: usize,
    fuse: Fuse,
}

impl Order for AnyOrder {
    fn ready(&mut self, fiber: usize) {
        assert!(!self.ready.contains(&fiber), "fiber {fiber} is announced twice");
        self.fuse.burn();
        self.ready.push_back(fiber);
    }

    fn next(&mut self) -> Option<usize> {
        self.fuse.burn();
        match self.kind {
            0 => self.ready.pop_front(),
            1 => self.ready.pop_back(),
            _ => self.ready.remove(self.fuse.draws.below(self.ready.len())),
        }
    }

    fn ended(&mut self, fiber: usize) {
        assert!(!self.ready.contains(&fiber), "fiber {fiber} has ended and waits for its turn");
        self.fuse.burn();
    }
}

struct AnyPolicy(Fuse);

impl NextTeam for AnyPolicy {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        self.0.burn();
        fiber::yield_now();
        match self.0.draws.below(3) {
            0 => LastInterest.next(waiting),
            1 => LargestFirst.next(waiting),
            _ => OldestFirst.next(waiting),
        }
    }
}

/// Builds an executor with random settings, and its operations.
#[allow(unsafe_code)]
pub(super) fn executor(draws: &Draws) -> (Executor, Vec<OperationId>) {
    let mut operations = Operations::new();
    let ids = ["a", "b", "c"].map(|name| operations.add("op", name).unwrap_or(OperationId(0)));
    let mut builder = Builder::default()
        .fibers(1 + draws.below(6))
        .team_size(1 + draws.below(4))
        .stack_bytes(256 << 10)
        .operations(operations)
        .patience(draws.below(6) as u64)
        .limit(Duration::ZERO);
    match draws.below(4) {
        0 => {
            builder = builder.order(AnyOrder { ready: VecDeque::new(), kind: draws.below(3), fuse: Fuse::new(draws) });
        }
        1 => builder = builder.membership(Membership::PerOperation).policy(AnyPolicy(Fuse::new(draws))),
        2 => builder = builder.membership(Membership::PerOperation),
        _ => {}
    }
    if draws.once_in(3) {
        let mut fuse = Fuse::new(draws);
        builder = builder.service(draws.below(4) as u32, move || fuse.burn());
    }
    if draws.once_in(3) {
        let mut fuse = Fuse::new(draws);
        builder = builder.idle(move |_: &Idle<'_>| fuse.burn());
    }
    // SAFETY: programs have no thread-local scope open where a fiber is suspended.
    let built = unsafe { builder.build() };
    (built.unwrap_or_else(|e| panic!("{e}")), ids.to_vec())
}
