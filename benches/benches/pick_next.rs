//! Cost of a scheduling decision of `itas`: a fiber stops at the end of its time slice, and the scheduler chooses the next
//! fiber. Time is virtual and advances by time slices, so the result includes neither clock reads nor context switches.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use itas::policy::{Fair, Itas, Policy, Tas};
use itas::{Aggregation, Board, CoreSettings, Groups, Scheduler, Stops};

/// Default length of a time slice, in nanoseconds.
const SLICE_NS: u64 = 50_000;

/// Creates the scheduler of core number `core` of two cores. All its fibers have run once.
fn scheduler(core: usize, groups: usize, fibers: usize, policy: Box<dyn Policy>, now: &mut u64) -> Scheduler {
    let table = Groups::new();
    let ids: Vec<_> = (0..groups)
        .map(|number| table.add(&number.to_string(), 1024, Aggregation::default()).expect("a group that makes sense"))
        .collect();
    let board = Arc::new(Board::new(2));
    board.publish(0, Some(ids[0]));
    let mut scheduler = Scheduler::new(core, Arc::new(table), board, policy, CoreSettings::default());
    for fiber in 0..groups * fibers {
        scheduler.arrive(0, fiber as u32, ids[fiber % groups]).expect("a known group");
    }
    for _ in 0..10 * groups * fibers {
        decide(&mut scheduler, now);
    }
    scheduler
}

#[inline]
fn decide(scheduler: &mut Scheduler, now: &mut u64) -> Option<u32> {
    // A time slice ends slightly late, as in practice.
    *now += SLICE_NS + (*now >> 10 & 0xFF);
    scheduler.stop(*now, Stops::Preempted);
    scheduler.pick(*now)
}

type MakePolicy = fn() -> Box<dyn Policy>;

fn pick_next(c: &mut Criterion) {
    let policies: [(&str, usize, MakePolicy); 4] = [
        ("fair", 0, || Box::new(Fair)),
        ("tas", 0, || Box::new(Tas)),
        ("itas", 0, || Box::new(Itas)),
        ("itas-slave", 1, || Box::new(Itas)),
    ];
    for (name, core, policy) in policies {
        for (groups, fibers) in [(1, 1), (1, 8), (8, 1), (8, 8), (64, 1), (64, 8)] {
            let mut now = 0;
            let mut scheduler = scheduler(core, groups, fibers, policy(), &mut now);
            c.bench_function(&format!("pick_next/{name}/{groups}x{fibers}"), |b| {
                b.iter(|| black_box(decide(&mut scheduler, &mut now)));
            });
        }
    }
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_millis(500))
        .warm_up_time(Duration::from_millis(200))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = pick_next }
criterion_main!(benches);
