//! `latches`: threads read one page under a superlatch. Writers intervene, so that the latch is continually promoted and
//! demoted.
//!
//! Simulated runs do not test the protocol of superlatches, because they run one thread at a time and hold no latch at a
//! switch. This campaign uses real threads. The seed determines the number of reads after which a latch is promoted, the
//! number of its reader words, the number of readers and writers, and the durations of reads and writes. A writer fills the
//! page with one number. A reader that finds two numbers has overlapped with a writer. The interleaving depends on the
//! operating system, so that several runs of a seed may be necessary to repeat a failure.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use storage::LatchKind;
use storage::measure::MeasuredPage;

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, SeedResult};
use crate::sim::rng::Rng;

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::run_seeds(plan, progress, |seed| {
        let mut seed_result = SeedResult { cases: 1, ..SeedResult::default() };
        if let Err(what) = run_seed(&mut Rng::new(seed)) {
            seed_result.fail("latches", plan.scheduler, seed, format!("seed {seed}: {what}"));
        }
        seed_result
    })
}

fn run_seed(rng: &mut Rng) -> Result<(), String> {
    let promote_at = rng.pick(&[1, 1, 2, 8, 64]);
    let words = 1 + rng.index(4);
    let (readers, writers) = (2 + rng.index(4), 1 + rng.below(2));
    let (writes, reading, writing) = (10 + rng.below(30), rng.pick(&[0, 5, 50]), rng.pick(&[0, 5, 50]));
    // The time between two writes is long enough for the latch to be promoted.
    let between = rng.pick(&[20, 200, 2000]);
    let page = MeasuredPage::cold(LatchKind::Super, promote_at, words);
    let (is_over, torn) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if page.read_whole(reading).is_none() {
                        torn.fetch_add(1, Ordering::Relaxed);
                    }
                    // A reader that is preempted while it holds the latch in shared mode blocks writers until it runs again.
                    // If there are more threads than cores, a thread that yields here is rarely preempted while it holds the
                    // latch.
                    std::thread::yield_now();
                }
            });
        }
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                let page = &page;
                scope.spawn(move || {
                    for n in 0..writes {
                        page.write_slowly(1 + writers * n + writer, writing);
                        (0..between).for_each(|_| std::hint::spin_loop());
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        let ended = writing.into_iter().all(|writer| writer.join().is_ok());
        is_over.store(true, Ordering::Relaxed);
        if ended { Ok(()) } else { Err("a writer panicked".to_owned()) }
    })?;
    match torn.into_inner() {
        0 => Ok(()),
        torn => Err(format!(
            "{torn} reads saw the page half-written ({} promotions; hot after {promote_at} reads, {words} words, {readers} \
             readers, {writers} writers)",
            page.promotions()
        )),
    }
}
