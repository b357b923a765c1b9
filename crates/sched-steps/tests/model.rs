//! Random programs of fibers, checked against a model of these invariants:
//!
//! - every fiber ends, and executes each of its steps once, in order;
//! - a ring never holds more fibers than the team size, and its members take turns;
//! - with teams per operation, a hop leads only to a fiber in the same operation;
//! - no wake is lost, from whichever thread or fiber it comes;
//! - the counts add up.

#![allow(clippy::unwrap_used)]

mod common;

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use sched_steps::team::{self, LargestFirst, LastInterest, Membership, OldestFirst, OperationId, Operations};
use sched_steps::{Executor, fiber};

#[derive(Clone, Copy, Debug)]
enum Step {
    Hop,
    Yield,
    Begin(usize),
    End,
    /// Sleeps until the fiber of that number, modulo the number of fibers, has reached a later step or has ended.
    Await(usize),
    /// Waits for a condition that steps of other fibers make true.
    Until(u32),
    Latched,
    Spawn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Hop),
        2 => Just(Step::Yield),
        4 => (0..3_usize).prop_map(Step::Begin),
        1 => Just(Step::End),
        1 => (0..16_usize).prop_map(Step::Await),
        1 => (0..40_u32).prop_map(Step::Until),
        1 => Just(Step::Latched),
        1 => Just(Step::Spawn),
    ]
}

struct Model {
    programs: Vec<Vec<Step>>,
    ids: Vec<OperationId>,
    membership: Membership,
    /// By fiber: number of completed steps; `usize::MAX` after its end.
    progress: Vec<Cell<usize>>,
    /// By fiber: wakers of the fibers that sleep until its next step.
    sleepers: Vec<RefCell<Vec<fiber::Waker>>>,
    /// By fiber: true while it sleeps or waits for a condition. No other fiber then sleeps for it, which prevents a
    /// deadlock.
    waits: Vec<Cell<bool>>,
    /// Number of steps of all fibers.
    clock: Cell<u32>,
    /// By fiber: current operation.
    operation: Vec<Cell<Option<usize>>>,
    /// Fiber that ran before the current one, if it left by a hop.
    left_by_hop: Cell<Option<usize>>,
    children: Cell<usize>,
}

impl Model {
    fn record_step(&self, me: usize, to: usize) {
        self.progress[me].set(to);
        self.clock.set(self.clock.get() + 1);
        self.sleepers[me].borrow_mut().drain(..).for_each(fiber::Waker::wake);
    }

    /// Checks the operation of the fiber that a hop led to.
    fn check_hop_target(&self, me: usize) {
        if let Some(from) = self.left_by_hop.take()
            && from != me
            && self.membership == Membership::PerOperation
        {
            assert_eq!(self.operation[from].get(), self.operation[me].get(), "a hop from {from} met {me}");
        }
    }

    fn hop(&self, me: usize) {
        let may = fiber::may_hop();
        self.left_by_hop.set(may.then_some(me));
        fiber::hop();
        if may { self.check_hop_target(me) } else { assert!(self.left_by_hop.take().is_none()) }
    }

    fn run<'s>(&'s self, me: usize, s: &'s sched_steps::Scope<'s, '_>) {
        let mut done = 0;
        for &step in &self.programs[me] {
            match step {
                Step::Hop => self.hop(me),
                Step::Yield => {
                    fiber::yield_now();
                    self.forget_hop();
                }
                Step::Begin(at) => {
                    self.operation[me].set(Some(at));
                    team::begin_operation(self.ids[at]);
                    self.forget_hop();
                }
                Step::End => {
                    team::end_operation();
                    self.operation[me].set(None);
                }
                Step::Await(of) => self.sleep(me, of % self.programs.len()),
                Step::Until(at) => {
                    let at = at.min(self.clock.get() + 3);
                    self.waits[me].set(true);
                    // The other fibers may have ended, or wait too: then the clock does not advance.
                    fiber::block_until(|| self.clock.get() >= at || self.alone());
                    self.waits[me].set(false);
                    self.forget_hop();
                }
                Step::Latched => {
                    let _latch = fiber::LatchGuardCount::hold();
                    let before = self.clock.get();
                    fiber::hop();
                    assert_eq!(self.clock.get(), before, "somebody ran while a latch was held");
                }
                Step::Spawn => {
                    let children = &self.children;
                    s.spawn(move || {
                        fiber::hop();
                        children.set(children.get() + 1);
                    });
                }
            }
            done += 1;
            self.record_step(me, done);
        }
        team::end_operation();
        self.record_step(me, usize::MAX);
    }

    /// Called after a general switch: clears the record of earlier hops.
    fn forget_hop(&self) {
        self.left_by_hop.set(None);
    }

    /// Returns true if no fiber is left that could advance the clock.
    fn alone(&self) -> bool {
        (0..self.programs.len()).all(|fiber| self.progress[fiber].get() == usize::MAX || self.waits[fiber].get())
    }

    fn sleep(&self, me: usize, of: usize) {
        let seen = self.progress[of].get();
        if of == me || seen == usize::MAX || self.waits[of].get() {
            return;
        }
        self.waits[me].set(true);
        self.sleepers[of].borrow_mut().push(fiber::waker().unwrap());
        while self.progress[of].get() == seen {
            fiber::park();
            self.forget_hop();
        }
        self.waits[me].set(false);
    }
}

fn run(programs: Vec<Vec<Step>>, slots: usize, team_size: usize, membership: Membership, policy: usize) {
    let mut operations = Operations::new();
    let ids: Vec<_> = ["a", "b", "c"].iter().map(|name| operations.add("op", name).unwrap()).collect();
    let builder = Executor::builder()
        .fibers(slots)
        .team_size(team_size)
        .stack_bytes(64 * 1024)
        .membership(membership)
        .operations(operations)
        .consolidate_below(0.0);
    let builder = match policy {
        0 => builder.policy(LastInterest),
        1 => builder.policy(LargestFirst),
        _ => builder.policy(OldestFirst),
    };
    let mut steps = common::build(builder);
    let n = programs.len();
    let spawned = programs.iter().flatten().filter(|step| matches!(step, Step::Spawn)).count();
    let mut programs = programs;
    if slots < n + spawned {
        // A fiber that waits for a slot that only it could free, or for a fiber that gets no slot, would correctly wait
        // for ever.
        programs
            .iter_mut()
            .for_each(|program| program.retain(|step| !matches!(step, Step::Await(_) | Step::Until(_) | Step::Spawn)));
    }
    let begun = programs.iter().flatten().filter(|step| matches!(step, Step::Begin(_))).count();
    let model = Model {
        ids,
        membership,
        progress: (0..n).map(|_| Cell::new(0)).collect(),
        sleepers: (0..n).map(|_| RefCell::default()).collect(),
        waits: (0..n).map(|_| Cell::new(false)).collect(),
        clock: Cell::new(0),
        operation: (0..n).map(|_| Cell::new(None)).collect(),
        left_by_hop: Cell::new(None),
        children: Cell::new(0),
        programs,
    };
    steps
        .scope(|s| {
            for me in 0..n {
                let model = &model;
                s.spawn_named(&format!("fiber {me}"), move || {
                    model.forget_hop();
                    model.run(me, s);
                });
            }
        })
        .unwrap();
    assert!(model.progress.iter().all(|done| done.get() == usize::MAX));
    assert!(model.children.get() == spawned || slots < n + spawned);
    let statistics = steps.statistics();
    assert_eq!(statistics.operations.iter().map(|op| op.begun as usize).sum::<usize>(), begun);
    for op in &statistics.operations {
        assert!(op.mean_out <= op.mean_in + 1e-9 || membership == Membership::Ring, "{statistics:?}");
        assert!(op.mean_in <= team_size as f64, "{statistics:?}");
    }
    if membership == Membership::PerOperation {
        assert!(statistics.mean_team <= team_size as f64);
        assert!(statistics.longest_wait <= 64 + 64 * n as u64, "{statistics:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_keep_the_rules(
        programs in prop::collection::vec(prop::collection::vec(step(), 0..if cfg!(miri) { 6 } else { 30 }), 1..if cfg!(miri) { 4 } else { 12 }),
        slots in prop_oneof![1..14_usize, Just(400)],
        team_size in 1..9_usize,
        per_operation in any::<bool>(),
        policy in 0..3_usize,
    ) {
        let membership = if per_operation { Membership::PerOperation } else { Membership::Ring };
        run(programs, slots, team_size, membership, policy);
    }
}
