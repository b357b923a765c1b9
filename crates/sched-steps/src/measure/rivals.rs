//! Measurement of the same body on contexts of other crates.

use std::time::{Duration, Instant};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::POINTS;

#[inline(never)]
fn staggered(yielder: &Yielder<(), ()>) {
    yielder.suspend(());
    yielder.suspend(());
    yielder.suspend(());
    yielder.suspend(());
}

/// Measures coroutines of `corosensei` resumed in a ring: a hop is a suspend and a resume.
pub fn corosensei_hops(contexts: usize, rounds: usize) -> (Duration, u64) {
    let make = |_| {
        let stack = DefaultStack::new(16 * 1024).ok()?;
        Some(Coroutine::<(), (), ()>::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            for _ in 0..rounds + rounds / 8 + 1 {
                staggered(yielder);
            }
        }))
    };
    let Some(mut ring) = (0..contexts).map(make).collect::<Option<Vec<_>>>() else { return (Duration::ZERO, 0) };
    let mut turns = |rounds: usize| {
        let mut hops = 0;
        for _ in 0..rounds * POINTS {
            for coroutine in &mut ring {
                if let CoroutineResult::Yield(()) = coroutine.resume(()) {
                    hops += 1;
                }
            }
        }
        hops
    };
    turns(rounds / 8 + 1);
    let begun = Instant::now();
    let hops = turns(rounds - 1);
    let time = begun.elapsed();
    // Every coroutine is run to its end, so that no coroutine is unwound.
    ring.into_iter().for_each(|mut coroutine| while let CoroutineResult::Yield(()) = coroutine.resume(()) {});
    (time, hops)
}

async fn yields(rounds: usize) {
    for _ in 0..rounds {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
}

/// Measures tasks of a current-thread runtime of `tokio` that yield: a hop is one `yield_now`.
pub fn tokio_hops(contexts: usize, rounds: usize) -> (Duration, u64) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return (Duration::ZERO, 0) };
    let time = runtime.block_on(async move {
        let task = |_| {
            tokio::spawn(async move {
                yields(rounds / 8 + 1).await;
                let begun = Instant::now();
                yields(rounds).await;
                begun.elapsed()
            })
        };
        let tasks: Vec<_> = (0..contexts).map(task).collect();
        let mut first = None;
        for task in tasks {
            let time = task.await.ok();
            first = first.or(time);
        }
        first
    });
    (time.unwrap_or_default(), (contexts * rounds * POINTS) as u64)
}
