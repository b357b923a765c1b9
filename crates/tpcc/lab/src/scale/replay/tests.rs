use std::collections::BTreeMap;

use super::*;
use crate::footprint::holds::RecordLock;
use crate::footprint::operand::AccessKind::{Atomic, Read, Write};
use crate::scale::recording::{LineClass, ScaleTransaction, Step};

const MODEL: ScaleModel = ScaleModel {
    machine: CoreModel {
        cores: 2,
        node: 256,
        instruction_ns: 1.0,
        near_ns: 100.0,
        upgrade_ns: 100.0,
        cold_ns: 0.0,
        hold_ns: 0.0,
        far: 1.0,
    },
    wake_ns: 0.0,
};

/// Classes of lines in these tests.
const PAGE: u16 = 0;
const HEADS: u16 = 1;
const TAIL: u16 = 2;

/// Size of a frame in these tests.
const FRAME: u64 = 1 << 12;

fn step(class: u16, address: u64, operation: AccessKind, instructions_before: u32, effect: Effect) -> Step {
    Step { address, class, operation, instructions_before, effect }
}

/// Steps that take the latch of a frame for 500 instructions.
fn latched(frame: u64) -> Vec<Step> {
    let address = frame * FRAME;
    vec![
        step(PAGE, address, Atomic, 10, Effect::TakeLatch { begin: None }),
        step(PAGE, address + 256, Write, 400, Effect::None),
        step(PAGE, address, Write, 100, Effect::ReleaseLatch),
    ]
}

/// Steps that lock these groups one after the other, 500 instructions apart, and release them after 2,000 more. The bucket of a
/// lock has its number in a line of its own.
fn locked(groups: &[u32]) -> (Vec<Step>, Vec<Vec<RecordLock>>) {
    let bucket = |lock: u32| (1 << 40) + 64 * u64::from(lock);
    let lock =
        |lock: &u32| vec![RecordLock { table: 1, name: u64::from(*lock), bucket: bucket(*lock), is_exclusive: true }];
    let begin = |(n, lock): (usize, &u32)| step(HEADS, bucket(*lock), Atomic, 500, Effect::Lock { group: n as u32 });
    let end = |(n, lock): (usize, &u32)| step(HEADS, bucket(*lock), Atomic, 1, Effect::Unlock { group: n as u32 });
    let mut steps: Vec<Step> = groups.iter().enumerate().map(begin).collect();
    steps.push(step(HEADS, 1 << 41, Read, 2_000, Effect::None));
    steps.extend(groups.iter().enumerate().map(end));
    (steps, groups.iter().map(lock).collect())
}

/// Returns a recording in which each home has 20 equal transactions.
fn recording(homes: &[(Vec<Step>, Vec<Vec<RecordLock>>)]) -> ScaleRecording {
    let class = |kind: &str, table: Option<&str>| LineClass {
        kind: kind.to_owned(),
        table: table.map(str::to_owned),
        is_private: false,
    };
    let transaction = |home: usize| {
        let (steps, locks) = homes[home].clone();
        ScaleTransaction { home, steps, instructions_after: 100, locks }
    };
    ScaleRecording {
        classes: vec![class("page latch", Some("rows")), class("lock heads", None), class("log tail", None)],
        transactions: (0..homes.len()).flat_map(|home| (0..20).map(move |_| transaction(home))).collect(),
        tables: BTreeMap::from([(1, "rows".to_owned())]),
        frames: (0, FRAME, 1 << 20),
    }
}

fn on(recording: &ScaleRecording, cores: usize, assignment: TerminalAssignment, after_splits: bool) -> ScaleResult {
    let model = ScaleModel { machine: CoreModel { cores, ..MODEL.machine }, ..MODEL };
    let plan = ReplayPlan { assignment, after_splits, passes: 3 };
    replay(recording, &Usage::of(recording), model, plan).unwrap()
}

fn by_home(recording: &ScaleRecording, cores: usize) -> ScaleResult {
    on(recording, cores, TerminalAssignment::ByHome, false)
}

#[test]
fn without_sharing_cores_add_up() {
    let homes: Vec<_> = (0..4).map(|home| (latched(home), Vec::new())).collect();
    let recording = recording(&homes);
    let one = by_home(&recording, 1);
    // 610 instructions of 1 ns.
    assert!((one.per_second / (1e9 / 610.0) - 1.0).abs() < 1e-5, "{}", one.per_second);
    for cores in [2, 4, 8, 256] {
        let many = by_home(&recording, cores);
        assert!((many.per_second / (cores as f64 * one.per_second) - 1.0).abs() < 1e-5, "{cores}: {}", many.per_second);
        assert_eq!(many.lost_ns(&recording), 0.0);
    }
}

#[test]
fn a_latch_excludes_other_cores() {
    let recording = recording(&[(latched(0), Vec::new()), (latched(0), Vec::new())]);
    let (one, two) = (by_home(&recording, 1), by_home(&recording, 2));
    // The latch is held for 500 ns of each transaction and changes hands: two cores together do less than its serial rate.
    assert!(two.per_second < 1e9 / 500.0, "{}", two.per_second);
    assert!(two.per_second < 1.1 * one.per_second);
    assert!(two.latch_wait_ns[usize::from(PAGE)] > 100.0, "{two:?}");
}

#[test]
fn splits_give_homes_pages_of_their_own() {
    let mut other = latched(0);
    other[1].address += 512;
    let different_rows = recording(&[(latched(0), Vec::new()), (other, Vec::new())]);
    let before = on(&different_rows, 2, TerminalAssignment::ByHome, false);
    let after = on(&different_rows, 2, TerminalAssignment::ByHome, true);
    assert!(before.lost_ns(&different_rows) > 100.0 && after.lost_ns(&different_rows) == 0.0);
    let same_row = recording(&[(latched(0), Vec::new()), (latched(0), Vec::new())]);
    let after = on(&same_row, 2, TerminalAssignment::ByHome, true);
    assert!(after.lost_ns(&same_row) > 100.0, "writers of one row cannot be separated");
}

#[test]
fn a_section_runs_again_if_its_page_has_changed() {
    let reader = vec![
        step(PAGE, 0, Read, 10, Effect::ReadLatch { begin: 0 }),
        step(PAGE, 0, Read, 2_000, Effect::ReadLatch { begin: 0 }),
    ];
    let mut writer = latched(0);
    writer[0].instructions_before = 5_000;
    let recording = recording(&[(writer, Vec::new()), (reader, Vec::new())]);
    let two = by_home(&recording, 2);
    assert!(two.again > 0.0 && two.again_ns[usize::from(PAGE)] >= 2_000.0 * two.again * 0.99, "{two:?}");
}

#[test]
fn a_failed_attempt_takes_the_line_before_splits_alone() {
    let section = vec![
        step(PAGE, 0, Read, 10, Effect::ReadLatch { begin: 0 }),
        step(PAGE, 0, Atomic, 300, Effect::TakeLatch { begin: Some(0) }),
        step(PAGE, 256, Write, 400, Effect::None),
        step(PAGE, 0, Write, 100, Effect::ReleaseLatch),
    ];
    // All homes write one row, so that no split separates them.
    let recording = recording(&vec![(section, Vec::new()); 8]);
    let result = |after| on(&recording, 8, TerminalAssignment::ByHome, after).lines[usize::from(PAGE)];
    let (before, after) = (result(false), result(true));
    assert!(before.invalidations > after.invalidations, "{before:?} {after:?}");
}

#[test]
fn a_lock_is_held_to_the_commit() {
    let recording = recording(&[locked(&[1]), locked(&[1])]);
    let (one, two) = (by_home(&recording, 1), by_home(&recording, 2));
    // The lock is held for 2,001 of 2,601 instructions.
    assert!(two.per_second < 1e9 / 2_001.0 && two.per_second > one.per_second, "{}", two.per_second);
    assert!(two.lock_waits > 0.9 && two.lock_wait_ns[&1] > 1_000.0, "{two:?}");
    assert_eq!(two.aborts, 0.0);
}

#[test]
fn shared_locks_do_not_wait() {
    let (steps, mut locks) = locked(&[1]);
    locks[0][0].is_exclusive = false;
    let recording = recording(&[(steps.clone(), locks.clone()), (steps, locks)]);
    let two = by_home(&recording, 2);
    assert_eq!((two.lock_waits, two.lock_wait_ns.len()), (0.0, 0));
    assert!(two.lines[usize::from(HEADS)].transfers() > 0.0, "the word moves all the same");
}

#[test]
fn a_deadlock_aborts_the_youngest_and_both_finish() {
    // When a transaction ends, its two locks go to two transactions that want both in different orders.
    let ways = |one: &[u32], other: &[u32]| recording(&[locked(one), locked(other), locked(one), locked(other)]);
    let crossed = by_home(&ways(&[1, 2], &[2, 1]), 4);
    assert!(crossed.aborts > 0.05 && crossed.abort_ns > 0.0, "{crossed:?}");
    assert!(crossed.per_second > 1e9 / 6_000.0, "all make progress: {}", crossed.per_second);
    assert_eq!(by_home(&ways(&[1, 2], &[1, 2]), 4).aborts, 0.0);
}

#[test]
fn a_word_that_all_cores_change_has_its_serial_rate() {
    let word = |_| (vec![step(TAIL, 1 << 42, Atomic, 1_000, Effect::Reserve { bytes: 64 })], Vec::new());
    let homes: Vec<_> = (0..4).map(word).collect();
    let recording = recording(&homes);
    // A change takes half a transfer of 100 ns after the one before.
    let serial = 1e9 / 50.0;
    for cores in [64, 256] {
        let many = by_home(&recording, cores);
        assert!((0.9..1.05).contains(&(many.per_second / serial)), "{cores}: {}", many.per_second / serial);
        assert_eq!(many.log_bytes, 64.0);
    }
    let few = by_home(&recording, 4);
    assert!(few.per_second > 0.9 * 4e9 / 1_200.0, "{}", few.per_second);
}

#[test]
fn an_atomic_change_waits_for_earlier_writes() {
    let writer = |own: u64| {
        let steps = vec![
            step(PAGE, FRAME + 64, Write, 100, Effect::None),
            step(TAIL, (1 << 42) + 64 * own, Atomic, 1, Effect::None),
        ];
        (steps, Vec::new())
    };
    let recording = recording(&[writer(0), writer(1)]);
    let two = by_home(&recording, 2);
    assert!(two.lines[usize::from(PAGE)].wait_ns == 0.0, "the atomic changes concern no other core: they are left out");
    let many = on(&recording, 2, TerminalAssignment::Spread { terminals: 2 }, false);
    assert!(many.lines[usize::from(PAGE)].wait_ns > 10.0, "{many:?}");
}

#[test]
fn a_core_with_fibers_runs_another_one_while_a_fiber_waits() {
    let homes: Vec<_> = (0..8).map(|home| locked(&[home])).collect();
    let recording = recording(&homes);
    let slow = ScaleModel { machine: CoreModel { cores: 8, ..MODEL.machine }, wake_ns: 20_000.0 };
    let rate = |assignment| {
        let plan = ReplayPlan { assignment, after_splits: false, passes: 3 };
        replay(&recording, &Usage::of(&recording), slow, plan).unwrap().per_second
    };
    let threads = rate(TerminalAssignment::Spread { terminals: 8 });
    let fibers = rate(TerminalAssignment::Itas { terminals: 8, slice_ns: 5_000.0 });
    assert!(fibers > 1.1 * threads, "{fibers} {threads}");
}
