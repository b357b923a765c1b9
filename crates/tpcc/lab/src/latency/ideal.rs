//! Time of independent transactions on several cores at the same time, as a reference for loops on as many cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::variant::{TrialInput, Variant};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::threads;
use tpcc_core::workload::time::nanos;

/// Runs `warm_up` on each variant, and then the same number of the transactions `jobs`, all variants at the same time. Returns
/// the nanoseconds that all of `jobs` would take so. Afterwards each variant has run all transactions, so that its database is
/// like those of the other ways.
pub(super) fn run_apart(
    variants: &mut [Variant<'_>],
    warm_up: &[TrialInput],
    jobs: &[TrialInput],
) -> Result<f64, Error> {
    let number = variants.len();
    let each = (jobs.len() / number.max(1)).max(1);
    let own = |at: usize| (at * each).min(jobs.len())..((at + 1) * each).min(jobs.len());
    variants.iter().try_for_each(Variant::run_services)?;
    let arrived = AtomicUsize::new(0);
    let run = |at: usize, variant: &mut Variant<'_>| {
        let warm = {
            let _arrival = Arrival(&arrived);
            warm_up.iter().try_for_each(|job| variant.transact(job))
        };
        while arrived.load(Ordering::Acquire) < number {
            std::thread::yield_now();
        }
        warm?;
        let begun = Instant::now();
        jobs[own(at)].iter().try_for_each(|job| variant.transact(job))?;
        Ok::<_, Error>((begun, Instant::now()))
    };
    let Some((first, others)) = variants.split_first_mut() else { return Ok(0.0) };
    let times = std::thread::scope(|scope| {
        let run = &run;
        let bodies = others.iter_mut().enumerate().map(|(at, variant)| move || run(at + 1, variant));
        let others = threads::spawn_all(scope, "ideal", bodies)?;
        let mut times = vec![run(0, first)?];
        for other in others {
            times.push(other.join().map_err(|_| Error::failed("a thread panicked; this is a fault of the program"))??);
        }
        Ok::<_, Error>(times)
    })?;
    for (at, variant) in variants.iter_mut().enumerate() {
        let others = jobs.iter().enumerate().filter(|(i, _)| !own(at).contains(i));
        others.map(|(_, job)| job).try_for_each(|job| variant.transact(job))?;
    }
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let ns = begun.zip(ended).map_or(0, |(begun, ended)| nanos(ended.saturating_duration_since(begun)));
    Ok(ns as f64 * jobs.len() as f64 / (each * number) as f64)
}

/// Counts a thread that has arrived when it is dropped, so also if the thread panics.
struct Arrival<'a>(&'a AtomicUsize);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
