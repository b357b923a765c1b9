//! `latches`: threads that read one page under a superlatch while writers come, so that it is promoted and demoted all the time.
//!
//! Simulated runs let one thread run at a time and hold no latch where another may go on, so none of them sees what the
//! protocol of superlatches protects from. Here real threads meet: the seed draws how many reads make the latch hot, how many
//! reader words it has, how many readers and writers there are and how long they take. A writer fills the page with one
//! number; a reader that finds two has been there together with it. Which threads meet when is the system's choice, so a
//! seed may need several tries to show again what it has found.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use storage::LatchKind;
use storage::measure::MeasuredPage;

use super::CampaignPlan;
use super::report::{Progress, Report};
use super::seeds::{self, Tried};
use crate::sim::rng::Rng;

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    seeds::each(plan, progress, |seed| {
        let mut tried = Tried { cases: 1, ..Tried::default() };
        if let Err(what) = one(&mut Rng::new(seed)) {
            tried.fail("latches", plan.scheduler, seed, format!("seed {seed}: {what}"));
        }
        tried
    })
}

fn one(rng: &mut Rng) -> Result<(), String> {
    let promote_at = rng.pick(&[1, 1, 2, 8, 64]);
    let words = 1 + rng.index(4);
    let (readers, writers) = (2 + rng.index(4), 1 + rng.below(2));
    let (writes, reading, writing) = (10 + rng.below(30), rng.pick(&[0, 5, 50]), rng.pick(&[0, 5, 50]));
    // Between two writes there is time to be promoted.
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
                    // A reader that the system stops while it holds a share keeps writers out until it runs again. Where
                    // there are more threads than cores, one that gives way by itself is seldom stopped there.
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
