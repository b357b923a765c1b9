//! Two threads that write beside each other, against one thread that does the same work: the operations of
//! `cargo xtask contention`. The time is that of one transaction, or of one operation of all threads together.

use std::time::Duration;

use benches::contention::{Contention, Placement};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use storage::TxnError;

/// Duration of one measurement of transactions per second.
const TIME: Duration = Duration::from_millis(50);

/// Returns the duration of `iterations` transactions at the rate that `measure` finds.
fn at_rate(iterations: u64, measure: impl FnOnce() -> Result<f64, TxnError>) -> Duration {
    let rate = measure().expect("a transaction without conflicts");
    Duration::from_secs_f64(iterations as f64 / rate)
}

/// Returns the duration of `iterations` turns, whose mean duration in microseconds `measure` finds.
fn of_turns(iterations: u64, measure: impl FnOnce(usize) -> Result<f64, TxnError>) -> Duration {
    let each = measure(iterations.clamp(1, 2000) as usize).expect("a transaction without conflicts");
    Duration::from_secs_f64(iterations as f64 * each / 1e6)
}

fn contention(c: &mut Criterion) {
    let subject = Contention::open().expect("a directory for temporary files");
    let mut group = c.benchmark_group("contention");
    for threads in [1_u64, 2] {
        let id = |name: &str| BenchmarkId::new(name, threads);
        for (name, placement) in [("same-leaf", Placement::SameLeaf), ("far-leaves", Placement::FarLeaves)] {
            group.bench_function(id(name), |bench| {
                bench.iter_custom(|n| at_rate(n, || subject.updates(threads, placement, TIME)));
            });
        }
        group.bench_function(id("append"), |bench| {
            bench.iter_custom(|n| at_rate(n, || subject.appends(threads, TIME)));
        });
        let threads = threads as usize;
        group.bench_function(id("scattered-updates"), |bench| {
            bench.iter_custom(|n| of_turns(n, |turns| subject.scattered_updates(threads, turns)));
        });
        group.bench_function(id("runs-into-one-leaf"), |bench| {
            bench.iter_custom(|n| of_turns(n, |turns| subject.runs_into_one_leaf(threads, turns)));
        });
    }
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_millis(500))
        .warm_up_time(Duration::from_millis(200))
        .sample_size(10)
}

criterion_group! {
    name = all;
    config = settings();
    targets = contention
}
criterion_main!(all);
