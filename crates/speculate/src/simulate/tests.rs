use proptest::prelude::*;

use super::*;

const NONE: SharedState = SharedState { eager_locks: false, log_at_once: false, statistics: false, last_page: false };

fn machine(cpus: usize) -> Machine {
    Machine { cpus, hop_ns: 10, fork_ns: 10, sub_epochs: (8, 1), forwarding: true, shared: NONE }
}

fn op(kind: OpKind, at_ns: u64, key: u64) -> TracedOp {
    TracedOp { at_ns, kind, keys: vec![key], group: 0 }
}

/// Creates an epoch with these operations, whose body takes 100 ns and whose commit takes 20 ns.
fn epoch(number: u64, operations: Vec<TracedOp>) -> EpochTrace {
    EpochTrace { number, operations, body_ns: 100, in_order_ns: 20 }
}

fn of(epochs: impl IntoIterator<Item = Vec<TracedOp>>) -> LoopTrace {
    let epochs = epochs.into_iter().enumerate().map(|(i, ops)| epoch(i as u64, ops)).collect();
    LoopTrace { epochs, ..LoopTrace::default() }
}

/// Checks that the times of all processors add up to the number of processors multiplied by the duration of the loop.
fn adds_up(sum: &Simulated, cpus: usize) {
    assert_eq!(sum.busy_ns + sum.failed_ns + sum.token_ns + sum.idle_ns, cpus as u64 * sum.total_ns, "{sum:?}");
}

#[test]
fn one_processor_does_one_after_the_other() {
    let trace = of((0..5).map(|_| vec![op(OpKind::Read, 0, 1), op(OpKind::Write, 90, 1)]));
    let sum = simulate(&trace, &machine(1));
    assert_eq!(sum, Simulated { total_ns: 5 * 120, busy_ns: 5 * 120, ..Simulated::default() });
}

#[test]
fn epochs_without_dependences_overlap() {
    let trace = of((0..4).map(|i| vec![op(OpKind::Write, 50, i)]));
    // Epoch 0 runs on processor 0 from 0 to 120. Epoch 1 runs on processor 1 from 10 to 110, gets the token at 130, and ends
    // at 150. Epoch 2 runs from 120 to 220, gets the token at 160, and ends at 240. Epoch 3 runs from 150 to 250, gets the
    // token at 250, and ends at 270; the token reaches processor 0 at 280.
    let sum = simulate(&trace, &machine(2));
    assert_eq!((sum.total_ns, sum.violations, sum.failed_ns), (280, 0, 0));
    assert_eq!(sum.token_ns, 20);
    adds_up(&sum, 2);
    assert!(simulate(&trace, &machine(4)).total_ns < sum.total_ns);
}

#[test]
fn a_read_too_early_is_rewound_to_the_checkpoint_before_it() {
    // Epoch 0 writes the key at time 80. Epoch 1 begins at time 10 and reads the key 75 after its start.
    let early = vec![op(OpKind::Write, 80, 7)];
    let late = |at| vec![op(OpKind::Read, 0, 1), op(OpKind::Read, at, 7), op(OpKind::Read, 95, 2)];
    let run = |sub_epochs, forwarding, at| {
        let trace = of([early.clone(), late(at)]);
        let sum = simulate(&trace, &Machine { sub_epochs, forwarding, ..machine(2) });
        adds_up(&sum, 2);
        (sum.violations, sum.failed_ns)
    };
    // The read at time 85 follows the write, and gets the forwarded value.
    assert_eq!(run((8, 1), true, 75), (0, 0));
    // The read at time 60 is too early; the epoch detects the write of time 80 at its next operation, at time 105.
    assert_eq!(run((8, 1), true, 50), (1, 45));
    assert_eq!(run((1, 1), true, 50), (1, 95));
    // Without forwarding the violation is detected at the confirmation: the body is complete at 110, and the epoch is
    // homefree at 130.
    assert_eq!(run((8, 1), false, 50), (1, 50));
    assert_eq!(run((1, 1), false, 50), (1, 100));
    assert_eq!(run((8, 1), false, 75), (1, 25));
}

#[test]
fn shared_state_makes_epochs_depend_on_each_other() {
    let trace = of((0..6).map(|i| (0..8).map(|n| op(OpKind::Write, 10 * n, 100 * i + n)).collect()));
    let free = simulate(&trace, &machine(4));
    assert_eq!(free.violations, 0);
    for shared in [
        SharedState { eager_locks: true, ..NONE },
        SharedState { log_at_once: true, ..NONE },
        SharedState { statistics: true, ..NONE },
        SharedState { last_page: true, ..NONE },
    ] {
        let sum = simulate(&trace, &Machine { shared, ..machine(4) });
        assert!(sum.violations > 0 && sum.total_ns > free.total_ns, "{shared:?}: {sum:?}");
        adds_up(&sum, 4);
    }
}

fn any_op() -> impl Strategy<Value = (bool, u64, u64)> {
    (any::<bool>(), 0..100_u64, 0..4_u64)
}

proptest! {
    #[test]
    fn no_loop_is_quicker_than_its_critical_path(
        epochs in proptest::collection::vec(proptest::collection::vec(any_op(), 0..8), 1..10),
        cpus in 1..5_usize,
        number in 1..9_usize,
        operations in 1..4_usize,
        forwarding: bool,
        statistics: bool,
    ) {
        let trace = of(epochs.into_iter().map(|mut ops| {
            ops.sort_by_key(|&(_, at, _)| at);
            let kind = |write| if write { OpKind::Write } else { OpKind::Read };
            ops.into_iter().map(|(write, at, key)| op(kind(write), at, key)).collect()
        }));
        let shared = SharedState { statistics, ..NONE };
        let machine = Machine { sub_epochs: (number, operations), forwarding, shared, ..machine(cpus) };
        let sum = simulate(&trace, &machine);
        let n = trace.epochs.len() as u64;
        prop_assert_eq!(sum.busy_ns, 120 * n);
        prop_assert!(sum.total_ns >= 100 + 20 * n);
        prop_assert!(sum.total_ns <= 120 * n + sum.failed_ns + 10 * (n + 2), "{:?}", sum);
        prop_assert_eq!(sum.busy_ns + sum.failed_ns + sum.token_ns + sum.idle_ns, cpus as u64 * sum.total_ns);
        if cpus == 1 {
            prop_assert_eq!(sum.violations, 0);
        }
        prop_assert_eq!(simulate(&trace, &machine), sum);
    }
}
