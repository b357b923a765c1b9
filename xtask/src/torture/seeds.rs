//! Going through seeds on all cores until enough cases have been tried.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::CampaignPlan;
use super::report::{Progress, Report};
use crate::sim::notes::Looped;
use crate::sim::scheduler::Scheduler;

/// The result of one seed.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Cases.
    pub(super) cases: u64,
    /// Cases whose outcome could not be decided.
    pub(super) undecided: u64,
    /// With `--speculate on`: the loops of all runs.
    pub(super) looped: Looped,
    /// The failures.
    pub(super) failures: Vec<String>,
}

impl Tried {
    /// Notes a failure, with the command that repeats it.
    pub(super) fn fail(&mut self, campaign: &str, scheduler: Scheduler, seed: u64, what: impl std::fmt::Display) {
        let how = scheduler.flag();
        self.failures.push(format!("{what}\n  again: cargo xtask torture {campaign}{how} --seed {seed} --budget 1"));
    }
}

/// Runs `one` with the plan's seed, the next seed, and so on, until the cases reach the budget. A seed that has been
/// begun is finished, so that `--budget 1` is all of one seed.
pub(super) fn each(plan: &CampaignPlan, progress: &Progress, one: impl Fn(u64) -> Tried + Sync) -> Report {
    let name = |at| format!("--seed {}", plan.seed.wrapping_add(at));
    on_all_cores(plan.budget, progress, name, |at, done| (done < plan.budget).then(|| one(plan.seed.wrapping_add(at))))
}

/// Runs `one` with each of `cases`.
pub(super) fn every<T: Sync>(
    cases: &[T],
    progress: &Progress,
    name: impl Fn(&T) -> String + Sync,
    one: impl Fn(&T) -> Tried + Sync,
) -> Report {
    let case = |at| cases.get(usize::try_from(at).ok()?);
    on_all_cores(u64::MAX, progress, |at| case(at).map(&name).unwrap_or_default(), |at, _| case(at).map(&one))
}

/// How often the watch checks whether cases still end.
const LOOK: Duration = Duration::from_millis(50);
/// No case takes as many checks on any machine: 120 s in which this process ran. Simulated hangs are found in simulated
/// time; this finds the others.
const HANG: u32 = 120 * 20;

/// Exit status of a campaign that could not go on: neither a pass nor a finding.
const BROKEN: i32 = 3;

/// Ends the program when a case hangs, and names the case: the thread that it occupies cannot be ended.
fn end_hanging(begun: &[Mutex<Option<(String, u32)>>]) {
    for case in begun {
        if let Some((at, looks)) = &mut *lock(case) {
            *looks += 1;
            if *looks > HANG {
                println!("BROKEN {at} has not ended for {:?}", LOOK * HANG);
                std::process::exit(BROKEN);
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `next` with 0, 1, 2 ... and the number of cases done, on every core but at most `most`, until it gives
/// nothing.
fn on_all_cores(
    most: u64,
    progress: &Progress,
    name: impl Fn(u64) -> String + Sync,
    next: impl Fn(u64, u64) -> Option<Tried> + Sync,
) -> Report {
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    let count = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let report = Mutex::new(Report::default());
    let begun: Vec<Mutex<Option<(String, u32)>>> = (0..cores.min(most)).map(|_| Mutex::default()).collect();
    let left = AtomicU64::new(begun.len() as u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                end_hanging(&begun);
                thread::park_timeout(LOOK);
            }
        });
        for begun in &begun {
            scope.spawn(|| {
                // The first call takes place in any case, so that the given seed is tried.
                while !progress.is_over() {
                    let at = count.fetch_add(1, Ordering::Relaxed);
                    *lock(begun) = Some((name(at), 0));
                    let Some(tried) = next(at, done.load(Ordering::Relaxed)) else { break };
                    if !tried.failures.is_empty() {
                        progress.failed();
                    }
                    done.fetch_add(tried.cases.max(1), Ordering::Relaxed);
                    progress.add(tried.cases);
                    let mut report = lock(&report);
                    report.tried += tried.cases;
                    report.undecided += tried.undecided;
                    report.looped += tried.looped;
                    tried.failures.into_iter().for_each(|what| report.fail(what));
                }
                *lock(begun) = None;
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}
