//! Random loops with random dependences have the same rows, results, errors and panics as sequential runs.
#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]

mod common;
mod loops;

use loops::{KEYS, ResultClosure, Step, compare};
use proptest::collection::vec;
use proptest::prelude::*;
use speculate::{Committer, Forwarding, Options, Waiting};

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    prop_oneof![
        6 => key.clone().prop_map(Step::Read),
        3 => Just(Step::Follow),
        5 => key.clone().prop_map(Step::Write),
        2 => Just(Step::Scatter),
        1 => key.clone().prop_map(Step::Delete),
        1 => (20u64..60).prop_map(Step::FailIf),
        1 => (20u64..60).prop_map(Step::PanicIf),
        1 => Just(Step::Escape),
        2 => (key.clone(), key.clone(), 0usize..14).prop_map(|(a, b, most)| Step::Range(a.min(b), a.max(b), most)),
        2 => (key.clone(), key.clone(), 0usize..14).prop_map(|(a, b, most)| Step::ChangeEach(a.min(b), a.max(b), most)),
        1 => key.clone().prop_map(Step::TakeFirst),
        1 => key.prop_map(Step::ReadUntilEven),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let sub_epochs = prop_oneof![Just((1, 1)), Just((8, 4)), Just((2, 3)), Just((usize::MAX, 1))];
    let violations = prop_oneof![2 => Just(0.0), 1 => Just(0.05), 1 => Just(0.5)];
    let how = prop_oneof![Just(Committer::Caller), Just(Committer::Owner)].prop_flat_map(|committer| {
        prop_oneof![Just(Forwarding::Always), Just(Forwarding::Never), Just(Forwarding::Adaptive)]
            .prop_map(move |forwarding| (committer, forwarding))
    });
    (1usize..5, 1usize..4, sub_epochs, violations, any::<u64>(), prop::bool::weighted(0.95), how).prop_map(
        |(workers, grain, (number, operations), violations, seed, speculate, (committer, forwarding))| {
            Options::new()
                .workers(workers)
                .grain(grain)
                .sub_epochs(number, operations)
                .inject_violations(violations, seed)
                .speculate(speculate)
                .committer(committer)
                .forwarding(forwarding)
                .waiting(if seed % 2 == 0 { Waiting::Listed } else { Waiting::Adaptive })
        },
    )
}

/// Number of loops: the variable `PROPTEST_CASES`, or 2,000.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_loop_does_what_it_does_sequentially(
        options in options(),
        taking in prop_oneof![Just(ResultClosure::Collects), Just(ResultClosure::Runs), Just(ResultClosure::Writes)],
        before in prop::collection::btree_map(0..KEYS, 0u64..1000, 0..12),
        items in vec(vec(step(), 0..20), 0..24),
        traces: bool,
        waits in prop_oneof![2 => Just(0), 1 => Just(u8::MAX), 1 => any::<u8>()],
    ) {
        compare(options, taking, &before, &items, traces, waits);
    }
}
