//! Cost of publishing the group that a core aggregates to the other cores, alone and while another thread reads it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use itas::{Aggregation, Board, GroupId, Groups};

fn publish(c: &mut Criterion) {
    let groups = Groups::new();
    let [a, b] =
        ["a", "b"].map(|name| groups.add(name, 1024, Aggregation::default()).expect("a group that makes sense"));
    let board = Board::new(2);
    let turn = |n: &mut u64| {
        *n += 1;
        let group: GroupId = if (*n).is_multiple_of(2) { a } else { b };
        board.publish(black_box(0), Some(group));
    };
    let mut n = 0;
    c.bench_function("publish/change", |bench| bench.iter(|| turn(&mut n)));
    c.bench_function("publish/unchanged", |bench| bench.iter(|| board.publish(black_box(0), Some(a))));
    c.bench_function("publish/read", |bench| bench.iter(|| board.published(black_box(0))));
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                black_box(board.published(0));
            }
        });
        c.bench_function("publish/change-watched", |bench| bench.iter(|| turn(&mut n)));
        c.bench_function("publish/unchanged-watched", |bench| bench.iter(|| board.publish(black_box(0), Some(a))));
        over.store(true, Ordering::Relaxed);
    });
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_millis(500))
        .warm_up_time(Duration::from_millis(200))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = publish }
criterion_main!(benches);
