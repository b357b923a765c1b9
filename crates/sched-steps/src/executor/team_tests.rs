use std::cell::{Cell, RefCell};

use crate::point::is_live;
use crate::team::*;
use crate::{Executor, fiber};

fn operations(names: &[&str]) -> (Operations, Vec<OperationId>) {
    let mut operations = Operations::new();
    let ids = names.iter().map(|name| operations.add(name, "").unwrap()).collect();
    (operations, ids)
}

#[test]
fn members_of_a_team_go_through_it_together_and_others_wait() {
    let (operations, ids) = operations(&["a", "b"]);
    let log = RefCell::new(Vec::new());
    let mut steps =
        Executor::builder().fibers(4).operations(operations).membership(Membership::PerOperation).for_test();
    steps
        .scope(|s| {
            for fiber in 0..4_usize {
                let (log, ids) = (&log, &ids);
                s.spawn(move || {
                    for round in 0..2_usize {
                        begin_operation(ids[(fiber + round) % 2]);
                        for step in 0..2 {
                            log.borrow_mut().push((ids[(fiber + round) % 2].index(), step, fiber));
                            fiber::hop();
                        }
                    }
                });
            }
        })
        .unwrap();
    let log = log.into_inner();
    // The last fiber to arrive began b, then the last fiber of b began a. The fibers that had begun a meanwhile join
    // the next team of a.
    // team.
    assert_eq!(log[..4], [(1, 0, 1), (1, 0, 3), (1, 1, 1), (1, 1, 3)]);
    assert_eq!(log[4..8].iter().map(|entry| entry.2).collect::<Vec<_>>(), [0, 2, 1, 3]);
    let statistics = steps.statistics();
    assert_eq!((statistics.operations[0].begun, statistics.operations[1].begun), (4, 4));
    assert_eq!(statistics.operations[0].mean_in, 4.0);
    assert_eq!(statistics.operations[0].mean_out, 4.0);
}

#[test]
fn a_part_has_points_of_its_own_until_the_next_operation() {
    let (operations, ids) = operations(&["whole", "part", "next"]);
    assert_eq!((current_operation(), current_part()), (None, None), "outside of a fiber");
    let mut steps =
        Executor::builder().fibers(2).operations(operations).membership(Membership::PerOperation).for_test();
    let [whole, part, next] = ids[..] else { unreachable!() };
    steps
        .scope(|s| {
            for _ in 0..2 {
                s.spawn(move || {
                    assert_eq!((current_operation(), current_part()), (None, None));
                    begin_operation(whole);
                    assert_eq!((current_operation(), current_part()), (Some(whole), Some(whole)));
                    go_on_as(part);
                    assert_eq!((current_operation(), current_part()), (Some(whole), Some(part)));
                    assert!(is_live(part.bit()) && !is_live(whole.bit()));
                    fiber::hop();
                    begin_operation(next);
                    assert_eq!((current_operation(), current_part()), (Some(next), Some(next)));
                    assert!(is_live(next.bit()) && !is_live(part.bit()));
                    fiber::hop();
                    end_operation();
                    assert_eq!((current_operation(), current_part()), (None, None));
                });
            }
        })
        .unwrap();
    let statistics = steps.statistics();
    assert_eq!((statistics.operations[0].begun, statistics.operations[0].mean_out), (2, 2.0));
    assert_eq!(statistics.operations[1].begun, 0, "a part is no operation");
}

#[test]
fn strays_leave_and_rejoin_at_the_next_operation() {
    let (operations, ids) = operations(&["a", "b"]);
    let woken = Cell::new(None);
    let mut steps =
        Executor::builder().fibers(3).operations(operations).membership(Membership::PerOperation).for_test();
    steps
        .scope(|s| {
            let (woken, ids) = (&woken, &ids);
            s.spawn(move || {
                begin_operation(ids[0]);
                woken.set(fiber::waker());
                assert!(fiber::may_hop());
                fiber::park();
                assert!(!fiber::may_hop(), "a stray has no mates");
                begin_operation(ids[1]);
                assert!(fiber::may_hop(), "it has joined the others");
                fiber::hop();
            });
            for _ in 0..2 {
                s.spawn(move || {
                    begin_operation(ids[0]);
                    if let Some(waker) = woken.take() {
                        waker.wake();
                    }
                    fiber::hop();
                    begin_operation(ids[1]);
                    fiber::hop();
                });
            }
        })
        .unwrap();
    let first = &steps.statistics().operations[0];
    assert_eq!((first.strays, first.waits, first.mean_in, first.mean_out), (1, 1, 3.0, 2.0));
    assert_eq!(steps.statistics().operations[1].mean_out, 3.0);
}

#[test]
fn a_team_has_at_most_its_size() {
    let (operations, ids) = operations(&["a"]);
    let inside = Cell::new(0_u32);
    let most = Cell::new(0);
    let mut steps = Executor::builder()
        .fibers(10)
        .team_size(4)
        .operations(operations)
        .membership(Membership::PerOperation)
        .for_test();
    steps
        .scope(|s| {
            for _ in 0..10 {
                let (ids, inside, most) = (&ids, &inside, &most);
                s.spawn(move || {
                    for _ in 0..5 {
                        operation(ids[0], || {
                            inside.set(inside.get() + 1);
                            most.set(most.get().max(inside.get()));
                            fiber::hop();
                            inside.set(inside.get() - 1);
                        });
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(most.get(), 4);
}

/// Policy that does not launch operation 0 while another team waits.
struct Unfair;
impl NextTeam for Unfair {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        waiting.iter().last().unwrap().operation
    }
}

#[test]
fn no_team_starves() {
    let (operations, ids) = operations(&["starved", "greedy"]);
    let patience = 10;
    let done = Cell::new(false);
    let mut steps = Executor::builder()
        .fibers(3)
        .team_size(1)
        .operations(operations)
        .membership(Membership::PerOperation)
        .policy(Unfair)
        .patience(patience)
        .for_test();
    steps
        .scope(|s| {
            let (ids, done) = (&ids, &done);
            for _ in 0..2 {
                s.spawn(move || {
                    while !done.get() {
                        begin_operation(ids[1]);
                    }
                });
            }
            s.spawn(move || {
                for _ in 0..20 {
                    begin_operation(ids[0]);
                }
                done.set(true);
            });
        })
        .unwrap();
    let statistics = steps.statistics();
    assert!(statistics.overdue >= 20, "{statistics:?}");
    assert!(statistics.longest_wait <= patience + 64, "{statistics:?}");
    assert!(statistics.longest_wait > patience, "the policy was not even unfair: {statistics:?}");
}

#[test]
fn fibers_outside_of_teams_do_not_starve_them_nor_they_those() {
    let (operations, ids) = operations(&["a"]);
    let (rounds, done) = (Cell::new(0), Cell::new(false));
    let mut steps =
        Executor::builder().fibers(3).operations(operations).membership(Membership::PerOperation).for_test();
    steps
        .scope(|s| {
            let (ids, rounds, done) = (&ids, &rounds, &done);
            s.spawn(move || {
                while !done.get() {
                    rounds.set(rounds.get() + 1);
                    fiber::yield_now();
                }
            });
            for _ in 0..2 {
                s.spawn(move || {
                    for _ in 0..100 {
                        begin_operation(ids[0]);
                        fiber::hop();
                    }
                    done.set(true);
                });
            }
        })
        .unwrap();
    assert!((90..=220).contains(&rounds.get()), "{}", rounds.get());
}

/// Returns the operations in the order in which their teams ran, after fibers have arrived for the operations 0, 1, 1,
/// 1, 2.
fn order(policy: impl NextTeam + 'static) -> Vec<usize> {
    let (operations, ids) = operations(&["old", "large", "last"]);
    let log = RefCell::new(Vec::new());
    let mut steps = Executor::builder()
        .fibers(5)
        .operations(operations)
        .membership(Membership::PerOperation)
        .policy(policy)
        .patience(100)
        .for_test();
    steps
        .scope(|s| {
            for wanted in [0, 1, 1, 1, 2] {
                let (ids, log) = (&ids, &log);
                s.spawn(move || {
                    begin_operation(ids[wanted]);
                    log.borrow_mut().push(wanted);
                    fiber::hop();
                });
            }
        })
        .unwrap();
    let mut log = log.into_inner();
    log.dedup();
    log
}

/// Policy that tries to run other fibers, and then panics.
struct PanickingPolicy(u32);
impl NextTeam for PanickingPolicy {
    fn next(&mut self, waiting: &WaitingTeams<'_>) -> OperationId {
        assert!(!fiber::is_fiber());
        fiber::yield_now();
        begin_operation(waiting.iter().last().unwrap().operation);
        self.0 += 1;
        assert!(self.0 < 3, "the policy is broken");
        waiting.iter().last().unwrap().operation
    }
}

#[test]
fn a_policy_that_panics_is_told_by_the_scope_when_all_fibers_have_ended() {
    let (operations, ids) = operations(&["a", "b"]);
    let ended = Cell::new(0);
    struct CountOnDrop<'a>(&'a Cell<u32>);
    impl Drop for CountOnDrop<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let mut steps = Executor::builder()
        .fibers(4)
        .operations(operations)
        .membership(Membership::PerOperation)
        .policy(PanickingPolicy(0))
        .for_test();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        steps.scope(|s| {
            for fiber in 0..4_usize {
                let (ids, ended) = (&ids, &ended);
                s.spawn(move || {
                    let _count = CountOnDrop(ended);
                    for round in 0..4_usize {
                        begin_operation(ids[(fiber + round) % 2]);
                        fiber::hop();
                    }
                });
            }
        })
    }));
    let payload = result.unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"the policy is broken"));
    assert_eq!(ended.get(), 4);
}

#[test]
fn policies_choose_as_they_say() {
    // At first all teams wait equally long; later team 0 has waited longest, or as long as another team.
    assert_eq!(order(LastInterest)[0], 2);
    assert_eq!(order(LargestFirst)[0], 1);
    // Of equally old teams the larger runs first: team 1. Then, of the equally old and equally large teams 0 and 2, the
    // team with the higher number.
    assert_eq!(order(OldestFirst), [1, 2, 0]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn small_teams_of_a_family_are_consolidated() {
    let mut operations = Operations::new();
    let ids: Vec<_> = (0..8).map(|table| operations.add("fetch", &format!("t{table}")).unwrap()).collect();
    let other = operations.add("commit", "").unwrap();
    let mut steps = Executor::builder()
        .fibers(8)
        .operations(operations)
        .membership(Membership::PerOperation)
        .consolidate_below(3.0)
        .for_test();
    let sizes = RefCell::new(Vec::new());
    steps
        .scope(|s| {
            for fiber in 0..8_usize {
                let (ids, sizes) = (&ids, &sizes);
                s.spawn(move || {
                    for round in 0..400 {
                        begin_operation(ids[fiber]);
                        if round > 300 {
                            sizes.borrow_mut().push(fiber::may_hop());
                        }
                        begin_operation(other);
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(steps.statistics().consolidated, 8);
    let sizes = sizes.into_inner();
    let together = sizes.iter().filter(|hops| **hops).count();
    assert!(together * 2 > sizes.len(), "{together} of {}", sizes.len());
}

#[test]
fn a_ring_counts_operations_without_forming_teams() {
    let (operations, ids) = operations(&["a", "b"]);
    let mut steps = Executor::builder().fibers(6).team_size(3).operations(operations).for_test();
    steps
        .scope(|s| {
            for fiber in 0..6_usize {
                let ids = &ids;
                s.spawn(move || {
                    for _ in 0..10 {
                        begin_operation(ids[fiber % 2]);
                        fiber::hop();
                        end_operation();
                        fiber::yield_now();
                    }
                });
            }
        })
        .unwrap();
    let statistics = steps.statistics();
    assert_eq!(statistics.operations[0].begun + statistics.operations[1].begun, 60);
    assert!(statistics.operations[0].mean_in > 2.0 && statistics.operations[0].mean_in <= 3.0, "{statistics:?}");
    assert_eq!(statistics.operations[0].strays, 0);
}

#[test]
fn more_than_64_operations_are_refused() {
    let mut operations = Operations::new();
    for i in 0..64 {
        operations.add("op", &i.to_string()).unwrap();
    }
    assert_eq!(operations.add("op", "3").unwrap().index(), 3);
    assert_eq!(operations.add("op", "64").unwrap_err().name, "op 64");
}
