//! The time that independent transactions on several cores take: the least that a transaction on these cores can reach.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::variant::{TrialInput, Variant};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::threads;
use tpcc_core::workload::time::nanos;

/// Runs the transactions `jobs` on the variants, all variants at the same time, and returns the nanoseconds until the last one
/// has ended. Transaction number `i` runs on variant number `i % variants.len()`. Each variant runs `warm_up` before.
pub(super) fn run_apart(
    variants: &mut [Variant<'_>],
    warm_up: &[TrialInput],
    jobs: &[TrialInput],
) -> Result<u64, Error> {
    let number = variants.len();
    variants.iter().try_for_each(Variant::run_services)?;
    let ready = AtomicUsize::new(0);
    let run = |at: usize, variant: &mut Variant<'_>| {
        let warm = warm_up.iter().try_for_each(|job| variant.transact(job));
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < number {
            std::thread::yield_now();
        }
        warm?;
        let begun = Instant::now();
        jobs.iter().skip(at).step_by(number).try_for_each(|job| variant.transact(job))?;
        Ok::<_, Error>((begun, Instant::now()))
    };
    let Some((own, others)) = variants.split_first_mut() else { return Ok(0) };
    let times = std::thread::scope(|scope| {
        let run = &run;
        let bodies = others.iter_mut().enumerate().map(|(at, variant)| move || run(at + 1, variant));
        let others = threads::spawn_all(scope, "ideal", bodies)?;
        let mut times = vec![run(0, own)?];
        for other in others {
            times.push(other.join().map_err(|_| Error::failed("a thread panicked; this is a fault of the program"))??);
        }
        Ok::<_, Error>(times)
    })?;
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    Ok(begun.zip(ended).map_or(0, |(begun, ended)| nanos(ended.saturating_duration_since(begun))))
}
