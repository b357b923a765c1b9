//! Tests: each hand-made anomaly is found, and its correct variant is not reported. Histories of a serial simulator pass,
//! and fail once a violation is inserted.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use storage::Isolation::{ReadCommitted, RepeatableRead, Serializable};

use super::super::{Op, Outcome, Txn};
use super::{Phenomenon, check};
use Op::{Append as A, List as L, Read as R, Write as W};

/// Creates transactions that all overlap, so that real time adds no order.
fn at_once(txns: Vec<(Outcome, Vec<Op>)>) -> Vec<Txn> {
    let txn = |(id, (outcome, ops)): (usize, (Outcome, Vec<Op>))| Txn {
        id: id as u64,
        session: id as u32,
        outcome,
        ops,
        start: 0,
        end: 1000,
    };
    txns.into_iter().enumerate().map(txn).collect()
}

fn ok(txns: Vec<Vec<Op>>) -> Vec<Txn> {
    at_once(txns.into_iter().map(|ops| (Outcome::Ok, ops)).collect())
}

#[track_caller]
fn found(txns: &[Txn], kind: Phenomenon) {
    let findings = check(txns, Serializable);
    assert!(findings.has(kind), "{kind} in {:?}", findings.anomalies);
    assert!(findings.forbidden(Serializable).count() > 0);
}

#[track_caller]
fn clean(txns: &[Txn]) {
    let findings = check(txns, Serializable);
    assert!(findings.anomalies.is_empty() && findings.undecided.is_none(), "{findings:?}");
}

/// Asserts that an anomaly of `kind` is found if `is` is true, and that no anomaly is found otherwise.
#[track_caller]
fn is(txns: &[Txn], kind: Phenomenon, is: bool) {
    if is { found(txns, kind) } else { clean(txns) }
}

#[test]
fn g0_in_lists() {
    for bad in [true, false] {
        let second = if bad { vec![4, 3] } else { vec![3, 4] };
        let reader = vec![L(1, vec![1, 2]), L(2, second)];
        is(&ok(vec![vec![A(1, 1), A(2, 3)], vec![A(1, 2), A(2, 4)], reader]), Phenomenon::G0, bad);
    }
}

#[test]
fn g0_in_registers() {
    for bad in [true, false] {
        let (a, b) = if bad { (8, 6) } else { (6, 8) };
        is(&ok(vec![vec![W(1, 2), W(2, a)], vec![W(1, 4), W(2, b)], vec![R(1, Some(4))]]), Phenomenon::G0, bad);
    }
}

#[test]
fn a_row_written_by_turns_is_g0() {
    let reader = vec![L(1, vec![1, 2, 3])];
    found(&ok(vec![vec![A(1, 1), A(1, 3)], vec![A(1, 2)], reader]), Phenomenon::G0);
}

#[test]
fn g1a() {
    for (outcome, bad) in [(Outcome::Fail, true), (Outcome::Ok, false), (Outcome::Info, false)] {
        let seen = |write: Op, read: Op| at_once(vec![(outcome, vec![write]), (Outcome::Ok, vec![read])]);
        is(&seen(A(1, 1), L(1, vec![1])), Phenomenon::G1a, bad);
        is(&seen(W(1, 2), R(1, Some(2))), Phenomenon::G1a, bad);
        is(&seen(W(1, 3), R(1, Some(3))), Phenomenon::G1a, bad);
    }
}

#[test]
fn an_aborted_number_below_others_is_g1a() {
    let txns =
        vec![(Outcome::Fail, vec![A(1, 1)]), (Outcome::Ok, vec![A(1, 2)]), (Outcome::Ok, vec![L(1, vec![1, 2])])];
    found(&at_once(txns), Phenomenon::G1a);
}

#[test]
fn g1b() {
    for bad in [true, false] {
        let list = if bad { vec![1] } else { vec![1, 2] };
        is(&ok(vec![vec![A(1, 1), A(1, 2)], vec![L(1, list)], vec![L(1, vec![1, 2])]]), Phenomenon::G1b, bad);
        let version = if bad { 2 } else { 5 };
        is(&ok(vec![vec![W(1, 2), W(1, 5)], vec![R(1, Some(version))]]), Phenomenon::G1b, bad);
    }
}

#[test]
fn g1c() {
    for bad in [true, false] {
        let list = if bad { vec![1] } else { vec![] };
        is(&ok(vec![vec![A(1, 1), L(2, vec![2])], vec![A(2, 2), L(1, list)]]), Phenomenon::G1c, bad);
        let version = bad.then_some(2);
        is(&ok(vec![vec![W(1, 2), R(2, Some(4))], vec![W(2, 4), R(1, version)]]), Phenomenon::G1c, bad);
    }
}

#[test]
fn lost_update() {
    for bad in [true, false] {
        let seen = if bad { 2 } else { 4 };
        let registers = vec![vec![W(1, 2)], vec![R(1, Some(2)), W(1, 4)], vec![R(1, Some(seen)), W(1, 6)]];
        is(&ok(registers), Phenomenon::LostUpdate, bad);
        let seen = if bad { vec![1] } else { vec![1, 2] };
        let lists =
            vec![vec![A(1, 1)], vec![L(1, vec![1]), A(1, 2)], vec![L(1, seen), A(1, 3)], vec![L(1, vec![1, 2, 3])]];
        is(&ok(lists), Phenomenon::LostUpdate, bad);
    }
}

#[test]
fn g_single() {
    for bad in [true, false] {
        let x = if bad { 2 } else { 6 };
        let reader = vec![R(1, Some(x)), R(2, Some(8))];
        is(&ok(vec![vec![W(1, 2), W(2, 4)], vec![W(1, 6), W(2, 8)], reader]), Phenomenon::GSingle, bad);
        let x = if bad { vec![1] } else { vec![1, 3] };
        let reader = vec![L(1, x), L(2, vec![2, 4])];
        let last = vec![L(1, vec![1, 3])];
        is(&ok(vec![vec![A(1, 1), A(2, 2)], vec![A(1, 3), A(2, 4)], reader, last]), Phenomenon::GSingle, bad);
    }
}

#[test]
fn a_row_that_changes_between_two_reads_is_g_single() {
    found(&ok(vec![vec![W(1, 2)], vec![W(1, 4)], vec![R(1, Some(2)), R(1, Some(4))]]), Phenomenon::GSingle);
}

#[test]
fn g2_item() {
    for bad in [true, false] {
        let y = if bad { 4 } else { 6 };
        let txns = vec![vec![W(1, 2), W(2, 4)], vec![R(1, Some(2)), W(2, 6)], vec![R(2, Some(y)), W(1, 8)]];
        is(&ok(txns), Phenomenon::G2Item, bad);
    }
}

#[test]
fn phantoms_are_told_from_items() {
    for bad in [true, false] {
        let y = if bad { None } else { Some(2) };
        let never = ok(vec![vec![R(1, None), W(2, 2)], vec![R(2, y), W(1, 4)]]);
        is(&never, Phenomenon::G2, bad);
        let y = if bad { 3 } else { 6 };
        let deleted = ok(vec![vec![W(1, 5), W(2, 3)], vec![R(1, Some(5)), W(2, 6)], vec![R(2, Some(y)), W(1, 8)]]);
        is(&deleted, Phenomenon::G2, bad);
        let y = if bad { vec![] } else { vec![2] };
        let reader = vec![L(1, vec![1]), L(2, vec![2])];
        is(&ok(vec![vec![L(1, vec![]), A(2, 2)], vec![L(2, y), A(1, 1)], reader]), Phenomenon::G2, bad);
    }
    let findings = check(&ok(vec![vec![R(1, None), W(2, 2)], vec![R(2, None), W(1, 4)]]), RepeatableRead);
    assert_eq!(findings.forbidden(RepeatableRead).count(), 0);
    assert!(findings.has(Phenomenon::G2));
}

#[test]
fn real_time() {
    let timed = |spans: &[(u64, u64)], ops: Vec<Vec<Op>>| {
        let mut txns = ok(ops);
        for (txn, span) in txns.iter_mut().zip(spans) {
            (txn.start, txn.end) = *span;
        }
        txns
    };
    for bad in [true, false] {
        // The order of versions contradicts real time.
        let (first, second) = if bad { (4, 2) } else { (2, 4) };
        let reader = vec![R(1, Some(4))];
        is(
            &timed(&[(0, 10), (11, 20), (5, 30)], vec![vec![W(1, first)], vec![W(1, second)], reader]),
            Phenomenon::RealTime,
            bad,
        );
        // If `bad`, the reader sees the later of two writes, but not the earlier one.
        let x = if bad { None } else { Some(2) };
        let reader = vec![R(1, x), R(2, Some(4))];
        is(
            &timed(&[(0, 10), (20, 30), (5, 99)], vec![vec![W(1, 2)], vec![W(2, 4)], reader]),
            Phenomenon::RealTime,
            bad,
        );
        // Events at the same moment have no order.
        let end = if bad { 19 } else { 20 };
        let reader = vec![R(1, None), R(2, Some(4))];
        is(
            &timed(&[(0, end), (20, 30), (5, 99)], vec![vec![W(1, 2)], vec![W(2, 4)], reader]),
            Phenomenon::RealTime,
            bad,
        );
    }
    let backwards = timed(&[(0, 10), (20, 30)], vec![vec![W(1, 4)], vec![W(1, 2)]]);
    assert!(!check(&backwards, ReadCommitted).has(Phenomenon::RealTime));
}

#[test]
fn lost_writes() {
    for bad in [true, false] {
        let mut txns = ok(vec![vec![W(1, 2)], vec![R(1, if bad { None } else { Some(2) })]]);
        (txns[0].end, txns[1].start) = (5, 6);
        is(&txns, Phenomenon::LostWrite, bad);
        let mut txns = ok(vec![vec![A(1, 1)], vec![A(1, 2)], vec![L(1, if bad { vec![2] } else { vec![1, 2] })]]);
        (txns[0].end, txns[2].start) = (5, 6);
        is(&txns, Phenomenon::LostWrite, bad);
    }
}

#[test]
fn impossible_duplicate_incompatible_and_internal() {
    found(&ok(vec![vec![A(1, 1)], vec![L(1, vec![7])]]), Phenomenon::Impossible);
    found(&ok(vec![vec![W(1, 2)], vec![R(1, Some(4))]]), Phenomenon::Impossible);
    found(&ok(vec![vec![W(2, 2)], vec![R(1, Some(2))]]), Phenomenon::Impossible);
    found(&ok(vec![vec![A(1, 1)], vec![L(1, vec![1, 1])]]), Phenomenon::Duplicate);
    found(&ok(vec![vec![W(1, 2)], vec![W(1, 2)], vec![R(1, Some(2))]]), Phenomenon::Duplicate);
    found(
        &ok(vec![vec![A(1, 1)], vec![A(1, 2)], vec![L(1, vec![1])], vec![L(1, vec![2])]]),
        Phenomenon::IncompatibleOrder,
    );
    for bad in [true, false] {
        is(&ok(vec![vec![A(1, 1), L(1, if bad { vec![] } else { vec![1] })]]), Phenomenon::Internal, bad);
        is(&ok(vec![vec![W(1, 2), R(1, if bad { None } else { Some(2) })]]), Phenomenon::Internal, bad);
        let (first, again) = (vec![1, 2], if bad { vec![2] } else { vec![1, 2] });
        is(&ok(vec![vec![A(1, 1)], vec![A(1, 2), L(1, first), L(1, again)]]), Phenomenon::Internal, bad);
    }
}

#[test]
fn levels_forbid_ever_less() {
    for kind in Phenomenon::ALL {
        assert!(kind.is_forbidden(Serializable));
        assert!(kind.is_forbidden(RepeatableRead) || !kind.is_forbidden(ReadCommitted), "{kind}");
    }
    for kind in [Phenomenon::G0, Phenomenon::G1a, Phenomenon::G1b, Phenomenon::G1c] {
        assert!(kind.is_forbidden(ReadCommitted));
    }
    for kind in [Phenomenon::LostUpdate, Phenomenon::GSingle, Phenomenon::G2Item] {
        assert!(kind.is_forbidden(RepeatableRead) && !kind.is_forbidden(ReadCommitted));
    }
    assert!(!Phenomenon::G2.is_forbidden(RepeatableRead));
}

#[test]
fn what_proves_nothing_is_undecided() {
    assert!(check(&[], Serializable).undecided.is_some());
    assert!(check(&at_once(vec![(Outcome::Fail, vec![A(1, 1)])]), Serializable).undecided.is_some());
    assert!(check(&ok(vec![vec![A(1, 1)], vec![A(1, 2)]]), Serializable).undecided.is_some());
}

/// Random transaction for the simulator: pairs of row and operation (0 read, 1 write, 2 delete), true to abort, and the time
/// from its begin to its execution and from its execution to its end.
type Sketch = (Vec<(u64, u8)>, bool, u64, u64);

fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    let ops = prop::collection::vec((0u64..5, 0u8..3), 1..6);
    prop::collection::vec((ops, prop::bool::weighted(0.2), 0u64..60, 0u64..60), 2..60)
}

/// Executes the sketched transactions one after the other on maps. The resulting history is correct at every isolation
/// level. Adds a last transaction that reads every row.
fn simulate(sketches: &[Sketch], lists: bool) -> Vec<Txn> {
    let mut list: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut register: BTreeMap<u64, u64> = BTreeMap::new();
    let mut next = 1;
    let all = ((0..5).map(|row| (row, 0)).collect(), false, 0, 0);
    let mut txns = Vec::new();
    for (i, (ops, abort, before, after)) in sketches.iter().chain([&all]).enumerate() {
        let (list_before, register_before) = (list.clone(), register.clone());
        let mut done = Vec::new();
        for (row, what) in ops {
            next += 1;
            done.push(match (lists, what) {
                (true, 0) => L(*row, list.get(row).cloned().unwrap_or_default()),
                (true, _) => {
                    list.entry(*row).or_default().push(next);
                    A(*row, next)
                }
                (false, 0) => R(*row, register.get(row).copied()),
                (false, what) => {
                    let version = 2 * next + u64::from(*what == 2);
                    register.insert(*row, version);
                    W(*row, version)
                }
            });
        }
        if *abort {
            (list, register) = (list_before, register_before);
        }
        let moment = 100 + 10 * i as u64;
        let outcome = if *abort { Outcome::Fail } else { Outcome::Ok };
        let (start, end) = (moment - before, moment + 1 + after);
        txns.push(Txn { id: i as u64, session: i as u32, outcome, ops: done, start, end });
    }
    txns
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn serial_histories_pass(sketches in sketches(), lists: bool, turn in 0usize..60) {
        let mut txns = simulate(&sketches, lists);
        let n = txns.len();
        txns.rotate_left(turn % n);
        let findings = check(&txns, Serializable);
        prop_assert!(findings.anomalies.is_empty(), "{:?}", findings.anomalies);
    }

    /// Without overlap of transactions, each read has exactly one correct result.
    #[test]
    fn one_wrong_read_is_found(sketches in sketches(), lists: bool, which: prop::sample::Index) {
        let apart: Vec<Sketch> = sketches.into_iter().map(|(ops, abort, ..)| (ops, abort, 0, 0)).collect();
        let mut txns = simulate(&apart, lists);
        prop_assume!(check(&txns, Serializable).undecided.is_none());
        let written: Vec<(u64, u64)> = txns
            .iter()
            .flat_map(|t| t.ops.iter().filter_map(|op| match op { W(row, v) => Some((*row, *v)), _ => None }))
            .collect();
        let longest: Vec<Vec<u64>> = match txns.last() {
            Some(last) => last.ops.iter().map(|op| match op { L(_, list) => list.clone(), _ => Vec::new() }).collect(),
            None => Vec::new(),
        };
        // All possible wrong results of all reads.
        let mut wrong: Vec<(usize, usize, Op)> = Vec::new();
        let committed = txns.iter().enumerate().filter(|(_, t)| t.outcome == Outcome::Ok);
        for (i, j, op) in committed.flat_map(|(i, t)| t.ops.iter().enumerate().map(move |(j, op)| (i, j, op))) {
            match op {
                L(row, list) => {
                    let prefixes = (0..=longest[*row as usize].len()).map(|n| longest[*row as usize][..n].to_vec());
                    // The last read defines the final length of the list.
                    let is_last = i + 1 == txns.len();
                    wrong.extend(prefixes.filter(|p| p != list && !is_last).map(|p| (i, j, L(*row, p))));
                }
                R(row, version) => {
                    let others = written.iter().filter(|(r, v)| r == row && Some(*v) != *version);
                    wrong.extend(others.map(|(row, v)| (i, j, R(*row, Some(*v)))));
                    if version.is_some() {
                        wrong.push((i, j, R(*row, None)));
                    }
                }
                A(..) | W(..) => {}
            }
        }
        prop_assume!(!wrong.is_empty());
        let (i, j, op) = which.get(&wrong).clone();
        let before = std::mem::replace(&mut txns[i].ops[j], op);
        let findings = check(&txns, Serializable);
        prop_assert!(!findings.anomalies.is_empty(), "{} read {:?} instead of {before:?}", i, txns[i].ops[j]);
    }
}
