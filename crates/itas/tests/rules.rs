//! Tests in virtual time of the paper's rules and of the bound on waiting.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use itas::policy::{Choice, Fair, Itas, Policy, Tas, View};
use itas::virtual_time::{After, Run, VirtualCores};
use itas::{Aggregation, Board, CoreSettings, GroupId, Groups, Role, Scheduler, Stops};
use proptest::prelude::*;

const SLICE: u64 = 1000;

/// Creates groups that each prefer siblings up to `bonus` and `limit`.
fn groups(n: usize, bonus: u64, limit: u32) -> (Arc<Groups>, Vec<GroupId>) {
    let groups = Groups::new();
    let aggregation = Aggregation { bonus: Duration::from_nanos(bonus), limit };
    let ids = (0..n).map(|i| groups.add(&format!("g{i}"), 1024, aggregation).unwrap()).collect();
    (Arc::new(groups), ids)
}

fn settings() -> CoreSettings {
    CoreSettings { slice: Duration::from_nanos(SLICE), sleeper_credit: Duration::ZERO, paper_slaves: false }
}

fn core(groups: &Arc<Groups>, board: &Arc<Board>, number: usize, policy: impl Policy + 'static) -> Scheduler {
    Scheduler::new(number, Arc::clone(groups), Arc::clone(board), Box::new(policy), settings())
}

/// Runs whole slices and returns the groups that ran, in order.
fn order(scheduler: &mut Scheduler, slices: usize, now: &mut u64) -> Vec<usize> {
    let run = |_| {
        let fiber = scheduler.pick(*now).unwrap();
        let group = scheduler.group_of(fiber).unwrap();
        *now += SLICE;
        scheduler.stop(*now, Stops::Preempted);
        group.index()
    };
    (0..slices).map(run).collect()
}

/// Adds two fibers of each of two groups, alternating between the groups.
fn two_by_two(scheduler: &mut Scheduler, ids: &[GroupId]) {
    for (fiber, group) in [0, 1, 0, 1].into_iter().enumerate() {
        scheduler.arrive(0, fiber as u32, ids[group]).unwrap();
    }
}

#[test]
fn fair_takes_turns() {
    let (table, ids) = groups(2, 1_000_000, 100);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Fair);
    two_by_two(&mut scheduler, &ids);
    assert_eq!(order(&mut scheduler, 8, &mut 0), [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(scheduler.statistics().switches_between, 7);
}

/// Each setter takes effect: the share of a fiber, the slice, the policy.
#[test]
fn what_is_set_while_a_core_runs_holds_from_then_on() {
    let table = Groups::new();
    let some = Aggregation { bonus: Duration::ZERO, limit: 0 };
    let [light, heavy] = [1024, 4096].map(|weight| table.add("g", weight, some).unwrap());
    let table = Arc::new(table);
    for (from, to, least, most) in [(light, heavy, 75, 85), (heavy, light, 45, 55), (light, light, 45, 55)] {
        let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Fair);
        scheduler.arrive(0, 0, from).unwrap();
        scheduler.arrive(0, 1, light).unwrap();
        let mut now = 0;
        while scheduler.pick(now) != Some(0) {
            now += SLICE;
            scheduler.stop(now, Stops::Preempted);
        }
        assert_eq!(scheduler.change_group(to), Ok(from != to));
        now += SLICE;
        scheduler.stop(now, Stops::Preempted);
        let mut of_changed = 0;
        for _ in 0..100 {
            let fiber = scheduler.pick(now).unwrap();
            of_changed += usize::from(fiber == 0);
            assert_eq!(scheduler.group_of(fiber).unwrap(), if fiber == 0 { to } else { light });
            now += SLICE;
            scheduler.stop(now, Stops::Preempted);
        }
        assert!((least..=most).contains(&of_changed), "{from:?} to {to:?}: {of_changed} of 100 slices");
    }

    let (table, ids) = groups(2, 1_000_000, 100);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Fair);
    two_by_two(&mut scheduler, &ids);
    let mut now = 0;
    assert_eq!(order(&mut scheduler, 4, &mut now), [0, 1, 0, 1]);
    scheduler.set_policy(Box::new(Tas));
    let together = order(&mut scheduler, 20, &mut now);
    assert!(together.windows(2).filter(|pair| pair[0] == pair[1]).count() > 10, "{together:?}");
    scheduler.set(CoreSettings { slice: Duration::from_nanos(7 * SLICE), ..settings() });
    assert_eq!(scheduler.slice_ns(), 7 * SLICE);
    scheduler.set(CoreSettings { slice: Duration::ZERO, ..settings() });
    assert_eq!(scheduler.slice_ns(), 1);
    scheduler.set(CoreSettings { slice: Duration::MAX, sleeper_credit: Duration::MAX, ..settings() });
    assert_eq!(scheduler.slice_ns(), 3_600_000_000_000, "more than an hour counts as one");
}

/// TP1 and TP3: after `agg_limit` siblings the fiber with the highest priority is next.
#[test]
fn tas_runs_siblings_up_to_the_limit() {
    let (table, ids) = groups(2, 1_000_000, 3);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Tas);
    two_by_two(&mut scheduler, &ids);
    assert_eq!(order(&mut scheduler, 12, &mut 0), [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]);
}

/// TP2: a sibling whose vruntime is larger by more than `agg_bonus` is not preferred. The first two slices of a group
/// start at the smallest vruntime; after them both siblings are a slice ahead.
#[test]
fn tas_runs_siblings_up_to_the_bonus() {
    let (table, ids) = groups(2, SLICE - 1, 100);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Tas);
    two_by_two(&mut scheduler, &ids);
    assert_eq!(order(&mut scheduler, 8, &mut 0), [0, 0, 1, 1, 1, 1, 0, 0]);
}

/// IP4 and IP5: the master publishes while it aggregates. IP6.1 and IP6.3: the slave follows.
#[test]
fn a_slave_follows_its_master() {
    let (table, ids) = groups(2, 1_000_000, 3);
    let board = Arc::new(Board::new(2));
    let (mut master, mut slave) = (core(&table, &board, 0, Itas), core(&table, &board, 1, Itas));
    two_by_two(&mut master, &ids);
    two_by_two(&mut slave, &ids);
    let (mut at, mut slave_at) = (0, 0);
    assert_eq!(order(&mut master, 1, &mut at), [0]);
    assert_eq!(board.published(0), None, "a first choice is no aggregation");
    assert_eq!(order(&mut master, 1, &mut at), [0]);
    assert_eq!(board.published(0), Some(ids[0]));
    assert_eq!(order(&mut slave, 3, &mut slave_at), [0, 0, 0]);
    // The master switches to the other group; so does the slave at its next choice.
    assert_eq!(order(&mut master, 4, &mut at), [0, 0, 1, 1]);
    assert_eq!(board.published(0), Some(ids[1]));
    assert_eq!(order(&mut slave, 2, &mut slave_at), [1, 1]);
    // As a master the core aggregates on its own.
    assert!(board.set_role(1, Role::Master));
    assert_eq!(order(&mut slave, 2, &mut slave_at), [1, 1]);
    assert_eq!(board.published(1), Some(ids[1]));
}

/// IP6.1 sets `agg_count` to 0: under the paper's rules only the bonus bounds a slave.
#[test]
fn a_slave_is_bounded_unless_the_papers_rules_are_asked_for() {
    for (paper_slaves, followed) in [(false, 6..=6), (true, 30..=30)] {
        let (table, ids) = groups(2, 1_000_000_000, 4);
        let board = Arc::new(Board::new(2));
        let mut slave = core(&table, &board, 1, Itas);
        slave.set(CoreSettings { paper_slaves, ..settings() });
        two_by_two(&mut slave, &ids);
        board.publish(0, Some(ids[1]));
        let other = order(&mut slave, 30, &mut 0).into_iter().take_while(|group| *group == 1).count();
        assert!(followed.contains(&other), "{paper_slaves}: {other}");
    }
}

#[test]
fn a_slave_without_a_sibling_of_the_master_is_fair() {
    let (table, ids) = groups(3, 1_000_000, 0);
    let board = Arc::new(Board::new(2));
    let mut slave = core(&table, &board, 1, Itas);
    two_by_two(&mut slave, &ids);
    board.publish(0, Some(ids[2]));
    assert_eq!(order(&mut slave, 4, &mut 0), [0, 1, 0, 1]);
}

#[test]
fn weights_divide_the_time() {
    let table = Groups::new();
    let light = table.add("light", 1024, Aggregation::default()).unwrap();
    let heavy = table.add("heavy", 3072, Aggregation::default()).unwrap();
    let table = Arc::new(table);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Fair);
    scheduler.arrive(0, 0, light).unwrap();
    scheduler.arrive(0, 1, heavy).unwrap();
    let heavy = order(&mut scheduler, 400, &mut 0).into_iter().filter(|group| *group == 1).count();
    assert!((298..=302).contains(&heavy), "{heavy}");
}

#[test]
fn sleepers_come_back_at_most_the_credit_early() {
    let (table, ids) = groups(2, 0, 0);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Fair);
    scheduler.set(CoreSettings { sleeper_credit: Duration::from_nanos(3 * SLICE), ..settings() });
    scheduler.arrive(0, 0, ids[0]).unwrap();
    scheduler.arrive(0, 1, ids[1]).unwrap();
    let mut now = SLICE;
    assert_eq!(scheduler.pick(0), Some(0));
    scheduler.stop(now, Stops::Blocked);
    assert_eq!(order(&mut scheduler, 100, &mut now), [1; 100]);
    scheduler.wake(now, 0);
    // The smallest vruntime is that of the last choice, one slice lower.
    assert_eq!(order(&mut scheduler, 6, &mut now), [0, 0, 0, 0, 1, 0]);
}

/// The operating system preempts the thread after a fiber arrived on an idle core and before it is chosen.
#[test]
fn time_lost_before_the_first_choice_is_part_of_a_run() {
    let (table, ids) = groups(1, 0, 0);
    let mut scheduler = core(&table, &Arc::new(Board::new(1)), 0, Fair);
    assert_eq!(scheduler.pick(SLICE), None);
    for fiber in 0..2 {
        scheduler.arrive(2 * SLICE, fiber, ids[0]).unwrap();
    }
    order(&mut scheduler, 2, &mut (1000 * SLICE));
    assert!(scheduler.longest_wait_to_bound() <= 1.0, "{}", scheduler.longest_wait_to_bound());
    assert_eq!(scheduler.statistics().idle_ns, 2 * SLICE);
}

/// A policy that always chooses one group. The bound applies to it as well.
struct Greedy(GroupId);

impl Policy for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        let choice = view.queue().first_of(self.0).map(Choice::aggregate);
        choice.unwrap_or_else(|| Choice::highest(view))
    }
}

/// Behaviour of a fiber in a random load, selected by its number and the number of runs so far.
#[derive(Clone, Debug)]
struct FiberBehaviour {
    run: u64,
    overruns: bool,
    then: u8,
    pause: u64,
}

fn behaviour() -> impl Strategy<Value = FiberBehaviour> {
    (1u64..4 * SLICE, prop::bool::weighted(0.1), 0u8..8, 0u64..20 * SLICE)
        .prop_map(|(run, overruns, then, pause)| FiberBehaviour { run, overruns, then, pause })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 300 }))]

    /// Random arrivals, blocks, exits, weights, overruns, delays between runs, policies and parameters: no wait exceeds
    /// the bound.
    #[test]
    fn no_fiber_waits_beyond_the_bound(
        policy in 0u8..4,
        cores in 1usize..3,
        weights in prop::collection::vec(100u32..5000, 1..6),
        bonus in 0u64..40 * SLICE,
        limit in 0u32..20,
        credit in 0u64..8 * SLICE,
        paper_slaves: bool,
        behaviours in prop::collection::vec(behaviour(), 1..40),
        fibers in 1u32..24,
        delays in prop::collection::vec(0u64..200 * SLICE, 0..12),
    ) {
        let table = Groups::new();
        let aggregation = Aggregation { bonus: Duration::from_nanos(bonus), limit };
        let ids: Vec<GroupId> = weights.iter().map(|w| table.add("g", *w, aggregation).unwrap()).collect();
        let (table, board) = (Arc::new(table), Arc::new(Board::new(cores)));
        let schedulers = (0..cores).map(|number| {
            let policy: Box<dyn Policy> = match policy {
                0 => Box::new(Fair),
                1 => Box::new(Tas),
                2 => Box::new(Itas),
                _ => Box::new(Greedy(ids[0])),
            };
            let settings = CoreSettings { sleeper_credit: Duration::from_nanos(credit), paper_slaves, ..settings() };
            Scheduler::new(number, Arc::clone(&table), Arc::clone(&board), policy, settings)
        });
        let mut virtual_cores = VirtualCores::new(schedulers.collect());
        for fiber in 0..fibers {
            for core in 0..cores {
                let at = behaviours[fiber as usize % behaviours.len()].pause;
                virtual_cores.arrive(core, fiber, ids[fiber as usize % ids.len()], at);
            }
        }
        let mut runs = 0usize;
        let mut model = |_core: usize, fiber: u32, group: GroupId, slice: u64, _now: u64| {
            runs += 1;
            let behaviour = &behaviours[(runs * 7 + fiber as usize) % behaviours.len()];
            let ns = if behaviour.overruns { behaviour.run } else { behaviour.run.min(slice) };
            let after = match behaviour.then {
                0..=3 => After::GoesOn,
                4..=5 => After::Waits(behaviour.pause),
                6 => After::Ends(group, behaviour.pause),
                _ => After::Ends(ids[runs % ids.len()], 0),
            };
            Run { ns, after }
        };
        virtual_cores.run(1, &mut model).unwrap();
        for delay in delays {
            for core in 0..cores {
                virtual_cores.delay(core, delay);
            }
            virtual_cores.run(1 + delay % 50, &mut model).unwrap();
        }
        virtual_cores.run(3000, &mut model).unwrap();
        for core in 0..cores {
            let scheduler = virtual_cores.scheduler(core);
            let longest = Duration::from_nanos(scheduler.statistics().longest_wait_ns());
            prop_assert!(longest <= scheduler.wait_bound(), "{longest:?} > {:?}", scheduler.wait_bound());
        }
    }
}
