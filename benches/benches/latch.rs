//! Reads of one page under each kind of latch, alone and while other threads read the same page.
//!
//! `latch/read/super/1` is a promoted latch that only one thread uses. The difference to `latch/read/plain/1` is the cost of
//! the reader word. With several threads, the result is the time of a read in one thread while the others read as well. If
//! there are more threads than cores, the result includes the time that a thread waits for a core.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use storage::LatchKind;
use storage::measure::MeasuredPage;

const KINDS: [(&str, LatchKind); 3] =
    [("optimistic", LatchKind::Optimistic), ("plain", LatchKind::Plain), ("super", LatchKind::Super)];

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("latch/read");
    for (name, kind) in KINDS {
        for threads in [1_usize, 2, 4] {
            let (page, over) = (MeasuredPage::new(kind), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for _ in 1..threads {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            black_box(page.read());
                        }
                    });
                }
                group.bench_function(BenchmarkId::new(name, threads), |bench| bench.iter(|| page.read()));
                over.store(true, Ordering::Relaxed);
            });
        }
    }
    group.finish();
}

/// Measures a write of a page that no other thread uses. The result includes the cost of a demotion, and the reads that lead
/// to the next promotion.
fn write(c: &mut Criterion) {
    let mut group = c.benchmark_group("latch/write");
    for (name, kind) in KINDS {
        let page = MeasuredPage::new(kind);
        group.bench_function(name, |bench| bench.iter(|| page.write(black_box(1))));
    }
    let page = MeasuredPage::new(LatchKind::Super);
    group.bench_function("super-demoting", |bench| {
        bench.iter_batched(|| page.earn_promotion(), |()| page.write(black_box(1)), criterion::BatchSize::PerIteration);
    });
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_millis(500))
        .warm_up_time(Duration::from_millis(200))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = read, write }
criterion_main!(benches);
